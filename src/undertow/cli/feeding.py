"""The data that a command was given, and how a model that undertow did not train gets its inputs.

data = load_given(opened, "texts.npz", scaling=None)     # None where nothing was given: the run's own

A run of undertow says how its inputs were scaled. Of others nobody knows: own files of floats are fed as they are,
bytes as pixels from 0 to 1, undertow's named sets as undertow scales them, and `--scaling` says otherwise. Whichever
it is, the data's note tells it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from undertow.data.catalogue import DATA
from undertow.errors import BadValue

if TYPE_CHECKING:
    from undertow.data.samples import DataSet
    from undertow.training.run import Run

WORDS = {
    "none": "Inputs are fed as they are",
    "unit": "Pixels are fed as numbers from 0 to 1",
    "half": "Pixels are fed as numbers from -1 to 1",
    "cifar": "Pixels are fed with CIFAR's means and deviations taken out",
    "imagenet": "Pixels are fed with ImageNet's means and deviations taken out",
}


def load_given(run: Run, source: str | None, scaling: str | None) -> DataSet | None:
    """The data called `source`, scaled for the model of `run`; None where none was given."""
    from undertow.data.inputs import find_scaling
    from undertow.data.load import load_data

    if scaling is not None:
        find_scaling(scaling)
        _check_free(run, source)
    if source is None:
        return None
    data = load_data(source)
    if run.facts.data is not None:
        return data
    chosen = scaling or (data.scaling if source.partition(":")[0] in DATA else _plain(data))
    hint = "" if scaling else "; if it was trained on others, say so with --scaling"
    note = f"{WORDS[chosen]} (--scaling {chosen}){hint}."
    # What the loader said of pixels is about how undertow would train on them.
    return replace(data, scaling=chosen, note=note if data.kind == "image" else data.note)


def _check_free(run: Run, source: str | None) -> None:
    if run.facts.data is not None:
        raise BadValue(
            "--scaling", f"none, as {run.path} says how its inputs were scaled ({run.facts.data['scaling']})", "one",
            "Leave it out.",
        )  # fmt: skip
    if source is None:
        raise BadValue("--scaling", "data to scale", "none", "Give --data, too.")


def _plain(data: DataSet) -> str:
    """As little as can be done: bytes become numbers from 0 to 1, all else stays."""
    import torch
    from torch import Tensor

    return "unit" if isinstance(data.train.x, Tensor) and data.train.x.dtype == torch.uint8 else "none"
