"""How far apart two samples lie: maximum mean discrepancy, sliced Wasserstein, a lower bound on total variation.

    found = mmd_test(a, b)                # rows (N, D) and (M, D); found.value, found.p
    sliced_wasserstein(a, b)              # how far mass must move, over lines
    tv_lower_bound(a, b).lower            # holds with probability `confidence` at least

MMD: kernel exp(-|x - y|^2 / (2 h^2)), h the median distance between distinct rows of both samples together unless
given. Without the kernel's diagonal the estimate is unbiased, so it is about 0, of either sign, where the samples come
from one distribution. The p-value wants rows that are exchangeable then: several checkpoints of one sample are not.

Sliced Wasserstein: the root of the mean of W_2^2 over directions drawn from the sphere. On a line the cheapest plan is
monotone, and between two steps of either distribution both quantiles are constant: a finite sum, exact for any sizes.
In D dimensions it is about 1 / sqrt(D) of the distance between the means: compare it within one width.

Total variation is the largest P(A) - Q(A) over all sets A. A classifier learned on half of the rows is one such set,
fixed before the other half is looked at. On that half the hits are binomial: exact (Clopper and Pearson) limits, each
at half of the risk, give a bound that needs no large samples. A weak classifier makes it loose, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, float_rows

BLOCK = 2**24
"""Entries of the permutations' products held at once."""


@dataclass(frozen=True)
class MmdTest:
    """An unbiased estimate of MMD^2 (it may be below 0) with its permutation p-value."""

    value: float
    p: float  # at least 1 / (permutations + 1)
    bandwidth: float


@dataclass(frozen=True)
class TvBound:
    """How far apart two distributions are at least."""

    estimate: float  # 2 * balanced accuracy - 1 on held-out rows; below 0 where the classifier does worse than chance
    lower: float  # 0 or more: total variation is never less than 0
    held_out: tuple[int, int]  # rows of either side


class Classifier(Protocol):
    """A scikit-learn classifier; the probes of `undertow.latent` are such, too."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and their side, 0 or 1."""
        ...

    def predict(self, X: Any) -> Any:
        """The side of each row."""
        ...


