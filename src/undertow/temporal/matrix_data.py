"""Samples for composites, batch by batch, as a session's models take them.

    samples = gather(session, None)                    # the session's own test split
    samples = gather(session, "train")                 # given and true labels
    samples = gather(session, x, y, split="corrupted") # anyone's
    samples.batch(slice(0, 256), device)               # inputs, scaled as in training

What undertow trained says how its pixels were scaled, and the same is done to whatever samples are given; inputs of
other runs are fed as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.data.inputs import to_inputs
from undertow.data.samples import DataSet, Samples
from undertow.errors import BadData, BadValue, unknown
from undertow.features.stream import count_samples, rows_of
from undertow.features.tap import Inputs, to_device
from undertow.session.samples import TEST, TRAIN, gather_samples
from undertow.session.session import Session
from undertow.session.splits import Split, take
from undertow.training.seeds import stream

CALIBRATION = 1024
"""Training samples that batch-norm statistics are estimated on unless told otherwise."""


@dataclass(frozen=True, eq=False)
class CompositeSamples:
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


Source = Inputs | Samples | DataSet | CompositeSamples | str | None
"""Where samples come from: given, or the name of one of the session's own splits."""


def gather(
    session: Session, x: Source, y: Tensor | None = None, split: str | None = None
) -> CompositeSamples:
    """The samples that `x` names or is; `split` is what their rows are called (test unless told otherwise)."""
    if y is not None and not isinstance(x, Tensor | Mapping | tuple | list):
        raise BadValue("composites", "labels y beside bare inputs only", type(x).__name__, "Leave y out.")
    if isinstance(x, CompositeSamples):
        return x
    name = split or (x if isinstance(x, str) else TEST)
    if x is None or isinstance(x, str):
        own = session.samples
        return _of_split(own.split(_known(x or TEST)), name, own.scaling)
    if isinstance(x, DataSet):
        own = gather_samples(session.run, x, None, session.config)
        return _of_split(own.split(_known(name)), name, own.scaling)
    if isinstance(x, Samples):
        labels = (
            Split(x.x, x.y, x.true) if name == TRAIN else Split(x.x, None, x.y if x.true is None else x.true)
        )
        return _of_split(labels, name, session.scaling)
    if not isinstance(x, Tensor | Mapping | tuple | list):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadValue("composites", "Samples, a DataSet, inputs as tensors, train or test", type(x).__name__)
    labels = {} if y is None else {"given" if name == TRAIN else "true": _checked(y, count_samples(x))}
    return CompositeSamples(x, labels, name, session.scaling)


def _of_split(split: Split, name: str, scaling: str | None) -> CompositeSamples:
    labels = {which: own.cpu() for which, own in split.label_sets().items()}
    return CompositeSamples(split.x, labels, name, scaling)


def gather_calibration(session: Session, x: Source) -> CompositeSamples:
    """The samples for batch-norm statistics: those given, else some of the session's training samples."""
    if x is not None:
        return gather(session, x, split="calibration" if not isinstance(x, str | DataSet) else None)
    own = session.samples
    train = own.split(TRAIN)
    drawn = torch.randperm(len(train), generator=stream(0, "recalibration"))[:CALIBRATION]
    return CompositeSamples(take(train.x, drawn), {}, TRAIN, own.scaling)


def _known(name: str) -> str:
    if name not in (TRAIN, TEST):
        raise unknown("split", name, (TRAIN, TEST))
    return name


def _checked(y: Tensor, count: int) -> Tensor:
    if not isinstance(y, Tensor) or y.ndim != 1 or len(y) != count or y.dtype != torch.int64:  # pyright: ignore[reportUnnecessaryIsInstance]
        got = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadData(f"composites: wanted {count} labels (N,) as int64 class numbers, got {got}.")
    return y.cpu()
