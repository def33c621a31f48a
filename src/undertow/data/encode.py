"""Labels written into the pixels: a shortcut that a rich network takes and that fails in the test.

    train = encode_labels(data.train, 10)                                     # the true label
    test = encode_labels(data.test, 10, labels="random", generator=source)    # a label that says nothing

The first C values of each sample become the one-hot label: 255 (uint8) or 1.0 (float) at the label's
place, 0 at the others. For an image they are the first pixels of its top row, then of the rows below;
for a colour image those of its first (red) channel, the other channels staying as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, unknown

Encoded = Literal["true", "random"]


def encode_labels(
    samples: Samples, classes: int, labels: Encoded = "true", generator: torch.Generator | None = None
) -> Samples:
    """The samples with a label in their first `classes` values; `samples` and its labels stay as they are.

    Args:
        samples: Images (N, C, H, W) or float vectors (N, D).
        classes: The number of classes, at most H times W (or D).
        labels: `true` writes the true label (the given one where nobody knows it), `random` one drawn
            uniformly from all classes.
        generator: Where `random` draws from.
    """
    _check_room(samples.tensor, classes)
    shown = _labels(samples, classes, labels, generator)  # (N,)
    x = samples.tensor.clone(memory_format=torch.contiguous_format)
    top = 255 if x.dtype == torch.uint8 else 1
    # Contiguous, so that this is a view, and the first values are those of the first channel.
    x.view(len(x), -1)[:, :classes] = (one_hot(shown, classes) * top).to(x.dtype)
    return replace(samples, x=x)


def _labels(samples: Samples, classes: int, labels: Encoded, generator: torch.Generator | None) -> Tensor:
    if labels not in get_args(Encoded):
        raise unknown("way to encode labels", labels, get_args(Encoded))
    if labels == "true":
        return samples.y if samples.true is None else samples.true
    if generator is None:
        raise BadValue(
            "encode_labels", "a generator for random labels", None, "Give generator=torch.Generator()."
        )
    drawn = torch.randint(0, classes, (len(samples),), generator=generator, device=generator.device)
    return drawn.to(samples.tensor.device)


def _check_room(x: Tensor, classes: int) -> None:
    if not (x.is_floating_point() or x.dtype == torch.uint8):
        raise BadData(
            f"encode_labels: wanted pixels or vectors, got {x.dtype} tokens. They have no place for a label."
        )
    room = x.shape[2] * x.shape[3] if x.ndim == 4 else x.shape[1]
    if classes > room:
        raise BadData(
            f"encode_labels: wanted {classes} values for {classes} classes, got samples with {room}."
        )
