"""The activations of any module's layers by name, leaving the module as it was.

    with Tap(model, ["input", "layer2", "blocks.*.mlp"], conv="mean") as tap:
        logits, features = tap(x)            # features["layer2"]: (N, D)
    tap.notes                                # what was not as plain as it looks, in words

Inside the block the model is in eval mode and nothing records gradients. At its end, also after an
exception, every submodule has its own mode back and no hook stays. Activations are copied where a
later in-place operation could change them, and keep the dtype they were computed in.

What an activation is: a tensor; of a dict or ModelOutput `last_hidden_state`, else `logits`, else the
first tensor; of a tuple or list the first tensor. Then, by its dimensions:
    (N, D)        as it is; (N,) becomes (N, 1)
    (N, L, D)     tokens: "mean", "first", "last" or "flatten". With an attention_mask of shape (N, L)
                  among dict inputs, mean and last leave masked tokens out. A 1-d convolution's
                  (N, C, L) looks the same: use "flatten".
    (N, C, H, W)  maps, also 3-d ones: "flatten", or per channel "mean" or "max"
Compiled models run uncompiled inside a tap: compiled code does not see hooks.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, cast, get_args

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from undertow.data.streamed import SampleStream
from undertow.errors import BadData, BadValue, unknown
from undertow.features.layers import INPUT, named_layers, resolve_layers, unwrap

Inputs: TypeAlias = Tensor | Mapping[str, Any] | tuple[Any, ...] | list[Any] | SampleStream
"""What a model is called with: one tensor, keyword arguments or positional arguments; or a stream of such."""

ConvRule = Literal["flatten", "mean", "max"]
TokenRule = Literal["mean", "first", "last", "flatten"]


@dataclass
class _Pass:
    """What one forward pass has brought so far."""

    batch: int
    mask: Tensor | None  # (N, L) of the tokens to keep
    features: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    calls: Counter[str] = field(default_factory=Counter[str])


class Tap:
    """A context manager around a model; inside it, call the tap instead of the model."""

    def __init__(
        self,
        model: nn.Module,
        layers: str | Iterable[str],
        *,
        call: Literal["last"] | int = "last",
        conv: ConvRule = "flatten",
        tokens: TokenRule = "mean",
    ) -> None:
        """Choose the layers; the model is not touched before the block is entered.

        Args:
            model: any module, also compiled or in DataParallel.
            layers: names, patterns, `auto` or `input` (see `resolve_layers`).
            call: which call of a layer counts where one pass calls it several times (0 is the first).
            conv: what becomes of maps (N, C, H, W).
            tokens: what becomes of tokens (N, L, D).
        """
        if conv not in get_args(ConvRule):
            raise BadValue("Tap(conv=...)", " or ".join(get_args(ConvRule)), conv)
        if tokens not in get_args(TokenRule):
            raise BadValue("Tap(tokens=...)", " or ".join(get_args(TokenRule)), tokens)
        if call != "last" and (type(call) is not int or call < 0):
            raise BadValue("Tap(call=...)", "'last' or a call's number from 0", call)
        self.model = unwrap(model)
        self.layers = resolve_layers(model, layers)
        self.call, self.conv, self.tokens = call, conv, tokens
        self._notes: dict[str, None] = {}
        self._open: ExitStack | None = None
        self._now: _Pass | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of the features should know, each once."""
        return tuple(self._notes)

    def __enter__(self) -> Self:
        if self._open is not None:
            raise BadValue("Tap", "to be entered once at a time", "a tap that is open already")
        modules = named_layers(self.model)
        with ExitStack() as stack:
            for module in self.model.modules():
                # Set the flag itself: train() and eval() are overridden by some modules, with side effects.
                stack.callback(setattr, module, "training", module.training)
                module.training = False
            for name in self.layers:
                if name != INPUT:
                    stack.callback(modules[name].register_forward_hook(self._hook(name)).remove)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._open = self._open, None
        if stack is not None:
            stack.close()

    def __call__(self, inputs: Inputs, *, spare: bool = False) -> tuple[Any, dict[str, Tensor]]:
        """The model's own output, and the features (N, D) by layer in the order of `layers`.

        Args:
            inputs: what the model is called with; it gets copies, as its forward may write into them, with floats
                in the dtype of its weights.
            spare: nobody else needs these tensors: no copies are made.
        """
        if self._open is None:
            raise BadValue(
                "Tap", "a call inside its block", "a call outside", "Write: with Tap(...) as tap: tap(x)"
            )
        check_inputs(inputs, "Tap")
        _check_names(self.model, inputs)
        inputs = to_device(inputs, device_of(self.model))
        self._now = now = self._begun(inputs)
        try:
            with torch.no_grad(), uncompiled():
                output = call(self.model, inputs, spare=spare)
        finally:
            self._now = None  # a call of the model itself, or by another tap, is not ours
        self._check_calls(now)
        return output, {name: now.features[name] for name in self.layers}

    def _begun(self, inputs: Inputs) -> _Pass:
        """A pass before the model runs: what is known from its inputs alone."""
        first = main_tensor(inputs, INPUT)
        if not first.ndim:
            raise BadData("Tap: wanted a row of inputs for each sample, got a single number.")
        mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
        now = _Pass(len(first), mask if isinstance(mask, Tensor) and mask.ndim == 2 else None)
        if INPUT in self.layers:
            # A copy: it may be a view of samples that others change later.
            plain = first.detach() if first.is_floating_point() else first.float()
            now.features[INPUT] = plain.reshape(len(plain), -1).clone()
        return now

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def keep(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._now is None:
                return
            number = self._now.calls[name]
            self._now.calls[name] += 1
            if self.call in ("last", number):
                found = main_tensor(output, name)
                if found.ndim == 3 and _samples_second(module):
                    found = found.transpose(0, 1)
                rows = self._rows(found, name, self._now)
                # What still shares memory with the activation could be changed by the next layer in place.
                self._now.features[name] = rows.clone() if share_memory(rows, found) else rows

        return keep

    def _rows(self, found: Tensor, name: str, now: _Pass) -> Tensor:
        if found.ndim == 0 or len(found) != now.batch:
            raise BadData(
                f"Layer {name!r}: wanted one activation per sample, so a first dimension of {now.batch}, "
                f"got shape {tuple(found.shape)}. Tap the layer around it, where samples come first."
            )
        if found.ndim == 3:
            return self._token_rows(found, name, now.mask)
        if found.ndim > 3 and self.conv != "flatten":
            maps = found.flatten(2)
            return maps.mean(2) if self.conv == "mean" else maps.amax(2)
        return found.flatten(1) if found.ndim > 1 else found[:, None]

    def _token_rows(self, found: Tensor, name: str, mask: Tensor | None) -> Tensor:
        if self.tokens == "flatten":
            return found.flatten(1)
        if self.tokens == "first":
            return found[:, 0]
        if mask is not None and mask.shape != found.shape[:2]:
            self._note(
                f"Layer {name!r} has {found.shape[1]} tokens, the mask {mask.shape[1]}: all tokens count."
            )
            mask = None
        if mask is None:
            return found.mean(1) if self.tokens == "mean" else found[:, -1]
        kept = mask.to(found.device) != 0  # (N, L)
        if not bool(kept.any(1).all()):
            empty = int((~kept.any(1)).nonzero()[0])
            raise BadData(f"attention_mask: wanted a token to keep in each row, got none in row {empty}.")
        if self.tokens == "mean":
            # Zeros by selection, not by product: a masked token may hold NaN.
            return found.masked_fill(~kept[..., None], 0).sum(1) / kept.sum(1, keepdim=True).to(found.dtype)
        last = kept.shape[1] - 1 - kept.flip(1).int().argmax(1)
        return found[torch.arange(len(found), device=found.device), last]

    def _check_calls(self, now: _Pass) -> None:
        for name in self.layers:
            calls = now.calls[name]
            if name not in now.features:
                came = f"ran {calls} times, so has no call {self.call}" if calls else "never ran in this pass"
                raise BadValue(
                    "Tap", "layers that the forward pass calls", name, f"It {came}: choose another."
                )
            if calls > 1 and self.call == "last":
                self._note(
                    f"Layer {name!r} runs {calls} times in one pass: the last counts (call=0: the first)."
                )

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes[text] = None
            warnings.warn(text, stacklevel=4)


def main_tensor(output: Any, name: str = "output") -> Tensor:
    """The tensor that an output is about; the module's docstring has the rule."""
    found = _first_tensor(output)
    if found is None:
        raise BadData(
            f"Layer {name!r}: wanted a tensor somewhere in its output, got {type(output).__name__}."
        )
    return found


def _first_tensor(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        named = cast("Mapping[str, Any]", output)
        preferred = [named[key] for key in ("last_hidden_state", "logits") if key in named]
        parts = [*preferred, *named.values()]
    else:
        parts = list(cast("tuple[Any, ...]", output)) if isinstance(output, tuple | list) else []
    return next((found for part in parts if (found := _first_tensor(part)) is not None), None)


def check_inputs(inputs: object, who: str) -> None:
    """Refuse what no model is called with, before anything is computed."""
    if not isinstance(inputs, Tensor | Mapping | tuple | list | SampleStream):
        raise BadValue(
            who, "inputs as the model takes them: a tensor, or tensors in a dict, a tuple or a list",
            type(inputs).__name__, "torch.as_tensor(x) makes one of an array.",
        )  # fmt: skip


def _samples_second(module: nn.Module) -> bool:
    """Whether torch's own recurrent and attention modules were made to put samples second."""
    if isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder):
        module = module.layers[0]
    return getattr(getattr(module, "self_attn", module), "batch_first", True) is False


def device_of(model: nn.Module) -> torch.device | None:
    """Where the model's first parameter or buffer lies; None for a model without any."""
    for tensors in (model.parameters(), model.buffers()):
        for tensor in tensors:
            return tensor.device
    return None


def to_device(inputs: Inputs, device: torch.device | str | None) -> Inputs:
    """The inputs with all their tensors on `device`; None leaves them where they are."""
    if device is None:
        return inputs
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {key: _moved(value, device) for key, value in inputs.items()}
    return tuple(_moved(value, device) for value in inputs)


def _moved(value: Any, device: torch.device | str) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def arguments(model: nn.Module) -> tuple[tuple[str, ...], bool]:
    """The names under which `forward` takes inputs, and whether it swallows others (`**kwargs`)."""
    found = inspect.signature(unwrap(model).forward).parameters.values()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = tuple(one.name for one in found if one.kind in by_name)
    return names, any(one.kind is inspect.Parameter.VAR_KEYWORD for one in found)


def _check_names(model: nn.Module, inputs: Inputs) -> None:
    if isinstance(inputs, Mapping):
        names, swallows = arguments(model)
        wrong = next((name for name in inputs if name not in names), None)
        if wrong is not None and not swallows:
            raise unknown(f"input of {type(model).__name__}", wrong, names)


def call(model: nn.Module, inputs: Inputs, *, spare: bool = False) -> Any:
    """The model's answer to one tensor, keyword arguments or positional arguments; see `as_fed`."""
    inputs = as_fed(model, inputs, spare=spare)
    try:
        if isinstance(inputs, Tensor):
            return model(inputs)
        return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)
    except SystemExit as error:
        raise BadData(
            f"{type(model).__name__}: wanted outputs, but its forward ends the program (SystemExit: {error.code}). "
            "Let it raise an error instead."
        ) from error


