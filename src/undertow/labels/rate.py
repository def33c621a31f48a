"""How many labels are wrong: an interval that holds, or "cannot tell: between a and b".

    honest = HonestCounts.of(pool.honest(), plan, pool.first_choices)
    seen = LabelEvidence.of(honest, pool.everyone(), plan, learned=pool.has_learned)
    answer = rate_answer(seen)
    answer.value, answer.low, answer.high, answer.told, answer.reason

Below: among samples of which honest voters are surest, and on which they agree, another given label is a wrong one.
Classes that overlap add to it, the less the surer: the line through the shares among the surest three and seven tenths
is followed to where no doubt is left (one without a slope, or falling, ends at its lowest point). Less its sampling
error, less the share on which voters disagree, less a hundredth for what voters are wrongly sure of in clean sets too.

Above: if in each place the right label is the commonest one, the best possible guess from features is the true
class, and no guesser disagrees with given labels less often than it: what honest voters disagree with is a bound. Wrong
labels that voters follow, because they are the commonest in their place, hide from it. If the share of wrong labels
stays the same from the surest samples to the less sure, noise does not follow the input and few hide; if it
rises, overlap and noise that follows the input look alike: then as many may hide as are seen, and unless the range is
narrow still the answer is "cannot tell". Where voters differ even on what they are surest of, labels may follow the
input (rules, for example) so well that half of those that are agreed with are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.labels.noise_model import Anchors
from undertow.labels.shelf import IN_MEMORY, Shelf
from undertow.labels.views import Plan

SURE_SHARES = (0.3, 0.5, 0.7)
MOST_DOUBT = 0.065
"""Disagreement among honest voters on the surer half up to which they are trusted."""
NO_TRUST = 0.2
"""Disagreement from which nothing is guessed from what they are sure of."""
LEAST_SKILL = 0.1
"""Voters that foretell labels hardly better than the commonest one does agree for no good reason."""
ALLOWANCE = 0.01
"""The share of sure samples on which voters may be wrong together."""
FLAT = 0.7
"""Of the rates among the surest three and seven tenths: below this the noise follows the input, or is overlap."""
LEAST_FLOOR = 0.03
"""A share of wrong labels below which its course over sureness says nothing."""
WIDEST_TOLD = 0.25
OF_OVERLAP = 0.4
"""Of labels that all contradict beyond the sure rate: how many are guessed wrong at least."""
RESOLVED, STEEPNESS = 0.5, 3.0
"""Learning resolves overlap, not noise: where less than this share of it is resolved, more of the rest is noise."""
LEARNED_COUNT = 0.7
"""The say of all voters beside honest ones in the count of blind labels: theirs errs low, that of weak ones high."""
NO_OVERLAP, ALL_NOISE = 0.05, 0.15
"""Contradicted labels among the surest three tenths: overlap alone makes fewer than the first; from the second on,
what is contradicted among the surest seven tenths is guessed wrong."""


@dataclass(frozen=True)
class HonestCounts:
    """What is counted on the pooled votes of honest voters."""

    sure: tuple[float, ...]
    doubt: float | None
    contradicted: float
    blind: float

    @classmethod
    def of(
        cls, pooled: Tensor, plan: Plan, first_choices: list[Tensor], shelf: Shelf = IN_MEMORY
    ) -> HonestCounts:
        """Count on pooled votes (N, C), and on the first choice (N,) of each voter."""
        anchors = Anchors.of(pooled, shelf)
        sure = _sure(anchors, plan)
        doubt = _doubt(anchors, first_choices, plan.judged)
        return cls(sure, doubt, anchors.disagreement(1.0, plan), blindly_wrong(pooled, plan))


def _sure(anchors: Anchors, plan: Plan) -> tuple[float, ...]:
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


def course(sure: tuple[float, ...]) -> float:
    """The rate among the surest by that among the less sure; 0 where there is next to none."""
    return sure[0] / sure[-1] if sure[-1] >= LEAST_FLOOR else 0.0


def _doubt(anchors: Anchors, first_choices: list[Tensor], judged: Tensor) -> float | None:
    """How often honest voters name another class than their pool on the surer half; None for a single voter."""
    if len(first_choices) < 2:
        return None
    half = anchors.among(0.5) & judged
    differ = [float((one[half] != anchors.named[half]).float().mean()) for one in first_choices]
    return sum(differ) / len(differ)


@dataclass(frozen=True)
class LabelEvidence:
    """What is counted about labels, before any conclusion."""

    count: int  # judged labels
    classes: int
    sure: tuple[float, ...]  # disagreement with given labels among the surest SURE_SHARES
    doubt: float | None  # how often honest voters differ on the surer half; None: there is only one
    honest: float | None  # disagreement of honest voters with given labels; None: nobody is honest
    commonest: float  # share of the commonest given label
    everyone: float  # disagreement of all voters together
    learned: bool  # whether some voters have learned the labels, which tells overlap from noise better
    ruled_out: float  # labels given blindly, by both pools

    @classmethod
    def of(
        cls,
        honest: HonestCounts | None,
        everyone: Tensor,
        plan: Plan,
        *,
        learned: bool,
        shelf: Shelf = IN_MEMORY,
    ) -> LabelEvidence:
        """Count on the pooled votes (N, C) of all voters, beside what was counted on those of honest ones."""
        judged, named = plan.judged, shelf.argmax(everyone)
        blind = blindly_wrong(everyone, plan)
        return cls(
            int(judged.sum()), plan.classes,
            honest.sure if honest else _sure(Anchors.of(everyone, shelf), plan),
            honest.doubt if honest else None,
            honest.contradicted if honest else None,
            float(plan.shares.max()),
            float((named[judged] != plan.labels[judged]).float().mean()),
            learned,
            LEARNED_COUNT * blind + (1 - LEARNED_COUNT) * honest.blind if honest else blind,
        )  # fmt: skip

    @property
    def trusted(self) -> bool:
        """Whether honest voters, where they are sure, know the class: they foretell labels, and agree."""
        return self.honest is not None and is_trusted(self.honest, self.commonest, self.doubt)

    @property
    def flat(self) -> float:
        """The rate among the surest by that among the less sure; 0 where there is next to none."""
        return course(self.sure)

    @property
    def matrix_trust(self) -> float:
        """How far named classes tell how labels go wrong: by half where it may be overlap, less with doubt."""
        return self._trust * (1.0 if self.flat >= FLAT else 0.5)

    @property
    def skill(self) -> float:
        """What honest voters foretell of given labels beyond always naming the commonest; 1 for all of it."""
        return 0.0 if self.honest is None else skill_of(1 - self.honest, self.commonest)

    @property
    def sure_rate(self) -> float:
        """The share of wrong labels where no doubt is left: overlap of classes is gone there."""
        first, last = self.sure[0], self.sure[-1]
        slope = (last - first) / (SURE_SHARES[-1] - SURE_SHARES[0])
        return max(0.0, min(*self.sure, first - slope * SURE_SHARES[0]))

    @property
    def bound_below(self) -> float:
        """The share of labels that is wrong at least, if honest voters that are sure and agree are right."""
        rate = self.sure_rate
        error = _error(rate, SURE_SHARES[0] * self.count)
        return max(0.0, rate - error - (self.doubt or 0.0) - ALLOWANCE)

    @property
    def to_put_right(self) -> float:
        """The share of labels to put right before probes are taught again: the bound below, less with doubt."""
        return self._trust * self.bound_below

    @property
    def guess(self) -> float:
        """The share of labels to suspect.

        With trust: the rate among sure samples, which leaves noise near borders out, and some of what all voters
        contradict beyond it, which is noise or overlap. Voters that have learned the labels resolve overlap: the less
        they do, compared with honest ones, the more of it is noise. Where the rate rises with doubt, and even the
        surest samples are contradicted more often than overlap explains, more of what is contradicted is suspected.
        Without trust: the (geometric) middle between labels that look given blindly and those that are contradicted.
        """
        unknown = (min(self.ruled_out, self.everyone) * self.everyone) ** 0.5
        return unknown + self._trust * (self._known_guess() - unknown) if self._trust else unknown

    @property
    def _trust(self) -> float:
        return trust_in(self.skill, self.doubt)

    def _known_guess(self) -> float:
        assert self.honest is not None
        rises = self.sure[-1] - self.sure[0] > _error(self.sure[0], SURE_SHARES[0] * self.count)
        floor = self.sure_rate if rises else sum(self.sure) / len(self.sure)
        floor = min(
            floor, self.honest
        )  # more is the luck of few samples: all honest voters together contradict fewer
        guess = floor + self._noise_share(floor) * max(0.0, self.everyone - floor)
        if self.flat >= FLAT:
            return guess
        noise = min(1.0, max(0.0, (self.sure[0] - NO_OVERLAP) / (ALL_NOISE - NO_OVERLAP)))
        return guess + noise * max(0.0, self.sure[-1] - guess)

    def _noise_share(self, floor: float) -> float:
        """Of what all voters contradict beyond the floor, the share that is guessed to be noise."""
        assert self.honest is not None
        if not self.learned or self.honest <= floor:
            return OF_OVERLAP
        left = (self.everyone - floor) / (self.honest - floor)
        return min(1.0, max(OF_OVERLAP, STEEPNESS * (left - RESOLVED)))


@dataclass(frozen=True)
class RateAnswer:
    """The share of wrong labels: a value with its interval, or only what is possible."""

    value: float | None
    low: float
    high: float
    told: bool
    reason: str

    def __str__(self) -> str:
        span = f"{100 * self.low:.1f} to {100 * self.high:.1f} %"
        if self.value is None:
            return f"cannot tell: {span} of the labels may be wrong ({self.reason})"
        return f"{100 * self.value:.1f} % of the labels are wrong ({span}; {self.reason})"


def rate_answer(seen: LabelEvidence) -> RateAnswer:
    """What the evidence bounds."""
    most = 1 - 1 / seen.classes
    if seen.honest is None:
        return RateAnswer(
            None, 0.0, most, False, "every view has learned these labels: give inputs or frozen features"
        )
    low = seen.bound_below if seen.trusted else 0.0
    high = min(most, seen.honest + _error(seen.honest, seen.count) + _hidden(seen))
    if not seen.trusted:
        return RateAnswer(None, low, high, False, _why_untrusted(seen))
    if high - low > WIDEST_TOLD:
        return RateAnswer(
            None, low, high, False, "overlapping classes and wrong labels that follow the input look alike"
        )
    value = min(max(seen.guess, low), high)
    return RateAnswer(value, low, high, True, "by samples whose class is sure without their label")


def _why_untrusted(seen: LabelEvidence) -> str:
    if seen.skill < LEAST_SKILL:
        return "the features hardly tell the given classes apart"
    if seen.doubt is None:
        return "only one voter, which nothing can check"
    return f"voters differ on {100 * seen.doubt:.0f} % even of the samples that they are surest of"


def _hidden(seen: LabelEvidence) -> float:
    """Wrong labels that honest voters may follow."""
    assert seen.honest is not None
    if not seen.trusted:
        return (1 - seen.honest) / 2
    if seen.flat >= FLAT:
        return seen.honest * max(0.0, 1 - seen.flat)
    return min(seen.honest, (1 - seen.honest) / 2)


def _error(share: float, count: float) -> float:
    """Half the width of a share's 95 % interval; not 0 where none was seen (Agresti and Coull)."""
    count = max(count, 1.0)
    middle = (share * count + 2) / (count + 4)
    return 1.96 * (middle * (1 - middle) / (count + 4)) ** 0.5 + abs(middle - share)


def blindly_wrong(pooled: Tensor, plan: Plan) -> float:
    """The share of labels that were given without a look at the sample.

    A wrong label that is drawn blindly scores below the median of the classes that are not named half of the time, a
    right one seldom: twice the share below it. Weak voters put right labels there too and say too much; voters
    that have memorised labels say too little.
    """
    judged = plan.judged.nonzero()[:, 0]
    judged = judged[:: max(1, len(judged) // 20_000)]
    scores = pooled[judged].log_softmax(1)
    own = scores.gather(1, plan.labels[judged][:, None])[:, 0]
    others = scores.scatter(1, scores.argmax(1, keepdim=True), torch.nan)
    middle = others.flatten().nanmedian()
    return min(1.0, 2 * float((own < middle).float().mean()))
