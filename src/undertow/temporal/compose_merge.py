"""A network whose shallow part comes from one checkpoint and whose deep part from another.

    net = compose(model, shallow=state_10, deep=state_50, cut="layer2")       # a plain chain of modules
    net = compose(model, shallow=state_10, deep=state_50, cut="encoder.2", x=samples)   # any other module
    compose(model, state_10, state_10, "layer2")                              # the model at 10, to the bit

Everything that runs up to and including the module `cut` is shallow, the rest deep: decided by what really ran
before it, not by the order of definition. Buffers (batch-norm statistics) go with their layers; see batchnorm.py
for statistics estimated anew. For many pairs at once see matrix.py, which never computes a shallow part twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from torch import Tensor, nn

from undertow.errors import BadValue
from undertow.features.layers import unwrap
from undertow.features.tap import Inputs
from undertow.temporal.compose_split import Cut
from undertow.temporal.cuts import find_cut
from undertow.training.foreign import load_weights


def compose(
    model: nn.Module,
    shallow: Mapping[str, Tensor],
    deep: Mapping[str, Tensor],
    cut: str,
    *,
    x: Inputs | None = None,
) -> nn.Module:
    """A copy of `model` with weights of two checkpoints; the model itself stays as it was.

    Args:
        model: any module, also compiled or in DataParallel (the copy is the module inside).
        shallow: the state dict for everything up to and including the cut.
        deep: the state dict for the rest.
        cut: a module's name; `valid_cuts` lists those where all information passes through.
        x: two inputs or more, as the model takes them, to see what runs when. Only a plain chain of modules
            (as all networks of `build_model` are between their blocks) does without.
    """
    for name, weights in (("shallow", shallow), ("deep", deep)):
        _check_state(weights, f"compose({name}=...)")
    return merge(model, shallow, deep, find_cut(model, cut, x, who="compose(cut=...)"))


def _check_state(weights: object, who: str) -> None:
    """Refuse what is no state dict, before torch asks it for names."""
    entries = dict(cast("Mapping[Any, Any]", weights)) if isinstance(weights, Mapping) else {None: None}
    for name, value in entries.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            got = type(weights).__name__ if name is None else f"{name!r}: {type(value).__name__}"
            raise BadValue(who, "a state dict, tensors by name", got, "run.weights(20) gives one.")


def merge(model: nn.Module, shallow: Mapping[str, Tensor], deep: Mapping[str, Tensor], cut: Cut) -> nn.Module:
    """`compose` at a cut that was checked before."""
    made = deepcopy(unwrap(model))
    load_weights(made, deep, "compose(deep=...)")
    late = {name: value.clone() for name, value in made.state_dict().items() if name not in cut.shallow}
    load_weights(made, shallow, "compose(shallow=...)")
    made.load_state_dict(late, strict=False)
    return made
