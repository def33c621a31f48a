"""MASC against the literal algorithm, and the logistic probe against a DataLoader loop.

python bench/probes.py [--json FILE] [--rounds N] [--only WORD]

MASC: fit and predict, 10 classes, 2,000 test rows, against plain PyTorch that follows the paper word by word:
negatives beside the rows, D x D covariance and `eigh` per class, N x N product for the angles. Goals: 4x at
10,000 rows of 512; 15x at 1,000 rows per class of 2,048; 60x at 200 per class of 2,048; the same predictions on
99.9 % of the test rows. At D = 16,384 (ResNet-18's first layer) the literal algorithm needs 1 GB and minutes for
each class: only our time (goal: 2 minutes) and peak memory (goal: 6 GB) are given.

Logistic: 20 epochs of Adam with one order of batches and one start for both. Goal: 5x, accuracies within 0.3 %.

Three fits: given, true and shuffled labels on 5,000 rows (2,000 of 8,192), each probe fitted and asked about its
training rows one by one ("literal"), and all at once ("ours"), with the same answers. Goal for the logistic probe:
1.8x. MASC shares one kernel where columns are many times as many as a class has rows, else little.

Features are a random two-layer ReLU network's on clustered inputs. What decides the cost is how many directions
hold 99 % of a class: 100 to 150 here at D = 2,048, and 10 to 195 in the layers of that width of the paper's MLP on
MNIST, before and after training with 40 % label noise.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from _ratio import median_seconds, report
from undertow.latent import MASC, LogisticProbe
from undertow.latent.layer import PROBES, fit_and_answer

TEST, CLASSES = 2000, 10


def relu_features(count: int, dim: int, noise: float = 0.0, inputs: int = 64) -> tuple[Tensor, ...]:
    """Training rows and labels, test rows and labels; `noise` is the share of training labels drawn anew."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(count + TEST) % CLASSES
    centres = 0.3 * torch.randn(CLASSES, inputs, generator=draw)
    decay = 2.0 / torch.arange(1, inputs + 1)
    own = torch.ones(len(labels), 1)
    own[count:] -= torch.rand(TEST, 1, generator=draw) / 2  # test rows between two classes: the hard ones
    rows = own * centres[labels] + (1 - own) * centres[labels - 1]
    rows = rows + decay * torch.randn(len(labels), inputs, generator=draw)
    for _ in range(2):
        weights = torch.randn(rows.shape[1], dim, generator=draw) * math.sqrt(2 / rows.shape[1])
        rows = torch.relu(rows @ weights + 0.1 * torch.randn(dim, generator=draw))
    given = labels.clone()
    changed = torch.rand(len(labels), generator=draw) < noise
    given[changed] = torch.randint(0, CLASSES, (int(changed.sum()),), generator=draw)
    return rows[:count], given[:count], rows[count:], labels[count:]


def literal_masc(train: Tensor, labels: Tensor, test: Tensor, share: float = 0.99) -> Tensor:
    """The paper's algorithm, step by step."""
    angles = []
    for c in range(CLASSES):
        part = train[labels == c]
        augmented = torch.cat([part, -part])
        centred = augmented - augmented.mean(0)
        values, vectors = torch.linalg.eigh(centred.T @ centred / (len(centred) - 1))
        values, vectors = values.flip(0), vectors.flip(1)
        basis = vectors[:, : int((values.cumsum(0) / values.sum() <= share).sum()) + 1]
        projected = (test @ basis) @ basis.T
        lengths = test.norm(dim=1)[:, None] * projected.norm(dim=1)[None]
        angles.append(torch.acos((test @ projected.T / lengths).diagonal().clamp(-1, 1)))
    return torch.stack(angles, 1).argmin(1)


class SameOrder(Sampler[int]):
    """The batches' order that the probe draws, for a DataLoader."""

    def __init__(self, count: int, draw: torch.Generator) -> None:
        self.count, self.draw = count, draw

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(self.count, generator=self.draw).tolist()


def loader_loop(train: Tensor, labels: Tensor, epochs: int = 20) -> nn.Linear:
    """The recipe as it is usually written; only start and order are made the same as the probe's."""
    draw, bound = torch.Generator().manual_seed(0), train.shape[1] ** -0.5
    start = torch.empty(CLASSES * (train.shape[1] + 1)).uniform_(-bound, bound, generator=draw)
    model = nn.Linear(train.shape[1], CLASSES)
    with torch.no_grad():
        model.weight.copy_(start[:-CLASSES].view_as(model.weight))
        model.bias.copy_(start[-CLASSES:])
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(train, labels), batch_size=128, sampler=SameOrder(len(train), draw))
    for _ in range(epochs):
        for rows, truth in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(rows), truth).backward()
            optimiser.step()
    return model