def as_fed(model: nn.Module, inputs: Inputs, *, spare: bool = False) -> Inputs:
    """The inputs as they enter the model, in every pass over samples: floats in the dtype of its weights, and copies.

    A forward that changes its input in place (`x.sub_(mean)`, a first ReLU(inplace=True)) would else write into the
    samples that are held; `spare` tensors need no copy.
    """
    kind = _float_kind(model)

    def fed(part: Tensor) -> Tensor:
        made = part.to(kind) if kind is not None and part.is_floating_point() else part
        return made if spare or made is not part else made.clone()

    # Not every Mapping (a tokenizer's BatchEncoding) is known to tree_map.
    return tree_map_only(Tensor, fed, dict(inputs) if isinstance(inputs, Mapping) else inputs)


def _float_kind(model: nn.Module) -> torch.dtype | None:
    """The dtype of the first floating weights; None without any, as in a quantised model."""
    kinds = (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
    )  # float8 is for storage, not for inputs
    return next((one.dtype for one in model.parameters() if one.dtype in kinds), None)


def share_memory(one: Tensor, other: Tensor) -> bool:
    """Whether writing into one tensor may change the other."""
    if one.layout != torch.strided or other.layout != torch.strided:
        return True  # no single storage to compare
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def uncompiled() -> AbstractContextManager[Any]:
    """Run compiled parts as plain Python; where nothing was ever compiled, nothing is loaded for it."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
