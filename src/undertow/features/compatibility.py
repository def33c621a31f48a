"""Whether a model and samples fit together, found out before anything is computed.

    check_fit(model, x, "train")             # runs the model on a few samples
    with explained(model, x, "train"):       # what the model says of samples that it cannot take, in one sentence
        ...
    check_used(model, x)                     # refuses entries by name that the model takes and never looks at

A name that forward cannot take is refused by the tap. But many models swallow unknown names (`**kwargs`): a misspelt
attention_mask would go unnoticed, and padding would count. So an entry that forward does not name must be touched by
some operation of a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from undertow.data.entries import shown, trial_rows
from undertow.data.streamed import SampleStream
from undertow.errors import BadData, UndertowError, unknown
from undertow.features.layers import INPUT, unwrap
from undertow.features.stream import stream_features
from undertow.features.tap import Inputs, Tap, arguments, as_fed, device_of, to_device, uncompiled

CANNOT = (RuntimeError, IndexError, TypeError, ValueError, KeyError, AttributeError, AssertionError)
"""What models raise when they meet inputs that they were not made for."""


def check_fit(
    model: nn.Module, x: Inputs, where: str, *, prepare: Callable[[Tensor], Tensor] | None = None
) -> None:
    """Run the model on a few of the samples; `prepare` as for `stream_features`.

    Raises:
        BadData: it cannot take them.
        UnknownName: it does not know an entry.
    """
    few = _few(x)
    with explained(model, few, where):
        check_used(model, few)
        for _ in stream_features(model, few, INPUT, prepare=prepare):
            pass


def _few(x: Inputs) -> Inputs:
    """A few samples; options that are no tensors stay as they are."""
    x = x.few if isinstance(x, SampleStream) else x
    if isinstance(x, Tensor):
        return trial_rows(x)
    if isinstance(x, Mapping):
        tensors = {name: part for name, part in x.items() if isinstance(part, Tensor)}
        return {**x, **cast("Mapping[str, Tensor]", trial_rows(tensors))}
    return tuple(part[:2] if isinstance(part, Tensor) else part for part in x)


def _shown(x: Inputs) -> str:
    if isinstance(x, Tensor):
        return shown(x)
    if isinstance(x, Mapping):
        return shown({name: part for name, part in x.items() if isinstance(part, Tensor)})
    return " and ".join(shown(part) for part in x if isinstance(part, Tensor))


@contextmanager
def explained(model: nn.Module, x: Inputs, where: str) -> Generator[None]:
    """Turn what a model says of `x` into one sentence."""
    try:
        yield
    except (UndertowError, torch.OutOfMemoryError):
        raise
    except CANNOT as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise BadData(
            f"{type(unwrap(model)).__name__} cannot take samples of shape {_shown(x)} ({where}): {said}. "
            "Give the data that it was trained on."
        ) from error


def check_used(model: nn.Module, x: Inputs) -> None:
    """Refuse entries by name that forward does not name and no operation of a pass looks at."""
    if not isinstance(x, Mapping):
        return
    named, _ = arguments(model)
    # Copies, so that one tensor under two names is not taken for both.
    own = dict(cast("Mapping[str, Any]", as_fed(model, to_device(x, device_of(model)))))
    doubtful = [name for name, part in own.items() if name not in named and isinstance(part, Tensor)]
    if not doubtful:
        return
    with Tap(model, INPUT) as tap, torch.no_grad(), uncompiled(), _Seen() as seen:
        tap.model(**own)
    for name in doubtful:
        if id(own[name]) not in seen.touched:
            raise unknown(f"input of {type(tap.model).__name__}", name, named)


class _Seen(TorchFunctionMode):
    """Notes which tensors operations were given."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs or {}))
        self.touched |= {id(part) for part in given if isinstance(part, Tensor)}
        return func(*args, **(kwargs or {}))
