"""In which order to look at suspected labels, so that each hundred reviewed pays.

    order = spread(suspected)       # sample numbers, most suspicious first, in the order of review

The highest scores are almost all wrong, but much alike: the plainest samples of a few pairs of classes. So samples are
taken from all over the scores, by steps of the golden section: at any length the reviewed ones are an even part of all
suspects. docs/labels-measured.md says what that was measured to bring (bench/review_order.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

GOLDEN = 0.6180339887498949
"""Steps of this share of a circle never fall near each other."""


def spread(suspected: Tensor) -> Tensor:
    """`suspected` (K,), most suspicious first, in the order in which to review them."""
    places = (torch.arange(len(suspected), dtype=torch.float64) * GOLDEN) % 1
    return suspected[places.argsort().argsort()]
