"""A lower bound on total variation: two distributions differ at least by what a classifier can tell apart.

    found = tv_lower_bound(a, b)          # rows (N, D) and (M, D), independent of each other
    found.estimate                        # P(A) - Q(A) = 2 * balanced accuracy - 1, on held-out rows
    found.lower                           # holds with probability `confidence` at least

Total variation is the largest P(A) - Q(A) over all sets A. A classifier learned on half of the rows is one such
set, fixed before the other half is looked at, whatever the classifier and however badly it does. On that half
the hits are binomial: exact (Clopper and Pearson) limits for P(A) and Q(A), each at half of the risk, give a
bound that needs no large samples. A weak classifier makes it loose, never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from undertow.errors import BadData, BadValue
from undertow.richness.rows import Array, float_rows


class Classifier(Protocol):
    """A scikit-learn classifier; the probes of `undertow.latent` are such, too."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and their side, 0 or 1."""
        ...

    def predict(self, X: Any) -> Any:
        """The side of each row."""
        ...


@dataclass(frozen=True)
class TvBound:
    """How far apart two distributions are at least."""

    estimate: float  # may be below 0, where the classifier does worse than chance
    lower: float  # 0 or more: total variation is never less than 0
    accuracy: float  # balanced, on held-out rows
    confidence: float
    held_out: tuple[int, int]  # rows of either side


def tv_lower_bound(
    a: Array,
    b: Array,
    *,
    classifier: Classifier | None = None,
    confidence: float = 0.95,
    held_out: float = 0.5,
    seed: int = 0,
) -> TvBound:
    """A lower bound on the total variation between the distributions of rows (N, D) and (M, D).

    Args:
        a: independent rows from the one distribution, at least 4.
        b: independent rows from the other, at least 4.
        classifier: learns to tell them apart; balanced logistic regression on standardised columns by default.
        confidence: with which the bound holds.
        held_out: share of the rows that are kept for the bound.
        seed: of the split.
    """
    if not 0 < confidence < 1 or not 0 < held_out < 1:
        raise BadValue(
            "tv_lower_bound", "confidence and held_out above 0 and below 1", (confidence, held_out)
        )
    rng = np.random.default_rng(seed)
    (learn_a, test_a), (learn_b, test_b) = (
        _split(part, name, held_out, rng) for part, name in ((a, "a"), (b, "b"))
    )
    if learn_a.shape[1] != learn_b.shape[1]:
        raise BadData(
            f"tv_lower_bound: wanted rows of one width, got {learn_a.shape[1]} and {learn_b.shape[1]}."
        )
    sides = np.repeat([1, 0], [len(learn_a), len(learn_b)])
    model = _default() if classifier is None else classifier
    model.fit(np.concatenate([learn_a, learn_b]), sides)
    hits, alarms = (int(np.sum(np.asarray(model.predict(part)) == 1)) for part in (test_a, test_b))
    estimate = hits / len(test_a) - alarms / len(test_b)
    risk = (1 - confidence) / 2
    lower = share_at_least(hits, len(test_a), risk) - share_at_most(alarms, len(test_b), risk)
    return TvBound(estimate, max(0.0, lower), (1 + estimate) / 2, confidence, (len(test_a), len(test_b)))


def share_at_least(hits: int, count: int, risk: float) -> float:
    """The exact lower limit of a share seen as `hits` of `count`; the true one is lower with at most `risk`."""
    return float(betaincinv(hits, count - hits + 1, risk)) if hits else 0.0


def share_at_most(hits: int, count: int, risk: float) -> float:
    """The exact upper limit of a share; the true one is higher with at most `risk`."""
    return 1 - share_at_least(count - hits, count, risk)


def _split(
    array: Array, name: str, held_out: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = float_rows(array, f"tv_lower_bound, {name}").double().cpu().numpy()
    if len(rows) < 4:
        raise BadData(f"tv_lower_bound, {name}: wanted at least 4 rows, got {len(rows)}.")
    kept = min(max(round(held_out * len(rows)), 2), len(rows) - 2)
    order = rng.permutation(len(rows))
    return rows[order[kept:]], rows[order[:kept]]


def _default() -> Classifier:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Some regularisation: with fewer rows than columns the halves are always separable.
    found: Any = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000)
    )
    return found
