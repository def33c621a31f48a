"""What a matrix of composites costs beside its floor, and beside merging state dicts.

OMP_NUM_THREADS=1 python bench/composites.py [--checkpoints 10] [--samples 256] [--rounds 1] [--json FILE]

ResNet-20 cut after its second stage, T checkpoints (random weights around one draw: what they say does not change what
they cost), n images of 3x32x32 (CIFAR-10's where UNDERTOW_DATA is set, else noise), batches of 256. Seconds are the
processor's.

    ours      composite_matrix: predictions, losses, accuracies, the check of the cut
    merging   for every pair a merged state dict, loaded, and the whole network on all samples
    floor     bare passes: T prefixes and T x T suffixes, nothing read from the outputs

Goals at T = 30, n = 2,000: at least 2.5 times faster than merging, at most 1.3 times the floor. The last row carries
the measured seconds per prefix and suffix over to T = 30, n = 2,000; it is computed, not measured, unless asked for
with --checkpoints 30 --samples 2000.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import undertow as ut
from _ratio import median_seconds, report
from undertow.temporal import composite_matrix

CUT, BATCH = "layer2", 256


def build() -> torch.nn.Module:
    return ut.build_model("resnet20", (3, 32, 32), 10, seed=0)


def make_run(folder: Path, checkpoints: int) -> ut.Run:
    recorder = ut.Recorder(folder)
    draws = torch.Generator().manual_seed(0)
    model = build()
    for at in range(checkpoints):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=draws) * 0.01)
        recorder.save(model, at)
    recorder.close()
    return ut.open_run(folder, model=build)


def images(count: int) -> Tensor:
    if os.environ.get("UNDERTOW_DATA"):
        return ut.load_data("cifar10").test.x[:count].float().div(127.5).sub(1)
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def merging(run: ut.Run, states: list[dict[str, Tensor]], x: Tensor) -> Tensor:
    """Predictions (T, T, N) of whole composites."""
    model = run.fresh().eval()
    shallow = [name for name in states[0] if name.split(".")[0] in ("stem", "layer1", "layer2")]
    rows: list[Tensor] = []
    for early in states:
        for late in states:
            model.load_state_dict(late | {name: early[name] for name in shallow})
            rows.append(torch.cat([model(batch).argmax(1) for batch in x.split(BATCH)]))
    return torch.stack(rows).view(len(states), len(states), -1)


@torch.no_grad()
def prefixes(models: list[torch.nn.Module], x: Tensor) -> list[list[Tensor]]:
    return [[model[:3](batch) for batch in x.split(BATCH)] for model in models]


@torch.no_grad()
def floor(models: list[torch.nn.Module], x: Tensor) -> None:
    tails = [model[3:] for model in models]
    for model in models:
        front = model[:3]
        features = [front(batch) for batch in x.split(BATCH)]
        for tail in tails:
            for part in features:
                tail(part)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoints", type=int, default=10)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    count, x = options.checkpoints, images(options.samples)
    how: dict[str, Any] = {"clock": time.process_time, "warm_up": count * len(x) < 10_000}
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", count)
        states, models = [run.weights(at) for at in run.epochs], [run.model(at) for at in run.epochs]
        y = torch.zeros(len(x), dtype=torch.int64)
        ours = composite_matrix(run, x[:64], y[:64], cuts=CUT)
        few = range(min(3, count))
        same = ours.predictions[0][: len(few), : len(few)]
        assert (same == merging(run, [states[at] for at in few], x[:64]).numpy()).all()
        seconds = median_seconds(
            {
                "ours": lambda: composite_matrix(run, x, y, cuts=CUT, batch_size=BATCH),
                "floor": lambda: floor(models, x),
                "prefixes": lambda: prefixes(models, x),
            },
            options.rounds,
            **how,
        )
        # Whole networks are the same work for every pair, so a part of the pairs is timed.
        timed = states[: max(2, count // 3)]
        whole = median_seconds({"merging": lambda: merging(run, timed, x)}, options.rounds, **how)["merging"]
    report(rows(count, len(x), seconds, whole / len(timed) ** 2), options.json)


def rows(count: int, samples: int, seconds: dict[str, float], pair: float) -> list[dict[str, object]]:
    """Measured, and carried over to the full size."""
    prefix = seconds["prefixes"] / count / samples
    suffix = (seconds["floor"] - seconds["prefixes"]) / count**2 / samples
    over = seconds["ours"] / seconds["floor"]
    found: list[dict[str, object]] = []
    for size, n, how in ((count, samples, "measured"), (30, 2000, "computed")):
        least = size * n * prefix + size**2 * n * suffix
        merged = pair / samples * n * size**2
        found.append(
            {
                "T": size, "n": n, "": how, "ours s": round(over * least, 1), "floor s": round(least, 1),
                "merging s": round(merged, 1), "merging / ours": round(merged / (over * least), 2),
                "ours / floor": round(over, 3),
            }
        )  # fmt: skip
    return found


if __name__ == "__main__":
    main()
