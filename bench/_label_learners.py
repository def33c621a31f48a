"""What a model that learns from some labels of a cell reaches on clean test samples.

    learns = learner(cell, held, work)
    learns(rows, labels)                  # test accuracy in points; rows: places in the cell, labels: theirs

Frozen features: a logistic head, regularised as folds of the given labels say (once per cell, the same for all labels
that are tried). Runs: the network of the cell, trained anew as the cell's own run was, asked at its last epoch; or,
with `head=True`, the logistic head on inputs, where one network for each answer would take too long.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from torch import Tensor

import undertow as ut
from _label_cells import Cell, Material, frozen_features, rows_of, trained
from undertow.data.inputs import to_inputs
from undertow.features import stream_features

TESTED, TESTED_ENCODED = 5000, 2000
STRENGTHS = (0.1, 0.01, 0.001)
Learns = Callable[[Tensor, Tensor], float]


def learner(cell: Cell, held: Material, work: Path, *, head: bool = False) -> Learns:
    if cell.data.startswith("trec"):
        raise ValueError("TREC has no test questions here.")
    return partial(_network, cell, work) if cell.trains and not head else _head(cell, held, work)


def accuracy_of(run: ut.Run, data: ut.DataSet, epoch: int) -> float:
    """Of a checkpoint on clean test pictures, in points."""
    pictures, true = data.test.tensor[:TESTED], data.test.y[:TESTED]
    prepare = partial(to_inputs, scaling=data.scaling)
    parts = stream_features(run.model(epoch), pictures, ["head"], prepare=prepare)
    said = torch.cat([part.outputs for part in parts]).argmax(1)
    return 100 * float((said == true).float().mean())


def _network(cell: Cell, work: Path, rows: Tensor, labels: Tensor) -> float:
    data = ut.load_data(cell.data)
    named = hashlib.sha256(rows.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()[:12]
    run = trained(f"{cell.name}-again-{named}", cell, rows_of(cell, data.train.y)[rows], labels, work)
    return accuracy_of(run, data, run.epochs[-1])


def _head(cell: Cell, held: Material, work: Path) -> Learns:
    x, (test_x, test_y) = held.inputs.float().numpy(), _tested(cell, work)
    mean, spread = x.mean(), x.std()  # one scale for all columns: their sizes mean something
    x, test_x = (x - mean) / spread, (test_x - mean) / spread
    keep = (held.given >= 0).numpy()
    strength = _strength(x[keep], held.given.numpy()[keep])

    def learns(rows: Tensor, labels: Tensor) -> float:
        model = LogisticRegression(C=strength, max_iter=100).fit(x[rows.numpy()], labels.numpy())
        return 100 * float(model.score(test_x, test_y))

    return learns


def _strength(x: np.ndarray, given: np.ndarray) -> float:
    folds = StratifiedKFold(2, shuffle=True, random_state=0)

    def agrees(strength: float) -> float:
        return float(cross_val_score(LogisticRegression(C=strength, max_iter=100), x, given, cv=folds).mean())

    return max(STRENGTHS, key=agrees)


def _tested(cell: Cell, work: Path) -> tuple[np.ndarray, np.ndarray]:
    data = ut.load_data(cell.encoded or cell.data)
    if cell.encoded is None:
        inputs = to_inputs(data.test.tensor[:TESTED], data.scaling).flatten(1)
        return inputs.numpy(), data.test.y[:TESTED].numpy()
    draws = torch.Generator().manual_seed(99)
    rows = torch.randperm(len(data.test.y), generator=draws)[:TESTED_ENCODED].sort().values
    return frozen_features(cell, work, rows, "test").numpy(), data.test.y[rows].numpy()
