"""The rows of a study, and how its claims and figures read them.

    found = Findings(study, rows)                        # rows: a pandas table, one number per row
    found.mean("alpha 0.2", "d_lr")                      # over seeds
    found.seen("alpha 0.2", "d_lr", split="test")        # Seen(mean, low, high, seeds): the range over seeds
    found.curve("alpha 0.2", "quality", x="position")    # x, mean, low, high as arrays
    found.of("alpha 0.2", "d_lr", checkpoint="last")     # the rows themselves; also checkpoint="first"

A number that is not there is an error that says what was asked for, not a NaN in a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from undertow.errors import BadData
from undertow.studies.claims import CaseVerdict, Presupposes
from undertow.words import number

if TYPE_CHECKING:
    from undertow.studies.recipe import Study

Array = np.ndarray[Any, np.dtype[np.float64]]
Table: TypeAlias = Any
"""A pandas table: its stubs make of every cell a union of twenty types, which hides more than it tells."""


def row(measure: str, value: float | None, **where: Any) -> dict[str, Any]:
    """One number of a measure; `where`: split, layer, checkpoint, position, low, high, n, note, ..."""
    return {"measure": measure, "value": None if value is None else float(value), **where}


class Seen(NamedTuple):
    """A number over seeds."""

    mean: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        if self.seeds == 1:
            return number(self.mean)
        return f"{number(self.mean)} ({number(self.low)} to {number(self.high)})"


class SeedCurve(NamedTuple):
    """Numbers over an axis; low and high are the range over seeds."""

    x: Array
    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Findings:
    """A study at some scale with the rows that it gave."""

    study: Study
    rows: Table  # one number per row

    @property
    def cases(self) -> tuple[str, ...]:
        """The cases with rows, in the study's order."""
        there = set(self.rows["case"]) if len(self.rows) else set[str]()
        return tuple(case.name for case in self.study.cases if case.name in there)

    def has(self, case: str, measure: str, **where: Any) -> bool:
        """Whether such a number is there."""
        return len(self._matching(case, measure, where)) > 0

    def of(self, case: str, measure: str, **where: Any) -> Table:
        """The rows with a number; at least one."""
        found = self._matching(case, measure, where)
        if not len(found):
            place = "".join(f", {name} {value}" for name, value in where.items())
            raise BadData(f"{self.study.name}: no row has {measure} of {case!r}{place}.")
        return found

    def seen(self, case: str, measure: str, **where: Any) -> Seen:
        """Mean and range over seeds; several numbers of one seed are averaged first."""
        rows = self.of(case, measure, **where)
        means: Array = rows.groupby("seed")["value"].mean().to_numpy(float)
        return Seen(float(means.mean()), float(means.min()), float(means.max()), len(means))

    def mean(self, case: str, measure: str, **where: Any) -> float:
        """Mean over seeds."""
        return self.seen(case, measure, **where).mean

    def curve(self, case: str, measure: str, x: str, **where: Any) -> SeedCurve:
        """Mean and range over seeds along the column `x`."""
        rows = self.of(case, measure, **where)
        by_seed = rows.groupby([x, "seed"])["value"].mean()
        table = by_seed.groupby(level=0).agg(["mean", "min", "max"])
        return SeedCurve(table.index.to_numpy(float), *table.to_numpy(float).T)

    def last(self, case: str) -> float:
        """The last checkpoint of a case, over all its seeds."""
        return self._checkpoints(case)[-1]

    def that_meet(
        self, wanted: Presupposes | tuple[Presupposes, ...] | None
    ) -> tuple[Findings, list[CaseVerdict]]:
        """The rows of cases and seeds that reached a state, or several, and why the others did not."""
        if wanted is None:
            return self, []
        if isinstance(wanted, tuple):
            met, unmet = self, list[CaseVerdict]()
            for one in wanted:
                met, more = met.that_meet(one)
                unmet += more
            return met, unmet
        unmet: list[CaseVerdict] = []
        rows = self.rows
        for case in filter(lambda name: self._tells(name, wanted.measure), self.cases):
            why = {seed: wanted.unmet(value) for seed, value in self._by_seed(case, wanted.measure).items()}
            behind = {seed: words for seed, words in why.items() if words}
            rows = rows[~((rows["case"] == case) & rows["seed"].isin(list(behind)))]
            if len(behind) == len(why):
                unmet += [CaseVerdict(case, None, words) for words in dict.fromkeys(behind.values())]
            else:
                unmet += [
                    CaseVerdict(f"{case} (seed {seed})", None, words, case) for seed, words in behind.items()
                ]
        return replace(self, rows=rows), unmet

    def _tells(self, case: str, measure: str) -> bool:
        """Whether a case must have that number: its recipe trains a network, or its measure did and says so."""
        return self.study.case(case).train is not None or self.has(case, measure)

    def _by_seed(self, case: str, measure: str) -> dict[int, float | None]:
        """One number for each seed of a case; None where there is none."""
        own = self.rows[self.rows["case"] == case]
        there: dict[int, float] = dict(own[own["measure"] == measure].groupby("seed")["value"].mean())
        return {int(seed): there.get(seed) for seed in own["seed"].unique()}

    def _checkpoints(self, case: str) -> list[float]:
        if case not in self.cases:
            raise BadData(f"{self.study.name}: there are no rows of {case!r}.")
        own = self.rows.loc[self.rows["case"] == case, "checkpoint"].dropna()
        return sorted(set(own.tolist()))

    def _matching(self, case: str, measure: str, where: Mapping[str, Any]) -> Table:
        rows = self.rows
        if case not in self.cases:
            return rows.iloc[:0]
        wanted = (rows["case"] == case) & (rows["measure"] == measure) & rows["value"].notna()
        for name, value in where.items():
            wanted &= rows[name] == self._meant(name, value) if name in rows else False
        return rows.loc[wanted]

    def _meant(self, name: str, value: Any) -> Any:
        """What a column is compared with; seeds may have stopped at different epochs, each has its own last."""
        if name != "checkpoint" or value not in ("first", "last"):
            return value
        own = self.rows.groupby(["case", "seed"])["checkpoint"]
        return own.transform("min" if value == "first" else "max")
