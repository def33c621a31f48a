"""Models whose answers are no table of scores, that raise, or that cannot be built: one sentence from every verb."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import undertow as ut
from undertow.errors import BadData, BadValue, UndertowError

Y = torch.arange(90) % 3
X = torch.randn(90, 6, generator=torch.Generator().manual_seed(0)) + 3 * nn.functional.one_hot(Y, 6)


class Odd(nn.Module):
    """Changes what the last layer gives."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.fc1, self.fc2, self.change = nn.Linear(6, 8), nn.Linear(8, 3), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.fc2(torch.relu(self.fc1(x))))


def nested(z: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(z))


CHANGES: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "int": (lambda z: z.long(), "got torch.int64"),
    "classes": (lambda z: z.argmax(1), "got torch.int64"),
    "bool": (lambda z: z > 0, "got torch.bool"),
    "complex": (lambda z: z.to(torch.complex64), "got torch.complex64"),
    "sparse": (lambda z: z.to_sparse(), "got a sparse one"),
    "meta": (lambda z: z.to("meta"), "got a meta one"),
    "nested": (nested, "got a nested one"),
    "no column": (lambda z: z[:, :0], "wanted answers for each sample"),
    "no row": (lambda z: z[:0], "wanted answers for each sample"),
    "one row short": (lambda z: z[:-1], "wanted answers for each sample"),
    "a single number": (lambda z: z.sum(), "wanted answers for each sample"),
    "no tensor": (lambda z: "yes", "wanted a tensor"),
}
VERBS: dict[str, Callable[[nn.Module], Any]] = {
    "audit": lambda model: ut.audit(model, (X, Y), (X + 0.1, Y), progress=False),
    "labels": lambda model: ut.label_errors(model, (X, Y), progress=False),
    "probe": lambda model: ut.probe_grid(model, (X, Y), (X + 0.1, Y), progress=False),
    "repair": lambda model: ut.repair(model, (X, Y), (X + 0.1, Y), progress=False),
    "cuts": lambda model: ut.valid_cuts(model, X),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", CHANGES)
def test_answers_that_are_no_scores_are_refused(kind: str, verb: str):
    """Fails if torch speaks from wherever the answers are first used."""
    change, words = CHANGES[kind]
    with pytest.raises(BadData, match=words):
        VERBS[verb](Odd(change))


def shy(z: Tensor) -> Tensor:
    raise ValueError("not today")


@pytest.mark.parametrize("verb", VERBS)
def test_a_forward_that_raises_is_told_with_its_words(verb: str):
    with pytest.raises(BadData, match=r"Odd cannot take samples of shape .*: not today") as told:
        VERBS[verb](Odd(shy))
    assert isinstance(told.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("by nought"), OSError("no such disk"), KeyError("width")]
)
def test_a_factory_that_raises_is_named(tmp_path, error: Exception):
    """Fails if what a user's function raises comes out as it is."""

    def build_mine() -> nn.Module:
        raise error

    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(nn.Linear(6, 3), 0)
    with pytest.raises(
        BadValue, match=r"model function .*build_mine: wanted an untrained model, got "
    ) as told:
        ut.audit(ut.open_run(tmp_path / "run", model=build_mine), (X, Y), (X + 0.1, Y), progress=False)
    assert told.value.__cause__ is error
    assert type(error).__name__ in str(told.value)


def test_our_own_errors_of_a_factory_stay(tmp_path):
    def build_mine() -> nn.Module:
        raise UndertowError("the weights are elsewhere")

    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(nn.Linear(6, 3), 0)
    with pytest.raises(UndertowError, match=r"^the weights are elsewhere$"):
        ut.audit(ut.open_run(tmp_path / "run", model=build_mine), (X, Y), (X + 0.1, Y), progress=False)
