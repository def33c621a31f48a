"""The report: a run's saved rows -> one HTML file, paper figures, and a small local server; never torch.

    from undertow.report import draw, read_saved, write_report, serve

    write_report(["runs/m40"], "runs/m40/report.html")         # one self-contained page: no network, light and dark
    write_report(["runs/m40", "runs/m00"], "both.html")        # several runs side by side
    draw("runs/m40", "swap", formats=("pdf", "svg"))     # a figure for a paper
    serve("runs/")                                       # http://127.0.0.1:8765 lists runs and opens reports
    read_saved("runs/m40").rows                          # audit.parquet as it is

What is read: run.json, metrics.parquet, audit.parquet, audit.json, suspects.parquet with suspects.npz. Any of
them may be missing: what cannot be shown is left out, and a sentence says why. Names are imported when used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
