"""What a composite matrix holds in memory: results, deep parts and features, within a budget.

plan = make_plan(2_000_000_000, results=3_600_000, model=1_100_000, deep=30, sample=32_768, count=2000, batch=256)
plan.hold            # whether all deep parts stay in memory, or are loaded when their turn comes
plan.blocks          # batches (slices of samples) whose features are held at a time
plan.words           # for people
"""

from __future__ import annotations

from dataclasses import dataclass

from undertow.errors import BadValue
from undertow.sizes import show_size


@dataclass(frozen=True)
class MatrixPlan:
    """How the work is laid out."""

    hold: bool
    blocks: tuple[tuple[slice, ...], ...]
    words: str


def make_plan(
    budget: int, *, results: int, model: int, deep: int, sample: int, count: int, batch: int, calibration: int = 0
) -> MatrixPlan:  # fmt: skip
    """The plan with the fewest blocks of samples that keeps to the budget.

    Args:
        budget: bytes in all.
        results: bytes of predictions and losses.
        model: bytes of one model's weights.
        deep: the number of deep checkpoints.
        sample: bytes of one sample's features at all cuts.
        count: the number of samples.
        batch: samples per forward pass.
        calibration: samples whose features must be there at once.
    """
    least = sample * max(min(batch, count), calibration)
    if results + least > budget:
        held = f"{show_size(results)} of results and {show_size(least)} of features"
        advice = "Give more memory, smaller batches, fewer checkpoints or calibration samples."
        raise BadValue(
            "memory", f"at least {show_size(results + least)} for {held}", show_size(budget), advice
        )
    hold = results + deep * model + least <= budget
    room = budget - results - deep * model * hold
    batches = [slice(first, min(first + batch, count)) for first in range(0, count, batch)]
    size = max(1, min(len(batches), room // max(1, sample * batch)))
    blocks = tuple(tuple(batches[at : at + size]) for at in range(0, len(batches), size))
    most = min(size * batch, count)
    shown = f"features of {most:,} samples at a time ({show_size(sample * most)})"
    parts = f"{deep} deep parts held ({show_size(deep * model)})" if hold else "one deep part at a time"
    return MatrixPlan(hold, blocks, f"{shown}, {parts}, {show_size(results)} of results")
