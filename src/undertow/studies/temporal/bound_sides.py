"""Both sides of theorems 1 and 3, and of the bound over all classes, computed and not estimated where that can be.

    sides = class_sides(composites, train_labels, train_predictions, test_labels, test_predictions)
    sides[0].gap                        # left: |error on the test samples of a class - on its training samples|
    sides[0].seen + sides[0].delta      # right, with the part of the total variation that the deep part itself sees
    whole = overall_bound(sides)
    whole.gap, whole.right, whole.labels              # labels: TV(nu, nu-bar)

Total variation is the largest difference of P(A) - Q(A) over all sets A, and the proof needs one of them: the features
that the deep part does not call i. Its difference, |Omega_i(A) - mu_i(A)| (`seen`), is a number, so the proof's chain
    gap <= seen + moved <= seen + delta_i,     moved = |Omega_i(A) - training error of i|
can be checked link by link; seen <= TV makes the theorem of it. delta_i is the share of a class's training samples and
checkpoints of the window whose composite answers otherwise than the model at t'.

The theorem has delta, the mean over all classes, in place of delta_i. Its proof uses it for one class; empirical-level
memory of the whole set does not give that: a class may have up to 1 / nu(i) times as much. Both are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undertow.errors import BadData
from undertow.temporal.predictions import Array, as_numpy, checked_predictions

ROUNDING = 1e-12


@dataclass(frozen=True)
class ClassSides:
    """The sides of the theorem for one class."""

    label: int
    train_count: int
    test_count: int
    train_error: float
    test_error: float
    seen: float  # the part of the total variation that the deep part sees
    moved: float  # how far the window moves the training error
    delta: float  # delta_i, of this class
    delta_all: float  # delta, of all training samples

    @property
    def gap(self) -> float:
        """The left side."""
        return abs(self.test_error - self.train_error)

    @property
    def chain_holds(self) -> bool:
        """The proof: gap <= seen + moved <= seen + delta_i. False only if the arrays are not what they should be."""
        return self.gap <= self.seen + self.moved + ROUNDING and self.moved <= self.delta + ROUNDING

    @property
    def as_printed(self) -> bool:
        """Whether the set's delta is enough, as the theorem says, with no more of the total variation than is seen."""
        return self.gap <= self.seen + self.delta_all + ROUNDING

    @property
    def step_holds(self) -> bool:
        """The proof's step: what the window moves in this class is at most the set's delta."""
        return self.moved <= self.delta_all + ROUNDING


@dataclass(frozen=True)
class OverallBound:
    """The bound over all classes: gap <= sum of nu(i) TV_i + delta + TV(nu, nu-bar)."""

    gap: float
    seen: float  # sum of nu(i) seen_i
    delta: float  # sum of nu(i) delta_i: what the classes need
    labels: float  # TV(nu, nu-bar)
    worst: float  # 2 sup of the classes' training errors: the other bound of the last term

    @property
    def right(self) -> float:
        """The right side, with the part of each total variation that the deep part sees."""
        return self.seen + self.delta + min(self.labels, self.worst)


def class_sides(
    composites: Array,
    train_labels: Array,
    train_predictions: Array,
    test_labels: Array,
    test_predictions: Array,
) -> list[ClassSides]:
    """The sides for every class, from answers at one deep checkpoint t'.

    Args:
        composites: classes (T, N) that the deep part of t' gives to the features of T checkpoints around t'.
        train_labels: class numbers (N,).
        train_predictions: of the model at t' (N,).
        test_labels: class numbers (M,).
        test_predictions: of the model at t' (M,).
    """
    answers = checked_predictions("class_sides", composites, dims=(2,))
    given, own, other, said = (
        as_numpy(one) for one in (train_labels, train_predictions, test_labels, test_predictions)
    )
    if given.shape != own.shape or given.shape != answers.shape[1:] or other.shape != said.shape:
        raise BadData(
            "class_sides: wanted answers (T, N), labels and predictions (N,), and both of test samples (M,), got "
            f"{answers.shape}, {given.shape}, {own.shape}, {other.shape} and {said.shape}."
        )
    changed = answers != own
    found: list[ClassSides] = []
    for label in np.unique(np.concatenate([given, other])).tolist():
        train, test = given == label, other == label
        if not train.any() or not test.any():
            raise BadData(
                f"class_sides: wanted training and test samples of class {label}, got none on one side."
            )
        errors = [float((part != label).mean()) for part in (own[train], said[test], answers[:, train])]
        found.append(
            ClassSides(
                label=int(label),
                train_count=int(train.sum()),
                test_count=int(test.sum()),
                train_error=errors[0],
                test_error=errors[1],
                seen=abs(errors[2] - errors[1]),
                moved=abs(errors[2] - errors[0]),
                delta=float(changed[:, train].mean()),
                delta_all=float(changed.mean()),
            )
        )
    return found


def overall_bound(sides: Sequence[ClassSides]) -> OverallBound:
    """The bound over all classes; nu are the shares of classes among test samples, nu-bar among training samples."""
    if not sides:
        raise BadData("overall_bound: wanted at least one class, got none.")
    true, given = (
        np.array([getattr(one, name) for one in sides], float) for name in ("test_count", "train_count")
    )
    true, given = true / true.sum(), given / given.sum()
    train, test, seen, delta = (
        np.array([getattr(one, name) for one in sides])
        for name in ("train_error", "test_error", "seen", "delta")
    )
    return OverallBound(
        gap=abs(float(true @ test - given @ train)),
        seen=float(true @ seen),
        delta=float(true @ delta),
        labels=float(np.abs(true - given).sum() / 2),
        worst=2 * float(train.max()),
    )
