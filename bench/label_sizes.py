"""Peak memory and CPU seconds of a label search at a size, in a process of its own; data are made up.

    python bench/label_sizes.py features 200000x1000x64 --memory 4GB     # samples x classes x columns, no run
    python bench/label_sizes.py run 50000x100x64 --memory 2GB            # five layers, eight checkpoints
    python bench/label_sizes.py plan 1280000x1000x64 --memory 2GB        # the plan only
    python bench/label_sizes.py uneven 1000010x2x16                      # ten samples of class 1, all others of class 0

Samples are class centres with Gaussian noise, a fifth of the labels drawn anew; of the uneven ones, three of the ten
and five of the others are mislabelled. The peak is that of `ru_maxrss`: with all libraries, and with
pages of mapped files that lie in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch reads them

import numpy as np
import torch
from torch import Tensor, nn

from undertow.sizes import show_size

CHECKPOINTS, LAYERS, HIDDEN = 8, 5, 64
FEW, FEW_CALLED_COMMON, COMMON_CALLED_RARE = 10, 3, 5
SEARCH = """
import sys
import torch, undertow as ut
from label_sizes import build, features_beside
torch.set_num_threads(1)
folder, memory, classes = sys.argv[1:]
x = features_beside(folder)
run = ut.open_run(folder, model=lambda: build(x.shape[1], int(classes)))
found = ut.label_errors(run, train=(x, torch.load(f"{folder}/../y.pt")), memory=memory)
print(found.rate)
"""


def build(columns: int, classes: int) -> nn.Sequential:
    """A network with five layers to look at."""
    parts: list[nn.Module] = []
    for at in range(LAYERS - 1):
        parts += [nn.Linear(HIDDEN if at else columns, HIDDEN), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(HIDDEN, classes))


def features_beside(folder: str) -> Tensor:
    return torch.from_numpy(np.load(Path(folder).parent / "x.npy"))


def make(work: Path, samples: int, classes: int, columns: int, *, uneven: bool = False) -> None:
    """Features and labels as files, in parts."""
    draws = np.random.default_rng(0)
    centres = draws.normal(0, 1.0, (classes, columns)).astype(np.float32)
    true, given = uneven_labels(samples) if uneven else even_labels(samples, classes, draws)
    x = np.lib.format.open_memmap(work / "x.npy", "w+", np.float32, (samples, columns))
    for start in range(0, samples, 20_000):
        part = slice(start, start + 20_000)
        x[part] = centres[true[part]] + draws.normal(0, 1.0, (len(true[part]), columns))
    x.flush()
    np.save(work / "y.npy", given)


def even_labels(samples: int, classes: int, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """True ones, and given ones."""
    true = draws.integers(0, classes, samples)
    return true, np.where(draws.random(samples) < 0.2, draws.integers(0, classes, samples), true)


def uneven_labels(samples: int) -> tuple[np.ndarray, np.ndarray]:
    true = (np.arange(samples) >= samples - FEW).astype(np.int64)
    given = true.copy()
    given[-FEW_CALLED_COMMON:], given[:COMMON_CALLED_RARE] = 0, 1
    return true, given


def make_run(work: Path, classes: int, columns: int) -> None:
    """Eight checkpoints of a network that learns the labels for a while."""
    torch.manual_seed(0)
    x, y = features_beside(str(work / "run")), torch.from_numpy(np.load(work / "y.npy"))
    torch.save(y, work / "y.pt")
    (work / "run").mkdir()
    model = build(columns, classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, CHECKPOINTS + 1):
        for rows in torch.randperm(len(x)).split(256):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
        torch.save(model.state_dict(), work / "run" / f"epoch_{epoch}.pt")


def command(kind: str, work: Path, classes: int, memory: str) -> list[str]:
    if kind == "run":
        return [sys.executable, "-c", SEARCH, str(work / "run"), memory, str(classes)]
    files = ["--features", str(work / "x.npy"), "--labels", str(work / "y.npy"), "--memory", memory]
    return [sys.executable, "-m", "undertow", "labels", *files, *(["--plan"] if kind == "plan" else [])]


def measure(kind: str, size: str, memory: str, work: Path) -> dict[str, object]:
    samples, classes, columns = map(int, size.split("x"))
    make(work, samples, classes, columns, uneven=kind == "uneven")
    if kind == "run":
        make_run(work, classes, columns)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        command(kind, work, classes, memory),
        capture_output=True,
        text=True,
        env=os.environ | here,
        check=False,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return {
        "what": f"{kind} {size}", "memory": memory, "peak": show_size(1024 * used.ru_maxrss),
        "CPU seconds": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
        "seconds": round(time.perf_counter() - began, 1), "exit": done.returncode, "said": said[:3],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("features", "run", "plan", "uneven"))
    parser.add_argument("size")
    parser.add_argument("--memory", default="2GB")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(measure(given.kind, given.size, given.memory, Path(scratch)), indent=1))


if __name__ == "__main__":
    main()
