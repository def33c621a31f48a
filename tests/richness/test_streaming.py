"""Streaming D_LR and neural collapse: any split, order, merge and process gives the same numbers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import torch

from undertow.errors import BadData, BadValue
from undertow.richness import DLR, NeuralCollapse, d_lr, neural_collapse

WORKER = """
import sys, torch
import torch.distributed as dist
from undertow.richness import DLR, NeuralCollapse
rank, out = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", rank=rank, world_size=3)
features, labels, outputs = (part.tensor_split([30])[min(rank, 1)] for part in torch.load(out + "/parts.pt"))
low, collapse, nothing = DLR(), NeuralCollapse(3), DLR()
if rank < 2:
    low.update(features, outputs)
    collapse.update(features, labels)
assert nothing.over_processes().count == 0
answer = low.over_processes().compute().value, collapse.over_processes().compute().nc1, low.count
torch.save(answer, f"{out}/{rank}.pt")
dist.destroy_process_group()
"""


def sample(n=90, p=6, c=3, dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % c
    features = torch.randn(n, p, generator=g, dtype=dtype) + 3 * torch.eye(c, p, dtype=dtype)[labels] + 50
    outputs = features @ torch.randn(p, c, generator=g, dtype=dtype) + torch.randn(
        n, c, generator=g, dtype=dtype
    )
    return features, labels, outputs


@pytest.mark.parametrize("cuts", [[], [1], [40, 41], [0, 90]], ids=str)
def test_any_split_gives_the_same_numbers(cuts):
    """Fails if means are not carried from batch to batch, or compute() uses up what waits."""
    features, labels, outputs = sample()
    low, collapse = DLR(), NeuralCollapse(3)
    for f, y, o in zip(*(part.tensor_split(cuts) for part in (features, labels, outputs)), strict=True):
        if len(f):
            low.update(f, o.numpy())
            collapse.update(f.numpy(), y)
            assert low.moments().count == low.count
    weights = torch.eye(3, 6)
    assert low.compute() == low.compute()
    assert float(low.compute()) == pytest.approx(d_lr(features, outputs), rel=0, abs=1e-12)
    wanted = neural_collapse(features, labels, weights)
    found = collapse.compute(weights)
    for name in ("nc1", "nc1_stabilised", "trace_within", "nc2_etf", "nc3"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-9), name


def test_merge_takes_in_without_changing_the_other_and_goes_on():
    features, _, outputs = sample()
    one, two, empty = DLR(), DLR(), DLR()
    one.update(features[:20], outputs[:20])
    two.update(features[20:70], outputs[20:70])
    before = two.compute()
    assert one.merge(two).merge(empty) is one
    one.update(features[70:], outputs[70:])
    assert two.compute() == before
    assert float(one.compute()) == pytest.approx(d_lr(features, outputs), rel=0, abs=1e-12)
    assert one.count == 90
    assert float(empty.merge(one).compute()) == pytest.approx(d_lr(features, outputs), rel=0, abs=1e-12)
    one.reset()
    assert one.count == 0
    with pytest.raises(BadData, match="DLR: wanted samples to compute from, got none"):
        one.compute()
    one.update(features[:20], outputs[:20])
    fresh = DLR()
    fresh.update(features[:20], outputs[:20])
    assert one.compute() == fresh.compute()
    assert float(one.compute()) == pytest.approx(d_lr(features[:20], outputs[:20]), rel=0, abs=1e-12)


def test_merge_refuses_another_kind_and_other_sizes():
    features, labels, outputs = sample()
    low, collapse, narrow = DLR(), NeuralCollapse(3), DLR()
    low.update(features, outputs)
    collapse.update(features, labels)
    narrow.update(features[:, :4], outputs)
    with pytest.raises(BadValue, match="wanted one of its own kind, got 'NeuralCollapse'"):
        low.merge(collapse)  # pyright: ignore
    with pytest.raises(BadValue, match="the same"):
        low.merge(narrow)
    assert low.count == 90
    with pytest.raises(BadData, match="rows of width 6, got 4"):
        low.update(features[:, :4], outputs)
    with pytest.raises(BadValue, match="two classes or more"):
        NeuralCollapse(1)
    with pytest.raises(BadData, match="DLR, features: wanted finite"):
        low.update(features * torch.nan, outputs)


def test_state_does_not_grow_with_the_samples():
    """Fails if batches are kept: 40,000 rows of 32 would be ten times the state."""
    low, g = DLR(), torch.Generator().manual_seed(0)
    for _ in range(200):
        low.update(torch.randn(200, 32, generator=g), torch.randn(200, 4, generator=g))
    accumulator = low._seen
    assert accumulator is not None
    waiting = sum(part.numel() for parts in accumulator._waiting for part, _ in parts)
    assert accumulator._upper.shape == (1, 32, 32)
    assert waiting < 3 * 512 * 32
    assert low.count == 40_000


def test_processes_together_give_the_whole(tmp_path):
    """Three processes of which one has seen nothing. Fails if it does not know the sizes of the rest."""
    parts = sample()
    torch.save(parts, tmp_path / "parts.pt")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WORKER, str(rank), str(tmp_path)],
            env=env, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(3)
    ]  # fmt: skip
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], errors
    features, labels, outputs = parts
    for rank in range(3):
        value, nc1, count = torch.load(tmp_path / f"{rank}.pt")
        assert value == pytest.approx(d_lr(features, outputs), rel=0, abs=1e-11)
        assert nc1 == pytest.approx(neural_collapse(features, labels).nc1, rel=1e-9)
        assert count == 90


def test_one_process_is_the_whole():
    features, _, outputs = sample()
    low = DLR()
    low.update(features, outputs)
    assert low.over_processes().compute() == low.compute()
