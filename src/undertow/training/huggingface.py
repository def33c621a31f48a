"""Folders as transformers and peft write them: the model by its config.json, adapters merged, the tokenizer beside.

    build = model_of(Path("out/checkpoint-500"))       # gives the untrained model; None without a config
    merged_weights(Path("out/checkpoint-500"), None)   # a peft adapter on its base, as one state dict
    read_tokenizer(Path("out/checkpoint-500"))         # None where there is none
    class_names(...), pixel_scaling(...)               # what config.json and preprocessor_config.json say

transformers and peft are asked for only where such a folder is opened; code in a folder is never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from undertow.data.inputs import SCALINGS
from undertow.errors import NotThere, RunProblem
from undertow.training.checkpoint_files import is_adapter
from undertow.training.foreign import read_weights
from undertow.training.logs import read_json

CONFIG, ADAPTER, PIXELS = "config.json", "adapter_config.json", "preprocessor_config.json"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model")
TASKS = {
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoModel",
}
_HEAD = re.compile(r"(^|\.)(classifier|score|classification_head)(\.modules_to_save)?(\.out_proj)?\.weight$")
"""The weights whose rows are a head's outputs: in some models the head's last layer, out_proj, after a dense one."""
WAY_OUT = "Give the model yourself: open_run(path, model=function), or --model package.module:function."


def model_of(folder: Path) -> Callable[[], nn.Module] | None:
    """A function that builds the model of a checkpoint's folder by its architecture; None where it does not say."""
    if is_adapter(folder):
        return partial(_base_model, folder)
    if not (folder / CONFIG).is_file() or not read_json(folder / CONFIG).get("architectures"):
        return None
    return partial(_build, folder)


def _build(folder: Path) -> nn.Module:
    """The untrained model that config.json describes."""
    transformers = _library("transformers", folder)
    named: Any = read_json(folder / CONFIG)["architectures"]
    name = str(named[0] if isinstance(named, list) else named)
    kind = getattr(transformers, name, None)
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        raise NotThere(
            f"{folder / CONFIG}: transformers {transformers.__version__} has no {name}. Code in a folder is never run. "
            f"{WAY_OUT}"
        )
    try:
        return kind(transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RunProblem(
            f"{folder / CONFIG}: transformers cannot build {name} from it: {said} {WAY_OUT}"
        ) from error


def weights_for(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    """The weights of a folder under the names of `model`, where transformers itself must say which name is which.

    Older versions of transformers called parameters otherwise; it knows all of its names.
    """
    kind: Any = type(model)
    try:
        with _unheard():
            made, told = kind.from_pretrained(folder, config=model.config, output_loading_info=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunProblem(f"{folder}: transformers cannot load it: {str(error).splitlines()[0]}") from error
    missing = sorted(told["missing_keys"])
    if missing:
        raise RunProblem(f"{folder}: wanted the weights of {kind.__name__}, got no {missing[0]}.")
    return made.state_dict()


def is_transformer(model: nn.Module) -> bool:
    """Whether transformers made this model; it need not be imported to tell."""
    return any(base.__module__.startswith("transformers.") for base in type(model).__mro__)


# -- adapters


def merged_weights(folder: Path, base: Callable[[], nn.Module] | None) -> dict[str, Tensor]:
    """The weights of the base model with an adapter merged into them.

    Args:
        folder: a checkpoint of peft.
        base: gives the base model with its weights; found by the adapter's configuration when not given.
    """
    peft = _library("peft", folder)
    model = _base_model(folder) if base is None else base()
    try:
        adapted: Any = peft.PeftModel.from_pretrained(model, str(folder))
    except (RuntimeError, ValueError, OSError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RunProblem(
            f"{folder}: the adapter does not fit {type(model).__name__}: {said} {WAY_OUT}"
        ) from error
    return {name: value.detach() for name, value in adapted.merge_and_unload().state_dict().items()}


def _base_model(folder: Path) -> nn.Module:
    """The base model that an adapter was trained on, with its weights."""
    transformers = _library("transformers", folder)
    config = read_json(folder / ADAPTER)
    source = str(config.get("base_model_name_or_path") or "")
    mapping: Any = config.get("auto_mapping")
    named = mapping.get("base_model_class") if isinstance(mapping, dict) else None
    kind = getattr(transformers, str(named or "") or TASKS.get(str(config.get("task_type")), ""), None)
    if kind is None or not hasattr(kind, "from_pretrained") or not source:
        raise NotThere(f"{folder / ADAPTER} does not say what its base model is. {WAY_OUT}")
    place = source if Path(source).is_absolute() or not (folder / source).exists() else str(folder / source)
    labels = _labels_of(folder)
    try:
        # A head of another size is the adapter's own, which comes with it.
        options: dict[str, Any] = {} if labels is None else {"num_labels": labels}
        with _unheard():
            return kind.from_pretrained(
                place, ignore_mismatched_sizes=True, trust_remote_code=False, **options
            )
    except (OSError, ValueError) as error:
        raise NotThere(f"{folder}: its base model {source!r} cannot be loaded. {WAY_OUT}") from error


def _labels_of(folder: Path) -> int | None:
    """How many outputs the head has that was saved with an adapter."""
    return next((len(value) for name, value in read_weights(folder).items() if _HEAD.search(name)), None)


# -- what else the folder says


def read_tokenizer(folder: Path) -> Any | None:
    """The tokenizer beside the weights, to show texts; None where there is none or transformers is not there."""
    if not any((folder / name).is_file() for name in TOKENIZERS):
        return None
    try:
        transformers = import_module("transformers")
        # Said outright: asked for nothing, transformers would ask at the terminal whether to run the folder's code.
        return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # it only shows texts


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the classes in the order of the outputs; none where nobody named them."""
    if not (folder / CONFIG).is_file():
        return ()
    named: Any = read_json(folder / CONFIG).get("id2label")
    if not isinstance(named, dict) or not all(key.isdecimal() and len(key) < 10 for key in named):
        return ()
    names = tuple(str(named[key]) for key in sorted(named, key=int))
    return () if all(name.startswith("LABEL_") for name in names) else names


def _numbers(value: Any) -> list[Any]:
    return value if isinstance(value, list) and all(isinstance(one, int | float) for one in value) else []


def pixel_scaling(folder: Path) -> str | None:
    """How pictures were scaled, where the folder says so: a name, or means and deviations."""
    if not (folder / PIXELS).is_file():
        return None
    told = read_json(folder / PIXELS)
    if not told.get("do_normalize", True):
        return "unit" if told.get("do_rescale", True) else "none"
    mean, std = (tuple(_numbers(told.get(key))) for key in ("image_mean", "image_std"))
    for name, own in SCALINGS.items():
        if (
            own is not None
            and mean
            and set(zip(mean, std, strict=False)) == set(zip(own.mean, own.std, strict=True))
        ):
            return name
    return f"{','.join(map(str, mean))}/{','.join(map(str, std))}" if mean and len(mean) == len(std) else None


@contextmanager
def _unheard() -> Generator[None]:
    """Without the bars and reports of transformers, one for each checkpoint; what does not fit is said by us."""
    logging: Any = import_module("transformers.utils.logging")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _library(name: str, folder: Path) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise NotThere(
            f"{folder}: {name} reads it and is not installed (pip install 'undertow[huggingface]'). {WAY_OUT}"
        ) from error
