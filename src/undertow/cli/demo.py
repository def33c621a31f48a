"""`undertow demo`: a small model memorises wrong labels and is audited, in a minute and without a download."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from undertow.cli.progress import watcher
from undertow.cli.screen import console, percent, table
from undertow.cli.summary import ending
from undertow.errors import RunProblem
from undertow.training.config import TrainConfig
from undertow.training.facts import RunFacts

DEMO = TrainConfig(model="mlp:256-256-256", data="digits", noise="0.4", epochs=60)
"""1,297 handwritten digits of 8×8 pixels, two in five labels drawn at random."""


def demo(*, out: Path = Path("demo")) -> None:
    """Train a small memorising model on embedded data, audit it and write its report.

    Args:
        out: where the demo's run goes; an earlier demo there is replaced.
    """
    from undertow.auditing.work import audit
    from undertow.cli.audit import Watch, panel
    from undertow.labels.search import label_errors
    from undertow.labels.suspects import write_suspects
    from undertow.report.page import write_report
    from undertow.training.loop import train

    began = time.monotonic()
    screen = console()
    screen.print(
        "A network of three layers learns to read 1,297 handwritten digits, but two in five of its labels are drawn "
        "at random.\nIt can only get them right by heart. Watch the test accuracy, measured on 500 clean digits:\n"
    )
    run = train(DEMO, _emptied(out / "run"), watch=watcher())
    screen.print(_story(run.metrics.to_dict("records")))  # pyright: ignore[reportArgumentType]
    screen.print(
        f"\n{ending(run)}\n\nNow the run is read from beneath: layers, features, checkpoints against each other."
    )
    found = audit(run, watch=Watch(quiet=False))
    screen.print(panel(found), soft_wrap=False)
    data = run.data()
    labels = label_errors(run, data)
    write_suspects(labels, data.train.x, run.path)
    screen.print(f"{labels} The page shows the most suspicious ones.\n", markup=False)
    page = write_report([run.path], out / "report.html")
    screen.print(
        f"That took {time.monotonic() - began:.0f} s. Open {page} in a browser.\n"
        f"Next: {called()} repair {run.path} --layer best --out fixed.safetensors\n"
        f"      {called()} labels {run.path} --clean drop --cleaned cleaned.parquet",
        markup=False,
    )


def called() -> str:
    """How this program was called, so that a hint can be typed as it stands."""
    return sys.argv[0] if Path(sys.argv[0]).name == "undertow" else "undertow"


def _story(rows: list[dict[str, Any]]) -> Any:
    """The epochs at which something is to be seen."""
    by_epoch = {int(row["epoch"]): row for row in rows}
    columns = ["epoch", "fits its labels", "repeats wrong labels", "test accuracy"]
    shown = [
        [epoch, percent(row["train_fit"]), percent(row["train_wrong_fit"]), percent(row["test_accuracy"])]
        for epoch, row in by_epoch.items()
        if epoch in (0, 1, 2, 4, 6, 10, 16, 20, 30, 40, 60)
    ]
    return table("", columns, shown, right=columns)


def _emptied(folder: Path) -> Path:
    """The folder without the demo's earlier run; anything else there is left alone and refused."""
    if folder.exists():
        config = RunFacts.read(folder).config if (folder / "run.json").exists() else None
        if config is None or TrainConfig.from_dict(config) != DEMO:
            raise RunProblem(f"{folder} is there and is no earlier demo. Choose another --out.")
        shutil.rmtree(folder)
    return folder
