"""Which features of a model are looked at: its layers, and what enters its head where no layer gives that out.

    views_of(session, "auto")                  # ("input", "fc1", "fc2", "what enters the head")
    views_of(session, ["fc1", ENTERING])       # by name

Between the last layer and the head there is often a functional ReLU or a pooling. A probe behind it reads other
features than one on the layer, and a probe that is written into the head reads exactly these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undertow.features.layers import AUTO
from undertow.session.reader import ENTERING

if TYPE_CHECKING:
    from undertow.session.session import Session


def views_of(session: Session, names: str | Sequence[str]) -> tuple[str, ...]:
    """The layers that `names` ask for, and what enters the head: where it is named, or `auto` would not show it."""
    asked = [names] if isinstance(names, str) else list(names)
    modules = [name for name in asked if name != ENTERING]
    layers = session.layers(modules) if modules or not asked else ()
    hidden = AUTO in asked and _is_hidden(session, layers)
    return (*layers, ENTERING) if hidden or ENTERING in asked else layers


def _is_hidden(session: Session, layers: Sequence[str]) -> bool:
    """Whether what enters the head is given out by none of these layers."""
    reader = session.example_reader
    if reader.head is None:
        return False
    batch = next(reader.stream(session.splits()[0].trial(), [*layers, ENTERING]))
    own = batch.features[ENTERING]
    return not any(_are_same(batch.features[name], own) for name in layers)


def _are_same(rows: Tensor, others: Tensor) -> bool:
    return rows.shape == others.shape and torch.allclose(rows.float(), others.float(), rtol=1e-5, atol=1e-6)
