"""What studies found, read from the folder that `undertow study run` wrote; study_page.py makes a page of it.

    studies = read_studies("studies")                       # all outcomes in it: every study at every scale
    studies[0].claims, studies[0].comparison, studies[0].ends()

What is read of each: study.json, claims.json, comparison.csv, rows.parquet, figure.png. The verdicts are those that
were written with the rows; nothing is judged or trained here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from undertow.errors import BadFile, NotThere
from undertow.report.saved import Frame
from undertow.spreadsheets import unguarded
from undertow.stored.door import MOST_JSON, check_regular
from undertow.stored.study_folder import AGAIN, read_claims, read_study_facts
from undertow.stored.tables import STUDY_ROWS, read_frame
from undertow.words import number

SCALES = ("smoke", "laptop", "paper")
PLACES = ("study.json", "*/study.json", "*/*/study.json", "*/*/*/study.json")
"""Where outcomes may lie: OUT/PAPER/STUDY/SCALE, or a folder further down is given."""
MEANINGS = {"holds": "good", "does not hold": "bad"}
NUMBERS = ("paper", "ours", "low", "high", "seeds", "tolerance")
"""The columns of comparison.csv where nothing means no number; in the others it is an empty text."""
TEXTS = ("case", "measure", "where", "source")
NO_PLACE = ("case", "measure", "value", "low", "high", "n", "seed", "checkpoint", "note")


@dataclass(frozen=True, eq=False)
class SavedStudy:
    """A study at a scale, as its folder tells it."""

    path: Path
    facts: dict[str, Any]  # study.json
    claims: list[dict[str, str]]  # claim, verdict, numbers
    comparison: Frame  # comparison.csv
    rows: Frame  # rows.parquet

    @property
    def name(self) -> str:
        """Paper and study."""
        return str(self.facts["study"])

    @property
    def paper(self) -> str:
        """The part before the slash."""
        return self.name.partition("/")[0]

    @property
    def scale(self) -> str:
        """Smoke, laptop or paper."""
        return str(self.facts["scale"])

    @property
    def seeds(self) -> int:
        """How many seeds it was asked for."""
        return int(self.facts.get("seeds", 1))

    @property
    def seed_words(self) -> str:
        """`3 seeds`, or `1 of 3 seeds` where the others have not run."""
        done = self.rows["seed"].nunique() if len(self.rows) else 0
        return f"{done} of {self.seeds} seeds" if done < self.seeds else f"{done} seed{'s' * (done != 1)}"

    @property
    def minutes(self) -> float:
        """What its tasks took, added up; networks shared with other studies count where they were trained."""
        return float(self.facts.get("task_seconds", 0)) / 60

    @property
    def command(self) -> str:
        """What makes it again."""
        first = int(self.facts.get("first_seed", 0))
        from_there = f" --first-seed {first}" if first else ""
        return f"undertow study run {self.name} --scale {self.scale} --seeds {self.seeds}{from_there}"

    @property
    def compared(self) -> Frame:
        """The paper's numbers that this scale has one for."""
        return self.comparison[self.comparison["ours"].notna()]

    @property
    def within(self) -> int:
        """How many of them are near enough."""
        return int((self.compared["within"].astype(str) == "True").sum())

    @property
    def verdicts(self) -> Counter[str]:
        """How many claims hold, do not hold, or stay undecided."""
        return Counter(own["verdict"] for own in self.claims)

    def ends(self) -> Frame:
        """Every single number at the end of its case: case, measure, where, and mean, low and high over seeds.

        Points of curves (over positions, other checkpoints and the like) are left to the figure.
        """
        columns = ["case", "measure", "where", "mean", "low", "high", "seeds"]
        rows = self.rows
        if not len(rows):
            return pd.DataFrame(columns=columns)
        places = [name for name in rows if name not in NO_PLACE]
        axes = [name for name in places if pd.api.types.is_numeric_dtype(rows[name])]
        # What is the same everywhere tells nothing.
        named = [name for name in places if name not in axes and rows[name].nunique(dropna=False) > 1]
        single = rows["value"].notna() & rows[axes].isna().all(axis=1)
        if "checkpoint" in rows:
            last = rows.groupby("case")["checkpoint"].transform("max")
            single &= rows["checkpoint"].isna() | (rows["checkpoint"] == last)
        kept = rows[single]
        where = [
            ", ".join(f"{name} {one}" for name, one in own.items() if isinstance(one, str))
            for own in kept[named].to_dict("records")
        ]
        by = ["case", "measure", "where"]
        seen = kept.assign(where=where).groupby([*by, "seed"], sort=False)["value"].mean()
        table = seen.groupby(level=by, sort=False).agg(["mean", "min", "max", "count"]).reset_index()
        return table.set_axis(columns, axis=1)


def read_studies(folder: str | Path) -> list[SavedStudy]:
    """All outcomes in the folder, by name and scale."""
    path = Path(folder)
    found = [read_study(one.parent) for place in PLACES for one in path.glob(place)]
    if not found:
        what = "holds no study" if path.is_dir() else "does not exist"
        raise NotThere(
            f"The folder {path} {what}. `undertow study run NAME --out {path}` puts a study there."
        )
    return sorted(found, key=lambda one: (one.name, SCALES.index(one.scale)))


def read_study(folder: Path) -> SavedStudy:
    """One outcome; a file that is missing or cannot be read is an error that names it."""
    facts = read_study_facts(folder)
    rows = read_frame(folder / "rows.parquet", STUDY_ROWS)
    return SavedStudy(folder, facts, read_claims(folder), _csv(folder / "comparison.csv"), rows)


def _csv(path: Path) -> Frame:
    check_regular(path, MOST_JSON)
    kinds: Any = dict.fromkeys(NUMBERS, "float64") | dict.fromkeys(TEXTS, "str")
    try:
        table = pd.read_csv(
            path, keep_default_na=False, na_values={name: [""] for name in NUMBERS}, dtype=kinds
        )
    except (OSError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise BadFile(
            path, "", f"wanted a table of numbers, but it cannot be read ({reason})", AGAIN
        ) from error
    missing = [name for name in ("case", "measure", "ours", "within") if name not in table]
    if missing:
        raise BadFile(path, f"column {missing[0]}", "wanted it, but there is none", AGAIN)
    return table.assign(**{name: table[name].map(unguarded) for name in TEXTS if name in table})


def ranged(mean: float, low: float, high: float, seeds: float) -> str:
    """A mean with its range over seeds."""
    return number(mean) if seeds < 2 else f"{number(mean)} ({number(low)} to {number(high)})"


def claim_words(studies: Sequence[SavedStudy]) -> tuple[int, int, str]:
    """How many claims hold, of how many, and what became of the rest."""
    count = sum((own.verdicts for own in studies), Counter[str]())
    rest = [
        f"{count[word]} {words}"
        for word, words in (("does not hold", "do not hold"), ("cannot tell", "undecided"))
        if count[word]
    ]
    return count["holds"], count.total(), ", ".join(rest) or "none fails"
