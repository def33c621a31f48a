"""`undertow demo`: a small model memorises wrong labels and is audited, in a minute and without a download."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from undertow.cli.progress import ProgressBar
from undertow.cli.screen import console, percent, table
from undertow.cli.summary import ending
from undertow.cli.training_watcher import TrainingWatcher
from undertow.errors import RunProblem
from undertow.training.config import TrainConfig
from undertow.training.facts import RunFacts

if TYPE_CHECKING:
    from undertow.labels.findings import LabelErrors
    from undertow.session.session import Session

DEMO = TrainConfig(model="mlp:256-256-256", data="digits", noise="0.4", epochs=60)
"""1,297 handwritten digits of 8×8 pixels; two in five labels are random."""


def demo(*, out: Path = Path("demo")) -> None:
    """Train a small memorising model on embedded data, audit it and write its report.

    Args:
        out: Where the demo's run goes; an earlier demo there is replaced.
    """
    from undertow.auditing.audit_run import audit
    from undertow.cli.audit import panel
    from undertow.report.page import write_report
    from undertow.session.session import Session
    from undertow.training.loop import train

    began = time.monotonic()
    screen = console()
    screen.print(
        "A network with three layers learns to read 1,297 handwritten digits. Two in five labels are random: it can\n"
        "only memorise them. Watch the test accuracy on 500 digits with correct labels:\n"
    )
    run = train(DEMO, _emptied(out / "run"), watch=TrainingWatcher(ProgressBar(stays=True)))
    screen.print(_story(run.metrics.to_dict("records")))  # pyright: ignore[reportArgumentType]
    screen.print(
        f"\n{ending(run)}\n\nNow the audit: what the layers know, and how features and checkpoints changed."
    )
    session = Session(run, progress=ProgressBar())
    found = audit(session)
    screen.print(panel(found), soft_wrap=False)
    screen.print(f"{_suspected(session)} The page shows the most suspicious ones.\n", markup=False)
    page = write_report([run.path], out / "report.html")
    screen.print(
        f"That took {time.monotonic() - began:.0f} s. Open {page} in a browser.\n"
        f"Next: {called()} repair {quote(str(run.path))} --layer best --out fixed.safetensors\n"
        f"      {called()} labels {quote(str(run.path))} --clean drop --cleaned cleaned.parquet",
        markup=False,
    )


def _suspected(session: Session) -> LabelErrors:
    """The labels that look wrong, kept for the page; the audit's passes serve this search too."""
    from undertow.labels.search import label_errors
    from undertow.labels.suspects import write_suspects

    found = label_errors(session)
    run = session.run
    write_suspects(found, session.samples.split("train").x, run.path, owner=run.facts.id)
    return found


def called() -> str:
    """How this program was called, so that a hint can be typed as it stands."""
    return sys.argv[0] if Path(sys.argv[0]).name == "undertow" else "undertow"


def _story(rows: list[dict[str, Any]]) -> Any:
    """The epochs that tell the story."""
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
            raise RunProblem(f"{folder} exists and is not an earlier demo. Choose another --out.")
        shutil.rmtree(folder)
    return folder
