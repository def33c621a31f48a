"""How many labels are wrong: an interval that holds, or "cannot tell: between a and b".

    honest = HonestCounts.of(pool.honest(), plan, pool.first_choices)
    seen = LabelEvidence.of(
        honest, pool.everyone(), plan, learned=pool.has_learned, only_taught=pool.only_taught_views
    )
    answer = rate_answer(seen)
    answer.value, answer.low, answer.high, answer.told, answer.reason

Below: among samples of which honest voters are surest, and on which they agree, another given label is a wrong one.
Classes that overlap add to it, the less the surer: the line through the shares among the surest three and seven tenths
is followed to where no doubt is left (one without a slope, or falling, ends at its lowest point). Less its sampling
error, less twice the share on which voters disagree and a hundredth, and less a part of what they contradict beyond it
(`bound_below`). Or labels that overlap of no size explains, if these are more (`drawn_evenly`).

Above: if in each place each true class is given its own label more often than that of another class, no guesser
contradicts fewer labels than are wrong: what honest voters contradict is a bound. Labels that break this, because
near borders most of them are wrong, hide from it: a quarter of what is contradicted at most, less the steadier
the share of wrong labels is from the surest samples to the less sure. Where it is steady, noise does not follow the
input, and the overlap that voters show by differing is taken off (`HonestCounts.if_of_classes`). Where voters differ
even on what they are surest of, the more so if they differ more often than labels contradict them, labels may follow
the input (rules, for example) so well that half of those that are agreed with are wrong. Where every view has learned
the labels nothing bounds a rule, unless noise of classes is seen (`unseen_rules`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from undertow.labels.honest import (
    ALLOWANCE,
    LEAST_FLOOR,
    LEAST_SKILL,
    MOST_DOUBT,
    SURE_SHARES,
    HonestCounts,
    blindly_wrong,
    course,
    is_trusted,
    ramp,
    skill_of,
    sure_counts,
    sure_rate,
    trust_in,
)
from undertow.labels.noise_model import Anchors
from undertow.labels.shelf import IN_MEMORY, Shelf
from undertow.labels.views import Plan

RISES, FLAT, STEADY = 0.5, 0.7, 0.9
"""Of the rates among the surest three and seven tenths: below the second the noise follows the input, or is overlap;
from the third on it is noise of classes. Up to the first, even draws are not all there is."""
TOGETHER = 2.0
"""How often voters of the same features may be wrong together where they are sure, by how often they differ. On
EfficientNet's features of CIFAR-100's hundred classes it was 1.4, counted to where no doubt is left."""
REACHES = 0.4
"""Of the overlap beyond sure samples, how much may reach them."""
HIDDEN = 0.25
"""Wrong labels that honest voters may follow, beside those that they contradict. Polynomial margin noise of the types
II and III, which flips most labels near borders, needs .22."""
WIDEST_TOLD, WIDEST_FROM_NONE = 0.3, 0.15
"""Intervals up to which a rate is told: any, and one that holds 0, where a value would call clean labels wrong."""
OF_OVERLAP, OF_QUIET = 0.4, 0.15
"""Of labels that all contradict beyond the sure rate: how many are guessed wrong where noise follows the input, and
where there is next to no sign of noise."""
RESOLVED, STEEPNESS = 0.5, 3.0
"""Learning resolves overlap, not noise: where less than this share of it is resolved, more of the rest is noise."""
LEARNED_COUNT = 0.7
"""The say of all voters beside honest ones in the count of blind labels: theirs errs low, that of weak ones high."""
ALL_NOISE = 0.1
"""What the surest three tenths are contradicted beyond what voters differ there: overlap alone makes next to none, and
from here on what is contradicted among the surest seven tenths is guessed wrong."""
LOOKED_AT, SEEN_BLIND = 0.05, 0.2
"""Blind labels by contradicted ones: below the first noise follows the input and gathers near borders, where nobody is
sure, so that more is guessed wrong; from the second on it does not."""
SOME_DRAWN, MOST_DRAWN = 0.35, 0.5
"""Even draws by what the surest contradict beyond what voters differ: from the second on they are counted alone.
People's labels reached .42."""
CHANCES, WRONG_BELIEF, BELIEVED = (0.5, 1.0), 0.5, 0.5
"""How far noise looks like noise of classes, from where scores begin to be chances to where they are; the score from
which a label is likelier wrong than right then; and the say of their count beside that of sure samples."""
MOSTLY_BLIND, TOO_BLIND = (0.7, 1.0), (1.3, 2.0)
"""Blind labels by those that the surest contradict: in the first range noise begins to look blind, whatever its course;
in the second weak voters take right labels for blind ones, and it says less and less."""

