"""Batch norm that takes each image by itself, as the authors of paper 001 had it while they probed ResNet-18.

    with per_image_statistics(model):
        model(images)          # every image normalised by its own mean and variance, in batches of any size

They took one image at a time in training mode: batch norm then normalises it by the statistics of that image
alone, and moves the running statistics with each one. Here whole batches get the same numbers, and the running
statistics stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch.nn.functional as F
from torch import Tensor, nn

from undertow.errors import BadData


@contextmanager
def per_image_statistics(model: nn.Module) -> Generator[None]:
    """Inside the block, every BatchNorm2d of `model` normalises each image by that image's own statistics."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    try:
        for norm in norms:
            norm.__dict__["forward"] = _image_by_image(norm)  # hides the class's own
        yield
    finally:
        for norm in norms:
            norm.__dict__.pop("forward", None)  # which shows again


def _image_by_image(norm: nn.BatchNorm2d) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:  # (N, C, H, W)
        if x.shape[2] * x.shape[3] == 1:
            # torch refuses a batch of one here too: the only value of a channel would always become 0.
            raise BadData(
                f"per-image statistics: wanted maps of more than one pixel, got shape {tuple(x.shape)}. "
                "Give larger images."
            )
        return F.group_norm(x, norm.num_features, norm.weight, norm.bias, norm.eps)

    return forward
