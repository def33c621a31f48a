"""One-step SGD noise: this package beside a copy of the model that takes each step.

    python bench/sgd_noise.py [--json FILE] [--quick]

256 mini-batches of an MLP 784-256-256-10, features after the second layer. "copies" is what one would write
first: deepcopy, gradient of the mini-batch, optimiser step, forward pass up to the cut. Both compute in the
same precision. "difference" is relative to the size of the step. --quick uses 64 mini-batches.
"""

from __future__ import annotations

import argparse
import copy
import os
from pathlib import Path

import torch
from torch import Tensor, nn

from _ratio import median_seconds, report
from undertow.models.build import build_model
from undertow.models.network import Network
from undertow.studies.temporal.sgd_steps import draw_batches, sgd_noise

LR = 0.1


def by_copies(model: Network, x: Tensor, y: Tensor, probe: Tensor, upto: int, rows: Tensor) -> Tensor:
    with torch.no_grad():
        before = model[:upto](probe).flatten(1)
    deltas = []
    for row in rows:
        moved = copy.deepcopy(model)
        optimiser = torch.optim.SGD(moved.parameters(), lr=LR)
        nn.functional.cross_entropy(moved(x[row]), y[row]).backward()
        optimiser.step()
        with torch.no_grad():
            deltas.append(moved[:upto](probe).flatten(1) - before)
    return torch.stack(deltas)


def measure(spec: str, shape: tuple[int, ...], cut: str, count: int, size: int, batches: int, rounds: int,
            dtype: torch.dtype = torch.float64, probes: int = 1) -> dict[str, object]:  # fmt: skip
    g = torch.Generator().manual_seed(0)
    model = build_model(spec, shape, 10, seed=0).eval().to(dtype)
    x, y = torch.randn(count, *shape, generator=g).to(dtype), torch.randint(10, (count,), generator=g)
    probe, rows = torch.randn(probes, *shape, generator=g).to(dtype), draw_batches(count, batches, size)
    upto = [name for name, _ in model.named_children()].index(cut) + 1

    def ours() -> Tensor:
        return sgd_noise(model, x, y, probe, cut=cut, batches=rows, lr=LR, dtype=dtype).delta

    def copies() -> Tensor:
        return by_copies(model, x, y, probe, upto, rows)

    exact = copies()
    seconds = median_seconds({"ours": ours, "copies": copies}, rounds)
    route = sgd_noise(model, x, y, probe, cut=cut, batches=rows[:2], lr=LR, dtype=dtype).route
    return {
        "model": spec, "samples": count, "batch": size, "batches": batches, "inputs": probes,
        "precision": str(dtype).removeprefix("torch."), "route": route,
        "copies s": round(seconds["copies"], 3), "ours s": round(seconds["ours"], 3),
        "times faster": round(seconds["copies"] / seconds["ours"], 1),
        "difference": f"{float((ours() - exact).norm() / exact.norm()):.0e}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    batches, rounds = (64, 1) if options.quick else (256, 3)
    mlp, image = "mlp:256-256", (1, 28, 28)
    rows = [
        measure(mlp, image, "layer2", 4_000, 64, batches, rounds),
        measure(mlp, image, "layer2", 4_000, 200, batches, rounds),
        measure(mlp, image, "layer2", 4_000, 64, batches, rounds, probes=16),
        measure(mlp, image, "layer2", 60_000, 64, batches, rounds),
        measure(mlp, image, "layer2", 4_000, 64, batches, rounds, torch.float32),
        measure("mlp:64-64", (1, 8, 8), "layer2", 1_797, 32, batches, rounds),
        measure("cnn", (1, 8, 8), "block1", 500, 16, batches // 8, rounds),
    ]
    report(rows, options.json)
    if not options.quick:
        assert rows[0]["times faster"] >= 5, rows[0]


if __name__ == "__main__":
    main()
