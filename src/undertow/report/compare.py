"""Runs set against one another: which is better on what, with intervals, from their saved audits.

    found = compare(["runs/m40", "runs/m00"])        # also audits, or opened runs
    print(found)                                      # accuracy: m00 is better by 21.4 points (15.9 to 26.9)
    found.table                                       # measure, run, value, low, high, difference, low, high, better
    found.to_html("compare.html")                     # the charts overlaid

The first run is what others are compared with. A difference of two shares has Newcombe's interval (shares.py), as if
both had been judged on different samples; where both were judged on the same, the truth is narrower. Where an interval
holds 0 nobody is better. Measures without an interval are shown and not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from undertow.errors import BadData, BadValue
from undertow.outputs import as_path
from undertow.report.saved import Saved, read_saved
from undertow.shares import Sure, difference

if TYPE_CHECKING:
    import pandas as pd

HIGHER = {
    "accuracy": True,
    "latent_accuracy": True,
    "memorised": False,
    "d_lr": None,
    "latent_gap": None,
    "noise": False,
}
"""Measures that are compared, and whether more of one is better; None: neither."""
WORDS = {
    "accuracy": "test accuracy", "latent_accuracy": "the best layer", "memorised": "wrong labels memorised",
    "d_lr": "D_LR", "latent_gap": "what layers know beyond the model", "noise": "wrong training labels",
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One measure of one run beside the first run's."""

    measure: str
    run: str
    value: float
    base: float
    gap: float
    low: float | None
    high: float | None
    better: str  # the name of the better run; "neither" or "cannot tell"

    @property
    def what(self) -> str:
        """The measure in words."""
        return WORDS[self.measure]

    @property
    def size(self) -> str:
        """The difference with its interval."""
        scale, unit = (1, "") if self.measure == "d_lr" else (100, " points")
        ends = (
            ""
            if self.low is None or self.high is None
            else f" ({scale * self.low:+.3g} to {scale * self.high:+.3g})"
        )
        return f"{scale * self.gap:+.3g}{unit}{ends}"

    @property
    def told(self) -> str:
        """Who is better."""
        return self.better if self.better == "cannot tell" else f"{self.better} is better"

    def __str__(self) -> str:
        return f"{self.what}: {self.run} {self.size}: {self.told}"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Differences of runs from the first one."""

    folders: tuple[Path, ...]
    names: tuple[str, ...]
    differences: tuple[Difference, ...]
    note: str = ""
    """What stands against comparing them: they were judged on other samples."""

    @property
    def table(self) -> pd.DataFrame:
        """One row for each measure and run but the first."""
        import pandas as pd

        return pd.DataFrame([asdict(one) for one in self.differences])

    def to_html(self, path: str | Path) -> Path:
        """Write the page with the runs side by side and their charts overlaid."""
        from undertow.report.page import write_report  # the page shows our differences

        return write_report(self.folders, path)

    def __str__(self) -> str:
        lines = [f"Compared with {self.names[0]}:", *map(str, self.differences), self.note]
        return "\n".join(filter(None, lines))

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(str(one))}</li>" for one in self.differences)
        return (
            f"<p>Compared with <b>{escape(self.names[0])}</b>:</p><ul>{items}</ul><p>{escape(self.note)}</p>"
        )


def compare(runs: Sequence[Any]) -> Comparison:
    """Set runs against the first of them.

    Args:
        runs: two or more audited runs: folders, opened runs or audits.
    """
    several = isinstance(runs, Sequence) and not isinstance(runs, str | bytes)  # pyright: ignore
    if not several or len(runs) < 2:
        raise BadValue("compare", "two runs or more", runs, "For example compare(['runs/a', 'runs/b']).")
    folders = tuple(_folder(one) for one in runs)
    saved = [read_saved(folder) for folder in folders]
    for one in saved:
        if not one.audit.get("measures"):
            raise BadData(
                f"{one.path}: wanted an audited run to compare. `undertow audit {quote(str(one.path))}` makes it one."
            )
    return Comparison(folders, tuple(one.name for one in saved), tuple(differences(saved)), note(saved))


def note(saved: Sequence[Saved]) -> str:
    """Which runs were judged on other samples than the first, by their data's name and how many; nothing where none."""
    first, *others = ((one.name, _judged_on(one)) for one in saved)
    strange = [(name, told) for name, told in others if told != first[1]]
    told = ", ".join(f"{name} on {told}" for name, told in [first, *strange])
    return f"Not judged on the same samples: {told}. Differences may be those of the samples." * bool(strange)


def _judged_on(saved: Saved) -> str:
    about: dict[str, Any] = saved.audit.get("data") or {}
    return f"{about.get('test', 0):,} of {about.get('name', 'unknown data')}"


def differences(saved: Sequence[Saved]) -> list[Difference]:
    """What runs differ in from the first of them, as far as they were audited."""
    return [own for other in saved[1:] for own in _differences(saved[0], other)]


def headline(saved: Sequence[Saved]) -> str:
    """Which of two runs answers better, where that is clear; their names otherwise."""
    first = next(iter(differences(saved)), None)
    names = [one.name for one in saved]
    if (
        len(saved) != 2
        or note(saved)
        or first is None
        or first.measure != "accuracy"
        or first.better not in names
    ):
        return ", ".join(names)
    other = names[1 - names.index(first.better)]
    return f"{first.better} is better than {other}: {100 * abs(first.gap):.1f} points of test accuracy."


def _folder(one: Any) -> Path:
    """The folder of a path, a run or an audit."""
    place = one if isinstance(one, str | Path) else getattr(one, "folder", None) or getattr(one, "path", None)
    if place is None:
        raise BadValue("compare", "folders, runs or saved audits", type(one).__name__)
    return as_path(place, "compare")


def _differences(base: Saved, other: Saved) -> list[Difference]:
    ours, theirs = (_measures(one) for one in (base, other))
    return [
        _difference(name, (base.name, ours[name]), (other.name, theirs[name]))
        for name in HIGHER
        if name in ours and name in theirs
    ]


def _difference(name: str, base: tuple[str, Sure | float], other: tuple[str, Sure | float]) -> Difference:
    (called, ours), (named, theirs) = base, other
    if not (isinstance(ours, Sure) and isinstance(theirs, Sure)):
        value, first = (one.value if isinstance(one, Sure) else one for one in (theirs, ours))
        return Difference(name, named, value, first, value - first, None, None, "cannot tell")
    gap, more = difference(theirs, ours), HIGHER[name]
    if gap.low <= 0 <= gap.high:
        better = "cannot tell"
    else:
        better = "neither" if more is None else named if (gap.value > 0) == more else called
    return Difference(name, named, theirs.value, ours.value, gap.value, gap.low, gap.high, better)


def _measures(saved: Saved) -> dict[str, Sure | float]:
    """The compared measures, with their intervals where the audit has them."""
    known: dict[str, Any] = saved.audit.get("measures") or {}
    found: dict[str, Sure | float] = {}
    for name in HIGHER:
        ends = [known.get(f"{name}{end}") for end in ("", "_low", "_high")]
        if all(isinstance(end, int | float) for end in ends):
            found[name] = Sure(*map(float, ends))  # pyright: ignore[reportArgumentType]
        elif isinstance(ends[0], int | float):
            found[name] = float(ends[0])
    return found
