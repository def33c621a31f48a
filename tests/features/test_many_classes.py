"""Class sums with one scatter, and sketches with a bound, against plain computations in float64."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from undertow.features.class_sums import ClassSums
from undertow.features.moments import Moments
from undertow.features.sketch import ClassSketches


def made(count=3000, dim=24, classes=7, seed=0, offset=100.0, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=draw)
    rows = torch.randn(count, dim, generator=draw, dtype=torch.float64) @ torch.diag(
        torch.logspace(0, -2, dim, dtype=torch.float64)
    )
    return (rows + labels[:, None] + offset).to(dtype), labels


def gathered(rows, sets, classes, step):
    seen = ClassSums(rows.shape[1], classes, len(sets))
    for at in range(0, len(rows), step):
        seen.add(rows[at : at + step], [labels[at : at + step] for labels in sets])
    return seen


def test_sums_are_those_of_moments_by_every_set_of_labels():
    rows, labels = made()
    other = labels.flip(0)
    seen = gathered(rows, [labels, other], 7, 700)
    for at, own in enumerate((labels, other)):
        whole, found = Moments.of(rows, own, 7, precise=True), seen.pooled(at)
        torch.testing.assert_close(found.counts, whole.counts)
        torch.testing.assert_close(found.means, whole.means, rtol=1e-12, atol=0)
        torch.testing.assert_close(found.within(), whole.within(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bounds", [(0, 3000), (0, 1, 2999, 3000), (0, 500, 1700, 3000)])
def test_merged_shards_are_the_whole(bounds):
    rows, labels = made()
    parts = [gathered(rows[a:b], [labels[a:b]], 7, 333) for a, b in pairwise(bounds)]
    whole, empty = gathered(rows, [labels], 7, 500).pooled(), ClassSums(24, 7)
    for part in parts:
        empty.merge(part)
    empty.merge(ClassSums(24, 7))
    found = empty.pooled()
    torch.testing.assert_close(found.means, whole.means, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.scatter, whole.scatter, rtol=1e-10, atol=1e-10)


def test_float32_rows_far_off_keep_their_spread():
    """A plain sum of squares of float32 at mean 1e4 would lose a spread of 1."""
    rows, labels = made(offset=1e4, dtype=torch.float32)
    found = gathered(rows, [labels], 7, 512).pooled()
    exact = Moments.of(rows.double(), labels, 7, precise=True).within()
    off = (found.within() - exact).abs() / (exact.diagonal().sqrt()[:, None] * exact.diagonal().sqrt())
    assert float(off[:12, :12].max()) < 1e-4
    # The last columns vary 400 times less within classes than between them, and the resolution says so.
    assert float(off.max()) < 30 * found.resolution < 0.1


def test_a_collapsed_layer_says_how_little_is_left():
    rows, labels = made(offset=0)
    near = labels[:, None].double().expand(-1, 24) + 1e-3 * rows
    assert gathered(near.float(), [labels], 7, 512).pooled().resolution > 1e-3
    assert gathered(rows.float(), [labels], 7, 512).pooled().resolution < 1e-1


@pytest.mark.parametrize("parts", [1, 3])
def test_the_sketchs_error_keeps_to_its_bound(parts):
    rows, labels = made(2000, 40, 3, offset=0.0)
    seen = ClassSketches(40, 3, 8)
    for at in range(parts):
        one = ClassSketches(40, 3, 8)
        for some, own in zip(rows[at::parts].split(97), labels[at::parts].split(97), strict=True):
            one.add(some, own)
        seen.merge(one)
    for c in range(3):
        own = rows[labels == c]
        values, basis = seen.directions(c)
        sketch = basis @ torch.diag(values) @ basis.T
        error = torch.linalg.eigvalsh(own.T @ own - sketch)
        slack = 1e-5 * float(seen.squares[c])
        assert -slack <= float(error[0])
        assert float(error[-1]) <= float(seen.shed[c]) + slack
        assert float(seen.squares[c]) == pytest.approx(float(own.square().sum()), rel=1e-9)
        # The theory's own bound, with k = 4 directions: the bound is not idle.
        tail = torch.linalg.eigvalsh(own.T @ own)[:-4].sum()
        assert float(seen.shed[c]) <= float(tail) / (8 - 4) + slack
        held = float((own @ basis[:, :4]).square().sum())
        assert values[:4].sum() - slack <= held <= values[:4].sum() + 4 * seen.shed[c] + slack


def test_rows_of_a_small_space_are_kept_whole():
    draw = torch.Generator().manual_seed(1)
    rows = torch.randn(500, 5, generator=draw) @ torch.randn(5, 30, generator=draw)
    seen = ClassSketches(30, 1, 8)
    seen.add(rows, torch.zeros(500, dtype=torch.int64))
    values, basis = seen.directions(0)
    assert len(values) == 5
    assert float(seen.shed[0]) < 1e-4 * float(seen.squares[0])
    inside = rows.double() @ basis @ basis.T
    torch.testing.assert_close(inside, rows.double(), rtol=0, atol=1e-3)
