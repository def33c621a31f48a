"""Moments over real processes with gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import reduce

import torch

from undertow.features.moments import Moments
from undertow.features.processes import reduce_over_processes

WORKER = """
import sys, torch
import torch.distributed as dist
from undertow.features import Moments, reduce_over_processes
rank, out = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", rank=rank, world_size=2)
parts = torch.load(out + "/parts.pt")
features, labels, outputs = parts[rank]
whole = reduce_over_processes(Moments.of(features, labels, 4, outputs))
joint = whole.joint
torch.save(
    dict(counts=whole.counts, means=whole.means, upper=whole.upper, resolution=whole.resolution, count=joint.count,
         feature_mean=joint.feature_mean, output_mean=joint.output_mean, cross=joint.cross,
         output_scatter=joint.output_scatter),
    f"{out}/{rank}.pt",
)
try:
    reduce_over_processes(Moments.empty(3 + rank, 2))
    raise SystemExit("unlike moments were taken")
except ValueError as error:
    assert "the same (dim, classes, outputs) everywhere" in str(error), error
dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_processes_give_the_moments_of_all_samples(tmp_path):
    """Fails if scatters are summed around different means: the processes see different offsets and classes."""
    g = torch.Generator().manual_seed(0)

    def part(n, offset, classes):
        features = torch.randn(n, 6, generator=g, dtype=torch.float64) + offset
        labels = torch.tensor(classes)[torch.randint(len(classes), (n,), generator=g)]
        return features, labels, torch.randn(n, 2, generator=g, dtype=torch.float64) - offset

    parts = [part(70, 1e4, [0, 1]), part(30, 1e4 + 5, [1, 2])]
    torch.save(parts, tmp_path / "parts.pt")
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", WORKER]
    started = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], env=env, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors

    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    whole = Moments.of(*(torch.cat(pair) for pair in zip(*(p[:2] for p in parts), strict=True)), 4)
    outputs = torch.cat([p[2] for p in parts])
    merged = reduce(
        Moments.merge, [Moments.of(features, labels, 4, outs) for features, labels, outs in parts]
    )
    assert merged.joint is not None
    assert one["counts"].tolist() == whole.counts.tolist()
    assert one["count"] == 100
    for c in range(4):
        got = one["upper"][c].triu()
        torch.testing.assert_close(got, whole.upper[c].triu(), rtol=1e-9, atol=1e-9)
    for name in ("feature_mean", "output_mean", "cross", "output_scatter"):
        torch.testing.assert_close(one[name], getattr(merged.joint, name), rtol=1e-9, atol=1e-8)
    off = outputs - outputs.mean(0)
    torch.testing.assert_close(one["output_scatter"], off.T @ off, rtol=1e-9, atol=1e-9)
    for name, value in one.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(two[name])), name


def test_a_process_alone_is_the_whole():
    moments = Moments.of(torch.ones(3, 2), torch.tensor([0, 1, 1]), 2)
    assert reduce_over_processes(moments) is moments
