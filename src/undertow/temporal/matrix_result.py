"""What all composites of a run answered: arrays to compute with, and tidy rows.

    found = composite_matrix(run)                     # see matrix.py
    found.predictions[found.cut("layer2"), i, j]      # (N,) of composite(shallow[i], deep[j]); -1: no number came
    found.pair("layer2", 10, 50)                      # the same by checkpoint
    found.own(50)                                     # (N,) of the whole model at 50
    found.accuracy("true")                            # (cuts, S, D)
    found.losses["true"]                              # (cuts, S, D) mean cross-entropy
    found.table                                       # pandas, one row per number

Labels are called `given` where training saw them and `true` otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadValue, unknown
from undertow.temporal.intervals import share_interval

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float64]

COLUMNS = (
    "lens", "measure", "layer", "shallow", "deep", "split", "labels", "value", "low", "high", "n", "note",
)  # fmt: skip
WHOLE = "output"
"""In place of a cut: the whole model, whose shallow and deep checkpoint are one."""


@dataclass(frozen=True, eq=False)
class CompositeMatrix:
    """Answers of composite(s, t) for every cut, shallow checkpoint s and deep checkpoint t."""

    cuts: tuple[str, ...]  # in the order in which they run
    shallow: tuple[int, ...]  # S checkpoints
    deep: tuple[int, ...]  # D checkpoints
    split: str
    predictions: Ints  # (cuts, S, D, N); -1 where an output was not a number
    models: tuple[int, ...]  # M checkpoints: all of the above, sorted
    own_predictions: Ints  # (M, N) of the whole models
    labels: Mapping[str, NDArray[np.int64]]  # given, true or none at all -> (N,)
    losses: Mapping[str, Floats]  # labels -> (cuts, S, D) mean cross-entropy; may be inf or NaN
    loss_errors: Mapping[str, Floats]  # labels -> (cuts, S, D) standard error of that mean over samples
    own_losses: Mapping[str, Floats]  # labels -> (M,)
    own_loss_errors: Mapping[str, Floats]  # labels -> (M,)
    batch_norm: tuple[str, ...]  # for each cut: where the deep part's statistics come from, in words
    plan: str  # what was held in memory
    sample_losses: Mapping[str, NDArray[np.float32]] = field(default_factory=dict[str, NDArray[np.float32]])
    """labels -> (cuts, S, D, N) where asked for."""
    own_sample_losses: Mapping[str, NDArray[np.float32]] = field(
        default_factory=dict[str, NDArray[np.float32]]
    )
    """labels -> (M, N) of the whole models, likewise."""

    @property
    def count(self) -> int:
        """The number of samples."""
        return self.predictions.shape[-1]

    def cut(self, name: str) -> int:
        """Where a cut stands."""
        if name not in self.cuts:
            raise unknown("cut", name, self.cuts)
        return self.cuts.index(name)

    def pair(self, cut: str, shallow: int, deep: int) -> Ints:
        """Predictions (N,) of one composite."""
        s, t = _place(self.shallow, shallow, "shallow"), _place(self.deep, deep, "deep")
        return self.predictions[self.cut(cut), s, t]

    def own(self, at: int) -> Ints:
        """Predictions (N,) of the whole model at a checkpoint."""
        return self.own_predictions[_place(self.models, at, "model")]

    def accuracy(self, labels: str = "true") -> Floats:
        """Share of right answers (cuts, S, D)."""
        return np.asarray(self._hits(labels) / self.count)

    def own_accuracy(self, labels: str = "true") -> Floats:
        """Share of right answers of the whole models (M,)."""
        return np.asarray((self.own_predictions == self._labels(labels)).mean(-1))

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per accuracy and mean loss; the whole models have the layer "output"."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()), columns=list(COLUMNS))

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of `table`."""
        composites = [
            (cut, s, t, self.batch_norm[at])
            for at, cut in enumerate(self.cuts)
            for s in self.shallow
            for t in self.deep
        ]
        models = [(WHOLE, at, at, "the whole model, own batch-norm statistics") for at in self.models]
        for labels, right in self.labels.items():
            wholes = (self.own_predictions == right).sum(-1)
            yield from self._shares(composites, self._hits(labels).ravel(), labels)
            yield from self._shares(models, wholes, labels)
        for labels, means in self.losses.items():
            yield from self._means(composites, means.ravel(), self.loss_errors[labels].ravel(), labels)
            yield from self._means(models, self.own_losses[labels], self.own_loss_errors[labels], labels)

    def _shares(
        self, keys: list[tuple[str, int, int, str]], hits: Ints, labels: str
    ) -> Iterator[dict[str, Any]]:
        lows, highs = share_interval(hits, self.count)
        for key, hit, low, high in zip(keys, hits, lows, highs, strict=True):
            alike = "; all answers alike: the bootstrap has no width" * (hit in (0, self.count))
            yield self._row("accuracy", key, labels, hit / self.count, low, high, alike)

    def _means(
        self, keys: list[tuple[str, int, int, str]], means: Floats, errors: Floats, labels: str
    ) -> Iterator[dict[str, Any]]:
        for key, mean, error in zip(keys, means, errors, strict=True):
            if not np.isfinite(mean):
                yield self._row("loss", key, labels, None, None, None, "; some losses are no finite numbers")
                continue
            low, high = (mean - 1.96 * error, mean + 1.96 * error) if np.isfinite(error) else (None, None)
            yield self._row("loss", key, labels, mean, low, high, "; low, high: 1.96 standard errors")

    def _row(
        self, measure: str, key: tuple[str, int, int, str], labels: str, value: float | None, low: float | None,
        high: float | None, more: str,
    ) -> dict[str, Any]:  # fmt: skip
        layer, shallow, deep, note = key
        values = (value, low, high)
        plain = (None if number is None else float(number) for number in values)
        count = self.count if value is not None else 0
        cells = ("temporal", measure, layer, shallow, deep, self.split, labels, *plain, count, note + more)
        return dict(zip(COLUMNS, cells, strict=True))

    def _hits(self, labels: str) -> Ints:
        return (self.predictions == self._labels(labels)).sum(-1)

    def _labels(self, name: str) -> NDArray[np.int64]:
        if name not in self.labels:
            raise unknown("set of labels here", name, self.labels, "The samples came without labels.")
        return self.labels[name]


def _place(known: tuple[int, ...], at: int, what: str) -> int:
    if at not in known:
        raise BadValue(f"composite matrix, {what} checkpoint", f"one of {', '.join(map(str, known))}", at)
    return known.index(at)
