"""What honest voters, those that cannot have memorised labels, say of labels: counts, before any conclusion.

    counts = HonestCounts.of(pool.honest(), plan, pool.first_choices)
    counts.contradicted                 # the share of labels that is another than the class they name
    counts.sure                         # the same among samples whose class is surest
    counts.tenths                       # the same, and how often two voters differ, by tenths of sureness
    counts.if_of_classes                # a bound of the wrong labels if noise is the same for all samples of a class

Two voters that differ cannot both be right: they err at least as often, taken together. If noise does not follow
the sample within its class, a voter with an error e contradicts D = r + e (1 - r (1 + w)) of the labels, r of which are
wrong, at least; w is the share of a class's wrong labels that go into one other. Of two voters that differ on a share
q, the mean error is at least q / 2, so that r is at most (D - q / 2) / (1 - (1 + w) q / 2), D being their mean.
That voters agree does not say that they are right: where classes overlap in the features themselves, all good voters
name the same class and are wrong together. So no bound from below is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.labels.noise_model import Anchors, peakedness
from undertow.labels.shelf import IN_MEMORY, Shelf, slices
from undertow.labels.views import Plan

SURE_SHARES = (0.3, 0.5, 0.7)
TENTHS = 10
MOST_DOUBT = 0.065
"""Disagreement among honest voters on the surer half up to which they are trusted."""
NO_TRUST = 0.2
"""Disagreement from which nothing is guessed from what they are sure of."""
LEAST_SKILL = 0.1
"""Voters that foretell labels hardly better than the commonest one does agree for no good reason."""
LEAST_FLOOR = 0.03
"""A share of wrong labels below which its course over sureness says nothing."""
FLOOR_SCALES = tuple(0.5 * 1.4**step for step in range(12))
"""Of pooled votes in units of their spread: from next to no choice to certainty."""
ALLOWANCE = 0.01
"""The share of sure samples on which voters may be wrong together."""


@dataclass(frozen=True)
class HonestCounts:
    """What is counted on the pooled votes of honest voters."""

    sure: tuple[float, ...]
    doubt: float | None
    contradicted: float
    blind: float
    tenths: tuple[tuple[float, float], ...] = ()
    """From the surest tenth of the samples to the least sure: the share of labels that the pool contradicts, and how
    often two voters differ. Empty for a single voter."""
    if_of_classes: float = 1.0
    depth: float = 1.0
    """How far below the runner-up contradicted labels lie: 0 if they are the runner-up, 1 if they are drawn blindly."""
    drawn: float = 0.0
    """The share of labels wrong by an even draw that, beside overlap of any size, explains given labels best."""
    into_one: float = 0.0  # how far contradicted labels of a class go into one other: `peakedness`

    @classmethod
    def of(
        cls, pooled: Tensor, plan: Plan, first_choices: list[Tensor], shelf: Shelf = IN_MEMORY
    ) -> HonestCounts:
        """Count on pooled votes (N, C), and on the first choice (N,) of each voter."""
        anchors = Anchors.of(pooled, shelf)
        doubt = _doubt(anchors, first_choices, plan.judged)
        contradicted, matrix = anchors.disagreement(1.0, plan), anchors.matrix(plan, 1.0)
        return cls(
            sure_counts(anchors, plan), doubt, contradicted, blindly_wrong(pooled, plan),
            () if doubt is None else _tenths(anchors, first_choices, plan),
            contradicted if doubt is None else _if_of_classes(anchors, first_choices, plan, contradicted, matrix),
            depth_of(pooled, plan), drawn_evenly(pooled, plan), peakedness(matrix),
        )  # fmt: skip

    def surely_wrong(self, commonest: float) -> float:
        """The share of labels that is wrong by samples whose class is sure, sampling left aside; less with doubt."""
        trust = trust_in(skill_of(1 - self.contradicted, commonest), self.doubt)
        return trust * max(0.0, sure_rate(self.sure) - (self.doubt or 0.0) - ALLOWANCE)


def sure_counts(anchors: Anchors, plan: Plan) -> tuple[float, ...]:
    """Disagreement with given labels among the surest shares."""
    return tuple(anchors.disagreement(share, plan) for share in SURE_SHARES)


def skill_of(agreement: float, commonest: float) -> float:
    """What is foretold of given labels beyond always naming the commonest; 1 for all of it."""
    return (agreement - commonest) / max(1 - commonest, 1e-9)


def is_trusted(contradicted: float, commonest: float, doubt: float | None) -> bool:
    """Whether honest voters, where they are sure, know the class: they foretell labels, and agree."""
    return skill_of(1 - contradicted, commonest) >= LEAST_SKILL and doubt is not None and doubt <= MOST_DOUBT


def trust_in(skill: float, doubt: float | None) -> float:
    """1 where voters are trusted, less the more they differ: what is counted does not jump at the border of trust."""
    if doubt is None or skill < LEAST_SKILL:
        return 0.0
    return min(1.0, max(0.0, (NO_TRUST - doubt) / (NO_TRUST - MOST_DOUBT)))


def sure_rate(sure: tuple[float, ...]) -> float:
    """The share of wrong labels where no doubt is left: overlap of classes is gone there."""
    first, last = sure[0], sure[-1]
    slope = (last - first) / (SURE_SHARES[-1] - SURE_SHARES[0])
    return max(0.0, min(*sure, first - slope * SURE_SHARES[0]))


def course(sure: tuple[float, ...]) -> float:
    """The rate among the surest by that among the less sure; 0 where there is next to none."""
    return sure[0] / sure[-1] if sure[-1] >= LEAST_FLOOR else 0.0


def depth_of(pooled: Tensor, plan: Plan) -> float:
    """The mean place of contradicted labels among the classes that are not named, in units of a blind draw's.

    1 for two classes, of which only one is not named, and where nothing is contradicted.
    """
    judged = _some(plan.judged)
    votes, given = pooled[judged], plan.labels[judged]
    above = (votes > votes.gather(1, given[:, None])).sum(1)
    above = above[above > 0].double()
    if plan.classes < 3 or not len(above):
        return 1.0
    return min(1.0, 2 * float((above - 1).mean()) / (plan.classes - 2))


def _some(mask: Tensor, most: int = 20_000) -> Tensor:
    """Numbers of the samples of a mask (N,), thinned out to what a share needs."""
    rows = mask.nonzero()[:, 0]
    return rows[:: max(1, len(rows) // most)]


def ramp(value: float, none: float, full: float) -> float:
    """0 up to `none`, 1 from `full` on, a line between."""
    return min(1.0, max(0.0, (value - none) / (full - none))) if full > none else float(value > full)


def drawn_evenly(pooled: Tensor, plan: Plan) -> float:
    """The share r at which (1 - r) softmax(s pooled) + r / C foretells given labels best, less draws that hit.

    Overlap of classes only wants a lower scale s; labels that no scale makes likely want an r. Noise that follows the
    input or goes into one class looks like overlap to this: it counts too few, seldom too many.
    """
    judged = _some(plan.judged, 5000)
    votes, given = pooled[judged], plan.labels[judged][:, None]
    votes = votes / votes.std().clamp(min=1e-12)
    shares = torch.linspace(0, 0.98, 50, dtype=torch.float64)[:, None]
    best = (torch.inf, 0.0)
    for scale in FLOOR_SCALES:
        own = (scale * votes).softmax(1).gather(1, given)[:, 0].double()
        losses = -((1 - shares) * own + shares / plan.classes).clamp(min=1e-12).log().mean(1)
        best = min(best, (float(losses.min()), float(shares[losses.argmin()])))
    return best[1] * (1 - 1 / plan.classes)


def blindly_wrong(pooled: Tensor, plan: Plan) -> float:
    """The share of labels that were given without a look at the sample.

    A wrong label that is drawn blindly scores below the median of the classes that are not named half of the time, a
    right one seldom: twice the share below it. Weak voters put right labels there too and say too much; voters
    that have memorised labels say too little.
    """
    judged = _some(plan.judged)
    scores = pooled[judged].log_softmax(1)
    own = scores.gather(1, plan.labels[judged][:, None])[:, 0]
    others = scores.scatter(1, scores.argmax(1, keepdim=True), torch.nan)
    middle = others.flatten().nanmedian()
    return min(1.0, 2 * float((own < middle).float().mean()))


def differing(first_choices: list[Tensor], classes: int) -> Tensor:
    """(N,) float32: of all pairs of voters, the share that names two classes; in blocks of samples."""
    count, voters = len(first_choices[0]), len(first_choices)
    found = torch.empty(count)
    for rows in slices(count, max(classes, voters)):
        named = torch.stack([one[rows].long() for one in first_choices], 1)  # (B, voters)
        votes = torch.zeros(len(named), classes).scatter_add_(1, named, torch.ones(named.shape))
        found[rows] = 1 - (votes * (votes - 1)).sum(1) / (voters * (voters - 1))
    return found


def _doubt(anchors: Anchors, first_choices: list[Tensor], judged: Tensor) -> float | None:
    """How often honest voters name another class than their pool on the surer half; None for a single voter."""
    if len(first_choices) < 2:
        return None
    half = anchors.among(0.5) & judged
    differ = [float((one[half] != anchors.named[half]).float().mean()) for one in first_choices]
    return sum(differ) / len(differ)


def _tenths(anchors: Anchors, first_choices: list[Tensor], plan: Plan) -> tuple[tuple[float, float], ...]:
    judged = plan.judged
    tenth = (anchors.rank[judged] * TENTHS).long().clamp(max=TENTHS - 1)
    sizes = tenth.bincount(minlength=TENTHS).clamp(min=1).double()
    wrong = (anchors.named != plan.labels)[judged].double()
    differ = differing(first_choices, plan.classes)[judged].double()
    shares = [
        (tenth.bincount(one, minlength=TENTHS) / sizes).tolist() for one in (wrong, differ)
    ]  # of an empty tenth: 0
    return tuple(zip(*shares, strict=True))


def _if_of_classes(
    anchors: Anchors, first_choices: list[Tensor], plan: Plan, contradicted: float, matrix: Tensor
) -> float:
    """The least of the bounds by the pool and each voter, as the module says, and of what the pool contradicts."""
    judged, into_one = plan.judged, _into_one(matrix)
    named, given = anchors.named[judged], plan.labels[judged]
    bounds = [contradicted]
    for one in first_choices:
        mine = one[judged].long()
        both = (contradicted + float((mine != given).float().mean())) / 2
        half = float((mine != named).float().mean()) / 2
        if half * (1 + into_one) < 1:
            bounds.append((both - half) / (1 - half * (1 + into_one)))
    return max(0.0, min(bounds))


def _into_one(matrix: Tensor) -> float:
    """The share of a class's wrong labels that go into one other, on average."""
    wrong = matrix.clone().fill_diagonal_(0)
    return float((wrong.amax(1) / wrong.sum(1).clamp(min=1e-12)).mean())
