"""What a whole probe grid costs beside its floor: bare forward passes and the matrix products it cannot avoid.

UNDERTOW_DATA=... python bench/grid.py [--json FILE]      (goal: at most 3 times the floor)

MLP 128-512-2048-2048 on 10,000 + 2,000 MNIST samples (digits blown up to 28x28 where MNIST is not at hand), one
checkpoint, all layers, MASC + VeLPIC + nearest mean + LDA, fitted with the given labels. The products: one half
of each class's Gram or moment matrix on its smaller side, the pooled covariance of LDA, and scoring both splits
against every basis, vector and mean; their count is divided by the GEMM speed measured here.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import torch

import undertow as ut
from _ratio import median_seconds, report
from undertow.data.inputs import to_inputs
from undertow.errors import UndertowError

PROBES = ["masc", "velpic", "mean", "lda"]


def make_run(folder: Path) -> ut.Run:
    config = ut.TrainConfig(
        "mlp", data="mnist", noise="0.4", train_size=10_000, test_size=2_000, epochs=3, checkpoints="3",
        optimiser="sgd", lr=1e-2, batch_size=32, device="cpu",
    )  # fmt: skip
    try:
        return ut.train(config, folder)
    except UndertowError as error:
        raise SystemExit(f"bench/grid.py needs MNIST: {error}") from None


def gemm_speed(size: int = 2048) -> float:
    """Floating-point operations a second of a float32 product."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / median_seconds({"gemm": lambda: a @ b}, 5)["gemm"]


def products(table, data: ut.DataSet, widths: dict[str, int]) -> float:
    """Operations of the products that no route avoids."""
    counts = data.train.y.bincount(minlength=10).tolist()
    rows = len(data.train) + len(data.test)
    total = 0.0
    for layer, dim in widths.items():
        sizes = table[(table["layer"] == layer) & (table["measure"] == "dimension")]["value"]
        bases = 10 * float(sizes.iloc[0])
        total += sum(count * dim * min(count, dim) for count in counts)  # half of 2 n d min(n, d)
        total += len(data.train) * dim * dim  # LDA's covariance, half of 2 n d^2
        total += (
            2 * rows * dim * (bases + 3 * 10)
        )  # MASC's bases; VeLPIC, means and LDA have one row per class
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run")
        data, model = run.data(), run.model()
        out = Path(folder) / "probes.parquet"

        def forward() -> None:
            with torch.no_grad():
                for part in (data.train.x, data.test.x):
                    for rows in part.split(512):
                        model(to_inputs(rows, data.scaling))

        def grid():
            out.unlink(missing_ok=True)
            return ut.probe_grid(run, probes=PROBES, fits="given", checkpoints="last", out=out)

        table = grid()
        with ut.Tap(model, "auto") as tap:
            widths = {
                name: part.shape[1] for name, part in tap(to_inputs(data.train.x[:2], "half"))[1].items()
            }
        seconds = median_seconds({"grid": grid, "forward": forward, "load": run.data}, 5)
        speed = gemm_speed()
        unavoidable = products(table, data, widths) / speed
        floor = seconds["forward"] + unavoidable
        # Loading and hashing the data is done once per grid, not per checkpoint.
        cost = seconds["grid"] - seconds["load"]
        rows = [
            {
                "grid s": round(cost, 2), "forward s": round(seconds["forward"], 2),
                "products s": round(unavoidable, 2), "GEMM GFLOP/s": round(speed / 1e9),
                "grid / floor": round(cost / floor, 2), "data s (once)": round(seconds["load"], 2),
            }
        ]  # fmt: skip
        report(rows, options.json)


if __name__ == "__main__":
    main()
