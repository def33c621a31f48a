"""Reading checkpoints that other loops wrote, without ever unpickling code.

    weights = read_weights(path)      # .pt .pth .ckpt .bin .pth.tar .safetensors, or a folder: name -> tensor
    weights = read_weights(path, ema=True)      # the moving average that timm and torchvision keep beside them
    load_weights(model, weights, str(path))     # strips module., _orig_mod., a Lightning module's model. ...

`.pt`-like files are read with `weights_only=True` and an allow-list of harmless types (argparse's Namespace, paths,
numpy's numbers): a file that would need to run code is refused, and the message says how its owner can save it again.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from undertow.errors import BadFile, BadValue, NotThere, RunProblem
from undertow.stored.archives import check_archive
from undertow.stored.door import check_regular, unreadable
from undertow.training.checkpoint_files import INDICES, weight_files
from undertow.training.harmless import harmless_types
from undertow.training.mistaken import taken_for
from undertow.training.own_checkpoint import read_checkpoint

_INSIDE = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params", "module")
_AVERAGED = ("state_dict_ema", "model_ema", "ema_state_dict", "model_ema_state_dict", "ema", "ema_model")
_WRAPPERS = ("module.", "_orig_mod.")
RATIO, SLACK = 8, 1 << 26
"""A checkpoint may unpack to so many times its size and so many bytes more."""
_CLASS = re.compile(r"(?:GLOBAL|global|class) `?([\w.]+)`?")


class LacksWeights(RunProblem):
    """A checkpoint with weights of a part that the given model lacks."""


def read_weights(path: Path, *, ema: bool = False) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, wherever in its file or files the state dict lies.

    Args:
        path: a file, or a folder as transformers and accelerate write it.
        ema: take the moving average of the weights instead.
    """
    if path.is_dir():
        files = [file for file in weight_files(path) if file.name not in INDICES and file.suffix != ".json"]
        if not files:
            raise NotThere(f"{path}: wanted a folder with one model's weights, got none or several.")
        return {name: value for file in files for name, value in read_weights(file, ema=ema).items()}
    if path.suffix != ".safetensors":
        return _state_dict_in(read_plain(path), path, _AVERAGED if ema else _INSIDE)
    if ema:
        raise _no_average(path)
    try:
        return read_checkpoint(path)
    except BadFile as error:
        raise taken_for(path) or error from error


