"""What all probes share: scikit-learn's manners for numpy arrays and torch tensors.

    class Mine(Probe):
        means_: Array
        def _learn(self, rows, index, counts):       # (N, D), class numbers (N,), rows per class (C,)
            return {"means_": ...}                   # fitted attributes, kept in the kind of X
        def _score(self, rows):                      # (N, D) -> (N, C), larger is better
            return rows @ matching(self.means_, rows).T

    probe = Mine().fit(X, y)
    probe.predict(X); probe.scores(X); probe.decision_function(X); probe.score(X, y)
    given, true = Mine().fit_each(X, [y, y_true])    # several sets of labels on the same rows
    Probe.predict_each([given, true], X)             # several probes for the same rows

Answers come in kind: a tensor for a tensor, on its device; a numpy array for all else. Class names that
no tensor can hold (strings) come as numpy arrays. Scores are computed in the dtype of the rows asked about
(discriminants in float64). Equal scores go to the class that comes first in `classes_`, as scikit-learn does
it. A class without training rows (possible where a probe is fitted from moments) scores minus infinity and is
never predicted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from undertow.errors import BadData
from undertow.latent.arrays import Array, as_tensor, as_written, feature_rows, in_kind, label_array

if TYPE_CHECKING:
    from undertow.features.moments import Moments

LabelSet = tuple[Tensor, Tensor]
"""Class numbers (N,), and rows per class (C,), all at least 1."""

ROWS = 4096
"""Rows that are scored at once, which bounds the memory of a prediction."""


class Probe(ClassifierMixin, BaseEstimator):
    """A classifier of feature rows.

    After `fit`: `classes_` (C,) names, `counts_` (C,) training rows per class, `n_features_in_`.
    """

    classes_: Array
    counts_: Array
    n_features_in_: int

    def fit(self, X: Array, y: Array) -> Self:
        """Learn from rows `X` (N, D) with class names `y` (N,): whole numbers or strings."""
        self._check_settings()
        self._fit([self], feature_rows(self, X, reset=True), [y], like=X)
        return self

    def fit_each(self, X: Array, label_sets: Sequence[Array]) -> list[Self]:
        """One new probe for each set of class names (N,), as `fit` makes them; work that they share is done once."""
        self._check_settings()
        first = copy(self)
        rows = feature_rows(first, X, reset=True)
        probes = [copy(first) for _ in label_sets]
        self._fit(probes, rows, label_sets, like=X)
        return probes

    def _fit(self, probes: Sequence[Self], rows: Tensor, label_sets: Sequence[Array], like: Array) -> None:
        sets: list[LabelSet] = []
        for probe, y in zip(probes, label_sets, strict=True):
            names, index = np.unique(label_array(type(self).__name__, y, len(rows)), return_inverse=True)
            probe.classes_ = torch.from_numpy(names).to(y.device) if isinstance(y, Tensor) else names
            counts = np.bincount(index, minlength=len(names))
            sets.append((torch.from_numpy(index).to(rows.device), torch.from_numpy(counts).to(rows.device)))
        with as_written(rows.device):
            learned = self._learn_each(rows, sets, probes)
        for probe, (_, counts), own in zip(probes, sets, learned, strict=True):
            probe._keep({**own, "counts_": counts}, like)

    def predict(self, X: Array) -> Array:
        """The name of the class with the largest score, for each row (N,)."""
        return self._named(as_tensor(self.scores(X)).argmax(1), like=X)

    @staticmethod
    def predict_each(probes: Sequence[Probe], X: Array) -> list[Array]:
        """`predict` of each probe for the same rows (N, D); what probes of one kind share is done once."""
        kinds: dict[object, list[Probe]] = {}
        for probe in dict.fromkeys(probes):
            check_is_fitted(probe)
            kinds.setdefault(probe._kind(), []).append(probe)
        best: dict[Probe, list[Tensor]] = {probe: [] for probe in probes}
        for part in feature_rows(probes[0], X, reset=False).split(ROWS) if probes else ():
            with as_written(part.device):
                for group in kinds.values():
                    prepared = group[0]._prepare(part)
                    for probe in group:
                        best[probe].append(probe._masked(probe._score(prepared)).argmax(1))
        return [probe._named(torch.cat(best[probe]), like=X) for probe in probes]

    def scores(self, X: Array) -> Array:
        """The score of each class for each row (N, C), in the order of `classes_`."""
        check_is_fitted(self)
        rows = feature_rows(self, X, reset=False)
        with as_written(rows.device):
            parts = [self._masked(self._score(self._prepare(part))) for part in rows.split(ROWS)]
        return in_kind(torch.cat(parts), like=X)

    def decision_function(self, X: Array) -> Array:
        """`scores`; for two classes, as scikit-learn wants it, the second's minus the first's (N,)."""
        scores = self.scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """The share of rows whose predicted class is `y`, weighted if wanted."""
        found = _numpy(self.predict(X))
        right = found == label_array(type(self).__name__, y, len(found))
        return float(np.average(right, weights=None if sample_weight is None else _numpy(sample_weight)))

    def _learn_each(
        self, rows: Tensor, sets: Sequence[LabelSet], probes: Sequence[Probe]
    ) -> list[dict[str, Any]]:
        """`_learn` of each set of labels by the probe that will keep it."""
        return [probe._learn(rows, *own) for probe, own in zip(probes, sets, strict=True)]

    @abstractmethod
    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Any]:
        """Fitted attributes from rows (N, D), class numbers (N,) and rows per class (C,), all at least 1."""

    @abstractmethod
    def _score(self, rows: Any) -> Tensor:
        """(N, C) scores of what `_prepare` gave, larger is better."""

    def _prepare(self, rows: Tensor) -> Any:
        """What `_score` takes of rows (N, D); the same for all probes of one `_kind`."""
        return rows

    def _kind(self) -> object:
        """Equal for probes that prepare rows alike: those of one class with the same settings."""
        return type(self), *(repr(getattr(self, name)) for name in _settings_of(type(self)))

    def _masked(self, scores: Tensor) -> Tensor:
        """The scores with minus infinity for classes without training rows."""
        return scores.masked_fill(as_tensor(self.counts_).to(scores.device) == 0, -torch.inf)

    def _named(self, best: Tensor, like: object) -> Array:
        """Class numbers as names."""
        if isinstance(like, Tensor) and (
            isinstance(self.classes_, Tensor) or self.classes_.dtype.kind in "biuf"
        ):
            return as_tensor(self.classes_).to(like.device)[best]
        return _numpy(self.classes_)[best.cpu().numpy()]

    def _check_settings(self) -> None:
        """Refuse settings that make no sense; called by every fit, as scikit-learn does it."""

    def _keep(self, learned: Mapping[str, Any], like: object) -> None:
        for name, value in learned.items():
            setattr(self, name, in_kind(value, like) if isinstance(value, Tensor) else value)


class MomentsProbe(Probe):
    """A probe that needs no more than the moments of each class."""

    def fit_moments(self, moments: Moments, classes: Sequence[Any] | Array | None = None) -> Self:
        """Learn from gathered moments, without seeing a feature again; fitted attributes are tensors.

        Args:
            moments: of the training rows, by class number.
            classes: names of the classes in the order of their numbers; the numbers by default.
        """
        self._check_settings()
        self._start(moments.dim, moments.counts, classes)
        with as_written(moments.means.device):
            self._keep(self._learn_moments(moments), like=moments.means)
        return self

    @abstractmethod
    def _learn_moments(self, moments: Moments) -> dict[str, Tensor]:
        """Fitted attributes from moments; some classes may have no rows."""

    def _start(self, dim: int, counts: Tensor, classes: Sequence[Any] | Array | None) -> None:
        """Note width, counts and names of the classes."""
        who = type(self).__name__
        names = torch.arange(len(counts), device=counts.device) if classes is None else classes
        if len(names) != len(counts):
            raise BadData(f"{who}: wanted names for {len(counts)} classes, got {len(names)}.")
        if not int(counts.sum()):
            raise BadData(f"{who}: wanted training rows, got none for any of {len(counts)} classes.")
        self.n_features_in_ = dim
        self.classes_ = names if isinstance(names, Tensor) else np.asarray(names)
        self.counts_ = counts.clone()


@cache
def _settings_of(kind: type[Probe]) -> tuple[str, ...]:
    """Names of the settings, asked once: scikit-learn looks at the signature each time."""
    return tuple(kind._get_param_names())  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType, reportUnknownArgumentType]


def block_rows(rows: Tensor) -> int:
    """How many rows to copy at once: a copy of 8 MB in float64 stays near the processor, at a quarter of the cost."""
    return max(1, (1 << 20) // rows.shape[1])


def by_class(index: Tensor, counts: Tensor) -> list[Tensor]:
    """For each class the places (n_c,) of its rows, in order."""
    return list(index.argsort(stable=True).split(counts.tolist()))


def class_means(rows: Tensor, index: Tensor, counts: Tensor) -> Tensor:
    """(C, D) float64 mean of each class; zeros for a class without rows."""
    sums = torch.zeros(len(counts), rows.shape[1], dtype=torch.float64, device=rows.device)
    step = block_rows(rows)
    for part, numbers in zip(rows.split(step), index.split(step), strict=True):
        sums.index_add_(0, numbers, part.double())
    return sums / counts.clamp(min=1)[:, None]


def _numpy(array: Array) -> NDArray[Any]:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)
