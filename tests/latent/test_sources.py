"""Features held or moving past: the same answers, and as many passes as the plan says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from undertow.data.samples import Samples
from undertow.features.budget import MemoryEstimate, Route
from undertow.features.stream import Batch
from undertow.latent.sources import plan_groups, room_for_fits, source_for

COUNT, DIM, CLASSES = 240, 24, 4


class Samplings:
    """A stream of features that counts how often the samples pass by."""

    def __init__(self, features: Tensor) -> None:
        self.features, self.passes = features, []

    def __call__(self, samples: Samples, layers: Sequence[str]) -> Iterator[Batch]:
        self.passes.append(len(samples))
        places = samples.x[:, 0].long()
        for start in range(0, len(samples), 50):
            rows = slice(start, min(start + 50, len(samples)))
            part = self.features[places[rows]]
            yield Batch(rows, part[:, :CLASSES], dict.fromkeys(layers, part))


@pytest.fixture
def material(features) -> tuple[Samplings, Samples, Samples, dict[str, Tensor]]:
    rows, labels = features(COUNT + 60, DIM)
    stream, numbers = Samplings(rows.float()), torch.arange(COUNT + 60)[:, None].float()
    train = Samples.of(numbers[:COUNT], labels[:COUNT])
    test = Samples.of(numbers[COUNT:], labels[COUNT:])
    shuffled = train.y[torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))]
    return stream, train, test, {"given": train.y, "true": train.y.roll(1), "shuffled": shuffled}


def by(kind) -> Route | None:
    return None if kind == "held" else Route(kind, "", MemoryEstimate(0, 0))


@pytest.mark.parametrize(
    ("kind", "room", "passes"),
    [
        ("held", 10**9, [COUNT, 60]),
        ("moments", 10**9, [COUNT, 60, COUNT]),  # to fit all three, and to answer for both splits
        ("moments", 1, [COUNT] * 3 + [60, COUNT]),  # no room for the moments of two sets
        ("gram", 10**9, [COUNT, 60, COUNT]),
        ("randomised", 10**9, [COUNT, 60, COUNT]),
    ],
)
def test_every_road_gives_the_same_answers(material, kind: str, room: int, passes: list[int]) -> None:
    """Fails if labels of one set meet features of other samples, or samples pass by once for each set."""
    stream, train, test, sets = material
    names = ["masc", "velpic", "mean"]
    whole = source_for(stream, train, test, ["fc"], None, CLASSES, 10**9).fit_and_answer("fc", sets, names)
    stream.passes.clear()
    found, said = source_for(stream, train, test, ["fc"], by(kind), CLASSES, room).fit_and_answer(
        "fc", sets, names
    )
    assert stream.passes == passes
    assert set(found) == {(fit, name) for fit in sets for name in names}
    for split in ("train", "test"):
        for key, answers in said[split].items():
            np.testing.assert_array_equal(answers, whole[1][split][key], err_msg=f"{split} {key}")


@pytest.mark.parametrize("kind", ["held", "moments", "gram", "randomised"])
def test_fits_alone_need_no_pass_for_answers(material, kind: str) -> None:
    stream, train, test, sets = material
    source = source_for(stream, train, test.take(torch.arange(0)), ["fc"], by(kind), CLASSES, 10**9)
    found = source.fit("fc", {"given": sets["given"]}, ["velpic", "knn"])
    assert [count for count in stream.passes if count] == [COUNT]
    assert found["given", "velpic"].vectors_.shape == (CLASSES, DIM)
    assert isinstance(found["given", "knn"], str) == (kind != "held")


def test_the_plan_packs_layers_and_reads_the_larger_labels() -> None:
    y = torch.arange(3000) % 3
    train = Samples.of(torch.zeros(3000, 1), y, true=torch.zeros_like(y))  # truly all of one class
    test = Samples.of(torch.zeros(1000, 1), y[:1000])
    budget = 14 * 10**6
    passes, words = plan_groups({"a": 100, "wide": 400, "b": 100, "c": 100}, train, test, 3, budget, 64)
    assert [layers for layers, _ in passes] == [("wide",), ("a", "b"), ("c",)]
    assert [route and route.kind for _, route in passes] == ["moments", None, None]
    assert words[0] == "a, b, c: 4.8 MB of features held in memory, in 2 passes"
    assert "3,000 samples in the largest class" in words[1]
    assert room_for_fits(budget) + budget // 3 == budget
