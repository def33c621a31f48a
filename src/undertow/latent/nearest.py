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

ACROSS = 2048
"""Points that rows are compared with at once: products of so many are faster than of all."""

SPARE = 32
"""More points than wanted, among which those are that float32 cannot tell apart."""


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
            return rows, torch.cat([_largest(unit(part), known, k)[1] for part in parts])
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
        values, places = _largest(off.float(), self._coarse, k + 1, -self._halves.float())
        found = places[:, :k].contiguous()
        unsure = self._unsure(values, k, off)
        if len(unsure):
            found[unsure] = self._among_more(off[unsure], self._coarse, k)
        return found

    def _among_more(self, off: Tensor, coarse: Tensor, k: int) -> Tensor:
        """The same in float64: of the points that may be the nearest, or of all where those are many."""
        count = min(k + SPARE, len(self._points))
        values, places = _largest(off.float(), coarse, count, -self._halves.float())
        found = places.gather(1, self._fine_of(off, places).topk(k, dim=1).indices)
        many = self._unsure(values, k, off) if count < len(self._points) else []
        if len(many):
            found[many] = self._surely(off[many], k)
        return found

    def _unsure(self, values: Tensor, k: int, off: Tensor) -> Tensor:
        """The rows whose k-th nearness may be ahead of the last of `values` (N, M) by rounding only."""
        ahead = (values[:, k - 1] - values[:, -1]).double()
        # Beyond float32 nothing is sure: no infinity is ahead by a number.
        return (~(ahead > 2 * self._error(off)) | ahead.isinf()).nonzero()[:, 0]

    def _fine_of(self, off: Tensor, places: Tensor) -> Tensor:
        """(N, M) how near the points at `places` (N, M) are, in float64."""
        each = [
            torch.sub(self._points[own], self._centre) @ row for own, row in zip(places, off, strict=True)
        ]
        return torch.stack(each) - self._halves[places]

    def _error(self, off: Tensor) -> Tensor:
        """(N,) how far a nearness in float32 may be off."""
        roundings = (off.shape[1] + 4) * resolution(torch.float32)
        lengths = torch.linalg.vector_norm(off, dim=1)
        return roundings * (lengths * self._longest + self._longest**2 / 2)

    def _surely(self, off: Tensor, k: int) -> Tensor:
        return (off @ self._fine.T - self._halves).topk(k, dim=1).indices


def _largest(rows: Tensor, known: Tensor, k: int, more: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest products (N, k) of each row with known ones, `more` (n,) added, and the places of those."""
    values: list[Tensor] = []
    places: list[Tensor] = []
    for start in range(0, len(known), ACROSS):
        own = known[start : start + ACROSS].T
        found = rows @ own if more is None else torch.addmm(more[start : start + ACROSS], rows, own)
        best = found.topk(min(k, found.shape[1]), dim=1)
        values.append(best.values)
        places.append(best.indices + start)
    if len(values) == 1:
        return values[0], places[0]
    best = torch.cat(values, 1).topk(k, dim=1)
    return best.values, torch.cat(places, 1).gather(1, best.indices)