def mmd_test(
    a: Array, b: Array, *, permutations: int = 999, bandwidth: float | None = None, seed: int = 0
) -> MmdTest:
    """MMD^2 and the share of random divisions of the rows, this one included, that give as much or more."""
    if permutations < 1 or (bandwidth is not None and not bandwidth > 0):
        raise BadValue(
            "mmd_test", "at least one permutation and a bandwidth above 0", (permutations, bandwidth)
        )
    first, second = _two_samples("mmd_test", a, b, 2)
    squared = _squared_distances(torch.cat([first, second]))
    width = _median(squared) if bandwidth is None else float(bandwidth)
    kernel = torch.exp(squared / (-2 * width**2)).fill_diagonal_(0)
    count, size = len(first), len(kernel)
    value = float(_estimates(kernel, count, (torch.arange(size, device=kernel.device) < count)[None])[0])
    # Divisions that differ only in the order of summing must count as ties.
    rng, least, reached = np.random.default_rng(seed), value - 1e-12, 0
    for start in range(0, permutations, step := max(1, BLOCK // size)):
        drawn = rng.permuted(np.tile(np.arange(size), (min(step, permutations - start), 1)), axis=1)
        members = torch.from_numpy(drawn < count).to(kernel.device)
        reached += int((_estimates(kernel, count, members) >= least).sum())
    return MmdTest(value, (1 + reached) / (permutations + 1), width)


def sliced_wasserstein(a: Array, b: Array, *, directions: int = 200, seed: int = 0) -> float:
    """The sliced Wasserstein distance (power 2) of rows (N, D) and (M, D), along lines drawn with `seed`."""
    if directions < 1:
        raise BadValue("sliced_wasserstein, directions", "at least one", directions)
    first, second = _two_samples("sliced_wasserstein", a, b, 1)
    generator = torch.Generator().manual_seed(seed)
    lines = torch.randn(first.shape[1], directions, generator=generator, dtype=torch.float64)
    lines = (lines / lines.norm(dim=0)).to(first.device)  # (D, directions)
    # In one order of rows: a product may round a row by its place, and the same set in another order is no other.
    x, y = (part[part.contiguous().sum(1).argsort(stable=True)] @ lines for part in (first, second))
    n, m = len(x), len(y)
    # Steps of the two quantile functions in units of 1 / (N M): whole numbers, so that equal steps are equal.
    steps = torch.cat([torch.arange(n) * m, torch.arange(m) * n]).unique().to(x.device)
    widths = torch.diff(steps, append=steps.new_tensor([n * m])).to(x.dtype) / (n * m)
    moved = x.sort(0).values[steps // m] - y.sort(0).values[steps // n]
    return float((widths @ moved.square()).mean().sqrt())


def tv_lower_bound(
    a: Array, b: Array, *, classifier: Classifier | None = None, confidence: float = 0.95, seed: int = 0
) -> TvBound:
    """A lower bound on the total variation between the distributions of rows (N, D) and (M, D).

    Args:
        a: independent rows from the one distribution, at least 4.
        b: independent rows from the other, at least 4.
        classifier: learns to tell them apart; balanced logistic regression on standardised columns by default.
        confidence: with which the bound holds.
        seed: of the draw of the half on which it is reckoned.
    """
    from scipy.stats import binomtest

    if not 0 < confidence < 1:
        raise BadValue("tv_lower_bound", "a confidence above 0 and below 1", confidence)
    rng = np.random.default_rng(seed)
    (learn_a, test_a), (learn_b, test_b) = (
        _halves(part, rng) for part in _two_samples("tv_lower_bound", a, b, 4)
    )
    model = _default() if classifier is None else classifier
    model.fit(np.concatenate([learn_a, learn_b]), np.repeat([1, 0], [len(learn_a), len(learn_b)]))
    hits, alarms = (int(np.sum(np.asarray(model.predict(part)) == 1)) for part in (test_a, test_b))
    sure = (1 + confidence) / 2
    least = binomtest(hits, len(test_a), alternative="greater").proportion_ci(sure).low
    most = binomtest(alarms, len(test_b), alternative="less").proportion_ci(sure).high
    estimate = hits / len(test_a) - alarms / len(test_b)
    return TvBound(estimate, max(0.0, float(least - most)), (len(test_a), len(test_b)))


def _two_samples(who: str, a: Array, b: Array, least: int) -> tuple[Tensor, Tensor]:
    first, second = float_rows(a, f"{who}, a").double(), float_rows(b, f"{who}, b").double()
    if first.shape[1] != second.shape[1] or min(len(first), len(second)) < least:
        raise BadData(
            f"{who}: wanted at least {least} rows each of one width, got {tuple(first.shape)} "
            f"and {tuple(second.shape)}."
        )
    return first, second.to(first.device)


def _squared_distances(rows: Tensor) -> Tensor:
    """(N, N), exactly 0 on the diagonal."""
    # Around the mean, so that a large offset does not cancel; what is left below 0 is rounding.
    rows = rows - rows.mean(0)
    squares = rows.square().sum(1)
    return (squares[:, None] + squares - 2 * rows @ rows.T).clamp_(min=0).fill_diagonal_(0)


def _median(squared: Tensor) -> float:
    """The median distance between distinct rows; of the distances above 0, where most rows coincide."""
    size = len(squared)
    pairs = squared[torch.triu_indices(size, size, 1, device=squared.device).unbind()].cpu().numpy()
    # Rounding of the products above makes equal rows differ by about eps of their length.
    apart = pairs > 64 * np.finfo(np.float64).eps * pairs.max(initial=0.0)
    if not apart.any():
        raise BadData(f"mmd_test: wanted rows that differ, got {size} equal ones. No bandwidth fits them.")
    middle = float(np.median(np.sqrt(pairs * apart)))
    return middle or float(np.median(np.sqrt(pairs[apart])))


def _estimates(kernel: Tensor, count: int, members: Tensor) -> Tensor:
    """(P,) MMD^2 of P divisions: `members` (P, N + M) says which rows are of the first sample."""
    inner, other = members.to(kernel.dtype), len(kernel) - count
    sums = inner @ kernel  # (P, N + M), of each row with the first sample
    inside = (sums * inner).sum(1)
    across = sums.sum(1) - inside
    outside = kernel.sum() - inside - 2 * across
    return inside / (count * (count - 1)) + outside / (other * (other - 1)) - 2 * across / (count * other)


def _halves(rows: Tensor, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rows to learn from, and those that are held out."""
    kept, order = min(max(round(0.5 * len(rows)), 2), len(rows) - 2), rng.permutation(len(rows))
    array: NDArray[np.float64] = rows.cpu().numpy()
    return array[order[kept:]], array[order[:kept]]


def _default() -> Classifier:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Some regularisation: with fewer rows than columns the halves are always separable.
    found: Any = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000)
    )
    return found
