"""torchmetrics against the plain functions, over batches and over two processes of uneven size."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, multiprocessing
from torch.nn import Linear

from undertow.errors import BadData
from undertow.integrations.metrics import DLR, LatentAccuracy, NeuralCollapse
from undertow.latent import MASC, NearestMean, VeLPIC
from undertow.richness import d_lr, neural_collapse

WIDTH, CLASSES = 12, 4


def drawn(count: int = 300, offset: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Features around class means, their labels (of uneven sizes) and outputs of a head."""
    rng = torch.Generator().manual_seed(3)
    labels = (torch.rand(count, generator=rng) ** 2 * CLASSES).long()
    means = 2 * torch.randn(CLASSES, WIDTH, generator=rng)
    features = means[labels] + torch.randn(count, WIDTH, generator=rng) + offset
    return features, labels, features @ torch.randn(WIDTH, CLASSES, generator=rng)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_dlr_over_batches_is_that_of_all(offset: float):
    """Fails for sums in float32: with an offset of 1000 no digit would be left."""
    features, _, outputs = (part.double() for part in drawn(offset=offset))
    metric = DLR(WIDTH, CLASSES)
    for rows, outs in zip(features.split(70), outputs.split(70), strict=True):
        metric.update(rows, outs)
    np.testing.assert_allclose(float(metric.compute()), d_lr(features, outputs, precise=True), rtol=1e-8)


def test_neural_collapse_over_batches_is_that_of_all():
    features, labels, _ = drawn()
    head = Linear(WIDTH, CLASSES)
    metric = NeuralCollapse(WIDTH, CLASSES, head)
    for rows, own in zip(features.split(70), labels.split(70), strict=True):
        metric.update(rows, own)
    found, exact = metric.compute(), neural_collapse(features.double(), labels, head.weight)
    assert set(found) == {
        "nc1", "nc1_stabilised", "trace_within", "nc2_equinorm", "nc2_equiangle", "nc2_etf", "nc3",
    }  # fmt: skip
    for name, value in found.items():
        np.testing.assert_allclose(float(value), getattr(exact, name), rtol=1e-6, err_msg=name)
    assert "nc3" not in NeuralCollapse(WIDTH, CLASSES).__dict__.get("_modules", {})


@pytest.mark.parametrize("probe", [VeLPIC(), NearestMean(), MASC(variance=0.9)], ids=repr)
def test_latent_accuracy_is_that_of_the_probe(probe):
    features, labels, _ = drawn()
    metric = LatentAccuracy(WIDTH, CLASSES, probe)
    for rows, own in zip(features[:200].split(64), labels[:200].split(64), strict=True):
        metric.learn(rows, own)
    metric.fit()
    for rows, own in zip(features[200:].split(64), labels[200:].split(64), strict=True):
        metric(rows, own)  # torchmetrics' forward: the value of the batch, and adds it
    exact = probe.fit(features[:200].double(), labels[:200]).score(features[200:].double(), labels[200:])
    assert float(metric.compute()) == pytest.approx(exact, abs=1e-12)


def test_what_is_missing_is_said():
    with pytest.raises(BadData, match="fitted probe"):
        LatentAccuracy(WIDTH, CLASSES).update(torch.randn(3, WIDTH), torch.tensor([0, 1, 2]))
    with pytest.raises(BadData, match="width 12, got 5"):
        DLR(WIDTH, CLASSES).update(torch.randn(9, 5), torch.randn(9, CLASSES))


def two_processes(rank: int, folder: str) -> None:
    """Rank 0 sees 230 rows, rank 1 the other 70, and none of the held-out ones."""
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet"  # no port that another process may take meanwhile
    distributed.init_process_group(
        "gloo", init_method=meet, rank=rank, world_size=2, timeout=timedelta(minutes=5)
    )
    features, labels, outputs = drawn()
    own = slice(0, 230) if rank == 0 else slice(230, 300)
    dlr, collapse, latent = (
        DLR(WIDTH, CLASSES),
        NeuralCollapse(WIDTH, CLASSES),
        LatentAccuracy(WIDTH, CLASSES),
    )
    dlr.update(features[own], outputs[own])
    collapse.update(features[own], labels[own])
    latent.learn(features[own], labels[own])
    latent.fit()
    if rank == 0:
        latent.update(features[:50], labels[:50])
    else:
        latent._update_count = 1  # a process without held-out batches; torchmetrics would warn of it
    found = {
        "dlr": dlr.compute(),
        **collapse.compute(),
        "latent": latent.compute(),
        "again": latent.compute(),
    }
    torch.save({name: float(value) for name, value in found.items()}, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_of_uneven_size_know_the_whole(tmp_path):
    """Fails if a state is averaged, if fitted sums are counted twice, or if an empty process waits for ever."""
    multiprocessing.spawn(two_processes, (str(tmp_path),), nprocs=2)
    one, other = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    features, labels, outputs = drawn()
    assert one == other
    assert one["dlr"] == pytest.approx(d_lr(features.double(), outputs.double()), rel=1e-6)
    assert one["nc1"] == pytest.approx(neural_collapse(features.double(), labels).nc1, rel=1e-6)
    exact = VeLPIC().fit(features.double(), labels).score(features[:50].double(), labels[:50])
    assert one["latent"] == one["again"] == pytest.approx(exact, abs=1e-12)
