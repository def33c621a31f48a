"""Labels and inputs that nobody meant: each way into a session gives the same answer, in one sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.errors import BadData, UndertowError

DIM, CLASSES = 6, 3


def given(count: int = 90, seed: int = 0) -> tuple[Tensor, Tensor]:
    y = torch.arange(count) % CLASSES
    x = torch.randn(count, DIM, generator=torch.Generator().manual_seed(seed))
    x[torch.arange(count), y] += 3
    return x, y


@pytest.fixture
def run(tmp_path: Path) -> ut.Run:
    model = nn.Sequential(nn.Linear(DIM, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(model, 1)
    return ut.open_run(tmp_path / "run", model=lambda: model)


Way = Callable[[ut.Run, Any], Any]
WAYS: dict[str, Way] = {
    "labels": lambda run, odd: ut.label_errors(run, train=odd, progress=False),
    "audit": lambda run, odd: ut.audit(run, given(), odd, lenses=["richness"], progress=False),
    "audit of test samples": lambda run, odd: ut.audit(run, test=odd, lenses=["richness"], progress=False),
}
way = pytest.mark.parametrize("name", WAYS)


def changed(y: Tensor, value: int) -> Tensor:
    y = y.clone()
    y[7] = value
    return y


def quiet(make: Callable[[], Tensor]) -> Tensor:
    """Kinds of tensors that torch itself warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


X, Y = given()
REFUSED = {
    "a huge label": ((X, changed(Y, 10**9)), "1000000000"),
    "a label beyond int32": ((X, changed(Y, 10**12)), "1000000000000"),
    "an unsigned label beyond int64": ((X, np.array([*Y[:-1].tolist(), 2**64 - 1], np.uint64)), "18446744073709551615"),
    "negative labels": ((X, Y - 1), "got -1 at index 0"),
    "the label that losses ignore": ((X, changed(Y, -100)), "got -100 at index 7"),
    "true labels out of range": ((X, Y, Y + 5), "true labels: wanted class numbers 0 to 2, got 5"),
    "complex labels": ((X, Y.to(torch.complex64)), "wanted whole-number class labels, got complex64"),
    "floats as labels": ((X, Y.float()), "wanted whole-number class labels, got float32"),
    "sparse inputs": ((X.to_sparse(), Y), "wanted a dense tensor of numbers, got a sparse one"),
    "meta inputs": ((X.to("meta"), Y), "wanted a dense tensor of numbers, got a meta one"),
    "meta labels": ((X, Y.to("meta")), "wanted a dense tensor of numbers, got a meta one"),
    "quantised inputs": ((quiet(lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)), Y), "got a quantised one"),
    "nested inputs": ((quiet(lambda: torch.nested.nested_tensor(list(X))), Y), "got a nested one"),
    "complex inputs": ((X.to(torch.complex64), Y), "wanted (real )?numbers, got"),
    "a masked array": ((np.ma.masked_less(X.numpy(), -1), Y), "got a masked array"),
    "masked labels": ((X, np.ma.masked_equal(Y.numpy(), 1)), "got a masked array"),
    "a NaN": ((X.index_fill(0, torch.tensor([4]), torch.nan), Y), "got NaN or infinity in the sample at index 4"),
}  # fmt: skip


@way
@pytest.mark.parametrize("what", REFUSED)
def test_what_no_reader_takes_is_refused_in_a_sentence(run: ut.Run, name: str, what: str):
    """Fails if a reader of one split lacks the checks of two: bincount's error, or 4 GB of names of classes."""
    odd, words = REFUSED[what]
    if (name, what) == ("labels", "negative labels"):
        return  # there -1 stands for a label that is missing, see below
    with pytest.raises(BadData, match=words):
        WAYS[name](run, odd)


TAKEN = {
    "negative strides": (np.ascontiguousarray(X.numpy()[::-1])[::-1], Y.numpy()[::-1].copy()[::-1]),
    "inputs that ask for gradients": (X.clone().requires_grad_(), Y),
    "big-endian labels": (X, Y.numpy().astype(">i4")),
    "float64": (X.double(), Y),
    "big-endian inputs": (X.numpy().astype(">f8"), Y),
    "bfloat16": (X.bfloat16().float().bfloat16(), Y),
    "lists": (X.tolist(), Y.tolist()),
    "a mask that masks nothing": (np.ma.masked_array(X.numpy()), Y),
    "read-only columns": (np.frombuffer(X.numpy().tobytes(), np.float32).reshape(X.shape), Y),
}  # fmt: skip


@way
@pytest.mark.parametrize("what", TAKEN)
def test_what_holds_the_same_numbers_is_taken_everywhere(run: ut.Run, name: str, what: str):
    """Fails if one verb takes what another refuses in torch's words."""
    WAYS[name](run, TAKEN[what])


def test_a_missing_label_is_one_only_where_labels_are_searched(run: ut.Run):
    """Fails if the labels of a run that does not say how it began end in bincount's error."""
    found = ut.label_errors(run, train=(X, changed(Y, -1)), progress=False)
    assert any(note.startswith("1 sample") and "no label" in note for note in found.notes)
    with pytest.raises(BadData, match="got -1 at index 7"):
        _ = ut.Session(run, train=(X, changed(Y, -1))).samples


def test_bare_inputs_are_read_alike(run: ut.Run):
    for x in (X.double(), X.clone().requires_grad_()):
        ut.audit(run, test=x, lenses=["richness"], progress=False)
    for x in (X.to_sparse(), X.to("meta"), X.to(torch.complex64)):
        with pytest.raises(UndertowError):
            ut.audit(run, test=x, lenses=["richness"], progress=False)


def test_samples_made_by_hand_are_checked_too(run: ut.Run):
    """Fails if the names of 10**9 classes are written down for a DataSet of Samples."""
    from undertow.data.samples import Samples

    odd = Samples.of(X, changed(Y, 10**9))
    for train, test in ((odd, None), (odd, Samples.of(X, Y))):
        with pytest.raises(BadData, match="1000000000"):
            ut.label_errors(run, train, test, progress=False)


def test_few_samples_of_a_split_may_leave_classes_out(run: ut.Run):
    """Fails if classes are counted after the draw, or among test samples alone."""
    ut.audit(run, test=(X[Y == 2], Y[Y == 2]), lenses=["richness"], progress=False)
    session = ut.Session(run, train=(X, Y), samples=2)
    assert session.samples.classes == ("0", "1", "2")
