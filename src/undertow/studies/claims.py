"""A paper's claims, and what the rows say of them: holds, does not hold, or cannot tell with a reason.

    Claim("VeLPIC beats the logistic probe at high corruption", check, presupposes=FITTED, place="section 7")

    judged = [CaseVerdict("MLP-MNIST 0.8", True, "VeLPIC .82, logistic .30"), ...]
    ClaimVerdict.of_cases(judged, "most")         # holds: 7 of 8 cases (sign test, p = 0.035): ...
    ClaimVerdict.of_paired([.02, .03, .01, .02, .04])      # five seeds of (ours - theirs): holds, p = 0.031
    each_seed(check)                              # the same check, every seed's networks by themselves
    each_seed(one_answer(check), "every")         # every network gives it by most of its cases

How many cases must agree is what the paper says: every, most, many (a third) or some. "Every" is told where half of the
cases can tell. "Most" is tested, both ways: so many of so many must be unlikely if both ways were as likely. The test
counts networks, each with the answer that most of its cases give: cuts and layers of one network are no draws of their
own. A case that never reached the state that a claim presupposes is left out and named, with what it did reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from undertow.errors import BadData, BadValue
from undertow.words import number

if TYPE_CHECKING:
    from undertow.studies.findings import Findings

Share = Literal["every", "most", "many", "some"]
LEVEL = 0.05
"""A p value below this decides."""
MANY = 3
"""One case in so many is what a paper means by many."""
MOST_EXACT = 16
"""So many pairs are tested over all their signs."""


class CaseVerdict(NamedTuple):
    """What one case says of a claim."""

    case: str
    holds: bool | None  # None: this case cannot tell
    words: str
    network: str = ""  # whose cuts, layers or epochs say one thing together; the case itself when not given

    def __str__(self) -> str:
        return f"{self.case}: {self.words}" if self.case else self.words


@dataclass(frozen=True)
class Presupposes:
    """The state that a claim takes for granted, told by one number of each case and seed."""

    measure: str
    at_least: float
    words: str  # of the number: "fits {} of its training labels"

    def unmet(self, value: float | None) -> str:
        """Why a case with this number says nothing of the claim; empty where it does."""
        if value is None or math.isnan(value):
            return f"no {self.measure} was recorded"
        if value >= self.at_least:
            return ""
        return f"{self.words.format(_percent(value))}, wanted {_percent(self.at_least)}"


FITTED = Presupposes("train_fit", 0.95, "fits {} of its training labels")
"""The network has learned the labels that it was given: what "memorised" means."""


@dataclass(frozen=True)
class ClaimVerdict:
    """What the numbers say of a claim."""

    holds: bool | None  # None: cannot tell
    numbers: str
    agree: int | None = None  # cases that agree with the claim, or networks where they are tested,
    of: int | None = None  # of so many that can tell
    p: float | None = None  # of the test, where one decided
    cases: tuple[CaseVerdict, ...] = field(default=(), repr=False)
    share: Share | None = None  # of the cases that must agree

    @classmethod
    def of_each(
        cls, cases: Iterable[str], judge: Callable[[str], tuple[bool | None, str]], before: str = "",
        share: Share = "every",
    ) -> ClaimVerdict:  # fmt: skip
        """The verdict over cases that `judge` tells of; its words begin with the case's name."""
        found = [(case, *judge(case)) for case in cases]
        return cls.of_cases((CaseVerdict("", holds, words) for _, holds, words in found), share, before)

    @classmethod
    def of_cases(
        cls, judged: Iterable[CaseVerdict], share: Share = "every", before: str = ""
    ) -> ClaimVerdict:
        """So many of so many cases, with a sign test over networks where the paper says most."""
        every = tuple(judged)
        told = [one for one in every if one.holds is not None]
        agree, of = sum(bool(one.holds) for one in told), len(told)
        words = before + "; ".join(map(str, every))
        if not told:
            return cls(None, words or "no case can tell", cases=every)
        if share != "most":
            holds = _decided(share, agree, of, len(every))
            return cls(holds, f"{agree} of {of} cases: {words}", agree, of, None, every, share)
        votes = network_votes(told)
        alike, many = sum(votes), len(votes)
        p = sign_test(alike, many)
        counted = f"{agree} of {of} cases"
        if len({one.network or one.case for one in told}) < of:
            counted += f", most in {alike} of {many} networks"
        counted += f" (sign test, p = {number(p)}): {words}"
        return cls(_tested(alike, many), counted, alike, many, p, every, share)

    @classmethod
    def of_paired(cls, differences: Sequence[float], words: str = "") -> ClaimVerdict:
        """Whether differences within seeds are above 0; too few seeds cannot tell."""
        found = paired_difference(differences)
        holds = True if found.p_above < LEVEL else False if found.p_below < LEVEL else None
        told = f"{words}{': ' if words else ''}{found}"
        above = sum(one > 0 for one in differences)
        return cls(holds, told, above, len(differences), min(found.p_above, found.p_below))

    def beside(self, unmet: Sequence[CaseVerdict]) -> ClaimVerdict:
        """The verdict with the cases that were left out, and why; where they are most, not every case can be told."""
        if not unmet:
            return self
        words = "cannot tell of " + "; ".join(map(str, unmet))
        there = self.numbers if self.cases or self.of else ""
        whole = [one for one in unmet if not one.network]  # others are seeds of cases that can tell
        holds = self.holds
        if self.share == "every" and self.agree is not None and self.of is not None:
            holds = _decided("every", self.agree, self.of, len(self.cases) + len(whole))
        told = f"{there}; {words}" if there else words
        return replace(self, holds=holds, numbers=told, cases=(*self.cases, *unmet))

    @property
    def word(self) -> str:
        """Holds, does not hold, or cannot tell."""
        return {True: "holds", False: "does not hold", None: "cannot tell"}[self.holds]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that the rows can confirm or refute."""

    text: str  # as the paper says it
    check: Callable[[Findings], ClaimVerdict]
    presupposes: Presupposes | tuple[Presupposes, ...] | None = None
    place: str = ""  # "section 7, figure 5"
    ours: bool = False  # no paper says it
    proved: bool = False  # true whatever was trained: it checks the measures, and counts apart
    cause: str = ""  # why ours may differ, where it is known

    def judge(self, found: Findings) -> ClaimVerdict:
        """What the rows of the cases that reached the claim's state say; without its numbers it cannot be told."""
        met, unmet = found.that_meet(self.presupposes)
        try:
            verdict = self.check(met)
        except BadData as reason:
            verdict = ClaimVerdict(None, "" if unmet and not len(met.rows) else str(reason), of=0)
        return verdict.beside(unmet)


