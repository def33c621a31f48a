"""The report: a run's saved rows -> one HTML file, paper figures, and a small local server; never torch.

    from undertow.report import draw, read_saved, render, serve

    render(["runs/m40"], "runs/m40/report.html")         # one self-contained page: no network, light and dark
    render(["runs/m40", "runs/m00"], "both.html")        # several runs side by side
    draw("runs/m40", "swap", formats=("pdf", "svg"))     # a figure for a paper
    serve("runs/")                                       # http://127.0.0.1:8765 lists runs and opens reports
    read_saved("runs/m40").rows                          # audit.parquet as it is

What is read: run.json, metrics.parquet, audit.parquet, audit.json, suspects.parquet with suspects.npz. Any of
them may be missing: what cannot be shown is left out, and a sentence says why. Names are imported when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy

if TYPE_CHECKING:
    from undertow.report.figures import FIGURES, draw
    from undertow.report.page import page_text, render
    from undertow.report.saved import Saved, read_saved
    from undertow.report.server import serve

__all__ = ["FIGURES", "Saved", "draw", "page_text", "read_saved", "render", "serve"]

_HOMES = {
    "figures": ("FIGURES", "draw"),
    "page": ("page_text", "render"),
    "saved": ("Saved", "read_saved"),
    "server": ("serve",),
}

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
