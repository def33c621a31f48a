"""The papers' networks, built from a short text, and the names of their layers.

    model = build_model("mlp:128-512-2048-2048", (1, 28, 28), classes=10, seed=0)
    model.probe_layers           # ("input", "layer1", ..., "layer4"): what its paper probes
    model.cuts                   # ("layer1", ..., "layer4"): where its paper cuts
    layers_of(model, x)          # every named module with its kind, size and output shape
    default_layers(model)        # a choice of layers for anyone's own network
    MODELS, parse_spec("cnn")    # what there is to build, without importing torch

torch is imported when a name that needs it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy
from undertow.models.catalogue import MODELS, ModelSpec, parse_spec

if TYPE_CHECKING:
    from undertow.models.build import build_model
    from undertow.models.layers import Layer, default_layers, head_of, layers_of
    from undertow.models.network import Network

__all__ = [
    "MODELS",
    "Layer",
    "ModelSpec",
    "Network",
    "build_model",
    "default_layers",
    "head_of",
    "layers_of",
    "parse_spec",
]

_HOMES = {
    "Layer": "layers",
    "Network": "network",
    "build_model": "build",
    "default_layers": "layers",
    "head_of": "layers",
    "layers_of": "layers",
}

__getattr__, __dir__ = lazy(__name__, {name: f"{__name__}.{module}" for name, module in _HOMES.items()})
