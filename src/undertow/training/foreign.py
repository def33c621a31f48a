"""Reading checkpoints that other loops wrote, without ever unpickling code.

    found = find_checkpoints(Path("lightning_logs/version_3/checkpoints"))   # sorted by epoch or step
    weights = read_weights(found[-1].path)      # .pt .pth .ckpt .bin .safetensors -> name -> tensor
    load_weights(model, weights, str(path))     # strips module., _orig_mod., a Lightning module's model. ...

`.pt`-like files are read with `weights_only=True`: a file that would need to run code is refused, and the
message says how its owner can save it again.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from undertow.errors import BadValue, NotThere, RunProblem
from undertow.training.schedule import Unit

ENDINGS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
# In the order of trust; a bare e or s counts only where no word does, and never inside a number like 1e-4.
_PATTERNS: tuple[tuple[str, Unit], ...] = (
    (r"epochs?[=_\-. ]?(\d+)", "epoch"),
    (r"(?:^|[^a-z])ep[=_\-. ]?(\d+)", "epoch"),
    (r"(?:steps?|iterations?|iter)[=_\-. ]?(\d+)", "step"),
    (r"(?:^|[^a-z0-9])e[=_\-]?(\d+)", "epoch"),
    (r"(?:^|[^a-z0-9])(?:s|it)[=_\-]?(\d+)", "step"),
    (r"(\d+)(?!.*\d)", "epoch"),
)
_INSIDE = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params", "module")
_WRAPPERS = ("module.", "_orig_mod.")


@dataclass(frozen=True)
class Checkpoint:
    """A file of weights and the moment of training it belongs to."""

    at: int
    unit: Unit
    path: Path


def find_checkpoints(folder: Path, pattern: str | None = None) -> tuple[Checkpoint, ...]:
    """The checkpoints in `folder`, sorted; `pattern` is a regular expression whose group is the number.

    Without a pattern the name's epoch counts, then its step, then its last number; where two files would
    share an epoch, the step. Files without a number (last.ckpt) are passed over.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS and path.name[0] != ".")
    if pattern is not None:
        found = _numbered(files, _compiled(pattern), "epoch")
    else:
        tried = [_numbered(files, re.compile(text, re.IGNORECASE), unit) for text, unit in _PATTERNS]
        # The first that gives every file it reads a number of its own, else the first that reads any.
        found = next((one for one in tried if one and _all_differ(one)), next(filter(None, tried), []))
    if not found:
        kinds = ", ".join(ENDINGS)
        raise NotThere(
            f"{folder}: wanted checkpoint files ({kinds}) whose names carry an epoch or a step, got "
            f"{len(files)} such files without a number. Rename them or give a pattern such as 'ckpt_(\\d+)'."
        )
    _refuse_doubles(found)
    return tuple(sorted(found, key=lambda one: one.at))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadValue("pattern", "a regular expression", pattern, f"It says: {error}.") from None
    if compiled.groups != 1:
        raise BadValue("pattern", "exactly one group for the number", pattern, "For example 'ckpt_(\\d+)'.")
    return compiled


def _numbered(files: Iterable[Path], pattern: re.Pattern[str], unit: Unit) -> list[Checkpoint]:
    found = [(path, pattern.search(path.stem)) for path in files]
    return [Checkpoint(int(match.group(1)), unit, path) for path, match in found if match]


def _all_differ(found: list[Checkpoint]) -> bool:
    return len({one.at for one in found}) == len(found)


def _refuse_doubles(found: list[Checkpoint]) -> None:
    seen: dict[int, Path] = {}
    for one in found:
        if one.at in seen:
            raise RunProblem(
                f"{one.path.parent}: wanted one file per {one.unit}, got {seen[one.at].name} and {one.path.name} "
                f"for {one.unit} {one.at}. Move one away or give a pattern that tells them apart."
            )
        seen[one.at] = one.path


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
