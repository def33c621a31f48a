"""One look for all figures, through matplotlib.

    with style():                                                # everything that draws
        figure, axes = panels(3, title="Larger targets make training rich")
        for index, name in enumerate(cases):
            line(axes[0], curve, name, index)                    # mean with the range over seeds as a band
        axes[0].set(xlabel="feature", ylabel="quality")
    save_figure(figure, folder / "figure")                       # figure.png, figure.svg

Colours are those of Okabe and Ito, which people with any colour vision can tell apart; lines also differ in
their dashes. Text stays text in SVG and PDF. matplotlib is imported when the first figure is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from undertow.files import aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B", "#B8A800")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.", ":")
STYLE: Any = {
    "font.family": "sans-serif", "font.size": 9, "axes.titlesize": 9, "axes.titleweight": "normal",
    "axes.titlelocation": "left", "axes.labelsize": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": "#666666", "axes.linewidth": 0.7, "axes.grid": True, "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6, "xtick.color": "#444444", "ytick.color": "#444444", "legend.frameon": False,
    "legend.fontsize": 8, "lines.linewidth": 1.6, "svg.fonttype": "none", "pdf.fonttype": 42,
    "axes.axisbelow": True, "figure.constrained_layout.use": True,
}  # fmt: skip


def style() -> AbstractContextManager[None]:
    """The look, for the figures drawn inside: matplotlib reads most of it when a title or a line is made."""
    from matplotlib import rc_context

    return rc_context(STYLE)


class Band(Protocol):
    """Numbers over an axis with a range."""

    @property
    def x(self) -> Any:
        """Where."""
        ...

    @property
    def mean(self) -> Any:
        """The line."""
        ...

    @property
    def low(self) -> Any:
        """Lower edge of the band."""
        ...

    @property
    def high(self) -> Any:
        """Upper edge of the band."""
        ...


def panels(
    columns: int, rows: int = 1, *, title: str = "", size: tuple[float, float] = (3.3, 2.7)
) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, row by row; `size` in inches is that of one panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] * columns, size[1] * rows + (0.3 if title else 0)))
    axes = [figure.add_subplot(rows, columns, place + 1) for place in range(rows * columns)]
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure, axes


def line(axes: Axes, band: Band, name: str = "", index: int = 0, **style: Any) -> None:
    """A line with its band, in the colour and dash of `index`."""
    colour = COLOURS[index % len(COLOURS)]
    settings: dict[str, Any] = {
        "color": colour,
        "linestyle": DASHES[index % len(DASHES)],
        "linewidth": 1.6,
        **style,
    }
    axes.plot(band.x, band.mean, label=name or None, **settings)
    if (band.low < band.high).any():
        axes.fill_between(band.x, band.low, band.high, color=settings["color"], alpha=0.15, linewidth=0)


def bars(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    marks: Sequence[float | None] = (),
) -> None:
    """Bars with ranges, and the paper's values as diamonds where `marks` has them."""
    places = list(range(len(names)))
    colours = [COLOURS[place % len(COLOURS)] for place in places]
    below = [value - low for value, low in zip(values, lows, strict=True)]
    above = [high - value for value, high in zip(values, highs, strict=True)]
    axes.bar(places, values, 0.6, color=colours, alpha=0.85)
    axes.errorbar(places, values, [below, above], fmt="none", ecolor="#222222", elinewidth=1, capsize=2)
    known = [(place, mark) for place, mark in enumerate(marks) if mark is not None]
    if known:
        axes.plot(
            *zip(*known, strict=True),
            "D",
            color="#111111",
            markersize=4.5,
            markerfacecolor="white",
            label="paper",
        )
        axes.legend(loc="best")
    axes.set_xticks(places, names, rotation=0 if max(map(len, names), default=0) < 10 else 20)
    axes.grid(visible=False, axis="x")


def save_figure(figure: Figure, stem: Path, endings: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figure as stem.png, stem.svg, ...; each as a whole or not at all."""
    from matplotlib import rc_context

    written: list[Path] = []
    for ending in endings:
        path = stem.with_suffix(f".{ending}")
        # The same figure gives the same bytes: no date, and ids that do not change.
        dated = {"Date": None} if ending == "svg" else {"CreationDate": None} if ending == "pdf" else None
        with rc_context({**STYLE, "svg.hashsalt": "undertow"}), aside(path) as part:
            figure.savefig(part, format=ending, dpi=160, metadata=dated)
        written.append(path)
    return written
