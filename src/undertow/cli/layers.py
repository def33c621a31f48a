"""`undertow layers`: the names by which a model's layers are called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from undertow.cli.flags import BadUsage
from undertow.cli.given_run import is_given_run, open_remembered
from undertow.cli.screen import console, print_json, table, thousands
from undertow.data.catalogue import DATA
from undertow.errors import unknown

if TYPE_CHECKING:
    from torch import Tensor, nn


def layers(model: str, *, data: str | None = None, json: bool = False) -> None:
    """List the layers of a model or a run: name, kind, parameters and output shape.

    Args:
        model: A model spec such as resnet20, or a run's folder.
        data: The named data set whose shape the model gets; chosen to fit when not given.
        json: Print one JSON object per layer.
    """
    from undertow.models import layers_of

    built, example = _from_run(Path(model)) if is_given_run(model) else from_spec(model, data)
    found = layers_of(built, example)
    if json:
        for layer in found:
            print_json(
                {"name": layer.name, "kind": layer.kind, "parameters": layer.parameters, "shape": layer.shape}
            )
        return
    total = sum(parameter.numel() for parameter in built.parameters())
    probed, cuts = getattr(built, "probe_layers", ()), getattr(built, "cuts", ())
    rows = [
        [
            layer.name, layer.kind, thousands(layer.parameters), "×".join(map(str, layer.shape or ())) or "–",
            "yes" * (layer.name in probed), "yes" * (layer.name in cuts),
        ]
        for layer in found
    ]  # fmt: skip
    columns = ["layer", "kind", "parameters", "output", "probed", "cut"]
    console().print(table("", columns, rows, right=["parameters", "output"]))
    console().print(
        f"{thousands(total)} parameters. Probed by its paper: {', '.join(probed) or 'not named'}."
    )


def _from_run(path: Path) -> tuple[nn.Module, Tensor | None]:
    import torch

    run = open_remembered(path)
    if run.factory is None:
        raise BadUsage(
            f"{path} does not say how its model is built. `undertow cuts {path} --all --model package.module:function "
            "--data NAME` lists its modules."
        )
    facts = run.facts.model or {}
    shape = tuple(facts.get("shape", ()))
    dtype = torch.int64 if facts.get("vocabulary") else torch.float32
    return run.model(), torch.zeros(2, *shape, dtype=dtype) if shape else None


def from_spec(spec: str, data: str | None) -> tuple[nn.Module, Tensor]:
    """A model of the catalogue, and a batch of the data that it is built for."""
    import torch

    from undertow.models import MODELS, build_model, parse_spec

    name = parse_spec(spec).name
    takes = MODELS[name].takes
    chosen = data or ("mod-division" if takes == "tokens" else _FITTING.get(name, "cifar10"))
    if chosen not in DATA:
        raise unknown("data set", chosen, DATA)
    entry = DATA[chosen]
    tokens = entry.kind == "tokens"
    if tokens != (takes == "tokens"):
        raise BadUsage(f"{name} takes {takes}, and {chosen} has none. Choose other --data.")
    vocabulary = entry.classes + 2 if tokens else None
    model = build_model(spec, entry.shape, entry.classes, seed=0, vocabulary=vocabulary)
    return model.eval(), torch.zeros(2, *entry.shape, dtype=torch.int64 if tokens else torch.float32)


_FITTING = {
    "mlp": "mnist",
    "mlp2d": "mnist",
    "lenet": "mnist",
    "cnn": "mnist",
    "alexnet": "tiny_imagenet",
    "svhn-cnn": "svhn",
    "stl10-cnn": "stl10",
}
