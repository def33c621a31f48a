"""From a configuration to data and a model: the same every time.

data = prepare_data(config)             # loaded, cut to size, noisy or relabelled, encoded
data = prepare_data_of(config, run)     # the same of a run's folder, whatever became of its labels file
model, facts = prepare_model(config, data)
build = build_from_facts(facts)         # a function that builds the untrained model again
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from undertow.data.catalogue import DATA
from undertow.data.encode import encode_labels
from undertow.data.inputs import to_inputs
from undertow.data.load import load_data
from undertow.data.noise import parse_noise
from undertow.data.samples import DataSet
from undertow.errors import BadValue
from undertow.models import build_model
from undertow.training.config import TrainConfig
from undertow.training.labels_file import COPY, LabelsFile
from undertow.training.objective import Objective
from undertow.training.seeds import stream


def prepare_data(
    config: TrainConfig, data: DataSet | None = None, *, labels: LabelsFile | None = None
) -> DataSet:
    """The data of `config`; given `data` and `labels` take the place of the named source and file."""
    labels = labels or named_labels(config)
    # Of a public set the labels are known; of anyone's own data, the file may be what is right.
    known = data is None and config.data.partition(":")[0] in DATA
    data = data or load_source(config)
    train, test = data.train, data.test
    if labels is not None:
        train = labels.apply(train, len(data.classes), known=known)
    else:
        train = parse_noise(config.noise, seed=config.noise_seed).apply(train, len(data.classes))
    if config.encode_labels:
        train = encode_labels(train, len(data.classes), labels="true")
        random = stream(config.noise_seed, "encoded test labels")
        test = encode_labels(test, len(data.classes), labels="random", generator=random)
    scaling = config.scaling or data.scaling
    to_inputs(
        test.tensor[:1], scaling
    )  # an unknown or unfit scaling is refused here, before any folder is made
    return replace(data, train=train, test=test, scaling=scaling)


def load_source(config: TrainConfig) -> DataSet:
    """The data that `config` names, cut to size, with the labels it has there."""
    return load_data(
        config.data, train_size=config.train_size, test_size=config.test_size, seed=config.noise_seed
    )


def prepare_data_of(config: TrainConfig, run: Path) -> DataSet:
    """The data of the run in the folder `run`, with its own copy of a labels file."""
    return prepare_data(config, labels=None if config.labels is None else LabelsFile.read(run / COPY))


def named_labels(config: TrainConfig) -> LabelsFile | None:
    """The labels file that `config` names, if it names one."""
    return None if config.labels is None else LabelsFile.read(Path(config.labels).expanduser())


def prepare_model(config: TrainConfig, data: DataSet) -> tuple[nn.Module, dict[str, Any]]:
    """The untrained model and the facts that build it again."""
    outputs = objective_of(config, data).outputs
    vocabulary = (
        int(max(data.train.tensor.max(), data.test.tensor.max())) + 1 if data.kind == "tokens" else None
    )
    facts = {
        "spec": config.model, "shape": list(data.shape), "outputs": outputs,
        "vocabulary": vocabulary, "seed": config.init_seed,
    }  # fmt: skip
    return build_from_facts(facts)(), facts


def build_from_facts(facts: dict[str, Any]) -> Callable[[], nn.Module]:
    """A function that builds the untrained model that `facts` describes."""
    return partial(
        build_model, facts["spec"], tuple(facts["shape"]), facts["outputs"],
        seed=facts.get("seed", 0), vocabulary=facts.get("vocabulary"),
    )  # fmt: skip


def objective_of(config: TrainConfig, data: DataSet) -> Objective:
    """The loss that `config` names, for the classes of `data`."""
    return Objective(config.loss, len(data.classes), config.alpha, config.target)


def pick_device(config: TrainConfig) -> torch.device:
    """The device that `config` names, fit for what it asks."""
    device = find_device(config.device)
    if device.type == "cpu" and (config.amp or config.compile):
        raise BadValue("amp and compile", "a GPU", "cpu", "On a CPU they are slower: leave them out.")
    return device


def find_device(name: str) -> torch.device:
    """The device called `name`, refused with a reason where it is not there; auto takes a CUDA GPU or the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise BadValue("device", "a device of this machine", name, f"torch says: {reason}") from None
    if device.type == "meta":
        raise BadValue("device", "a device that computes", name, "It keeps shapes and no numbers.")
    return device
