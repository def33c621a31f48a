"""How many labels are wrong: an interval that holds, or "cannot tell: between a and b".

    seen = Evidence.of(honest, everyone, plan, first_choices)
    answer = rate_answer(seen)
    answer.value, answer.low, answer.high, answer.told, answer.reason

Below: among samples of which honest voters are surest, and on which they agree, another given label is a wrong one.
The smallest such share over the surest three, five and seven tenths is taken, less its sampling error, less the
share on which voters disagree there, less a hundredth for what voters are wrongly sure of in clean sets too.

Above: if in each place the right label is the commonest one, the best possible guess from features is the true
class, and no guesser disagrees with given labels less often than it: the disagreement of honest voters is a bound.
Wrong labels that voters follow, because they are the commonest in their place, hide from it. If the share of wrong
labels stays the same from the surest samples to the less sure, noise does not follow the input and few hide; if it
rises, overlap and noise that follows the input look alike: then as many may hide as are seen, up to half of the labels
that are agreed with, and unless the range is narrow still the answer is "cannot tell".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.labels.noise_model import Anchors
from undertow.labels.views import Plan

SURE_SHARES = (0.3, 0.5, 0.7)
LITTLE_DOUBT, MOST_DOUBT = 0.05, 0.15
"""Disagreement among honest voters on the surer half up to which they are trusted, and from which not at all."""
TRUSTED, UNCHECKED = 0.5, 0.49
"""From where bounds rest on them; and what a voter is trusted that nobody else can check."""
ALLOWANCE = 0.01
"""The share of sure samples on which voters may be wrong together."""
FLAT = 0.7
"""Of the rates among the surest three and seven tenths: below this the noise follows the input, or is overlap."""
LEAST_FLOOR = 0.03
"""A share of wrong labels below which its course over sureness says nothing."""
WIDEST_TOLD = 0.25


@dataclass(frozen=True)
class Evidence:
    """What is counted about labels, before any conclusion."""

    count: int  # judged labels
    classes: int
    sure: tuple[float, ...]  # disagreement with given labels among the surest SURE_SHARES
    doubt: (
        float | None
    )  # how often honest voters differ from their pool on the surer half; None: too few voters
    honest: (
        float | None
    )  # disagreement of honest voters with given labels, over all samples; None: nobody is honest
    everyone: float  # of all voters together
    ruled_out: float  # labels given blindly, by both pools

    @classmethod
    def of(
        cls, honest: Tensor, everyone: Tensor, plan: Plan, first_choices: list[Tensor], *, has_honest: bool
    ) -> Evidence:
        """Count on pooled votes (N, C) of honest voters and of all."""
        anchors, judged = Anchors.of(honest), plan.judged
        given = plan.labels[judged]
        half = anchors.among(0.5) & judged
        doubt = None
        if len(first_choices) > 1:
            doubt = sum(
                float((one[half] != anchors.named[half]).float().mean()) for one in first_choices
            ) / len(first_choices)
        pools = (honest, everyone) if has_honest else (everyone,)
        return cls(
            int(judged.sum()), plan.classes,
            tuple(anchors.disagreement(share, plan) for share in SURE_SHARES),
            doubt,
            float((anchors.named[judged] != given).float().mean()) if has_honest else None,
            float((everyone[judged].argmax(1) != given).float().mean()),
            sum(blindly_wrong(pool, plan) for pool in pools) / len(pools),
        )  # fmt: skip

    @property
    def trust(self) -> float:
        """0 to 1: whether honest voters, where they are sure, know the class."""
        if self.honest is None:
            return 0.0
        if self.doubt is None:
            return UNCHECKED
        return min(1.0, max(0.0, (MOST_DOUBT - self.doubt) / (MOST_DOUBT - LITTLE_DOUBT)))

    @property
    def guess(self) -> float:
        """The share of labels to suspect.

        Between a count that leaves much noise out and one that takes overlap for noise: with trust, a third of the way
        from what all voters contradict to what the sure say; without, in the (geometric) middle between labels that
        look given blindly and those that are contradicted.
        """
        surely = (self.sure[-1] + 2 * self.everyone) / 3
        vaguely = (min(self.ruled_out, self.everyone) * self.everyone) ** 0.5
        return self.trust * surely + (1 - self.trust) * vaguely


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
            return f"cannot tell: between {span} of the labels are wrong ({self.reason})"
        return f"{100 * self.value:.1f} % of the labels are wrong ({span}; {self.reason})"


def rate_answer(seen: Evidence) -> RateAnswer:
    """What the evidence bounds."""
    most = 1 - 1 / seen.classes
    if seen.honest is None:
        return RateAnswer(
            None, 0.0, most, False, "every view has learned these labels: give inputs or frozen features"
        )
    trusted = seen.trust >= TRUSTED
    low = _below(seen) if trusted else 0.0
    high = min(most, seen.honest + _error(seen.honest, seen.count) + _hidden(seen, trusted))
    if not trusted:
        why = (
            "only one voter"
            if seen.doubt is None
            else f"voters differ on {100 * seen.doubt:.0f} % even of sure samples"
        )
        return RateAnswer(None, low, high, False, why)
    if high - low > WIDEST_TOLD:
        return RateAnswer(
            None, low, high, False, "classes that overlap and wrong labels that follow the input look alike"
        )
    return RateAnswer(
        min(max(seen.guess, low), high), low, high, True, "by samples whose class is sure without their label"
    )


def _below(seen: Evidence) -> float:
    lowest = min(
        rate - _error(rate, share * seen.count) for share, rate in zip(SURE_SHARES, seen.sure, strict=True)
    )
    return max(0.0, lowest - (seen.doubt or 0.0) - ALLOWANCE)


def _hidden(seen: Evidence, trusted: bool) -> float:
    """Wrong labels that honest voters may follow."""
    assert seen.honest is not None
    flat = seen.sure[0] / seen.sure[-1] if seen.sure[-1] >= LEAST_FLOOR else 0.0
    if trusted and flat >= FLAT:
        return seen.honest * max(0.0, 1 - flat)
    return min(seen.honest, (1 - seen.honest) / 2)


def _error(share: float, count: float) -> float:
    """Half the width of a share's 95 % interval."""
    return 1.96 * (max(share * (1 - share), 0.0) / max(count, 1.0)) ** 0.5


def blindly_wrong(pooled: Tensor, plan: Plan) -> float:
    """The share of labels that were given without a look at the sample.

    A wrong label that is drawn blindly scores below the median of the classes that are not named half of the time, a
    right one seldom: twice the share below it. Weak voters put right labels there too and say too much; voters
    that have learned labels by heart say too little.
    """
    judged = plan.judged.nonzero()[:, 0]
    judged = judged[:: max(1, len(judged) // 20_000)]
    scores = pooled[judged].log_softmax(1)
    own = scores.gather(1, plan.labels[judged][:, None])[:, 0]
    others = scores.scatter(1, scores.argmax(1, keepdim=True), torch.nan)
    middle = others.flatten().nanmedian()
    return min(1.0, 2 * float((own < middle).float().mean()))
