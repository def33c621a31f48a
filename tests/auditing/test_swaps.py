"""The swap profile in words, on answers made by hand."""

from __future__ import annotations

from typing import Any

from undertow.auditing.swaps import swap_words

from .made import swap

WALK = "We replaced the layers of epoch 8 by those of epoch 60 one by one, from the input on."


def told(*given: Any, **more: Any) -> str:
    return swap_words(swap(*given, **more), "epoch")


def test_the_loss_is_told_in_points_and_by_layer():
    """From the input on layer2 costs 20 of 26 points, from the output on as many."""
    assert told() == (
        f"20.0 of the 26.0 lost points come with layer2. {WALK} From the output on, the same layers cost accuracy. "
        "Less than a fifth comes with layer1, layer3 or what comes after layer3 either way."
    )


def test_two_orders_that_name_other_layers():
    said = told((0.93, 0.82, 0.70), (0.78, 0.92, 0.93))
    assert said.startswith(f"23.0 of the 26.0 lost points come with layer2 and layer3. {WALK}")
    assert "From the output on, layer1 and layer2 cost accuracy." in said


def test_what_cannot_be_told_is_said_in_the_same_words():
    even = (0.90, 0.86, 0.82, 0.78, 0.74)
    assert told(even, even[::-1], 0.94, 0.70) == (
        "The 24.0 lost points are spread out: no part clearly takes a fifth of them."
    )
    torn = ((0.70, 0.70, 0.70), (0.69, 0.70, 0.70), 0.94, 0.68)
    assert told(*torn) == (
        "From the input on, the 26.0 lost points go with layer1; from the output on, with what comes after layer3."
    )
    assert "26.0 lost points (on 1,000 of the 5,000 test samples)" in told(*torn, total=5000)
    worse = told((0.93, 0.30, 0.70), (0.70, 0.88, 0.92))
    assert worse.startswith("At layer2, layers of epoch 8 and epoch 60 no longer fit together.")


def test_nothing_lost():
    same = (0.9,) * 3
    assert told(same, same, 0.90, 0.95) == "Epoch 60 is better than epoch 8: 95.0 % after 90.0 %."
    assert told(same, same, 0.90, 0.90).startswith("Epoch 60 is not clearly worse than epoch 8")
