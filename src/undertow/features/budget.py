"""How much memory a layer takes, and which side of its matrix to work on.

    budget = parse_size("2GB")
    route = choose_route(n_per_class=[1000] * 10, dim=16384, budget=budget)
    route.kind          # "gram"
    print(route.reason) # why, and what it takes

Three routes lead to the same subspaces:
    moments     a D x D scatter per class, gathered while the samples stream by; nothing is stored
    gram        features are stored on disk, then one n_c x n_c matrix at a time
    randomised  features are stored on disk, then some passes over them with thin matrices
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from undertow.errors import BadValue
from undertow.sizes import parse_size, show_size

RouteKind = Literal["moments", "gram", "randomised"]

READ_BYTES = 64 * 2**20
"""How much of a stored layer is read at once."""

DIRECTIONS = 1024
"""Size of the largest space in which the randomised route looks for the directions of a class."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes held while samples stream by, needed besides for the work after it, and stored."""

    held: int
    work: int
    stored: int = 0

    @property
    def total(self) -> int:
        """The peak in memory."""
        return self.held + self.work

    def __str__(self) -> str:
        stored = f" and {show_size(self.stored)} of stored features" if self.stored else ""
        return f"about {show_size(self.total)} of memory{stored}"


@dataclass(frozen=True)
class Route:
    """The route chosen for a layer, why, and what it takes."""

    kind: RouteKind
    reason: str
    estimate: MemoryEstimate


def estimate_memory(
    kind: RouteKind, n_per_class: Sequence[int], dim: int, *, batch_size: int = 512
) -> MemoryEstimate:
    """What a layer of width `dim` takes by one route; the model and the samples come on top."""
    most, classes, rows = max(n_per_class, default=0), len(n_per_class), sum(n_per_class)
    batch = 2 * batch_size * dim * 4  # as it came and sorted by class
    if kind == "moments":
        directions = classes * dim**2 * 4  # MASC's, at most
        waiting = min(rows, classes * 512 + batch_size) * dim * 4
        # Work: one class's matrix, its copy and the eigensolver's own.
        return MemoryEstimate(classes * dim**2 * 8 + directions + waiting + batch, 3 * dim**2 * 8)
    read = 3 * min(READ_BYTES, most * dim * 4)
    if kind == "gram":
        # One class's matrix with the eigensolver's own, then its directions in float64, two copies of them.
        return MemoryEstimate(batch, 3 * most * max(most, dim) * 8 + read, rows * dim * 4)
    # A space of directions in float32, what is taken out of it, and that in float64; matrices within the space.
    space = min(DIRECTIONS, most, dim)
    return MemoryEstimate(batch, 4 * dim * space * 4 + 6 * space**2 * 4 + read, rows * dim * 4)


def choose_route(n_per_class: Sequence[int], dim: int, budget: int | str, *, batch_size: int = 512) -> Route:
    """The cheapest route for a layer that keeps to the budget.

    Args:
        n_per_class: how many samples each class has.
        dim: the layer's width.
        budget: memory for this layer, in bytes or as "2GB".
        batch_size: samples per forward pass.
    """
    limit, most = parse_size(budget), max(n_per_class, default=0)
    order: tuple[RouteKind, RouteKind] = ("moments", "gram") if dim <= most else ("gram", "moments")
    sizes = f"{dim:,} features against {most:,} samples in the largest class"
    tried: dict[RouteKind, MemoryEstimate] = {}
    for kind in (*order, "randomised"):
        estimate = estimate_memory(kind, n_per_class, dim, batch_size=batch_size)
        if estimate.total <= limit:
            passed = "".join(f"; {other} would take {show_size(e.total)}" for other, e in tried.items())
            return Route(kind, f"{kind}: {sizes}{passed}; {estimate}.", estimate)
        tried[kind] = estimate
    least = min(estimate.total for estimate in tried.values())
    raise BadValue("memory", f"at least {show_size(least)} for a layer of {sizes}", show_size(limit))
