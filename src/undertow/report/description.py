"""What a chart shows, said once: the page's script and the figures for papers draw the same description.

    Chart(id="swap", section="time", kind="lines", title="Where memorisation sits",
          x=Axis("cut after", names=cuts), y=SHARE, series=[Series("early shallow, late deep", curve)])
    chart.json()                     # plain values for the page

kinds: lines    series over an axis, with levels across the whole chart
       maps     panels of colours over two axes; the reader chooses one
       moments  panels whose rows are lines, one for each checkpoint; the reader chooses one
       pairs    a value before and after, row by row
       tracks   samples that move from checkpoint to checkpoint
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from undertow.report.tables import Curve, Grid, Numbers, plain

Kind = Literal["lines", "maps", "moments", "pairs", "tracks"]
Size = Literal["third", "half", "less", "most", "wide"]
INK = -1
"""The slot of what stands out from all colours: the model itself."""


@dataclass(frozen=True)
class Axis:
    """A direction of a chart."""

    label: str = ""
    low: float | None = None
    high: float | None = None
    log: bool = False
    share: bool = False  # written as a percentage
    names: Sequence[str] = ()  # places that have names, not numbers

    def json(self) -> dict[str, Any]:
        """Without what is not said."""
        return {name: value for name, value in vars(self).items() if value not in ("", None, False, ())}


SHARE = Axis("accuracy", high=1, share=True)


@dataclass(frozen=True, eq=False)
class Series:
    """A curve with its name, its colour and its dashes (by number), and a mark for each point if it has one."""

    name: str
    curve: Curve
    slot: int = 0
    dash: int = 0
    marker: int | None = None
    whiskers: bool = False  # intervals as bars, not as a band
    tags: dict[str, str] = field(default_factory=dict[str, str])

    def json(self) -> dict[str, Any]:
        """The curve's numbers with how they look."""
        look = {"name": self.name, "slot": self.slot, "dash": self.dash}
        more = {} if self.marker is None else {"marker": self.marker, "bars": self.whiskers}
        return {**self.curve.json(), **self.tags, **look, **more}


@dataclass(frozen=True, eq=False)
class Panel:
    """The numbers for one choice of `tags`; those that are shown `first` are the figures' too."""

    title: str
    grid: Grid
    tags: dict[str, str]
    first: bool = True
    slot: int = 0
    low: Numbers | None = None
    high: Numbers | None = None
    model: Numbers | None = None  # the model's own row above a map of layers

    def json(self) -> dict[str, Any]:
        """The numbers with four digits: there are many."""
        more = {name: getattr(self, name) for name in ("low", "high", "model")}
        grid = {"down": plain(self.grid.down), "across": plain(self.grid.across)}
        edges = {name: plain(value, 4) for name, value in more.items() if value is not None}
        return {
            **self.tags,
            "first": self.first,
            "slot": self.slot,
            **grid,
            "value": plain(self.grid.value, 4),
            **edges,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Chart:
    """One chart of one run. A note may name what the reader chose: {probe}, {cut}, {measure}, {checkpoint}."""

    id: str
    section: str
    kind: Kind
    title: str
    note: str = ""
    size: Size = "half"
    height: int = 240
    x: Axis = Axis()
    y: Axis = Axis()
    series: Sequence[Series] = ()
    levels: Sequence[Series] = ()
    panels: Sequence[Panel] = ()
    rows: Sequence[dict[str, Any]] = ()  # of pairs and tracks
    unit: str = "epoch"  # what moments are counted in

    def json(self) -> dict[str, Any]:
        """Plain values for the page's script."""
        words = ("id", "section", "kind", "title", "note", "size", "height")
        lists = {name: [own.json() for own in getattr(self, name)] for name in ("series", "levels", "panels")}
        return {
            **{name: getattr(self, name) for name in words}, "x": self.x.json(), "y": self.y.json(), **lists,
            "rows": plain(list(self.rows), 3 if self.kind == "tracks" else 5),  # of points there are many
        }  # fmt: skip
