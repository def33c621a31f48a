"""Where samples come from: named and own data, label noise, corruptions and encodings.

    from undertow.data import DATA, LabelNoise, load_data

    DATA                                            # the sets known by name; needs no torch
    data = load_data("mnist", train_size=5000)      # DataSet with .train and .test
    noisy = LabelNoise("uniform", 0.4).apply(data.train, classes=10)

Names are imported when they are first used, so that this package alone costs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy

if TYPE_CHECKING:
    from undertow.data.catalogue import DATA, Entry, Kind, Place
    from undertow.data.corruptions import CORRUPTIONS, SEVERITIES, contact_sheet, corrupt, corrupt_samples
    from undertow.data.encode import encode_labels
    from undertow.data.inputs import SCALINGS, Scaling, crop_flip, find_scaling, to_inputs
    from undertow.data.load import Source, load_data
    from undertow.data.noise import LabelNoise, counted_transition, expected_wrong, parse_noise
    from undertow.data.samples import DataSet, Samples
    from undertow.data.subset import balanced, hold_out

__all__ = [
    "CORRUPTIONS",
    "DATA",
    "SCALINGS",
    "SEVERITIES",
    "DataSet",
    "Entry",
    "Kind",
    "LabelNoise",
    "Place",
    "Samples",
    "Scaling",
    "Source",
    "balanced",
    "contact_sheet",
    "corrupt",
    "corrupt_samples",
    "counted_transition",
    "crop_flip",
    "encode_labels",
    "expected_wrong",
    "find_scaling",
    "hold_out",
    "load_data",
    "parse_noise",
    "to_inputs",
]

_HOMES = {
    "catalogue": ("DATA", "Entry", "Kind", "Place"),
    "corruptions": ("CORRUPTIONS", "SEVERITIES", "contact_sheet", "corrupt", "corrupt_samples"),
    "encode": ("encode_labels",),
    "inputs": ("SCALINGS", "Scaling", "crop_flip", "find_scaling", "to_inputs"),
    "load": ("Source", "load_data"),
    "noise": ("LabelNoise", "counted_transition", "expected_wrong", "parse_noise"),
    "samples": ("DataSet", "Samples"),
    "subset": ("balanced", "hold_out"),
}
"""Module -> the public names that it holds; a test keeps it in step with `__all__` and the imports above."""

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