def masc_case(count: int, dim: int, goal: int, rounds: int) -> dict[str, object]:
    train, labels, test, _ = relu_features(count, dim)
    contenders = {
        "literal": lambda: literal_masc(train, labels, test),
        "ours": lambda: MASC().fit(train, labels).predict(test),
    }
    seconds = median_seconds(contenders, rounds)
    same = float((contenders["literal"]() == contenders["ours"]()).double().mean())
    directions = int(torch.as_tensor(MASC().fit(train, labels).dimensions_).double().mean())
    return row(f"MASC {count:,} x {dim:,}, k = {directions}", seconds, goal, f"same predictions {same:.2%}")


def wide_case() -> dict[str, object]:
    train, labels, test, truth = relu_features(10_000, 16_384)
    began = time.perf_counter()
    probe = MASC().fit(train, labels)
    right = probe.score(test, truth)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    directions = int(torch.as_tensor(probe.dimensions_).double().mean())
    note = f"{peak:.1f} GB at most, accuracy {right:.2%}"
    return row(f"MASC 10,000 x 16,384, k = {directions}", {"ours": seconds}, 0, note)


def logistic_case(dim: int, rounds: int) -> dict[str, object]:
    train, labels, test, truth = relu_features(10_000, dim, noise=0.4)
    seconds = median_seconds(
        {"literal": lambda: loader_loop(train, labels), "ours": lambda: LogisticProbe().fit(train, labels)},
        rounds,
    )
    theirs = float((loader_loop(train, labels)(test).argmax(1) == truth).double().mean())
    ours = LogisticProbe().fit(train, labels).score(test, truth)
    return row(f"Logistic 10,000 x {dim:,}", seconds, 5, f"accuracies {theirs:.2%} and {ours:.2%}")


def three_fits_case(probe: str, count: int, dim: int, goal: float, rounds: int) -> dict[str, object]:
    train, given, _, _ = relu_features(count, dim, noise=0.4)
    shuffled = given[torch.randperm(count, generator=torch.Generator().manual_seed(1))]
    sets = {"given": given, "true": torch.arange(count) % CLASSES, "shuffled": shuffled}

    def alone() -> list[Tensor]:
        return [PROBES[probe]().fit(train, labels).predict(train) for labels in sets.values()]

    def together() -> list[Tensor]:
        _, said = fit_and_answer(train, sets, [probe], classes=CLASSES, room=10**9)
        return [said[fit, probe] for fit in sets]

    seconds = median_seconds({"literal": alone, "ours": together}, rounds)
    same = float((torch.cat(alone()) == torch.cat(together())).double().mean())
    return row(f"Three fits, {probe} {count:,} x {dim:,}", seconds, goal, f"same predictions {same:.2%}")


def row(case: str, seconds: dict[str, float], goal: float, note: str) -> dict[str, object]:
    times = {name: f"{seconds[name]:.3f} s" if name in seconds else "-" for name in ("literal", "ours")}
    ratio = f"{seconds['literal'] / seconds['ours']:.1f}x" if "literal" in seconds else "-"
    return {
        "case": case,
        **times,
        "ratio": ratio,
        "goal": f"{goal}x" if goal else "120 s, 6 GB",
        "note": note,
    }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", type=Path)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", default="", help="cases whose name has this word, for example 2,048")
    given = options.parse_args()
    cases = {
        "MASC 16,384": wide_case,  # first, while the peak of memory is its own
        "MASC 512": lambda: masc_case(10_000, 512, 4, given.rounds),
        "MASC 1000 x 2,048": lambda: masc_case(10_000, 2048, 15, given.rounds),
        "MASC 200 x 2,048": lambda: masc_case(2_000, 2048, 60, given.rounds),
        "Logistic 512": lambda: logistic_case(512, given.rounds),
        "Logistic 2,048": lambda: logistic_case(2048, given.rounds),
        "Three logistic 512": lambda: three_fits_case("logistic", 5_000, 512, 1.8, given.rounds),
        "Three logistic 2,048": lambda: three_fits_case("logistic", 5_000, 2048, 1.8, given.rounds),
        "Three MASC 512": lambda: three_fits_case("masc", 5_000, 512, 1, given.rounds),
        "Three MASC 2,048": lambda: three_fits_case("masc", 5_000, 2048, 1, given.rounds),
        "Three MASC 8,192": lambda: three_fits_case("masc", 2_000, 8192, 2, given.rounds),
    }
    report([run() for name, run in cases.items() if given.only in name], given.json)


if __name__ == "__main__":
    main()
