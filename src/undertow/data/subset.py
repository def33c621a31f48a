"""Choosing samples: balanced subsets by count, and a hold-out where there is no test split.

    small = balanced(data.train, 1000, seed=0)          # 100 of each of ten classes
    train, test = hold_out(samples, share=0.2, seed=0)  # the same share of every class

Classes are those of the labels that training sees. Chosen samples stay in the order of the source.
With one seed a smaller balanced subset lies within a larger one.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from undertow.data.samples import DataSet, Samples, check_samples
from undertow.errors import BadData, BadValue

HOLD_OUT = 0.2
"""The share of each class that becomes the test split where the source has none."""


def balanced(samples: Samples, count: int, seed: int) -> Samples:
    """`count` samples, of each class as many, give or take one.

    Raises:
        BadValue: fewer samples wanted than there are classes.
        BadData: a class has too few samples.
    """
    rng = np.random.default_rng(seed)
    rows_of = {label: rng.permutation(rows) for label, rows in _rows_of_classes(samples).items()}
    if count < len(rows_of):
        raise BadValue("balanced subset", f"at least one sample of each of {len(rows_of)} classes", count)
    each, rest = divmod(count, len(rows_of))
    able = [label for label in rng.permutation(list(rows_of)).tolist() if len(rows_of[label]) > each]
    if min(map(len, rows_of.values())) < each or len(able) < rest:
        scarce = min(rows_of, key=lambda label: len(rows_of[label]))
        fewest = len(rows_of[scarce])
        most = sum(min(len(rows), fewest + 1) for rows in rows_of.values())
        raise BadData(
            f"balanced subset: wanted {count} samples, {each + bool(rest)} of a class, got only {fewest} of class "
            f"{scarce}. Ask for at most {most}."
        )
    more = set(able[:rest])
    chosen = [rows[: each + (label in more)] for label, rows in rows_of.items()]
    return _take(samples, chosen)


def hold_out(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples]:
    """Split into training and test samples; `share` of each class, rounded, goes to the test.

    At least one sample of each class stays in training.
    """
    if not 0 < share < 1:
        raise BadValue("hold-out", "a share between 0 and 1", share)
    rng = np.random.default_rng(seed)
    kept: list[NDArray[np.int64]] = []
    held: list[NDArray[np.int64]] = []
    for rows in _rows_of_classes(samples).values():
        some = min(round(share * len(rows)), len(rows) - 1)
        shuffled = rng.permutation(rows)
        held.append(shuffled[:some])
        kept.append(shuffled[some:])
    if not sum(map(len, held)):
        raise BadData(
            f"hold-out: wanted {share:.0%} of each class for the test, got {len(samples)} samples in {len(kept)} "
            "classes, too few. Give a test split."
        )
    return _take(samples, kept), _take(samples, held)


def assemble(
    name: str,
    train: Samples,
    test: Samples | None,
    classes: tuple[str, ...],
    *,
    seed: int,
    scaling: str = "half",
    note: str = "",
) -> DataSet:
    """A DataSet; without a test split a part of the training samples is held out, and the note says so."""
    if test is None:
        # Checked while the rows still have the numbers that the user knows.
        check_samples(train, len(classes), name)
        train, test = hold_out(train, HOLD_OUT, seed)
        said = f"No test split: {HOLD_OUT:.0%} of each class ({len(test)} samples) held out with seed {seed}."
        note = f"{note} {said}".strip()
    return DataSet(name, train, test, classes, scaling, note)


def _rows_of_classes(samples: Samples) -> dict[int, NDArray[np.int64]]:
    """Label -> rows that have it, in ascending order of both."""
    labels = samples.y.cpu().numpy()
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    return dict(zip(present.tolist(), np.split(order, starts[1:]), strict=True))


def _take(samples: Samples, rows: list[NDArray[np.int64]]) -> Samples:
    return samples.take(torch.from_numpy(np.sort(np.concatenate(rows))))