class PairedDifference(NamedTuple):
    """Differences within seeds: their mean and range, and how likely a mean so far from 0 is by chance."""

    mean: float
    low: float
    high: float
    seeds: int
    p_above: float
    p_below: float

    def __str__(self) -> str:
        told = f"{number(self.mean)} ({number(self.low)} to {number(self.high)}, {self.seeds} seeds"
        return f"{told}, p = {number(min(self.p_above, self.p_below))})"


def paired_difference(differences: Sequence[float]) -> PairedDifference:
    """The exact test over all signs: as if within each seed both ways round were as likely.

    One-sided. Five seeds that all agree give 1/32; four cannot come below .05.
    """
    if not differences or len(differences) > MOST_EXACT:
        raise BadValue("paired differences", f"1 to {MOST_EXACT} of them", len(differences))
    if not all(map(math.isfinite, differences)):
        raise BadData(f"paired differences: wanted numbers, got {list(differences)}.")
    mean = fmean(differences)
    slack = 1e-12 * max(map(abs, differences))  # equal sums in another order must count as equal
    means = [
        fmean(sign * one for sign, one in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    above = sum(one >= mean - slack for one in means) / len(means)
    below = sum(one <= mean + slack for one in means) / len(means)
    return PairedDifference(mean, min(differences), max(differences), len(differences), above, below)


def network_votes(told: Iterable[CaseVerdict]) -> list[bool]:
    """What most cases of each network say; one whose cases are split evenly has no vote."""
    answers = (one.holds for one in _of_networks(told))
    return [one for one in answers if one is not None]


def _of_networks(judged: Iterable[CaseVerdict]) -> list[CaseVerdict]:
    """One case for each network, with the answer of most of its cases."""
    networks: dict[str, list[CaseVerdict]] = {}
    for one in judged:
        networks.setdefault(one.network or one.case, []).append(one)
    return [_majority(name, own) for name, own in networks.items()]


def _majority(network: str, cases: Sequence[CaseVerdict]) -> CaseVerdict:
    told = [bool(one.holds) for one in cases if one.holds is not None]
    agree, of = sum(told), len(told)
    holds = None if 2 * agree == of else 2 * agree > of
    return CaseVerdict(network, holds, f"{agree} of {of}: " + ", ".join(map(str, cases)), network)


def one_answer(check: Callable[[Findings], ClaimVerdict]) -> Callable[[Findings], ClaimVerdict]:
    """The same check with one answer for each network: that of most of its cuts, layers or corruptions."""

    def checked(found: Findings) -> ClaimVerdict:
        verdict = check(found)
        return ClaimVerdict.of_cases(_of_networks(verdict.cases)) if verdict.cases else verdict

    return checked


def each_seed(
    check: Callable[[Findings], ClaimVerdict], share: Share = "most", before: str = ""
) -> Callable[[Findings], ClaimVerdict]:
    """The same check with every seed's networks as cases of their own: other draws of weights, labels and batches.

    Seeds in which a number is missing cannot tell.
    """

    def of_seed(found: Findings, seed: int) -> tuple[CaseVerdict, ...]:
        try:
            verdict = check(replace(found, rows=found.rows[found.rows["seed"] == seed]))
        except BadData as reason:
            return (CaseVerdict("", None, str(reason)),)
        return verdict.cases or (CaseVerdict("", None, verdict.numbers),)

    def checked(found: Findings) -> ClaimVerdict:
        seeds = [int(seed) for seed in sorted(found.rows["seed"].unique())] if len(found.rows) else []
        judged = [
            one._replace(case=_of_seed(one.case, seed), network=_of_seed(one.network or one.case, seed))
            for seed in seeds
            for one in of_seed(found, seed)
        ]
        return ClaimVerdict.of_cases(judged, share, before)

    return checked


def _of_seed(case: str, seed: int) -> str:
    return f"{case}, seed {seed}" if case else f"seed {seed}"


def sign_test(agree: int, of: int) -> float:
    """How likely at least `agree` of `of` are, if both ways were as likely."""
    return sum(math.comb(of, count) for count in range(agree, of + 1)) / 2**of


def _decided(share: Share, agree: int, of: int, cases: int) -> bool | None:
    """Of so many cases so many can tell; one that does not agree refutes every."""
    if share == "every":
        return False if agree < of else True if 2 * of >= cases else None
    return MANY * agree >= of if share == "many" else agree > 0


def _tested(agree: int, of: int) -> bool | None:
    """Both ways; as chance may have it, or with so few that not even all of them could decide, it cannot be told."""
    if sign_test(agree, of) < LEVEL:
        return True
    return False if sign_test(of - agree, of) < LEVEL else None


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"
