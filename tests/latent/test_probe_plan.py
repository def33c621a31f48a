"""Plans of probes: time, memory and disk are said first, and what cannot be done is refused before any work."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import undertow as ut
from undertow.errors import BadValue
from undertow.features.budget import choose_route
from undertow.latent.grid import grid_gauges
from undertow.latent.probe_plan import ProbePlan, seconds_to_fit
from undertow.latent.probes_streamed import streamed_memory
from undertow.session import Session

WIDE, COUNT = 256, 300


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, WIDE), nn.ReLU(), nn.Linear(WIDE, 16), nn.ReLU(), nn.Linear(16, 3))


@pytest.fixture
def given(tmp_path):
    with ut.Recorder(tmp_path / "run") as recorder:
        for at in (1, 2, 3):
            recorder.save(net(), at)
    x, y = torch.randn(COUNT, 8, generator=torch.Generator().manual_seed(0)), torch.arange(COUNT) % 3
    return ut.open_run(tmp_path / "run", model=net), (x, y), (x[:60], y[:60])


def plan_of(given, out, **settings) -> ProbePlan:
    session = Session(*given, out=out, **settings)
    gauges = grid_gauges(session, ["1", "3"], ("lda", "masc"), ("given",))
    return ProbePlan.of(session, gauges, session.checkpoints)


def test_features_that_fit_are_held_and_counted_three_times(given, tmp_path):
    plan = plan_of(given, tmp_path / "out")
    assert plan.probes == 3 * 2 * 2  # checkpoints, layers, probes
    assert plan.known == 0
    assert plan.memory == 3 * 4 * (COUNT + 60) * (WIDE + 16)  # a third holds features
    assert plan.disk == 0
    assert plan.seconds > 0
    assert str(plan).startswith("12 probes to fit: about ")
    assert "of memory in all (Python, libraries, model and samples counted).\n" in str(plan)


def test_a_wide_layer_says_what_it_takes_on_disk(given, tmp_path):
    """Fails if the plan follows another route than the probes will."""
    plan = plan_of(given, tmp_path / "out", memory="1.1MB", batch_size=64)
    route = choose_route([100] * 3, WIDE, 1_100_000, batch_size=64)
    assert route.estimate.stored == COUNT * WIDE * 4
    assert route.estimate.total <= plan.memory == 1_100_000  # all of it: MASC's directions take what is left
    assert plan.disk == route.estimate.stored
    assert "of disk while it works" in str(plan)


def test_too_little_memory_is_refused_before_any_work(given, tmp_path):
    with pytest.raises(BadValue, match=r"memory: wanted at least .* for a layer of 256 features"):
        ut.probe_grid(*given, out=tmp_path / "out", layers=["1"], probes=("lda",), memory="100KB")
    assert not list((tmp_path / "out").glob("cache/*"))


def test_what_is_known_is_not_counted_again(given, tmp_path):
    settings = {"layers": ["1", "3"], "probes": ("lda", "masc"), "fits": "given", "checkpoints": "all"}
    ut.probe_grid(*given, out=tmp_path / "out", **settings)
    plan = plan_of(given, tmp_path / "out")
    assert (plan.known, plan.seconds) == (12, 0)


def test_a_thousand_classes_of_2048_features_fit_into_2_gigabytes():
    """Full second moments would take 34 GB; sketches take what is left of half of the memory."""
    assert 1000 * 2048**2 * 8 > 33e9
    assert 0.4e9 < streamed_memory(1000, 2048, 1, 2 * 10**9) <= 10**9
    with pytest.raises(
        BadValue, match=r"wanted at least .* for 1,000 classes of 2,048 features, got .100 MB"
    ):
        streamed_memory(1000, 2048, 1, 10**8)


def test_fits_are_counted_in_proportion_to_samples_and_sets_of_labels(monkeypatch):
    monkeypatch.setattr("undertow.latent.probe_plan.timed", lambda work: (work(), 0.5)[1])
    features, y = {"a": torch.randn(30, 4), "b": torch.randn(30, 4)}, torch.arange(30) % 3
    assert seconds_to_fit(features, y, ("lda", "mean"), 2, 300) == pytest.approx(2 * 2 * 0.5 * 10 * 2)
    assert seconds_to_fit(features, None, ("lda",), 2, 300) == 0
