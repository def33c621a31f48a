"""How checkpoints are asked for by number, in every verb that takes one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import undertow as ut
from undertow.errors import BadValue

X, Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_numbers_of_checkpoints(tmp_path: Path):
    """Whole numbers of numpy are numbers, True is none."""
    for epoch in (0, 1, 2):
        torch.save(net().state_dict(), tmp_path / f"epoch_{epoch}.pt")
    run = ut.open_run(tmp_path, model=net)
    for at, epoch in ((np.int64(2), 2), (np.uint8(1), 1), (np.int32(-1), 2), (-3, 0)):
        assert run.checkpoint(at).at == epoch
        assert torch.equal(run.weights(at)["0.weight"], run.weights(epoch)["0.weight"])
    matrix = ut.composite_matrix(run, X, Y, checkpoints=np.array([0, 2]), cuts="0")
    assert matrix.shallow == (0, 2)
    assert ut.composite_matrix(run, X, Y, checkpoints=np.int64(1), cuts="0").deep == (1,)
    for wrong in (True, False, np.True_, 1.0, "1", None):
        with pytest.raises(BadValue, match="wanted a number of a checkpoint"):
            run.checkpoint(wrong)  # type: ignore[arg-type]
