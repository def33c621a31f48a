"""Reading checkpoints that other loops wrote, without ever unpickling code.

    weights = read_weights(path)      # .pt .pth .ckpt .bin .safetensors -> name -> tensor
    load_weights(model, weights, str(path))     # strips module., _orig_mod., a Lightning module's model. ...

`.pt`-like files are read with `weights_only=True`: a file that would need to run code is refused, and the
message says how its owner can save it again.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from undertow.errors import NotThere, RunProblem

_INSIDE = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params", "module")
_WRAPPERS = ("module.", "_orig_mod.")


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint file by name, wherever in the file the state dict lies."""
    if path.suffix != ".safetensors":
        return _state_dict_in(read_plain(path), path)
    try:
        return load_file(path)
    except FileNotFoundError:
        raise NotThere(f"There is no checkpoint {path}.") from None
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error


def read_plain(path: Path) -> Any:
    """What `torch.save` wrote, as long as it is tensors and plain values."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise NotThere(f"There is no checkpoint {path}.") from None
    except pickle.UnpicklingError as error:
        raise RunProblem(
            f"{path}: wanted plain tensors, got a file that must run code to be read; undertow never does. "
            "Where you trust it, load it in the program that made it and save model.state_dict() alone."
        ) from error
    except Exception as error:  # the reader stumbles over torn bytes in more ways than it documents
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> RunProblem:
    return RunProblem(f"{path}: wanted a checkpoint, but the file is damaged or cut off ({error}).")


def _state_dict_in(loaded: Any, path: Path) -> dict[str, Tensor]:
    """The state dict itself, or the one under a usual key, or under the only key that holds tensors."""
    if isinstance(loaded, Mapping):
        entries = cast("Mapping[str, Any]", loaded)
        tensors = {str(name): value for name, value in entries.items() if isinstance(value, Tensor)}
        if tensors and len(tensors) == len(entries):
            return tensors
        inner = [key for key in entries if isinstance(entries[key], Mapping) and _holds_tensors(entries[key])]
        usual = [key for key in _INSIDE if key in inner]
        if usual or len(inner) == 1:
            return _state_dict_in(entries[(usual or inner)[0]], path)
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

    With the names that the model wants, any common prefix may go; what lies outside it (a metric's buffers,
    say) is left out.
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


def _without_extras(weights: Mapping[str, Tensor], names: set[str]) -> dict[str, Tensor]:
    return {name: value for name, value in weights.items() if name in names or not _is_extra(name, names)}


def _is_extra(name: str, names: set[str]) -> bool:
    """Whether `name` lies under no top-level module of the model (a loss's or a metric's buffer)."""
    return name.split(".")[0] not in {known.split(".")[0] for known in names}


def _strip_wrappers(name: str) -> str:
    while name.startswith(_WRAPPERS):
        for wrapper in _WRAPPERS:
            name = name.removeprefix(wrapper)
    return name.replace("._orig_mod.", ".")


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Put `weights` into `model`; what does not fit is named."""
    wanted = model.state_dict()
    try:
        given = unwrap_names(weights, wanted)
    except RunProblem as error:
        raise RunProblem(f"{where}: {error}") from error
    problems = [f"no {name}" for name in wanted if name not in given]
    problems += [f"unknown {name}" for name in given if name not in wanted]
    problems += [
        f"{name} {tuple(given[name].shape)} instead of {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in given and given[name].shape != value.shape
    ]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise RunProblem(
            f"{where}: wanted the weights of {type(model).__name__}, got {'; '.join(problems[:3])}{more}. "
            "Give the model that was trained."
        )
    model.load_state_dict(given)
