"""Features, outputs and labels that are no tables of numbers, given without a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.errors import BadData

Y = torch.arange(90) % 3
X = torch.randn(90, 6, generator=torch.Generator().manual_seed(0)) + 3 * nn.functional.one_hot(Y, 6)


def quantised(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


ODD: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": lambda x: x.to_sparse(), "meta": lambda x: x.to("meta"), "quantised": quantised,
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_features_without_dense_numbers_are_refused(kind: str):
    """Fails if torch speaks of a kernel that it does not have."""
    odd = ODD[kind](X)
    for work in (
        lambda: ut.label_errors(features=odd, labels=Y),
        lambda: ut.d_lr(odd, X[:, :3]),
        lambda: ut.d_lr(X, odd),
    ):
        with pytest.raises(BadData, match=f"wanted a dense tensor of numbers, got a {kind} one"):
            work()


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_labels_without_dense_numbers_are_refused(kind: str):
    with pytest.raises(BadData, match=f"labels: wanted a dense tensor of numbers, got a {kind} one"):
        ut.label_errors(features=X, labels=ODD[kind](Y))


def test_masks_are_not_read_through():
    """Fails if the numbers behind a mask count as if there were none."""
    with pytest.raises(BadData, match="got a masked array"):
        ut.label_errors(features=np.ma.masked_less(X.numpy(), -1), labels=Y)
    with pytest.raises(BadData, match="got a masked array"):
        ut.label_errors(features=X, labels=np.ma.masked_equal(Y.numpy(), 1))
    with pytest.raises(BadData, match="real numbers"):
        ut.label_errors(features=X.to(torch.complex64), labels=Y)


@pytest.mark.parametrize("factor", [1e200, 1e-200])
@pytest.mark.parametrize("kind", [torch.from_numpy, np.asarray])
def test_features_beyond_float32_are_refused(kind, factor: float):
    """Fails if they become infinity with a warning, or zeros without a word."""
    far = kind(X.double().numpy() * factor)
    with pytest.raises(
        BadData, match=r"features: wanted numbers that float32 can hold, got numbers up to .*e[-+]"
    ):
        ut.label_errors(features=far, labels=Y)
    few = X.double()
    few[:, 0] = 1e-200  # a column that is nothing beside the others
    assert len(ut.label_errors(features=few, labels=Y).given) == len(Y)
