"""Models, names, inputs and numbers that nobody can mean, from Python: one sentence each instead of torch's words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import undertow as ut
from undertow.errors import UndertowError

X, Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def quantised() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(net(), {nn.Linear})


def without_numbers() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4, device="meta"), nn.Linear(4, 2, device="meta"))


def not_built() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))


def audited(model: nn.Module) -> Any:
    return ut.audit(model, train=(X, Y), test=(X + 1, Y), progress=False)


def tapped(inputs: Any) -> Any:
    with ut.Tap(net(), "0") as tap:
        return tap(inputs)


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "quantised": (quantised, "packed .*Give the model as it was before it was quantised"),
    "meta": (without_numbers, r"0\.weight has no numbers \(device meta\)"),
    "lazy": (not_built, r"0\.weight has no shape yet"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_whose_weights_are_no_numbers_is_told(kind: str, tmp_path: Path):
    """Fails if it is copied entry by entry without a look, or filled with weights that go nowhere."""
    build, said = MODELS[kind]
    with pytest.raises(
        UndertowError, match=f"Sequential: wanted a model that is built, got one whose .*{said}"
    ):
        audited(build())
    torch.save(net().state_dict(), tmp_path / "epoch_1.pt")
    with pytest.raises(UndertowError, match=said):
        ut.open_run(tmp_path, model=build).model(1)


SENTENCES: dict[str, tuple[Callable[[], Any], str]] = {
    "no model": (lambda: ut.Tap(5, ["a"]), "wanted a torch module .* got 'int'"),  # type: ignore[arg-type]
    "a class": (lambda: ut.Tap(nn.Linear, "auto"), "got 'the class Linear'"),  # type: ignore[arg-type]
    "cuts of no model": (lambda: ut.valid_cuts(None, X), "wanted a torch module .* got 'NoneType'"),  # type: ignore[arg-type]
    "no layers": (lambda: ut.Tap(net(), None), "layers: wanted names of layers, got None"),  # type: ignore[arg-type]
    "a number as a layer": (lambda: ut.Tap(net(), [0]), "layers: wanted names of layers, got 0"),  # type: ignore[list-item]
    "no inputs": (lambda: tapped(None), "Tap: wanted inputs as the model takes them.*got 'NoneType'"),
    "an array": (lambda: tapped(X.numpy()), "got 'ndarray'. torch.as_tensor"),
    "one number": (lambda: tapped(torch.tensor(1.0)), "wanted a row of inputs for each sample"),
    "cuts of nothing": (lambda: ut.valid_cuts(net(), None), "samples: wanted inputs as the model takes them"),  # type: ignore[arg-type]
    "no shallow part": (
        lambda: ut.compose(net(), None, net().state_dict(), "0"),  # type: ignore[arg-type]
        r"compose\(shallow=...\): wanted a state dict, tensors by name, got 'NoneType'",
    ),
    "a model as a part": (
        lambda: ut.compose(net(), net().state_dict(), net(), "0"),  # type: ignore[arg-type]
        r"compose\(deep=...\): wanted a state dict, tensors by name, got 'Sequential'",
    ),
    "numbers as weights": (
        lambda: ut.compose(net(), {"0.weight": 3}, net().state_dict(), "0"),  # type: ignore[dict-item]
        "tensors by name, got \"'0.weight': int\"",
    ),
    "words": (lambda: ut.d_lr("a", "b"), "d_lr, features: wanted numbers .* got str of <U1"),  # type: ignore[arg-type]
    "nothing": (lambda: ut.d_lr(X, None), "d_lr, outputs: wanted numbers .* got NoneType of object"),  # type: ignore[arg-type]
    "uneven rows": (lambda: ut.d_lr([[1.0], [1.0, 2.0]], X), "wanted numbers in rows of one length"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", SENTENCES)
def test_what_nobody_can_mean_gets_one_sentence(what: str):
    work, said = SENTENCES[what]
    with pytest.raises(UndertowError, match=said):
        work()


def test_numbers_in_any_order_of_bytes_are_numbers():
    """Fails if what numpy reads as numbers ends in torch's list of types."""
    outputs = X @ torch.ones(3, 2) + X[:, :2]
    wanted = ut.d_lr(X.double(), outputs.double())
    for kind in (">f8", "<f8", "g"):
        assert ut.d_lr(X.numpy().astype(kind), outputs.double().numpy()) == pytest.approx(wanted)
    assert ut.d_lr(X.tolist(), outputs.tolist()) == pytest.approx(wanted)  # type: ignore[arg-type]
