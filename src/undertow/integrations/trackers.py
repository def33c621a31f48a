"""An audit in the tracker that people look at anyway: the flat measures, one table, one heat map.

    from undertow.integrations.trackers import log_audit

    log_audit(result, SummaryWriter("tb"))          # TensorBoard
    log_audit(result, wandb.init(mode="offline"))   # Weights & Biases
    log_audit(result, mlflow)                       # MLflow's active run, or mlflow.start_run(...)
    log_audit(result, trackio.init("mine"))         # trackio
    log_audit(result, trainer.logger)               # Lightning's loggers of these
    Watch(..., log=log_to(writer))                  # numbers while training

Measures are called undertow/latent_gap and the like, the table undertow/table, the map of layers over checkpoints
undertow/heat_map.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from undertow.auditing.outcome import Audit
from undertow.errors import BadData, BadValue
from undertow.report.figures import draw

if TYPE_CHECKING:
    import pandas as pd

TABLE, HEAT_MAP = "undertow/table", "undertow/heat_map"
SHOWN = 2000
"""Rows of a table in TensorBoard, which shows text only."""


class Tracker(Protocol):
    """What every tracker can do, each in its own way."""

    def numbers(self, values: Mapping[str, float], at: int) -> None:
        """Keep numbers at a step."""
        ...

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """Keep a table."""
        ...

    def picture(self, name: str, path: Path) -> None:
        """Keep a picture, a PNG."""
        ...


def log_audit(result: Audit, to: Any, *, at: int | None = None) -> None:
    """Log an audit: its measures at the step `at` (the last checkpoint's number), its table, its heat map."""
    tracker = tracker_of(to)
    step = result.evidence.last if at is None else at
    tracker.numbers({f"undertow/{name}": value for name, value in result.measures.items()}, step)
    tracker.table(TABLE, _plain(result.table))
    with TemporaryDirectory() as folder:
        place = result.save(folder) if result.folder is None else result.folder
        try:
            picture = draw(place, "heat-map", out=folder)[0]
        except BadData:  # no layer was probed: no map
            return
        tracker.picture(HEAT_MAP, picture)


def log_to(to: Any) -> Callable[[dict[str, float], int], None]:
    """A function that logs numbers at a step, for `Watch(log=...)`."""
    return tracker_of(to).numbers


def tracker_of(to: Any) -> Tracker:
    """The tracker behind what people hold in their hands."""
    held = getattr(to, "experiment", to)  # Lightning's loggers hold theirs there
    home = held.__name__ if inspect.ismodule(held) else type(held).__module__
    match home.split(".")[0]:
        case "torch" | "tensorboardX" if hasattr(held, "add_scalar"):
            return TensorBoard(held)
        case "wandb":
            return Wandb(held)
        case "trackio":
            return Trackio(held)
        case "mlflow":
            return MLflow(_mlflow_run(to))
        case _:
            raise BadValue(
                "log_audit", "a TensorBoard SummaryWriter, a run of wandb, MLflow or trackio, or Lightning's logger",
                type(to).__name__,
            )  # fmt: skip


@dataclass(frozen=True)
class TensorBoard:
    """A SummaryWriter: scalars, the table as Markdown, the map as an image."""

    writer: Any

    def numbers(self, values: Mapping[str, float], at: int) -> None:
        """As scalars."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, at)

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """As Markdown."""
        self.writer.add_text(name, _markdown(rows.dropna(axis=1, how="all").head(SHOWN)))

    def picture(self, name: str, path: Path) -> None:
        """As an image."""
        import numpy as np
        from PIL import Image

        self.writer.add_image(name, np.asarray(Image.open(path).convert("RGB")), dataformats="HWC")


@dataclass(frozen=True)
class Wandb:
    """A run of Weights & Biases."""

    run: Any

    def numbers(self, values: Mapping[str, float], at: int) -> None:
        """Beside the number of the checkpoint: wandb refuses steps that go back."""
        self.run.log({**values, "undertow/at": at})

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """As a wandb.Table."""
        import wandb

        self.run.log({name: wandb.Table(dataframe=rows)})

    def picture(self, name: str, path: Path) -> None:
        """As a wandb.Image."""
        import wandb

        self.run.log({name: wandb.Image(str(path))})


@dataclass(frozen=True)
class Trackio:
    """A run of trackio, whose calls are wandb's."""

    run: Any

    def numbers(self, values: Mapping[str, float], at: int) -> None:
        """Beside the number of the checkpoint."""
        self.run.log({**values, "undertow/at": at})

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """As a trackio.Table."""
        import trackio  # pyright: ignore[reportMissingImports]

        self.run.log({name: trackio.Table(dataframe=rows)})

    def picture(self, name: str, path: Path) -> None:
        """As a trackio.Image."""
        import trackio  # pyright: ignore[reportMissingImports]

        self.run.log({name: trackio.Image(str(path))})


@dataclass(frozen=True)
class MLflow:
    """A run of MLflow by its number."""

    run_id: str

    def numbers(self, values: Mapping[str, float], at: int) -> None:
        """As metrics."""
        for name, value in values.items():
            _client().log_metric(self.run_id, name, value, step=at)

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """As an artifact that MLflow shows as a table."""
        _client().log_table(self.run_id, rows, f"{name}.json")

    def picture(self, name: str, path: Path) -> None:
        """As an artifact."""
        from PIL import Image

        _client().log_image(self.run_id, Image.open(path), f"{name}.png")


def _client() -> Any:
    from mlflow import MlflowClient

    return MlflowClient()


def _mlflow_run(to: Any) -> str:
    """The number of a run: of the module's active one, of a run, or of Lightning's logger."""
    if inspect.ismodule(to):
        to = to.active_run() or to.start_run()
    return str(getattr(to, "run_id", None) or to.info.run_id)


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Plain Python values, None where there is none: what any tracker can write as JSON."""
    return rows.astype(object).where(rows.notna(), None)


def _markdown(rows: pd.DataFrame) -> str:
    """A table that TensorBoard can show."""
    lines = [list(map(str, rows.columns)), ["---"] * len(rows.columns)]
    lines += [["" if cell is None else f"{cell}" for cell in row] for row in rows.itertuples(index=False)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
