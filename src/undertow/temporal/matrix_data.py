"""Samples for composites, batch by batch, as a run's model takes them.

    samples = gather(run, None)                    # the run's own test split
    samples = gather(run, "train")                 # given and true labels
    samples = gather(run, x, y, split="corrupted") # anyone's
    samples.batch(slice(0, 256), device)           # inputs, scaled as in training

What undertow trained says how its pixels were scaled, and the same is done to whatever samples are given; inputs of
other runs are fed as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undertow.data.entries import rows_of as samples_at
from undertow.data.inputs import to_inputs
from undertow.data.samples import DataSet, Samples
from undertow.errors import BadData, BadValue, unknown
from undertow.features.stream import count_samples, rows_of
from undertow.features.tap import Inputs, to_device
from undertow.training.run import Run
from undertow.training.schedule import CheckpointSchedule
from undertow.training.seeds import stream

CALIBRATION = 1024
"""Training samples that batch-norm statistics are estimated on unless told otherwise."""


@dataclass(frozen=True, eq=False)
class Given:
    """Samples, their sets of labels by name, and how they become inputs."""

    x: Inputs
    labels: Mapping[str, Tensor]  # given or true -> (N,) int64 on the CPU
    split: str
    scaling: str | None

    @property
    def count(self) -> int:
        """The number of samples."""
        return count_samples(self.x)

    def batch(self, rows: slice, device: torch.device | None) -> Inputs:
        """Inputs of some samples on the model's device."""
        part = to_device(rows_of(self.x, rows), device)
        return to_inputs(part, self.scaling) if self.scaling and isinstance(part, Tensor) else part


Source = Inputs | Samples | DataSet | Given | str | None
"""Where samples come from: given, or the name of one of the run's own splits."""


def gather(run: Run, x: Source, y: Tensor | None = None, split: str | None = None) -> Given:
    """The samples that `x` names or is; `split` is what their rows are called (test unless told otherwise)."""
    if y is not None and not isinstance(x, Tensor | Mapping | tuple | list):
        raise BadValue("composites", "labels y beside bare inputs only", type(x).__name__, "Leave y out.")
    if isinstance(x, Given):
        return x
    scaling = run.facts.data["scaling"] if run.facts.data else None
    name = split or (x if isinstance(x, str) else "test")
    if x is None or isinstance(x, str):
        data, part = run.data(), x or "test"
        x, scaling = _part(data, part), data.scaling
        return Given(x.x, _label_sets(x.y, x.true, part), name, scaling)
    if isinstance(x, DataSet):
        x, scaling = _part(x, name), scaling or x.scaling
    if isinstance(x, Samples):
        return Given(x.x, _label_sets(x.y, x.true, name), name, scaling)
    if not isinstance(x, Tensor | Mapping | tuple | list):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadValue("composites", "Samples, a DataSet, inputs as tensors, train or test", type(x).__name__)
    return Given(
        x, {} if y is None else _label_sets(_checked(y, count_samples(x)), None, name), name, scaling
    )


def gather_calibration(run: Run, x: Source) -> Given:
    """The samples for batch-norm statistics: those given, else some of the run's training samples."""
    if x is not None:
        return gather(run, x, split="calibration" if not isinstance(x, str | DataSet) else None)
    data = run.data()
    drawn = torch.randperm(len(data.train), generator=stream(0, "recalibration"))[:CALIBRATION]
    return Given(samples_at(data.train.x, drawn), {}, "train", data.scaling)


def chosen_checkpoints(run: Run, asked: Any) -> tuple[int, ...]:
    """The checkpoints that `asked` names: all, last, every:5, a list such as 0,10,60, or numbers."""
    if asked == "all":
        return run.epochs
    if asked == "last":
        return (run.epochs[-1],)
    if isinstance(asked, str):
        try:
            schedule = CheckpointSchedule.parse(asked)
        except BadValue:
            wanted = "all, last, every:5 or a list such as 0,10,60"
            raise BadValue("checkpoints", wanted, asked) from None
        if schedule.kind != "list":
            return tuple(at for at in run.epochs if at in schedule.moments(run.epochs[-1]))
        asked = schedule.numbers
    numbers = [asked] if isinstance(asked, int) else list(asked)
    if not numbers:
        raise BadValue("checkpoints", "at least one", numbers)
    return tuple(sorted({run.checkpoint(at).at for at in numbers}))


def _part(data: DataSet, name: str) -> Samples:
    if name not in ("train", "test"):
        raise unknown("split", name, ("train", "test"))
    return data.train if name == "train" else data.test


def _checked(y: Tensor, count: int) -> Tensor:
    if not isinstance(y, Tensor) or y.ndim != 1 or len(y) != count or y.dtype != torch.int64:  # pyright: ignore[reportUnnecessaryIsInstance]
        got = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadData(f"composites: wanted {count} labels (N,) as int64 class numbers, got {got}.")
    return y


def _label_sets(y: Tensor, true: Tensor | None, split: str) -> dict[str, Tensor]:
    """Labels of training are given ones, beside true ones where known; all others count as true."""
    if split != "train":
        return {"true": (y if true is None else true).cpu()}
    return {"given": y.cpu()} | ({} if true is None else {"true": true.cpu()})
