"""Regions of the deep part, trajectories in them, and noise along principal directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from undertow.errors import BadData, BadValue
from undertow.studies.temporal.induction import class_regions, directional_noise, region_share

CENTRES = torch.tensor([[-2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])


def nearest(points):
    """A deep part whose regions are known: the nearest of three centres."""
    return -torch.cdist(points, CENTRES.to(points.dtype))


def paths(moves=0.5, checkpoints=6, count=60, seed=0):
    g = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % 3
    return CENTRES[classes] + moves * torch.randn(checkpoints, count, 2, generator=g), classes


def test_regions_are_those_of_the_deep_part():
    """Catches exchanged axes: the third centre lies above, not to the right."""
    trajectories, _ = paths()
    found = class_regions(nearest, trajectories, resolution=41)
    assert found.classes.shape == (41, 41)
    for row in range(0, 41, 7):
        for column in range(0, 41, 7):
            point = np.array([found.x[column], found.y[row]])
            assert found.classes[row, column] == np.linalg.norm(CENTRES.numpy() - point, axis=1).argmin()
    points = trajectories.reshape(-1, 2)
    low, high = points.min(0).values, points.max(0).values
    np.testing.assert_allclose([found.x[0], found.y[0]], low - 0.1 * (high - low), rtol=1e-5)
    np.testing.assert_allclose([found.x[-1], found.y[-1]], high + 0.1 * (high - low), rtol=1e-5)


def test_a_single_point_still_has_a_plane():
    found = class_regions(nearest, torch.tensor([[1.0, 1.0]]), resolution=3)
    assert found.x[0] < 1 < found.x[-1]


def test_share_counts_points_one_by_one():
    trajectories, _ = paths(1.5)
    found = region_share(nearest, trajectories)
    inside = np.zeros((5, 60))

    def region(point):
        return np.argmin([float((point - c).norm()) for c in CENTRES])

    for t in range(5):
        for n in range(60):
            inside[t, n] = region(trajectories[t, n]) == region(trajectories[5, n])
    assert found.share == pytest.approx(inside.mean())


def test_paths_in_their_regions_beat_the_control():
    trajectories, _ = paths()
    found = region_share(nearest, trajectories)
    assert found.share > 0.95
    assert found.control == pytest.approx(1 / 3, abs=0.03)
    assert found.control_low < found.control < found.control_high < 0.6
    assert found.p == 1 / 1000


def test_the_last_checkpoint_does_not_agree_with_itself():
    """Points drawn afresh at each checkpoint: the share is chance, though the last one fits by definition."""
    points = 4 * torch.randn(2, 300, 2, generator=torch.Generator().manual_seed(0))
    found = region_share(nearest, points)
    assert found.p > 0.01
    assert abs(found.share - found.control) < 0.1


def test_share_p_is_uniform_without_relation():
    g = torch.Generator().manual_seed(1)
    p = [region_share(nearest, 4 * torch.randn(3, 40, 2, generator=g), shuffles=99).p for _ in range(200)]
    assert sum(one <= 0.05 for one in p) <= 22  # binomial, 99.9 per cent


def across(axis=0):
    """A deep part that looks at one coordinate only."""
    return lambda z: torch.stack([z.flatten(1)[:, axis], -z.flatten(1)[:, axis]], 1)


def cloud(count=80, dim=30, seed=0):
    """Most variance along coordinates 1 and 2; coordinate 0 decides and lies at +-0.3."""
    g = torch.Generator().manual_seed(seed)
    z = 0.05 * torch.randn(count, dim, generator=g)
    z[:, 1] += 5 * torch.randn(count, generator=g)
    z[:, 2] += 3 * torch.randn(count, generator=g)
    z[:, 0] = 0.3 * torch.sign(torch.randn(count, generator=g))
    return z


@pytest.mark.parametrize("dim", [30, 400])
def test_principal_directions_are_found_on_either_side(dim):
    """30 columns take the covariance, 400 the Gram matrix."""
    z = cloud(dim=dim)
    found = directional_noise(across(), z)
    exact = np.linalg.svd((z - z.mean(0)).double().numpy(), full_matrices=False)
    overlap = np.abs(exact[2][:2] @ found.directions.numpy().T)
    np.testing.assert_allclose(overlap, np.eye(2), atol=1e-6)


def test_noise_is_uniform_of_the_size_asked_for():
    """Seen by the deep part: what it gets, less the features, along the directions."""
    z, seen = cloud(), []
    found = directional_noise(
        lambda rows: seen.append(rows) or across()(rows), z, size=2.5, draws=50, controls=1
    )
    noise = (
        torch.stack(seen[1:51]).double() - z.double()
    )  # the first call has no noise, the last is the control's
    along = noise @ found.directions.T
    assert along.shape == (50, 80, 2)
    assert float((noise - along @ found.directions).abs().max()) < 1e-5  # nothing beside them
    assert 2.4 < float(along.abs().max()) <= 2.5 + 1e-5
    assert float(along.var()) == pytest.approx(2.5**2 / 3, rel=0.05)


def test_the_class_is_kept_along_the_paths_and_not_elsewhere():
    """Of three coordinates one decides: random directions hit it, principal ones do not."""
    z = cloud(dim=30)[:, :3]
    found = directional_noise(across(), z, size=1.0)
    assert found.kept > 0.97
    assert found.control < 0.9
    assert found.control_low <= found.control <= found.control_high


def test_random_directions_as_principal_ones_give_the_control():
    """Isotropic features have no directions of their own: kept and control agree."""
    z = torch.randn(2000, 6, generator=torch.Generator().manual_seed(0))
    found = directional_noise(across(), z, draws=10, controls=40)
    assert found.control_low - 0.02 <= found.kept <= found.control_high + 0.02


def test_maps_keep_their_shape():
    z = torch.randn(20, 2, 3, 3, generator=torch.Generator().manual_seed(0))

    def deep(features):
        assert features.shape[1:] == (2, 3, 3)
        assert features.dtype == torch.float32
        return features.mean((2, 3))

    assert 0 < directional_noise(deep, z, controls=2, draws=2).kept <= 1


def test_bad_input_is_answered():
    with pytest.raises(BadData, match="two dimensions, got shape"):
        class_regions(nearest, torch.zeros(3, 4))
    with pytest.raises(BadData, match="two checkpoints or more"):
        region_share(nearest, torch.zeros(1, 5, 2))
    with pytest.raises(BadData, match="vary along 2 directions, got rank 1"):
        directional_noise(across(), torch.arange(9.0)[:, None] * torch.ones(3))
    with pytest.raises(BadValue, match="size above 0"):
        directional_noise(across(), torch.randn(5, 3), size=0)
    with pytest.raises(BadData, match="NaN or infinity"):
        directional_noise(across(), torch.full((5, 3), float("nan")))
    with pytest.raises(BadData, match=r"outputs \(M, C\)"):
        class_regions(lambda z: z[:, 0], torch.randn(5, 2))
