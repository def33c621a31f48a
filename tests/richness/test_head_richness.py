"""All measures of a head from one kernel: those of the separate functions and of plain numpy; reasons, never NaN."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from undertow.errors import BadData
from undertow.richness import (
    HeadRichness,
    KnownKernel,
    d_lr_interval,
    effective_dimension,
    head_richness,
    initial_kernel_alignment,
    neural_collapse,
    squared_parameter_norm,
)
from undertow.richness.head_richness import COLLAPSE, MEASURES, interval_bytes

SHAPES = [(400, 30), (60, 200), (80, 80)]


def sample(n, p, dtype=torch.float64, offset=2.0, classes=4):
    """Classes of features with an offset, and a linear head."""
    g = torch.Generator().manual_seed(n + p)
    labels = torch.randint(classes, (n,), generator=g)
    means = torch.randn(classes, p, generator=g, dtype=torch.float64)
    features = torch.randn(n, p, generator=g, dtype=torch.float64) + means[labels] + offset
    initial = torch.randn(n, p, generator=g, dtype=torch.float64) + 0.2 * features
    weight = means - means.mean(0) + 0.3 * torch.randn(classes, p, generator=g, dtype=torch.float64)
    outputs = features @ weight.T + torch.randn(classes, generator=g, dtype=torch.float64)
    return {
        "features": features.to(dtype), "outputs": outputs.to(dtype), "labels": labels,
        "weight": weight.to(dtype), "initial": initial.to(dtype),
    }  # fmt: skip


def plainly(features, outputs, initial):
    """The measures of kernels in numpy, on n x n operators in float64."""
    x, f, x0 = (np.asarray(part, dtype=np.float64) for part in (features, outputs, initial))
    n = len(x)
    centre = np.eye(n) - 1 / n
    kernel, before = centre @ x @ x.T @ centre, centre @ x0 @ x0.T @ centre
    target = centre @ f @ np.linalg.pinv(f) @ centre
    cka = lambda a, b: (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    shares = np.linalg.svd(x, compute_uv=False) ** 2
    entropy = lambda s: -(s / s.sum() * np.log(s / s.sum())).sum()  # noqa: E731
    return {
        "d_lr": 1 - cka(kernel, target), "initial_kernel_alignment": cka(kernel, before),
        "effective_dimension": math.exp(entropy(shares)), "effective_dimension_rest": 1 + math.exp(entropy(shares[1:])),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "p"), SHAPES)
def test_numbers_are_those_of_the_separate_functions_and_of_numpy(n, p, dtype):
    """Fails if a measure takes the wrong side of the matrix, or one that is centred for one that is not."""
    own, model = sample(n, p, dtype), nn.Linear(p, 4)
    found = head_richness(**own, model=model, seed=5)
    interval = d_lr_interval(own["features"], own["outputs"], seed=5)
    ends = [found.d_lr.value, found.d_lr.low, found.d_lr.high]
    assert ends == pytest.approx([interval.value, interval.low, interval.high], rel=1e-6)
    collapse = neural_collapse(own["features"], own["labels"], own["weight"], 4, own["outputs"])
    separate = {
        "effective_dimension": effective_dimension(own["features"]),
        "effective_dimension_rest": effective_dimension(own["features"], True),
        "initial_kernel_alignment": initial_kernel_alignment(own["initial"], own["features"]),
        "squared_parameter_norm": squared_parameter_norm(model),
        **{name: getattr(collapse, name) for name in COLLAPSE},
    }
    for name, wanted in separate.items():
        assert getattr(found, name).value == pytest.approx(wanted, rel=1e-6), name
    for name, wanted in plainly(own["features"], own["outputs"], own["initial"]).items():
        assert getattr(found, name).value == pytest.approx(wanted, rel=1e-6), name
    assert (found.count, found.dim, found.rank) == (n, p, 4)
    assert found.notes == (() if n > p else (f"only {n} samples for {p} features: take more than {p}",))


def test_invariant_to_rotation_of_features():
    own = sample(300, 20)
    turn = torch.linalg.qr(torch.randn(20, 20, generator=torch.Generator().manual_seed(1)).double()).Q
    turned = {
        **own,
        "features": own["features"] @ turn,
        "weight": own["weight"] @ turn,
        "initial": own["initial"] @ turn,
    }
    plain, found = head_richness(**own), head_richness(**turned)
    for name in MEASURES:
        if name != "squared_parameter_norm":
            assert getattr(found, name).value == pytest.approx(getattr(plain, name).value, rel=1e-9), name
    assert found.d_lr.low == pytest.approx(plain.d_lr.low, rel=1e-9)


def test_autocast_does_not_reach_the_products():
    """Fails if float32 features are multiplied in bfloat16: three digits are left."""
    own = sample(300, 20, torch.float32)
    plain = head_richness(**own)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert head_richness(**own) == plain


def test_arrays_and_a_known_norm_do_as_well_and_results_can_be_stored():
    own = sample(100, 8)
    found = head_richness(**{name: part.numpy() for name, part in own.items()}, model=3.5, classes=4)
    assert found == head_richness(**own, model=3.5)
    assert found.squared_parameter_norm.value == 3.5
    assert found == head_richness(**{**own, "initial": KnownKernel.of(own["initial"])}, model=3.5)
    assert msgspec.json.decode(msgspec.json.encode(found), type=HeadRichness) == found


def test_what_was_not_given_is_told():
    own = sample(100, 8)
    found = head_richness(own["features"], own["outputs"])
    reasons = {name: getattr(found, name).reason for name in MEASURES if getattr(found, name).value is None}
    assert set(reasons) == {"initial_kernel_alignment", "squared_parameter_norm", *COLLAPSE}
    assert reasons["initial_kernel_alignment"] == "no features from before training were given"
    assert reasons["squared_parameter_norm"] == "no model was given"
    assert reasons["nc1"] == "no labels were given"
    for weight in (None, own["weight"][:2]):
        found = head_richness(own["features"], own["outputs"], labels=own["labels"], weight=weight)
        assert found.nc1.value is not None
        assert found.nc3.value is None
        assert found.nc3.reason == "no nc3: it needs weights (4, 8), a row for each class"


@pytest.mark.parametrize(("n", "p"), SHAPES)
def test_no_interval_where_it_does_not_fit_into_half_of_the_memory(n, p):
    own, need = sample(n, p), 2 * interval_bytes(n, p, 4)
    fits, short = (
        head_richness(own["features"], own["outputs"], memory=room).d_lr for room in (need, need - 1)
    )
    assert None not in (fits.low, fits.high)
    assert (short.value, short.low, short.high) == (fits.value, None, None)
    assert short.reason == "no interval: its moments do not fit into the memory"


DEGENERATE = {
    "constant features": ({"features": torch.full((100, 8), 0.1)}, "d_lr", "constant ones up to rounding"),
    "dead features": ({"features": torch.zeros(100, 8)}, "effective_dimension", "got features of rank 0"),
    "rank one": ({"features": torch.ones(100, 8)}, "effective_dimension_rest", "a second eigenvalue above 0"),
    "constant outputs": ({"outputs": torch.full((100, 4), 0.3)}, "d_lr", "no function was learned"),
    "zero outputs": ({"outputs": torch.zeros(100, 4)}, "d_lr", "got zeros only"),
    "dead start": (
        {"initial": torch.zeros(100, 8)},
        "initial_kernel_alignment",
        "constant ones up to rounding",
    ),
    "one class": ({"labels": torch.zeros(100, dtype=torch.int64)}, "nc1", "two classes or more, got one"),
    "empty class": ({"classes": 9}, "nc4", "samples of all 9 classes"),
    "labels": ({"classes": 3}, "nc1", "wanted labels from 0 to 2"),
    "zero weights": ({"weight": torch.zeros(4, 8)}, "nc3", "no nc3"),
    "diverged": ({"model": math.nan}, "squared_parameter_norm", "diverged"),
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_a_degenerate_case_gives_a_reason_and_never_nan(case):
    change, name, message = DEGENERATE[case]
    found = head_richness(**{**sample(100, 8), "model": 1.0, **change})
    assert getattr(found, name).value is None
    assert message in getattr(found, name).reason
    for measure in MEASURES:
        own = getattr(found, measure)
        assert own.value is not None or own.reason, measure
        assert all(end is None or math.isfinite(end) for end in (own.value, own.low, own.high)), measure


def test_a_value_without_an_interval_says_why():
    own = sample(30, 8)
    assert "at least 40 samples" in head_richness(own["features"], own["outputs"]).d_lr.reason
    onehot = torch.eye(4, dtype=torch.float64).repeat(20, 1)
    found = head_richness(onehot, onehot @ torch.diag(torch.arange(1.0, 5)).double()).d_lr
    assert found.value == pytest.approx(0, abs=1e-12)
    assert (found.low, found.high) == (None, None)
    assert "at the end of its range" in found.reason
    # All but the samples of one group are alike.
    lone = torch.zeros(100, 3, dtype=torch.float64)
    lone[7] = 1
    found = head_richness(lone, lone).d_lr
    assert found.low is None
    assert found.reason


def test_what_cannot_be_measured_is_refused():
    own = sample(50, 8)
    with pytest.raises(BadData, match="head_richness, features: wanted finite"):
        head_richness(own["features"] * torch.nan, own["outputs"])
    with pytest.raises(BadData, match="got 50 and 49 rows"):
        head_richness(own["features"], own["outputs"][:49])
    with pytest.raises(BadData, match="got 50 and 49 rows"):
        head_richness(own["features"], own["outputs"], initial=own["initial"][:49])