def read_plain(path: Path) -> Any:
    """What `torch.save` wrote, as long as it is tensors and plain values."""
    if path.exists():
        size = check_regular(path)
        if zipfile.is_zipfile(path):  # torch packs nothing: a file that unpacks to much more is none of its
            check_archive(path, RATIO * size + SLACK, what="a checkpoint")
    try:
        with torch.serialization.safe_globals(harmless_types()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise NotThere(f"There is no checkpoint {path}.") from None
    except pickle.UnpicklingError as error:
        told = None if _CLASS.search(str(error)) else taken_for(path)  # the oldest pickles are letters, too
        raise told or RunProblem(_needs_code(path, str(error))) from error
    except Exception as error:  # the reader stumbles over torn bytes in more ways than it documents
        raise taken_for(path) or _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> RunProblem:
    if isinstance(error, OSError) and error.errno:
        return unreadable(path, error)
    if not path.stat().st_size:
        return RunProblem(f"{path}: wanted a checkpoint, but the file is empty.")
    said = str(error).strip() or "it is not what torch.save writes"
    return RunProblem(f"{path}: wanted a checkpoint, but the file is damaged or cut off ({said}).")


def _needs_code(path: Path, error: str) -> str:
    """Which object the file holds, and what its owner can do."""
    found = _CLASS.search(error)
    name = found.group(1) if found else ""
    holds = f" ({name})" if name else ""
    allow = f", or call torch.serialization.add_safe_globals([{name.rpartition('.')[2]}]) first" * bool(name)
    return (
        f"{path}: wanted plain tensors, got a file that must run code to be read{holds}; undertow never does. "
        f"Where you trust it, load it in the program that made it and save model.state_dict() alone{allow}."
    )


def _no_average(path: Path) -> BadValue:
    return BadValue(
        "weights='ema'",
        "a checkpoint with averaged weights",
        path.name,
        f"Known keys: {', '.join(_AVERAGED)}.",
    )


def averaged_in(path: Path) -> bool:
    """Whether a checkpoint file holds averaged weights beside those of training."""
    if path.is_dir() or path.suffix == ".safetensors":
        return False
    loaded = read_plain(path)
    return isinstance(loaded, Mapping) and any(
        isinstance(loaded.get(key), Mapping)
        for key in _AVERAGED  # pyright: ignore[reportUnknownMemberType]
    )


def settings_in(path: Path) -> dict[str, Any]:
    """Hyper-parameters in a checkpoint file: Lightning's, or the args of timm and torchvision."""
    if path.is_dir() or path.suffix == ".safetensors":
        return {}
    loaded = read_plain(path)
    for key in ("hyper_parameters", "args", "config", "hparams"):
        found: Any = cast("Mapping[str, Any]", loaded).get(key) if isinstance(loaded, Mapping) else None
        if isinstance(found, Mapping):
            return {str(name): value for name, value in cast("Mapping[Any, Any]", found).items()}
        if hasattr(found, "__dict__"):
            return dict(vars(found))
    return {}


def _state_dict_in(loaded: Any, path: Path, keys: tuple[str, ...] = _INSIDE) -> dict[str, Tensor]:
    """The state dict itself, or the one under a usual key, or under the only key that holds tensors."""
    if isinstance(loaded, Mapping):
        entries = cast("Mapping[str, Any]", loaded)
        tensors = {str(name): value for name, value in entries.items() if isinstance(value, Tensor)}
        inner = [key for key in entries if isinstance(entries[key], Mapping) and _holds_tensors(entries[key])]
        usual = [key for key in keys if key in inner]
        if keys is _AVERAGED:
            if not usual:
                raise _no_average(path)
            return _state_dict_in(entries[usual[0]], path)
        if tensors and len(tensors) == len(entries):
            return tensors
        plain = [key for key in inner if key not in _AVERAGED]
        if usual or len(plain) == 1:
            return _state_dict_in(entries[(usual or plain)[0]], path)
        if tensors:
            return tensors
    raise RunProblem(
        f"{path}: wanted a state dict (names and tensors), got {type(loaded).__name__} with "
        f"{list(cast('Mapping[str, Any]', loaded))[:5] if isinstance(loaded, Mapping) else 'no names'}. "
        "Save model.state_dict()."
    )


def _holds_tensors(entries: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Tensor) for value in entries.values())


def unwrap_names(weights: Mapping[str, Tensor], wanted: Iterable[str] | None = None) -> dict[str, Tensor]:
    """Names without what DataParallel, torch.compile or a surrounding module put before them.

    With the names that the model wants, any common prefix may go; what lies outside it (a metric's buffers, a teacher)
    is left out. Where names fit as they are, weights of a part that the model lacks are refused.
    """
    names = None if wanted is None else set(wanted)
    if names is not None and names <= set(weights):
        return _without_extras(weights, names)
    plain = {_strip_wrappers(name): value for name, value in weights.items()}
    if len(plain) < len(weights):  # a model's own part is called `module`: its names are no wrapping
        plain = dict(weights)
    if names is None or names <= set(plain):
        return plain if names is None else _without_extras(plain, names)
    prefixes = {name[: -len(end)] for name in plain for end in names if name.endswith(f".{end}")}
    fitting = sorted(prefix for prefix in prefixes if names <= {name.removeprefix(prefix) for name in plain})
    if len(fitting) > 1:
        raise RunProblem(
            f"wanted one set of weights for this model, got several, under {' and '.join(map(repr, fitting))}. "
            "Save the one that is meant alone."
        )
    if fitting:
        prefix = fitting[0]
        return {name.removeprefix(prefix): value for name, value in plain.items() if name.startswith(prefix)}
    return plain


