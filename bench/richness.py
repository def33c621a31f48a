"""What the richness lens costs: D_LR beside the one product it needs and beside CKA on n x n kernels; the tracker
beside a training step; memory while samples stream.

OMP_NUM_THREADS=1 python bench/richness.py [--quick] [--json FILE]

Goals: D_LR at n = 10,000, p = 1,024, C = 10 at most twice the p x p product and at least 50 times faster than CKA on
kernels; tracker under 2 % of a step (MLP 256-256-256, batch 64, Adam); memory p^2 + batch whatever n.

Each way is set beside what uses the same numbers: d_lr multiplies float32 features in float32, so it stands beside the
float32 product and float32 kernels, and also beside float64 kernels, which someone takes who wants its digits.
CKA on kernels is timed twice. "H" takes c(A) = H A H as it is written, in n x n products: one of its four is timed and
counted four times, beside the rest. "means" subtracts row and column means instead, the best one can do with n x n
kernels. --quick uses n = 3,000.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from _ratio import median_seconds, report
from undertow.models.build import build_model
from undertow.richness import DLR, RichnessTracker, d_lr, d_lr_interval

DIM, OUTPUTS = 1024, 10


def samples(count: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    features = torch.randn(count, DIM, generator=g).relu()
    return features, features[:, :50] @ torch.randn(50, OUTPUTS, generator=g)


def kernel_cka(features: Tensor, outputs: Tensor) -> float:
    """1 - CKA(T, T_MP) on n x n kernels, centred by row and column means, in the dtype given."""
    basis = torch.linalg.qr(outputs).Q
    kernels = [features @ features.T, basis @ basis.T]
    for kernel in kernels:
        kernel -= kernel.mean(0)
        kernel -= kernel.mean(1, keepdim=True)
    t, p = kernels
    return 1 - float(torch.vdot(t.flatten(), p.flatten()) / (t.norm() * p.norm()))


def d_lr_rows(count: int) -> list[dict[str, object]]:
    features, outputs = samples(count)
    precise = features.double()
    streamed = DLR()

    def stream() -> float:
        streamed.reset()
        for part, out in zip(features.split(512), outputs.split(512), strict=True):
            streamed.update(part, out)
        return streamed.compute().value

    fast = median_seconds(
        {
            "d_lr": lambda: d_lr(features, outputs),
            "d_lr precise": lambda: d_lr(features, outputs, precise=True),
            "streamed": stream,
            "interval": lambda: d_lr_interval(features, outputs),
            "product64": lambda: precise.T @ precise,
            "product32": lambda: features.T @ features,
        }
    )
    exact = d_lr(precise, outputs.double())
    errors = {
        "d_lr": d_lr(features, outputs) - exact, "d_lr precise": d_lr(features, outputs, precise=True) - exact,
        "streamed": stream() - exact, "interval": d_lr_interval(features, outputs).value - exact,
    }  # fmt: skip
    means, by_h = {}, {}
    for bits, rows in ((32, features), (64, precise)):
        means[bits] = seconds_of(lambda rows=rows: kernel_cka(rows, outputs.to(rows.dtype)))
        kernel = rows @ rows.T
        by_h[bits] = means[bits] + 4 * seconds_of(lambda kernel=kernel: kernel @ kernel)
    assert abs(kernel_cka(precise, outputs.double()) - exact) < 1e-9
    return [
        {
            "measure": name, "n": count, "seconds": round(fast[name], 3), "error": f"{abs(errors[name]):.0e}",
            "/ own product": round(fast[name] / fast[f"product{bits}"], 2),
            "means32 / it": round(means[32] / fast[name], 1), "means64 / it": round(means[64] / fast[name], 1),
            "H32 / it": round(by_h[32] / fast[name]), "H64 / it": round(by_h[64] / fast[name]),
        }
        for name, bits in (("d_lr", 32), ("d_lr precise", 64), ("streamed", 64), ("interval", 32))
    ]  # fmt: skip


def seconds_of(run: Callable[[], object]) -> float:
    """Of one run: kernels take long enough."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def tracker_rows(rounds: int, block: int = 20) -> list[dict[str, object]]:
    """Steps with and without the tracker in turns; CPU time, which a busy machine disturbs least."""
    model = build_model("mlp:256-256-256", (1, 8, 8), 10, seed=0).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(64, 1, 8, 8, generator=g), torch.randint(10, (64,), generator=g)

    def seconds() -> float:
        began = time.process_time()
        for _ in range(block):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
        return (time.process_time() - began) / block

    trackers = {"none": None, **{f"every={n}": RichnessTracker(model, every=n) for n in (1, 4)}}
    times: dict[str, list[float]] = {name: [] for name in trackers}
    names, order = list(trackers), random.Random(0)
    for turn in range(rounds + 10):
        order.shuffle(names)  # whoever comes first after the other finds other things in the cache
        for name in names:
            with trackers[name] or nullcontext():
                taken = seconds()
            if turn >= 10:  # the first turns fill the window
                times[name].append(taken)
    best = {name: statistics.median(taken) for name, taken in times.items()}
    # Turn by turn: what slows a moment down slows its neighbours alike.
    shares = {
        name: statistics.median(own / bare for own, bare in zip(taken, times["none"], strict=True))
        for name, taken in times.items()
    }
    seen = trackers["every=1"]
    assert seen is not None
    compute = median_seconds({"compute": seen.compute})["compute"]
    return [
        {
            "tracker": name, "step ms": round(1e3 * taken, 3),
            "share %": round(100 * (shares[name] - 1), 2), "compute() ms": round(1e3 * compute, 1),
        }
        for name, taken in best.items()
    ]  # fmt: skip


def peak_memory(count: int) -> int:
    """Most megabytes of a process of its own that streams `count` samples."""
    done = subprocess.run(
        [sys.executable, __file__, "--stream", str(count)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def stream_only(count: int) -> None:
    metric, g = DLR(), torch.Generator().manual_seed(0)
    for _ in range(count // 512):
        features = torch.randn(512, DIM, generator=g)
        metric.update(features, features[:, :OUTPUTS])
    metric.compute()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    if options.stream:
        stream_only(options.stream)
        return
    # First, while this process is small: a process starts with its parent's peak.
    report([{"streamed samples": n, "peak MB": peak_memory(n)} for n in (512, 5_120, 81_920)])
    report(tracker_rows(20 if options.quick else 200))
    report(d_lr_rows(3_000 if options.quick else 10_000), options.json)


if __name__ == "__main__":
    main()
