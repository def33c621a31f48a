"""`undertow report`, `undertow figure` and `undertow serve`: what an audit has saved, for people to look at."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from undertow.cli.flags import comma_list
from undertow.cli.screen import console, print_json
from undertow.report.figures import FIGURES, draw
from undertow.sizes import show_size

if TYPE_CHECKING:
    from undertow.report.compare import Comparison

FigureName = Annotated[str, Parameter(help=f"One of {', '.join(FIGURES)}.")]


def report(run: Path, *others: Path, out: Path | None = None, open: bool = False, json: bool = False) -> None:
    """Write the report of one run, or of several side by side: one HTML file that needs no network.

    Args:
        run: The run's folder.
        others: Runs to set beside it.
        out: The file; report.html in the run's folder when not given, for several runs here.
        open: Show it in the browser.
        json: Print the file's path and size as one JSON object.
    """
    from undertow.report.page import write_report

    folders = [_folder(one) for one in (run, *others)]
    path = write_report(folders, out or (Path("report.html") if others else folders[0] / "report.html"))
    found = _compared(folders) if others else None
    if json:
        told = {} if found is None else {"differences": found.table.to_dict("records")}
        print_json({"path": str(path), "bytes": path.stat().st_size, **told})
    else:
        if found is not None:
            console().print(str(found), markup=False)
        console().print(f"Written: {path} ({show_size(path.stat().st_size)})", markup=False)
    if open:
        webbrowser.open(path.resolve().as_uri())


def _folder(run: Path) -> Path:
    """A run's folder; of one checkpoint's file the folder beside it, where its audit lies."""
    from undertow.training.checkpoint_files import kept_beside

    return kept_beside(run) if run.is_file() else run


def _compared(folders: list[Path]) -> Comparison | None:
    """What differs; nothing where a run has no audit yet: the page shows what it has."""
    from undertow.errors import BadData
    from undertow.report.compare import compare

    try:
        return compare(folders)
    except BadData:
        return None


def figure(run: Path, name: FigureName, *, format: str = "png", out: Path | None = None) -> None:
    """Draw a figure of a run for a paper.

    Args:
        run: The run's folder.
        name: The figure.
        format: png, pdf, svg, or several: png,pdf.
        out: The folder for it; figures in the run's folder when not given.
    """
    for path in draw(_folder(run), name, formats=comma_list(format), out=out):
        console().print(f"Written: {path}", markup=False)


def serve(folder: Path = Path("runs"), *, port: int = 8765, open: bool = False) -> None:
    """Serve the runs of a folder to a browser on this machine; pages follow runs that are training.

    Args:
        folder: The folder of runs, sub-folders included.
        port: Where to listen on 127.0.0.1; 0 takes a free one.
        open: Show the list in the browser.
    """
    from undertow.report.server import serve as run_server

    def ready(address: str) -> None:
        console().print(f"{folder} is at {address} (this machine only). Ctrl-C stops.", markup=False)
        if open:
            webbrowser.open(address)

    run_server(folder, port, ready)
