"""Drift of parameters and features, and trajectories, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

from undertow.errors import BadData, BadValue
from undertow.temporal import feature_drift, feature_trajectories, parameter_drift


def network(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential()
        net.layer1 = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
        net.head = nn.Linear(4, 3)
        net.layer1[1].running_mean += torch.randn(4)
    return net


def naive(a, b, names):
    moved = sum(((a[n].double() - b[n].double()) ** 2).sum().item() for n in names)
    return (moved / sum((a[n].double() ** 2).sum().item() for n in names)) ** 0.5


PARAMETERS = [
    "layer1.0.weight",
    "layer1.0.bias",
    "layer1.1.weight",
    "layer1.1.bias",
    "head.weight",
    "head.bias",
]


def test_drift_whole_and_per_layer():
    """Fails if running statistics or the count of batches enter, or the norm is that of b."""
    one, other = network(0), network(1)
    a, b = one.state_dict(), other.state_dict()
    for found in (parameter_drift(a, b), parameter_drift(one, other), parameter_drift(one, b)):
        assert found.value == pytest.approx(naive(a, b, PARAMETERS), rel=1e-12)
        assert found.layers.keys() == {"layer1.0", "layer1.1", "head"}
        assert found.layers["head"] == pytest.approx(naive(a, b, PARAMETERS[4:]), rel=1e-12)
        assert found.buffers.keys() == {"layer1.1.running_mean", "layer1.1.running_var"}
        assert found.buffers["layer1.1.running_mean"] == pytest.approx(
            naive(a, b, ["layer1.1.running_mean"]), rel=1e-12
        )
    grouped = parameter_drift(a, b, layers=["layer1"])
    assert grouped.layers == {"layer1": pytest.approx(naive(a, b, PARAMETERS[:4]), rel=1e-12)}
    assert grouped.value == found.value
    assert "none of the layers" in grouped.note


def test_drift_of_scaling_is_known():
    a = network(0).state_dict()
    b = {name: 1.07 * value if value.is_floating_point() else value for name, value in a.items()}
    assert parameter_drift(a, b).value == pytest.approx(0.07, rel=1e-6)
    assert parameter_drift(b, a).value == pytest.approx(0.07 / 1.07, rel=1e-6)
    assert parameter_drift(a, a).value == 0


def test_small_moves_of_large_weights_are_seen():
    """In float32 squares of 1e4 + 1e-2 lose the move."""
    a = {"w": torch.full((1000,), 1e4, dtype=torch.float64)}
    b = {"w": a["w"] + 1e-4}
    assert parameter_drift(a, b).value == pytest.approx(1e-8, rel=1e-6)
    half = {"w": torch.ones(100_000, dtype=torch.float16)}
    assert parameter_drift(half, {"w": half["w"] * 2}).value == pytest.approx(1)


def test_parameters_of_size_zero_have_no_drift():
    a = {"l.weight": torch.ones(2), "bias.offset": torch.zeros(3)}
    b = {"l.weight": torch.ones(2), "bias.offset": torch.ones(3)}
    found = parameter_drift(a, b)
    assert found.layers == {"l": 0.0, "bias": None}
    assert found.note == "no size to compare with: bias"
    assert found.value == pytest.approx((3 / 2) ** 0.5)


def test_named_buffers_stand_apart():
    a, b = {"w": torch.ones(2), "mean": torch.ones(2)}, {"w": torch.ones(2), "mean": torch.zeros(2)}
    found = parameter_drift(a, b, buffers=["mean"])
    assert (found.value, found.buffers) == (0, {"mean": 1})


def test_states_that_do_not_match_are_refused():
    a = network(0).state_dict()
    with pytest.raises(BadData, match="the first is 'extra'"):
        parameter_drift(a, {**a, "extra": torch.ones(1)})
    with pytest.raises(BadData, match=r"head\.weight"):
        parameter_drift(a, {**a, "head.weight": torch.ones(1)})
    with pytest.raises(BadData, match=r"NaN or infinity in 'head\.bias'"):
        parameter_drift(a, {**a, "head.bias": torch.full((3,), torch.nan)})
    with pytest.raises(BadValue, match="layer9"):
        parameter_drift(a, a, layers=["layer9"])


# Features


def walk(t=5, n=30, d=7, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(t, n, d)) * [3, 2, 1.5, 1, 0.5, 0.3, 0.1][:d]).cumsum(0) + 4


def test_feature_drift_is_the_relative_norm():
    features = walk()
    found = feature_drift(features)
    first = feature_drift([torch.from_numpy(one).reshape(30, 7, 1) for one in features], reference=0)
    for t in range(5):
        last = np.linalg.norm(features[t] - features[-1]) / np.linalg.norm(features[-1])
        assert found.to_reference[t] == pytest.approx(last, rel=1e-12)
        start = np.linalg.norm(features[t] - features[0]) / np.linalg.norm(features[0])
        assert first.to_reference[t] == pytest.approx(start, rel=1e-12)
    for t in range(4):
        step = np.linalg.norm(features[t + 1] - features[t]) / np.linalg.norm(features[t])
        assert found.steps[t] == pytest.approx(step, rel=1e-12)


def test_dead_features_have_no_drift():
    features = walk()
    features[1] = 0
    found = feature_drift(features)
    assert found.steps[1] is None
    assert "all 0" in found.note
    with pytest.raises(BadValue, match="5 checkpoints"):
        feature_drift(features, reference=5)


@pytest.mark.parametrize("wide", [False, True])
def test_trajectories_are_one_pca_of_all_rows(wide):
    """Fails if each checkpoint has its own basis or mean."""
    features = walk(t=3, n=2) if wide else walk()
    features = features @ np.linalg.qr(np.random.default_rng(5).normal(size=(7, 7)))[0]
    rows = features.reshape(-1, 7)
    assert (len(rows) < 7) == wide
    wanted = PCA(3, svd_solver="full").fit(rows)
    found = feature_trajectories(features, 3)
    np.testing.assert_allclose(found.explained, wanted.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-12)
    signs = np.sign((found.directions * wanted.components_).sum(1))
    np.testing.assert_allclose(found.directions, signs[:, None] * wanted.components_, atol=1e-9)
    np.testing.assert_allclose(found.points, (features - rows.mean(0)) @ found.directions.T, atol=1e-9)


def test_signs_do_not_depend_on_the_machine():
    """The largest entry of a direction is positive, so turned features give turned points."""
    features = walk()
    found = feature_trajectories(features)
    for direction in found.directions:
        assert direction[np.abs(direction).argmax()] > 0
    turned = feature_trajectories(-features)
    np.testing.assert_allclose(turned.directions, found.directions, atol=1e-9)
    np.testing.assert_allclose(turned.points, -found.points, atol=1e-9)


def test_read_only_and_single_precision_features():
    features = walk().astype(np.float32)
    features.setflags(write=False)
    assert feature_trajectories(features).points.dtype == np.float64
    assert feature_drift(features).to_reference[-1] == 0


def test_directions_without_variance_are_refused():
    flat = np.zeros((3, 10, 4))
    flat[..., 0] = np.arange(30).reshape(3, 10)
    assert feature_trajectories(flat, 1).explained[0] == pytest.approx(1)
    with pytest.raises(BadData, match="got features with 1"):
        feature_trajectories(flat, 2)
    with pytest.raises(BadData, match="got features with 0"):
        feature_trajectories(np.ones((3, 10, 4)), 1)
    with pytest.raises(BadValue, match="from 1 to 4"):
        feature_trajectories(flat, 5)
    with pytest.raises(BadData, match="same samples"):
        feature_trajectories([np.ones((3, 2)), np.ones((4, 2))])
    with pytest.raises(BadData, match="checkpoint number 1"):
        feature_drift([np.ones((3, 2)), np.full((3, 2), np.nan)])
