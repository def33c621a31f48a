"""Nearest mean and nearest neighbours: the baselines that know distances only.

    NearestMean().fit(features, labels).predict(test_features)          # cosine with the class means
    NearestMean("euclidean").fit_moments(moments)
    KNN(k=5).fit(features, labels).predict(test_features)               # vote of the 5 nearest rows

Under the cosine a row that is zero has no direction: it is equally near to all. In a vote that is tied,
the class that comes first in `classes_` wins, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from undertow.errors import BadValue, unknown
from undertow.features.products import FINE, column_means, product_dtype, resolution
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
        parts = rows.split(max(1, PAIRS // len(known)))
        if self.metric == "cosine":
            return rows, torch.cat([(unit(part) @ known.T).topk(k, dim=1).indices for part in parts])
        points = _Points(known)
        return rows, torch.cat([points.nearest(part, k) for part in parts])

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


class _Points:
    """Points (n, D) whose nearest by distance are found; by products in float32 where those are sure to name the same.

    A row x is the nearer to y, the larger x.y - |y|^2 / 2 is, both around the mean of the points: |x|^2 - 2 x.y + |y|^2
    of far-off points would cancel. A product of float32 is off by at most (D + 4) roundings of |x| |y|. If the k-th
    nearness is ahead of the next one by more than both may be off, the k are those of float64; other rows, ties
    among them, are multiplied in float64.
    """

    def __init__(self, points: Tensor) -> None:
        self._points, self._centre = points, column_means(points)
        off = [torch.sub(part, self._centre) for part in points.split(FINE)]
        lengths = torch.cat([torch.linalg.vector_norm(part, dim=1) for part in off])
        self._halves, self._longest = lengths.square() / 2, float(lengths.max())
        quick = product_dtype(points.float()) == torch.float32
        self._coarse = torch.cat([part.float() for part in off]) if quick else None

    @cached_property
    def _fine(self) -> Tensor:
        return torch.sub(self._points, self._centre)

    def nearest(self, rows: Tensor, k: int) -> Tensor:
        """Places (N, k) of the nearest points to each row."""
        off = torch.sub(rows, self._centre)
        if self._coarse is None or k == len(self._points):
            return self._surely(off, k)
        near = torch.addmm(-self._halves.float(), off.float(), self._coarse.T).topk(k + 1, dim=1)
        ahead = (near.values[:, k - 1] - near.values[:, k]).double()
        # Beyond float32 nothing is sure: no infinity is ahead by a number.
        unsure = ~(ahead > 2 * self._error(off)) | ahead.isinf()
        found = near.indices[:, :k].contiguous()
        if bool(unsure.any()):
            found[unsure] = self._surely(off[unsure], k)
        return found

    def _error(self, off: Tensor) -> Tensor:
        """(N,) how far a nearness in float32 may be off."""
        roundings = (off.shape[1] + 4) * resolution(torch.float32)
        lengths = torch.linalg.vector_norm(off, dim=1)
        return roundings * (lengths * self._longest + self._longest**2 / 2)

    def _surely(self, off: Tensor, k: int) -> Tensor:
        return (off @ self._fine.T - self._halves).topk(k, dim=1).indices
