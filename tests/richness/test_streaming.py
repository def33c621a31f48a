"""Streaming D_LR and neural collapse: any split, order, merge and process gives the same numbers."""

from __future__ import annotations

import os
import pickle
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
dist.init_process_group("gloo", "file://" + out + "/meet", rank=rank, world_size=3)
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
            assert low.count == collapse.count
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
    """Fails if batches are kept, or a matrix for each class: 100 of them."""
    low, collapse, g = DLR(), NeuralCollapse(100), torch.Generator().manual_seed(0)
    sizes = []
    for _ in range(50):
        features = torch.randn(200, 32, generator=g)
        low.update(features, features[:, :4])
        collapse.update(features, torch.randint(100, (200,), generator=g))
        sizes.append([len(pickle.dumps(metric)) for metric in (low, collapse)])
    assert sizes[-1] == pytest.approx(sizes[0], abs=50)  # a larger count takes a byte more
    assert sizes[0][0] < 8 * (32**2 + 32 * 4) + 8_000
    assert sizes[0][1] < 8 * (32**2 + 100 * 32 + 2 * 100) + 8_000
    assert low.count == collapse.count == 10_000


def test_processes_together_give_the_whole(tmp_path):
    """Three processes of which one has seen nothing. Fails if it does not know the sizes of the rest."""
    parts = sample()
    torch.save(parts, tmp_path / "parts.pt")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WORKER, str(rank), str(tmp_path)],
            env=env, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(3)
    ]  # fmt: skip
    errors = [process.communicate(timeout=600)[1] for process in started]
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


def unequal(n=120, p=6, offset=0.0):
    """Four classes of very different sizes, of which the small ones are wide."""
    g = torch.Generator().manual_seed(0)
    labels = torch.multinomial(torch.tensor([8.0, 4, 2, 1]), n, replacement=True, generator=g)
    spread = torch.tensor([0.1, 1, 3, 5], dtype=torch.float64)[labels, None]
    rows = torch.randn(n, p, generator=g, dtype=torch.float64) * spread
    return rows + torch.randn(4, p, generator=g, dtype=torch.float64)[labels] + offset, labels


def agree(found, wanted):
    for name in ("nc1", "nc1_stabilised", "trace_within", "nc2_etf"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-8), name
    assert (found.count, found.classes) == (wanted.count, wanted.classes)


@pytest.mark.parametrize("cuts", [[], [1], [40, 41], [3, 60, 119]], ids=str)
@pytest.mark.parametrize("factor", [1, 1e-3], ids=["counts", "shares"])
def test_any_split_of_unequal_classes_gives_each_the_same_weight(cuts, factor):
    """Fails if a step of a class mean is lost, not weighted, or large classes count more."""
    rows, labels = unequal(offset=1e3)
    metric = NeuralCollapse(4, labels.bincount().double() * factor)
    for part, own in zip(rows.tensor_split(cuts), labels.tensor_split(cuts), strict=True):
        metric.update(part, own)
    agree(metric.compute(), neural_collapse(rows, labels))
    assert "other shares" not in metric.compute().note


def test_merging_classes_that_one_side_has():
    """Fails if means are moved the wrong way, or a class that only one side has is spoilt."""
    rows, labels = unequal(offset=1e3)
    labels[:50], labels[50:] = labels[:50].clamp(max=2), labels[50:].clamp(min=1)  # 0 in one, 3 in the other
    wanted, sizes = neural_collapse(rows, labels), labels.bincount()
    for first, second in ((slice(50), slice(50, None)), (slice(50, None), slice(50))):
        one, two = NeuralCollapse(4, sizes), NeuralCollapse(4, sizes)
        one.update(rows[first], labels[first])
        two.update(rows[second], labels[second])
        agree(one.merge(NeuralCollapse(4, sizes)).merge(two).compute(), wanted)
        agree(NeuralCollapse(4, sizes).merge(one).compute(), wanted)


def test_sizes_make_unequal_classes_count_the_same():
    """Fails if sizes are not used, or their absence passes unremarked."""
    rows, labels = unequal()
    wanted = neural_collapse(rows, labels)
    told, untold = NeuralCollapse(4, labels.bincount().numpy()), NeuralCollapse(4)
    for metric in (told, untold):
        metric.update(rows, labels)
    agree(told.compute(), wanted)
    assert untold.compute().nc1 < 0.8 * wanted.nc1  # the small classes are the wide ones
    assert "classes came in other shares than told" in untold.compute().note


def test_collapsed_classes_keep_their_digits():
    """Fails if the spread within is what is left of the total: 1e-9 of it would be rounding."""
    rows, labels = unequal(n=400)
    features = 10 * torch.eye(4, 6, dtype=torch.float64)[labels] + 1e-9 * rows
    metric = NeuralCollapse(4, labels.bincount())
    for part, own in zip(features.split(64), labels.split(64), strict=True):
        metric.update(part, own)
    assert metric.compute().nc1 == pytest.approx(neural_collapse(features, labels).nc1, rel=1e-5)


def test_classes_and_sizes_that_do_not_fit_are_refused():
    rows, labels = unequal()
    with pytest.raises(BadValue, match="one for each of 4 classes"):
        NeuralCollapse(4, torch.ones(3))
    with pytest.raises(BadValue, match="numbers above 0"):
        NeuralCollapse(4, torch.tensor([1, 2, 0, 3]))
    one, other, narrow = NeuralCollapse(4), NeuralCollapse(4, labels.bincount()), NeuralCollapse(4)
    with pytest.raises(BadData, match="labels from 0 to 3, got"):
        one.update(rows, labels + 4)
    with pytest.raises(BadData, match="NeuralCollapse: wanted samples to compute from, got none"):
        NeuralCollapse(4).compute()
    narrow.update(rows[:, :5], labels)
    for metric in (one, other):
        metric.update(rows, labels)
    with pytest.raises(BadData, match="rows of width 6, got 5"):
        one.update(rows[:, :5], labels)
    with pytest.raises(BadValue, match="the same class sizes"):
        one.merge(other)
    with pytest.raises(BadValue, match=r"the same \(classes, dim, outputs\)"):
        one.merge(narrow)
