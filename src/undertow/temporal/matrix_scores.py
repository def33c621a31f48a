"""Predictions and losses of composites, gathered batch by batch.

    scores = Scores(shape, data, outputs=(10,))       # what the network answers to one sample
    scores.composite("layer2", 10, 50, rows, outputs) # outputs (len, K) of one batch
    scores.own(10, rows, outputs)
    scores.close(10)                                  # all of shallow checkpoint 10 is there
    scores.result(plan, policies)

Losses are cross-entropies in float64. An answer with NaN in it is -1. The losses of every sample are held for one
shallow checkpoint only, unless they are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData
from undertow.temporal.matrix_data import CompositeSamples
from undertow.temporal.matrix_result import CompositeMatrix, Floats

Read = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Shape:
    """Which composites there are."""

    cuts: tuple[str, ...]
    shallow: tuple[int, ...]
    deep: tuple[int, ...]

    @property
    def models(self) -> tuple[int, ...]:
        """All checkpoints, each once."""
        return tuple(sorted({*self.shallow, *self.deep}))


class Scores:
    """Arrays that fill up; their layout is CompositeMatrix's."""

    def __init__(
        self,
        shape: Shape,
        data: CompositeSamples,
        outputs: int,
        *,
        read: Read | None = None,
        sample_losses: bool = False,
    ) -> None:
        """Make room.

        Args:
            shape: the composites.
            data: the samples and their labels.
            outputs: how many numbers the network answers with.
            read: how they are read as a class, where they are not one for each; then there are no losses.
            sample_losses: keep the loss of every sample.
        """
        self.shape, self.data, self.read = shape, data, read
        if read is None:
            _check_labels(data, outputs)
        whole = (len(shape.cuts), len(shape.shallow), len(shape.deep), data.count)
        kind = np.int16 if read is None and outputs <= np.iinfo(np.int16).max else np.int32
        self.predictions = np.full(whole, -1, dtype=kind)
        self.own_predictions = np.full((len(shape.models), data.count), -1, dtype=kind)
        sets = data.labels if read is None else {}
        self._now = {name: np.full((whole[0], *whole[2:]), np.nan) for name in sets}  # (cuts, D, N)
        self._own_now = {name: np.full(data.count, np.nan) for name in sets}
        self.losses, self.errors = _empty(sets, whole[:3]), _empty(sets, whole[:3])
        self.own_losses, self.own_errors = _empty(sets, len(shape.models)), _empty(sets, len(shape.models))
        self.sample_losses = {name: np.full(whole, np.nan, np.float32) for name in sets if sample_losses}
        models = (len(shape.models), data.count)
        self.own_sample_losses = {name: np.full(models, np.nan, np.float32) for name in self.sample_losses}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays: list[NDArray[Any]] = [self.predictions, self.own_predictions]
        arrays += [*self._now.values(), *self._own_now.values()]
        arrays += [*self.sample_losses.values(), *self.own_sample_losses.values()]
        return sum(array.nbytes for array in arrays)

    def composite(self, cut: str, shallow: int, deep: int, rows: slice, outputs: Tensor) -> None:
        """Take a batch of outputs of one composite."""
        c, t = self.shape.cuts.index(cut), self.shape.deep.index(deep)
        said, losses = self._score(rows, outputs)
        self.predictions[c, self.shape.shallow.index(shallow), t, rows] = said
        for name, values in losses.items():
            self._now[name][c, t, rows] = values

    def own(self, at: int, rows: slice, outputs: Tensor) -> None:
        """Take a batch of the whole model's outputs."""
        said, losses = self._score(rows, outputs)
        self.own_predictions[self.shape.models.index(at), rows] = said
        for name, values in losses.items():
            self._own_now[name][rows] = values

    def close(self, at: int, *, own_from_composite: bool) -> None:
        """Sum up a checkpoint; its own answers are those of composite(at, at) or came by `own`."""
        m = self.shape.models.index(at)
        s = self.shape.shallow.index(at) if at in self.shape.shallow else None
        if own_from_composite and s is not None:
            t = self.shape.deep.index(at)
            self.own_predictions[m] = self.predictions[-1, s, t]
            self._own_now = {name: part[-1, t].copy() for name, part in self._now.items()}
        for name, values in self._own_now.items():
            self.own_losses[name][m], self.own_errors[name][m] = _mean_and_error(values)
            if name in self.own_sample_losses:
                self.own_sample_losses[name][m] = values
        if s is not None:
            for name, values in self._now.items():
                self.losses[name][:, s], self.errors[name][:, s] = _mean_and_error(values)
                if name in self.sample_losses:
                    self.sample_losses[name][:, s] = values

    def result(self, plan: str, policies: tuple[str, ...]) -> CompositeMatrix:
        """What was found."""
        return CompositeMatrix(
            cuts=self.shape.cuts,
            shallow=self.shape.shallow,
            deep=self.shape.deep,
            split=self.data.split,
            predictions=self.predictions,
            models=self.shape.models,
            own_predictions=self.own_predictions,
            labels={name: labels.numpy() for name, labels in self.data.labels.items()},
            losses=self.losses,
            loss_errors=self.errors,
            own_losses=self.own_losses,
            own_loss_errors=self.own_errors,
            batch_norm=policies,
            plan=plan,
            sample_losses=self.sample_losses,
            own_sample_losses=self.own_sample_losses,
        )

    def _score(self, rows: slice, outputs: Tensor) -> tuple[NDArray[Any], dict[str, NDArray[np.float64]]]:
        outputs = outputs.detach().cpu()
        missing = outputs.isnan().any(1)
        said = outputs.argmax(1) if self.read is None else self.read(outputs)
        said = said.masked_fill(missing, -1).numpy()
        if not self.losses:
            return said, {}
        logs = outputs.double().log_softmax(1)
        right = {name: labels[rows] for name, labels in self.data.labels.items()}
        return said, {name: -logs.gather(1, labels[:, None])[:, 0].numpy() for name, labels in right.items()}


def class_outputs(outputs: Tensor) -> Tensor:
    """The outputs (N, K) themselves; anything else is refused."""
    if outputs.ndim != 2:
        raise BadData(
            f"composites: wanted one row of outputs for each sample, (N, K), got shape {tuple(outputs.shape)}. "
            "Wrap the model so that it answers with one number per class."
        )
    return outputs


def _check_labels(data: CompositeSamples, outputs: int) -> None:
    if outputs < 2:
        raise BadData("composites: wanted a network with two outputs or more, one per class, got 1.")
    for name, labels in data.labels.items():
        bad = ((labels < 0) | (labels >= outputs)).nonzero()
        if len(bad):
            raise BadData(
                f"composites, {data.split} ({name} labels): wanted class numbers 0 to {outputs - 1}, as the network "
                f"has {outputs} outputs, got {int(labels[bad[0]])} at index {int(bad[0])}."
            )


def _empty(names: Any, shape: Any) -> dict[str, Floats]:
    return {name: np.full(shape, np.nan) for name in names}


def _mean_and_error(values: Floats) -> tuple[Any, Any]:
    """Mean over the samples (the last axis) and its standard error; one sample has none."""
    count = values.shape[-1]
    # Losses that overflow are told as such by whoever reads the mean.
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.mean(-1)
        error = values.std(-1, ddof=1) / count**0.5 if count > 1 else np.full(mean.shape, np.nan)
    return mean, error