def passed_over(model: nn.Module, weights: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The names of what `load_weights` leaves out, as the model has no such part."""
    taken = {id(value) for value in unwrap_names(weights, model.state_dict()).values()}
    return tuple(name for name, value in weights.items() if id(value) not in taken)


def _without_extras(weights: Mapping[str, Tensor], names: set[str]) -> dict[str, Tensor]:
    """The weights without what a loss or a metric keeps, and without whole copies of them (an average, a teacher)."""
    extra = {name: value for name, value in weights.items() if name not in names and _is_extra(name, names)}
    copies = tuple(_copies(extra, {name: weights[name] for name in names}))
    layers = [name for name in extra if _is_of_layer(name, extra[name]) and not name.startswith(copies)]
    if layers:
        more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
        raise LacksWeights(
            f"wanted a model with all weights of the checkpoint, got one without {', '.join(layers[:3])}{more}. Give "
            "the model function that has them, or save the checkpoint without them where they are no part of it."
        )
    return {name: value for name, value in weights.items() if name not in extra}


def _copies(extra: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> Iterable[str]:
    """The prefixes under which all of the model's weights lie once more."""
    first = min(own, default="")
    for prefix in {name.removesuffix(first) for name in extra if first and name.endswith(f".{first}")}:
        again = {name: extra.get(f"{prefix}{name}") for name in own}
        if all(value is not None and value.shape == own[name].shape for name, value in again.items()):
            yield prefix


def _is_of_layer(name: str, value: Tensor) -> bool:
    """Whether a network computes with this tensor; losses keep weights of classes, metrics counts, each a row."""
    if not value.is_floating_point():
        return False
    return value.ndim > 1 or name.rpartition(".")[2] in ("bias", "running_mean", "running_var")


def _is_extra(name: str, names: set[str]) -> bool:
    """Whether `name` lies under no top-level module of the model."""
    return name.split(".")[0] not in {known.split(".")[0] for known in names}


def _strip_wrappers(name: str) -> str:
    while name.startswith(_WRAPPERS):
        for wrapper in _WRAPPERS:
            name = name.removeprefix(wrapper)
    return name.replace("._orig_mod.", ".")


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Put `weights` into `model`; what does not fit is named."""
    wanted = model.state_dict()
    check_built(wanted, where)
    try:
        given = unwrap_names(weights, wanted)
    except RunProblem as error:
        raise type(error)(f"{where}: {error}") from error
    given |= _tied(model, given)
    problems = _misfits(wanted, given)
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise RunProblem(
            f"{where}: wanted the weights of {type(model).__name__}, got {'; '.join(problems[:3])}{more}. "
            "Give the model that was trained."
        )
    model.load_state_dict(given)


def check_built(wanted: Mapping[str, Any], where: str) -> None:
    """Refuse the state of a model whose weights are no numbers yet, or none any more."""
    for name, value in wanted.items():
        if problem := _unbuilt(name, value):
            raise RunProblem(f"{where}: wanted a model that is built, got one whose {problem}.")


def _unbuilt(name: str, value: Any) -> str:
    """What is amiss with one entry of a model's state, and what to do; nothing where it holds numbers."""
    if not isinstance(value, Tensor):
        return f"{name} is packed ({type(value).__name__}). Give the model as it was before it was quantised"
    if is_lazy(value):
        return (
            f"{name} has no shape yet. Call it once with samples in the function that gives the model, "
            "or name its sizes"
        )
    return (
        f"{name} has no numbers (device meta). Load its weights first, or build it on the cpu" * value.is_meta
    )


def _misfits(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """What of the weights that are given is none of those that the model has, a phrase each."""
    problems = [f"no {name}" for name in wanted if name not in given]
    problems += [f"unknown {name}" for name in given if name not in wanted]
    strange = {name: why for name in wanted if name in given and (why := _not_dense(given[name]))}
    problems += [f"{name} {why} instead of dense" for name, why in strange.items()]
    problems += [
        f"{name} {tuple(given[name].shape)} instead of {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in given and name not in strange and given[name].shape != value.shape
    ]
    return problems + [
        f"{name} in {_dtype(given[name])} instead of {_dtype(value)}"
        for name, value in wanted.items()
        if name in given and given[name].is_floating_point() != value.is_floating_point()
    ]


def _not_dense(value: Tensor) -> str:
    """Why a tensor's numbers cannot be copied one by one; nothing where they can."""
    if value.is_nested:
        return "nested"
    if value.layout != torch.strided:
        return str(value.layout).removeprefix("torch.").replace("_", " ")
    return "without its numbers (on device meta)" if value.is_meta else ""


def _tied(model: nn.Module, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights that a file holds once, under another name of the same tensor of the model."""
    own = model.state_dict(keep_vars=True)
    by_tensor = {id(own[name]): value for name, value in given.items() if name in own}
    return {
        name: by_tensor[id(value)]
        for name, value in own.items()
        if name not in given and id(value) in by_tensor
    }


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
