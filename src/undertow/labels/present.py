"""Judge labels among the classes that are given: others make no difference.

    found = judge_present(labels, 10, views, [])      # labels 1 to 9, say: as if they were 0 to 8

Labels that people hand over may begin at 1 or leave numbers out. How many classes there are goes into beliefs, into the
even noise matrix and into bounds of the rate, so classes that nobody is given must not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from undertow.labels.judge import LabelBeliefs, judge_labels
from undertow.labels.views import View


def judge_present(
    labels: Tensor, classes: int, views: Sequence[View], probabilities: Sequence[Tensor], **how: Any
) -> LabelBeliefs:
    """`judge_labels` of the classes that occur, with its answer in all of them."""
    present = labels[labels >= 0].unique()
    if len(present) in (0, 1, classes):
        return judge_labels(labels, classes, views, (), probabilities, **how)
    places = torch.full((classes + 1,), -1, dtype=torch.int64)  # the last: missing, which is -1
    places[present] = torch.arange(len(present))
    likely = [one if one.shape[1] != classes else one[:, present] for one in probabilities]
    found = judge_labels(places[labels], len(present), views, (), likely, **how)
    return _widened(found, labels, present, classes)


def _widened(found: LabelBeliefs, labels: Tensor, present: Tensor, classes: int) -> LabelBeliefs:
    """With a column of nothing for each class that is not there; such a class would be given its own label."""
    likely = found.shelf.table(len(labels), classes)
    for rows in found.shelf.blocks(likely):
        likely[rows] = 0.0
        likely[rows, present] = found.pred_probs[rows]
    matrix = torch.eye(classes, dtype=torch.float64)
    matrix[present[:, None], present] = found.matrix
    return replace(found, labels=labels, pred_probs=likely, matrix=matrix)
