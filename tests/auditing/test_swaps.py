"""The swap profile in words, on answers made by hand."""

from __future__ import annotations

import numpy as np

from undertow.auditing.swaps import swap_words
from undertow.temporal.swap import swap_profile

N = 1000
REPLACED = "when the layers of epoch 8 are replaced by those of epoch 60 one after the other"


def right(share: float) -> np.ndarray:
    """The first so many answers right: worse models are wrong where better ones are right."""
    return np.arange(N) < share * N


def told(late_early: list[float], early_late: list[float], early: float, late: float, total: int = N) -> str:
    cuts = [f"layer{place + 1}" for place in range(len(late_early))]
    composites = (np.stack([right(one) for one in shares]) for shares in (early_late, late_early))
    return swap_words(swap_profile(*composites, right(early), right(late), cuts), "epoch", 8, 60, total)


def test_the_loss_is_told_in_points_and_by_layer():
    """From the input on layer2 costs 20 of 26 points, from the output on as many."""
    assert told([0.93, 0.73, 0.70], [0.70, 0.90, 0.92], 0.94, 0.68) == (
        f"Entered in layer2: {REPLACED}, from the input on, 20.0 of the 26.0 lost points go with this one; from the "
        "output on, it is the same layers that clearly cost accuracy; less than a fifth goes with layer1, layer3 or "
        "what comes after layer3 either way."
    )


def test_two_orders_that_name_other_layers():
    said = told([0.93, 0.82, 0.70], [0.78, 0.92, 0.93], 0.94, 0.68)
    assert said.startswith("Entered in layer2 and layer3: ")
    assert "23.0 of the 26.0 lost points go with these" in said
    assert "from the output on, it is layer1 and layer2 that clearly cost accuracy, so" in said


def test_what_cannot_be_told_is_said_in_the_same_words():
    even = [0.90, 0.86, 0.82, 0.78, 0.74]
    assert told(even, even[::-1], 0.94, 0.70) == (
        f"Cannot tell: {REPLACED}, the 24.0 lost points are spread out, and no part clearly takes a fifth of them."
    )
    torn = ([0.70, 0.70, 0.70], [0.69, 0.70, 0.70], 0.94, 0.68)
    assert told(*torn) == (
        f"Cannot tell: {REPLACED}, the 26.0 lost points go with layer1 from the input on, but with what comes after "
        "layer3 from the output on."
    )
    assert "26.0 lost points (on 1,000 of the 5,000 test samples)" in told(*torn, total=5000)
    worse = told([0.93, 0.30, 0.70], [0.70, 0.88, 0.92], 0.94, 0.68)
    assert worse.startswith("Cannot tell: cut after layer2, a composite is worse than both models")


def test_nothing_lost():
    same = [0.9] * 3
    better = "Nothing to place: epoch 60 is better than epoch 8, 95.0 % after 90.0 %."
    assert told(same, same, 0.90, 0.95) == better
    unclear = "Cannot tell: epoch 60 is not clearly worse than epoch 8"
    assert told(same, same, 0.90, 0.90).startswith(unclear)
