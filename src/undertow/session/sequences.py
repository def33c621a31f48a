"""Rows of steps: (N, steps, width) looks like grey pictures until a model refuses those.

    train, test = fitted_to((train, test), scaling, run.fresh)      # x may be (N, 1, steps, width) in there

Grey pictures of shape (N, H, W) get the channel that a convolution needs. A recurrent or attending network takes the
same shape without one. Only the model knows which is meant, so it is asked with two samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn

from undertow.data.inputs import to_inputs
from undertow.errors import BadData
from undertow.features.compatibility import CANNOT
from undertow.features.layers import INPUT
from undertow.features.stream import stream_features
from undertow.session.splits import Split

Splits = tuple[Split | None, Split | None]


def fitted_to(splits: Splits, scaling: str | None, build: Callable[[], nn.Module]) -> Splits:
    """The splits without a channel of their own, where the model answers only so; else as they are."""
    x = next((own.x for own in splits if own is not None), None)
    if not isinstance(x, Tensor) or x.ndim != 4 or x.shape[1] != 1 or not x.is_floating_point():
        return splits
    model, few = build(), x[:2] if scaling is None else to_inputs(x[:2], scaling)
    if _answers(model, few) or not _answers(model, few[:, 0]):
        return splits  # where it takes neither, the check of the samples says why
    train, test = splits
    return _in_steps(train), _in_steps(test)


def _in_steps(split: Split | None) -> Split | None:
    return replace(split, x=split.x[:, 0]) if split is not None and isinstance(split.x, Tensor) else split


def _answers(model: nn.Module, few: Tensor) -> bool:
    """Whether the model gives one row of scores for each sample."""
    try:
        said = next(stream_features(model, few, INPUT)).outputs
    except (*CANNOT, BadData):
        return False
    return said.ndim == 2 and len(said) == len(few)
