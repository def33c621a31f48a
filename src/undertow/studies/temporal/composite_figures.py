"""The figures of the studies of composites: curves and densities of a column, and the window.

column_figure(found); window_figure(found)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.plots import COLOURS, DASHES, line, panels
from undertow.studies.findings import Findings
from undertow.studies.temporal.by_cut import cuts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMN_PANELS = (
    ("loss", "shallow", "cross-entropy"),
    ("accuracy", "shallow", "accuracy"),
    ("density", "position", "density"),
)


def column_figure(found: Findings) -> Figure:
    """Loss, accuracy and the density of consistency for each case, a line for each cut."""
    figure, axes = panels(3, len(found.cases), title=found.study.title, size=(3.4, 2.5))
    for place, case in enumerate(found.cases):
        for panel, (measure, x, title) in zip(
            axes[3 * place :],
            _COLUMN_PANELS,
            strict=False,
        ):
            _draw_cuts(panel, found, case, measure, x)
            panel.set(
                title=f"{title}: {case}",
                xlabel="epoch of the shallow part" if x == "shallow" else "consistency",
            )
        axes[3 * place + 1].legend()
    return figure


def _draw_cuts(panel: Any, found: Findings, case: str, measure: str, x: str) -> None:
    names: Sequence[str] = cuts(found, case)
    for index, cut in enumerate(names):
        if found.has(case, measure, layer=cut, split="train"):
            line(panel, found.curve(case, measure, x=x, layer=cut, split="train"), f"cut after {cut}", index)
        elif measure == "density" and found.has(case, "consistency", layer=cut, split="train"):
            _draw_spike(panel, found.mean(case, "consistency", layer=cut, split="train"), index)
    if x == "shallow" and found.has(case, measure, layer="output", split="train"):
        own = found.curve(case, measure, x=x, layer="output", split="train")
        line(panel, own, "the model itself", 6, linewidth=1)


def _draw_spike(panel: Any, value: float, index: int) -> None:
    """Pictures that all have the same consistency have no density: a line says where they are."""
    panel.axvline(value, color=COLOURS[index], linestyle=DASHES[index])
    panel.set(xlim=(0, 1.05), yticks=[])
    panel.text(0.5, 0.5, f"every picture\nat {value:g}", ha="center", transform=panel.transAxes, fontsize=8)


def window_figure(found: Findings) -> Figure:
    """Consistency of all pairs, of three deep parts, and the window, for each case."""
    figure, axes = panels(3, len(found.cases), title=found.study.title, size=(3.4, 2.6))
    for place, case in enumerate(found.cases):
        names = cuts(found, case)
        middle = names[len(names) // 2]
        _heat(figure, axes[3 * place], found, case, middle)
        times = found.curve(case, "window_shallow", x="checkpoint", layer=middle, split="train").x
        for index, at in enumerate(times[[len(times) // 3, 2 * len(times) // 3, -1]]):
            where = {"layer": middle, "split": "train", "checkpoint": at}
            line(
                axes[3 * place + 1],
                found.curve(case, "consistency_shallow", x="shallow", **where),
                f"deep {at:g}",
                index,
            )
        axes[3 * place + 1].axhline(0.8, color="#888888", linewidth=0.8)
        axes[3 * place + 1].set(title=f"consistency, cut after {middle}", xlabel="epoch of the shallow part")
        axes[3 * place + 1].legend()
        for index, cut in enumerate(names):
            curve = found.curve(case, "window_shallow", x="checkpoint", layer=cut, split="train")
            line(axes[3 * place + 2], curve, f"cut after {cut}", index)
        axes[3 * place + 2].set(title="window above 0.8, in epochs", xlabel="epoch of the deep part")
        axes[3 * place + 2].legend()
    return figure


def _heat(figure: Figure, panel: Any, found: Findings, case: str, cut: str) -> None:
    rows = found.of(case, "consistency_shallow", layer=cut, split="train")
    table: Any = rows.pivot_table(index="shallow", columns="checkpoint", values="value")
    seen = panel.pcolormesh(
        table.columns, table.index, table.to_numpy(), vmin=0, vmax=1, cmap="cividis", shading="nearest"
    )
    figure.colorbar(seen, ax=panel)
    panel.set(title=f"{case}, cut after {cut}", xlabel="epoch of the deep part", ylabel="of the shallow part")