OVERLAP = "overlapping classes and wrong labels that follow the input look alike"
RULES = (
    "every view has learned these labels, and labels made by a rule look right to it: "
    "give the checkpoint before training, or frozen features"
)


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
    tenths: tuple[tuple[float, float], ...] = ()  # contradicted, and differing voters, by sureness
    if_of_classes: float = 1.0  # a bound for noise that does not follow the input
    drawn: float = 0.0  # labels wrong by an even draw, by honest voters
    only_taught: bool = False  # whether each view is of a network that learned these labels

    @classmethod
    def of(
        cls,
        honest: HonestCounts | None,
        everyone: Tensor,
        plan: Plan,
        *,
        learned: bool,
        only_taught: bool = False,
        shelf: Shelf = IN_MEMORY,
    ) -> LabelEvidence:
        """Count on the pooled votes (N, C) of all voters, beside what was counted on those of honest ones."""
        judged, named = plan.judged, shelf.argmax(everyone)
        blind = blindly_wrong(everyone, plan)
        return cls(
            int(judged.sum()), plan.classes,
            honest.sure if honest else sure_counts(Anchors.of(everyone, shelf), plan),
            honest.doubt if honest else None,
            honest.contradicted if honest else None,
            float(plan.shares.max()),
            float((named[judged] != plan.labels[judged]).float().mean()),
            learned,
            LEARNED_COUNT * blind + (1 - LEARNED_COUNT) * honest.blind if honest else blind,
            honest.tenths if honest else (),
            honest.if_of_classes if honest else 1.0,
            honest.drawn if honest else 0.0,
            only_taught,
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
    def of_classes(self) -> float:
        """How far noise looks like noise of classes, 0 to 1: it is steady over sureness, or blind."""
        steady = ramp(self.flat, FLAT, STEADY)
        blind = self.ruled_out / self.sure[0] if self.flat > 0 and self.sure[0] > 0 else 0.0
        return max(steady, ramp(blind, *MOSTLY_BLIND) - ramp(blind, *TOO_BLIND))

    @property
    def by_rules(self) -> float:
        """How far labels look made by a rule, 0 to 1: sure voters differ, and more often than labels contradict them.

        Labels of people or nature agree with a pool no better than its own voters do; those of a rule on the input can,
        since one voter may follow the rule.
        """
        if self.doubt is None:
            return 0.0
        return ramp(self.doubt, MOST_DOUBT / 2, MOST_DOUBT) * ramp(self.doubt, self.sure[1] / 2, self.sure[1])

    @property
    def unseen_rules(self) -> float:
        """How far a rule behind the labels could go unseen, 0 to 1: every view has learned to follow it.

        A network learns a rule on the input within an epoch, and then all its layers vouch for what the rule says.
        Noise of classes is no rule.
        """
        return float(self.only_taught) * (1 - self.of_classes)

    @property
    def matrix_trust(self) -> float:
        """How far named classes tell how labels go wrong: by half where it may be overlap, less with doubt."""
        return self.trust * (1.0 if self.flat >= FLAT else 0.5) * (1 - self.blindness)

    @property
    def skill(self) -> float:
        """What honest voters foretell of given labels beyond always naming the commonest; 1 for all of it."""
        return 0.0 if self.honest is None else skill_of(1 - self.honest, self.commonest)

    @property
    def trust(self) -> float:
        """1 where honest voters are trusted, less with doubt."""
        return trust_in(self.skill, self.doubt)

    @property
    def sure_rate(self) -> float:
        """The share of wrong labels where no doubt is left: overlap of classes is gone there."""
        return sure_rate(self.sure)

    @property
    def bound_below(self) -> float:
        """The share of labels that is wrong at least: by sure samples, or by those that overlap cannot explain.

        Voters of the same features that differ on a share are wrong together on about as many more: with many classes
        and few samples of each, the surest of them too. And the more they contradict beyond sure samples, the more
        classes overlap, and the more of that may reach the sure ones. No overlap looks like an even draw.
        """
        doubt, overlap = self.doubt or 0.0, max(0.0, (self.honest or 0.0) - self.sure_rate)
        least = min(self.sure_rate, self.tenths[0][0]) if self.tenths else self.sure_rate
        by_sure = self._surely(least, TOGETHER * doubt + REACHES * overlap)
        return max(by_sure, self._surely(min(self.sure_rate, self.drawn), doubt))

    def _surely(self, rate: float, doubt: float) -> float:
        return max(0.0, rate - _error(rate, SURE_SHARES[0] * self.count) - doubt - ALLOWANCE)

    @property
    def to_put_right(self) -> float:
        """The share of labels to put right before probes are taught again: what is likely wrong, less with doubt."""
        return self.trust * self._surely(self.sure_rate, self.doubt or 0.0)

    @property
    def guess(self) -> float:
        """The share of labels to suspect, before any label is scored.

        Without trust: the (geometric) middle between labels that look given blindly and those that are contradicted.
        """
        unknown = (min(self.ruled_out, self.everyone) * self.everyone) ** 0.5
        unknown += self.blindness * (self.even_draws - unknown)
        if not self.trust:
            # Whoever foretells nothing suspects nobody: his contradictions are his own.
            return unknown if self.honest is None else unknown * ramp(self.skill, 0.0, LEAST_SKILL / 2)
        return unknown + self.trust * (self._known_guess() - unknown)

    def _known_guess(self) -> float:
        """Noise of classes: the rate among sure samples, which overlap does not reach.

        Noise that follows the input: as the surer samples are contradicted, and more where no label looks blind; less
        where the surest are contradicted no more often than voters differ, which is overlap.
        """
        assert self.honest is not None
        rises = self.sure[-1] - self.sure[0] > _error(self.sure[0], SURE_SHARES[0] * self.count)
        floor = self.sure_rate if rises else sum(self.sure) / len(self.sure)
        floor = min(
            floor, self.honest
        )  # more is the luck of few samples: all honest voters together contradict fewer
        most_blind = self.even_draws + _error(self.even_draws, SURE_SHARES[0] * self.count)
        floor -= self.blindness * min(TOGETHER * (self.doubt or 0.0), max(0.0, floor - most_blind))
        beyond = (1 - self.blindness) * max(0.0, self.everyone - floor)
        share = self._noise_share(floor)
        quiet = floor + (share if self.learned else OF_QUIET) * beyond
        rising = max(self.sure[-1], floor + max(share, OF_OVERLAP) * beyond)
        looked = 1 - ramp(self.ruled_out / max(self.honest, 1e-9), LOOKED_AT, SEEN_BLIND)
        rising += looked / 2 * max(0.0, self.honest - rising)
        follows = quiet + self._sign_of_noise * max(0.0, rising - quiet)
        of_classes = max(self.of_classes, self.blindness)
        return of_classes * quiet + (1 - of_classes) * follows

    @property
    def blindness(self) -> float:
        """How far even draws account for what sure samples contradict, 0 to 1: then they are counted alone.

        Where voters err among their surest samples too, as with many classes, these say too much: what voters differ
        is their own error.
        """
        of = max(self.sure[0] - (self.doubt or 0.0), LEAST_FLOOR)
        return ramp(self.drawn, SOME_DRAWN * of, MOST_DRAWN * of) * ramp(self.flat, RISES, FLAT)

    @property
    def even_draws(self) -> float:
        """How many labels are wrong by an even draw: the middle of a count that errs low and one that errs high."""
        return (self.drawn + max(self.drawn, self.ruled_out)) / 2

    def suspected(self, scores: Tensor, margins: float = 0.0) -> float:
        """The share of labels to suspect, by the scores (N,) that judged labels have at last.

        Where noise is of classes and voters are trusted, the matrix tells how labels go wrong and scores are chances:
        as many are wrong as are likelier wrong than right. Sure samples were named by voters that had learned wrong
        labels, and say too much; beliefs come after labels were put right, and on few samples say too little: the
        middle. The more margins rank labels (0 to 1), the less noise is of classes; and what has learned labels by
        heart believes too few of them wrong.
        """
        believed = float((scores > WRONG_BELIEF).double().mean())
        say = 0.0 if self.learned else self.trust * ramp(self.of_classes, *CHANCES) * (1 - margins)
        return self.guess + BELIEVED * say * (believed - self.guess)

    @property
    def _sign_of_noise(self) -> float:
        """0 where the surest samples are contradicted no more often than voters differ there, to 1."""
        surest = self.tenths[: round(SURE_SHARES[0] * len(self.tenths))]
        differ = sum(one for _, one in surest) / max(len(surest), 1)
        return ramp(self.sure[0] - differ, 0.0, ALL_NOISE)

    def _noise_share(self, floor: float) -> float:
        """Of what all voters contradict beyond the floor, the share that is guessed to be noise.

        Voters that have learned the labels resolve overlap: the less they do, beside honest ones, the more is noise.
        """
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


def rate_answer(seen: LabelEvidence, suspected: float | None = None) -> RateAnswer:
    """What the evidence bounds; the value is the share that is suspected, as far as it lies within."""
    most = 1 - 1 / seen.classes
    if seen.honest is None:
        return RateAnswer(
            None, 0.0, most, False, "every view has learned these labels: give inputs or frozen features"
        )
    low = seen.trust * seen.bound_below
    high = max(low, min(most, _contradicted(seen) + _error(seen.honest, seen.count) + _hidden(seen)))
    if not seen.trusted:
        return RateAnswer(None, low, high, False, _why_untrusted(seen))
    if high - low > (WIDEST_TOLD if low > 0 else WIDEST_FROM_NONE):
        return RateAnswer(None, low, high, False, RULES if seen.unseen_rules else OVERLAP)
    value = min(max(seen.guess if suspected is None else suspected, low), high)
    return RateAnswer(value, low, high, True, "by samples whose class is sure without their label")


def _why_untrusted(seen: LabelEvidence) -> str:
    if seen.skill < LEAST_SKILL:
        return "the features hardly tell the given classes apart"
    if seen.doubt is None:
        return "only one voter, which nothing can check"
    return f"voters differ on {100 * seen.doubt:.0f} % even of the samples that they are surest of"


def _contradicted(seen: LabelEvidence) -> float:
    """What honest voters contradict, without overlap that they show as far as noise is of classes."""
    assert seen.honest is not None
    weight = seen.trust * seen.of_classes
    return seen.honest - weight * max(0.0, seen.honest - seen.if_of_classes)


def _hidden(seen: LabelEvidence) -> float:
    """Wrong labels that honest voters may follow."""
    assert seen.honest is not None
    rising = min(HIDDEN, max(0.0, 1 - seen.flat) / 2, 1 - seen.of_classes) * seen.honest
    untrusted = max(1 - seen.trust, seen.by_rules)
    follow = (1 - untrusted) * rising + untrusted * (1 - seen.honest) / 2
    return max(follow, seen.unseen_rules * (1 - seen.honest))


def _error(share: float, count: float) -> float:
    """Half the width of a share's 95 % interval; not 0 where none was seen (Agresti and Coull)."""
    count = max(count, 1.0)
    middle = (share * count + 2) / (count + 4)
    return 1.96 * (middle * (1 - middle) / (count + 4)) ** 0.5 + abs(middle - share)
