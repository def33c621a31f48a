"""The papers' networks, built from a short text, and the names of their layers.

    model = build_model("mlp:128-512-2048-2048", (1, 28, 28), classes=10, seed=0)
    model.probe_layers           # ("input", "layer1", ..., "layer4"): what its paper probes
    model.cuts                   # ("layer1", ..., "layer4"): where its paper cuts
    layers_of(model, x)          # every named module with its kind, size and output shape
    default_layers(model)        # a choice of layers for anyone's own network
    MODELS, parse_spec("cnn")    # what there is to build, without importing torch

torch is imported when a name that needs it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
