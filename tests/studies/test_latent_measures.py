"""What the latent studies measure beyond the grid: steps of the logistic probe, subspaces, grafts, bad pictures."""

from __future__ import annotations

import pytest
import torch

from undertow.errors import UnknownName
from undertow.latent.logistic import LogisticProbe
from undertow.latent.masc import MASC
from undertow.latent.velpic import VeLPIC
from undertow.studies.latent import probe_measures
from undertow.studies.latent.input_measures import unreadable
from undertow.studies.latent.probe_measures import early_transfer, grid, layer_features, masc_variances
from undertow.training.config import TrainConfig
from undertow.training.loop import train
from undertow.training.prepare import prepare_data

CONFIG = TrainConfig(
    model="mlp:24-16", data="digits", noise="0.4", train_size=200, test_size=100, epochs=6, batch_size=32,
    checkpoints="0,6",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(CONFIG, tmp_path_factory.mktemp("latent") / "run")


def test_the_logistic_probe_takes_the_papers_steps_however_few_the_samples(run, monkeypatch):
    """With the paper's twenty epochs of a small set it is under-trained, and wins where it should not."""
    asked = []

    class Noted(LogisticProbe):
        def fit(self, x, y):
            asked.append(self.epochs * -(-len(x) // self.batch_size))
            return super().fit(x, y)

    monkeypatch.setattr(probe_measures, "LogisticProbe", Noted)
    monkeypatch.setattr(probe_measures, "LOGISTIC_STEPS", 40)
    rows = grid(run, case="x 0.4", seed=0, probes=("velpic", "logistic"), logistic_at="last")
    assert {one["layer"] for one in rows if one["probe"] == "logistic"} == {"input", "layer1", "layer2"}
    assert asked == [40, 40, 40]
    monkeypatch.setattr(probe_measures, "FULL", len(run.data().train))
    asked.clear()
    grid(run, case="x 0.4", seed=0, probes=("velpic", "logistic"), logistic_at="last")
    assert asked == [20 * -(-len(run.data().train) // 128)] * 3, "a full set has the paper's epochs"


def test_the_published_number_of_steps():
    assert pytest.approx(20 * 60_000 / 128, rel=0.01) == probe_measures.LOGISTIC_STEPS


def test_other_subspaces_are_those_of_masc(run):
    rows = masc_variances(run, case="x 0.4", seed=0, variances=(0.5, 0.99))
    data, model = run.data(), run.model(6)
    x, z = (layer_features(model, part, data.scaling)["layer2"] for part in (data.train, data.test))
    for share in (0.5, 0.99):
        said = torch.as_tensor(MASC(variance=share).fit(x, data.train.y).predict(z))
        [found] = [one["value"] for one in rows if one.get("variance") == share and one["layer"] == "layer2"]
        assert found == pytest.approx((said == data.test.y).double().mean().item())


@pytest.mark.parametrize(("name", "probe"), [("velpic", VeLPIC), ("masc", MASC)])
def test_a_graft_answers_as_its_probe_does(run, name, probe):
    """Asked with pictures, the shortened network gives what the probe gives with features."""
    rows = early_transfer(run, case="x 0.4", seed=0)
    data, model = run.data(), run.model(6)
    x, z = (layer_features(model, part, data.scaling)["layer1"] for part in (data.train, data.test))
    said = torch.as_tensor(probe().fit(x, data.train.y).predict(z))
    own = [one for one in rows if one["probe"] == name and one["layer"] == "layer1"]
    [found] = [one["value"] for one in own if one["measure"] == "accuracy"]
    [size] = [one["value"] for one in own if one["measure"] == "size"]
    assert found == pytest.approx((said == data.test.y).double().mean().item(), abs=0.011)  # a tie or two
    assert size > 0
    assert "input" not in {one["layer"] for one in rows}


@pytest.mark.parametrize("kind", ["shuffled", "noise"])
def test_unreadable_pictures_keep_their_labels_and_leave_the_test_alone(kind):
    clean = prepare_data(CONFIG)
    made = unreadable(clean, kind, 0.5, seed=0)
    changed = (made.train.tensor != clean.train.tensor).flatten(1).any(1)
    assert 0.35 < changed.double().mean() < 0.65
    assert torch.equal(made.train.y, clean.train.y)
    assert torch.equal(made.test.tensor, clean.test.tensor)
    assert torch.equal(unreadable(clean, kind, 0.0, seed=0).train.tensor, clean.train.tensor)


def test_shuffled_pictures_keep_their_pixels_each_in_its_own_order():
    clean = prepare_data(CONFIG)
    made = unreadable(clean, "shuffled", 1.0, seed=0)
    before, after = (one.train.tensor.flatten(1).long() for one in (clean, made))
    assert torch.equal(before.sort(1).values, after.sort(1).values)
    # One order for all would leave a picture that a network can read.
    constant = (before == before[:, :1]).all(1)
    pixel = after[~constant].double()
    assert torch.linalg.matrix_rank(pixel - pixel.mean(0)) > 50


def test_an_unknown_kind_is_refused():
    with pytest.raises(UnknownName, match="kind of unreadable picture"):
        unreadable(prepare_data(CONFIG), "blurred", 0.5, seed=0)
