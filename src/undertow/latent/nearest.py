"""Nearest mean and nearest neighbours: the baselines that know distances only.

    NearestMean().fit(features, labels).predict(test_features)          # cosine with the class means
    NearestMean("euclidean").fit_moments(moments)
    KNN(k=5).fit(features, labels).predict(test_features)               # vote of the 5 nearest rows

Under the cosine a row that is zero has no direction: it is equally near to all. In a vote that is tied,
the class that comes first in `classes_` wins, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from undertow.errors import BadValue, unknown
from undertow.features.wide import Rows, mean_of
from undertow.latent.arrays import Array, as_tensor, is_whole, matching, scaled
from undertow.latent.probe import LabelSet, MomentsProbe, Probe, class_means

if TYPE_CHECKING:
    from undertow.features.moments import Moments

METRICS = ("cosine", "euclidean")

EXACT = "donot_use_mm_for_euclid_dist"

PAIRS = 1 << 24
"""Distances that are held at once: 64 MB in float32."""


class NearestMean(MomentsProbe):
    """Label a row with the class whose mean is nearest.

    After `fit`: `means_` (C, D), float64.

    Args:
        metric: "cosine" for the smallest angle, "euclidean" for the smallest distance.
    """

    means_: Array

    def __init__(self, metric: str = "cosine") -> None:
        self.metric = metric

    def fit_rows(self, rows: Sequence[Rows], classes: Sequence[Any] | Array | None = None) -> Self:
        """Learn from rows that are read in blocks, one item per class, as `MASC.fit_rows`."""
        self._check_settings()
        self._start(rows[0].shape[1], torch.tensor([part.shape[0] for part in rows]), classes)
        means = torch.stack([mean_of(part) for part in rows])
        self._keep({"means_": means}, like=means)
        return self

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Tensor]:
        return {"means_": class_means(rows, index, counts)}

    def _learn_moments(self, moments: Moments) -> dict[str, Tensor]:
        return {"means_": moments.means.clone()}

    def _score(self, rows: Tensor) -> Tensor:
        if self.metric == "cosine":
            return unit(rows) @ unit(as_tensor(self.means_)).to(rows.device, rows.dtype).T
        # The shortcut by a matrix product cancels: it scored 0.10 on 30 means 1e-7 apart at offset 10.
        far = torch.cdist(rows.double(), as_tensor(self.means_).to(rows.device), compute_mode=EXACT)
        return -far.to(rows.dtype)

    def _check_settings(self) -> None:
        check_metric("NearestMean", self.metric)


class KNN(Probe):
    """Label a row with the class that most of its `k` nearest training rows have.

    The score of a class is its share of those `k`; with fewer training rows than `k`, all of them vote.
    After `fit`: `rows_` (N, D), of length 1 under the cosine, `index_` (N,) their class numbers.

    Args:
        k: how many neighbours vote.
        metric: "cosine" or "euclidean".
    """

    rows_: Array
    index_: Array

    def __init__(self, k: int = 5, metric: str = "cosine") -> None:
        self.k = k
        self.metric = metric

    def _learn_each(
        self, rows: Tensor, sets: Sequence[LabelSet], probes: Sequence[Probe]
    ) -> list[dict[str, Any]]:
        known = unit(rows) if self.metric == "cosine" else rows.clone()
        return [{"rows_": known, "index_": index} for index, _ in sets]

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Any]:
        return self._learn_each(rows, [(index, counts)], [self])[0]

    def _kind(self) -> object:
        """Probes that know the same rows have the same neighbours."""
        return repr(self), id(self.rows_)

    def _prepare(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The rows, and the places (N, k) of their nearest training rows."""
        known = matching(self.rows_, rows)
        k = min(self.k, len(known))
        nearness = (
            unit(part) @ known.T if self.metric == "cosine" else _nearness(part, known)
            for part in rows.split(max(1, PAIRS // len(known)))
        )
        return rows, torch.cat([near.topk(k, dim=1).indices for near in nearness])

    def _score(self, rows: tuple[Tensor, Tensor]) -> Tensor:
        own, nearest = rows
        voters = as_tensor(self.index_).to(own.device)[nearest]
        votes = own.new_zeros(len(own), len(self.classes_))
        return votes.scatter_add_(1, voters, torch.ones_like(voters, dtype=own.dtype)) / voters.shape[1]

    def _check_settings(self) -> None:
        check_metric("KNN", self.metric)
        if not is_whole(self.k, 1):
            raise BadValue("KNN(k=...)", "a whole number from 1 up", self.k)


def unit(rows: Tensor) -> Tensor:
    """`rows` with length 1; zeros stay zeros."""
    rows = scaled(rows)
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(length > 0, length, 1)


def check_metric(who: str, metric: str) -> None:
    """Refuse a metric that nobody knows."""
    if metric not in METRICS:
        raise unknown(f"metric for {who}", metric, METRICS)


def _nearness(rows: Tensor, known: Tensor) -> Tensor:
    """(N, n) numbers that fall with the distance: minus its square, up to a constant per row."""
    # Centred and in float64: |x|^2 - 2 x.y + |y|^2 of far-off points would cancel.
    centre = known.double().mean(0)
    known = known.double() - centre
    return 2 * (rows.double() - centre) @ known.T - known.square().sum(1)
