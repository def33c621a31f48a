"""Writing a linear probe into a model's own head, without training.

    edit = write_probe_into_head(model, train=(x, y))        # W[c] = v_c, bias 0; model(x) now answers as VeLPIC
    edit.undo()                                              # bit for bit
    EditAt(40, lambda model: write_probe_into_head(model, data))    # in the middle of a training

The probe is fitted on what enters the head, with the labels given: the edited model's answers are the
probe's. `undertow.repair` does the same with held-out evidence and a calibrated scale.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undertow.data.samples import DataSet
from undertow.errors import BadData, BadValue, unknown
from undertow.features.head import find_head
from undertow.latent.arrays import as_tensor
from undertow.latent.layer_fits import fit_probes
from undertow.latent.logistic import LogisticProbe
from undertow.latent.probe import Probe
from undertow.latent.velpic import VeLPIC
from undertow.repairing.head_edit import HeadEdit, write_head
from undertow.session.reader import ENTERING, Reader
from undertow.session.splits import Split, check_labels, read_split, take

LINEAR = ("velpic", "logistic")
"""Probes that a linear layer can hold."""


def write_probe_into_head(
    model: nn.Module,
    train: Any,
    *,
    probe: str = "velpic",
    scaling: str | None = None,
    memory: str = "2GB",
    batch_size: int = 512,
) -> HeadEdit:
    """Fit a probe on what enters the model's last linear layer and write it there, in place.

    Args:
        model: any classifier that ends in a linear layer.
        train: (x, y), Samples, a DataSet (its training split) or a torch Dataset; y as the probe shall learn them.
        probe: velpic or logistic (whose bias needs a head with one).
        scaling: how samples become inputs (see `undertow.data.inputs`); a DataSet brings its own.
        memory: what features may take.
        batch_size: samples per forward pass.
    """
    if probe not in LINEAR:
        raise unknown("probe that a linear head can hold", probe, LINEAR)
    if isinstance(train, DataSet):
        train, scaling = train.train, scaling or train.scaling
    split = read_split(train, "train")
    reader = reader_with_head(Reader(model, scaling=scaling, batch_size=batch_size), split)
    assert reader.head is not None
    check_labels(split, reader.head.classes, "train", every_class=True)
    found = fit_probes(reader, split, reader.head.classes, [ENTERING], probe, memory)[ENTERING]
    if isinstance(found, str):
        raise BadData(found)
    return write_head(model, reader.head.name, *linear_parts(found))


def reader_with_head(reader: Reader, split: Split) -> Reader:
    """The reader with the head that its model shows on a few samples."""
    few = reader.inputs(take(split.x, torch.arange(min(8, len(split.y)))))
    head = find_head(reader.model, few)
    return Reader(reader.model, head, reader.scaling, reader.batch_size, reader.conv, reader.tokens)


def linear_parts(probe: Probe) -> tuple[Tensor, Tensor | None]:
    """Weights (C, D) and bias (C,) or None of a linear probe."""
    if isinstance(probe, VeLPIC):
        return as_tensor(probe.vectors_), None
    if isinstance(probe, LogisticProbe):
        return as_tensor(probe.coef_), as_tensor(probe.intercept_)
    raise BadValue("linear head", "a VeLPIC or logistic probe", type(probe).__name__)
