"""What the richness lens costs: D_LR beside the one product it needs and beside CKA on n x n kernels; all measures of
a head beside the separate functions; memory while samples stream.

OMP_NUM_THREADS=1 python bench/richness.py [--quick] [--json FILE] [--before SRC]

Goals: D_LR at n = 10,000, p = 1,024, C = 10 at most twice the p x p product and at least 50 times faster than CKA on
kernels; `head_richness` at least four times faster than the separate functions as they were before it (--before names
the src folder of such a commit; without it they are those of today, which share the new products); memory
p^2 + batch whatever n.

Each way is set beside what uses the same numbers: d_lr multiplies float32 features in float32, so it stands beside the
float32 product and float32 kernels, and also beside float64 kernels, which someone takes who wants its digits.
CKA on kernels is timed twice. "H" takes c(A) = H A H as it is written, in n x n products: one of its four is timed and
counted four times, beside the rest. "means" subtracts row and column means instead, the best one can do with n x n
kernels. --quick uses n = 3,000.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from _ratio import median_seconds, report
from undertow import richness
from undertow.richness import DLR, d_lr, d_lr_interval

DIM, OUTPUTS = 1024, 10
HEADS = ((1000, 2048), (2000, 512))


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


def head_samples(count: int, dim: int) -> tuple[Tensor, ...]:
    """Features now and before training, labels, weights and outputs."""
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(OUTPUTS, (count,), generator=g)
    now = (torch.randn(count, dim, generator=g) + torch.randn(OUTPUTS, dim, generator=g)[labels]).relu()
    before = torch.randn(count, dim, generator=g).relu()
    weight = torch.randn(OUTPUTS, dim, generator=g)
    return now, before, labels, weight, now @ weight.T


def separate(count: int, dim: int) -> dict[str, Callable[[], object]]:
    """The functions one by one, under the names of today or of earlier commits, and the whole spectrum."""
    now, before, labels, weight, outputs = head_samples(count, dim)
    aligned = getattr(richness, "initial_kernel_alignment", None) or richness.s_init
    spectrum = getattr(richness, "feature_spectrum", None) or richness.spectrum

    def measures() -> None:
        richness.d_lr_interval(now, outputs)
        richness.effective_dimension(now)
        richness.effective_dimension(now, True)
        aligned(before, now)
        richness.neural_collapse(now, labels, weight, OUTPUTS, outputs)

    return {"measures": measures, "spectrum": lambda: spectrum(before, now, labels, outputs)}


def together(count: int, dim: int) -> dict[str, Callable[[], object]]:
    """All measures at once, also with the start's kernel made before; and the spectrum's first 100 positions."""
    now, before, labels, weight, outputs = head_samples(count, dim)
    own = {"labels": labels, "weight": weight, "classes": OUTPUTS}
    known = richness.KnownKernel.of(before)
    return {
        "measures": lambda: richness.head_richness(now, outputs, initial=before, **own),
        "start known": lambda: richness.head_richness(now, outputs, initial=known, **own),
        "spectrum": lambda: richness.feature_spectrum(before, now, labels, outputs, positions=100),
    }


def cpu_seconds(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    return median_seconds(contenders, 7, clock=time.process_time)


def head_rows(before: Path | None) -> list[dict[str, object]]:
    """CPU seconds of one thread; the older functions run in a process of their own, before and after ours."""
    rows: list[dict[str, object]] = []
    for count, dim in HEADS:
        apart = [older(before, count, dim)] if before else []
        ours = cpu_seconds(together(count, dim))
        apart.append(older(before, count, dim) if before else cpu_seconds(separate(count, dim)))
        for name, taken in ours.items():
            other = statistics.mean(one["spectrum" if name == "spectrum" else "measures"] for one in apart)
            rows.append(
                {
                    "head": name, "n": count, "p": dim, "together": round(taken, 4), "separate": round(other, 4),
                    "ratio": round(other / taken, 1),
                }
            )  # fmt: skip
    return rows


def older(source: Path, count: int, dim: int) -> dict[str, float]:
    """CPU seconds of the separate functions of another commit."""
    done = subprocess.run(
        [sys.executable, __file__, "--separate", str(count), str(dim)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(source.resolve())},
    )  # fmt: skip
    return json.loads(done.stdout)


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
    parser.add_argument("--before", type=Path, help="src folder of an earlier commit")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--separate", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    if options.stream:
        stream_only(options.stream)
        return
    if options.separate:
        print(json.dumps(cpu_seconds(separate(*options.separate))))
        return
    # First, while this process is small: a process starts with its parent's peak.
    report([{"streamed samples": n, "peak MB": peak_memory(n)} for n in (512, 5_120, 81_920)])
    report(head_rows(options.before))
    report(d_lr_rows(3_000 if options.quick else 10_000), options.json)


if __name__ == "__main__":
    main()
