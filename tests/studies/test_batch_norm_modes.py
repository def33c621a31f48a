"""Each image by itself in batches is what training mode gives one image at a time."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from undertow.errors import BadData
from undertow.latent.grid import probe_grid
from undertow.models.build import build_model
from undertow.studies.latent.batch_norm_measures import both_modes
from undertow.studies.latent.per_image_batch_norm import per_image_statistics
from undertow.training.config import TrainConfig
from undertow.training.loop import train


def images(count, seed=0):
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def model():
    """A small ResNet in float64 whose running statistics and affine weights are not those of a fresh one."""
    made = build_model("resnet8:width=4", (3, 16, 16), 10, seed=0).double()
    made.train()
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 2, generator=torch.Generator().manual_seed(1))
                module.bias.uniform_(-1, 1, generator=torch.Generator().manual_seed(2))
        made(3 + 2 * images(20, seed=3))
    return made.eval()


@torch.no_grad()
def test_batches_equal_one_image_at_a_time_in_training_mode(model):
    x = images(6)
    alone = copy.deepcopy(model).train()
    wanted = torch.cat([alone(x[place : place + 1]) for place in range(len(x))])
    with per_image_statistics(model):
        together = model(x)
    torch.testing.assert_close(together, wanted, rtol=1e-10, atol=1e-12)
    assert (model(x) - wanted).abs().max() > 0.1  # evaluation mode is something else


@torch.no_grad()
def test_the_model_is_left_as_it_was(model):
    x, before = images(4), copy.deepcopy(model.state_dict())
    answer = model(x)
    with pytest.raises(RuntimeError, match="channels"), per_image_statistics(model):
        model(x[:, :2])  # fails inside the block
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(x), answer)
    assert not any("forward" in vars(module) for module in model.modules())


def test_maps_of_one_pixel_are_refused_as_torch_does():
    norm = nn.Sequential(nn.BatchNorm2d(3))
    with pytest.raises(ValueError, match="more than 1 value"):
        norm(torch.ones(1, 3, 1, 1))
    with pytest.raises(BadData, match="more than one pixel"), per_image_statistics(norm):
        norm(torch.ones(2, 3, 1, 1))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = TrainConfig(
        "resnet8:width=4",
        data="digits",
        noise="0.4",
        train_size=200,
        test_size=100,
        epochs=2,
        checkpoints="2",
    )
    return train(config, tmp_path_factory.mktemp("modes") / "run")


@pytest.fixture(scope="module")
def rows(run):
    found = both_modes(run, case="any", seed=0, checkpoints="last")
    return {(one["mode"], one["probe"], one["layer"]): one["value"] for one in found}


def test_evaluation_mode_gives_the_numbers_of_the_probe_grid(run, rows, tmp_path):
    """The grid is another way to the same features; its own tests know nothing of modes."""
    table = probe_grid(
        run, probes=["masc", "velpic"], fits=["given"], checkpoints="last", out=tmp_path / "p.parquet"
    )
    table = table[(table["split"] == "test") & (table["measure"] == "accuracy")]
    grid = {(one["probe"], one["layer"]): one["value"] for one in table.to_dict("records")}
    ours = {(probe, layer): value for (mode, probe, layer), value in rows.items() if mode == "eval"}
    shared = set(grid) & set(ours)
    assert {"masc", "velpic", "model"} == {probe for probe, _ in shared}
    assert {key: ours[key] for key in shared} == pytest.approx({key: grid[key] for key in shared}, abs=1e-12)


@pytest.mark.parametrize("mode", ["eval", "image"])
def test_the_edited_model_answers_as_velpic_of_its_mode(rows, mode):
    assert rows[mode, "edited", "output"] == pytest.approx(rows[mode, "velpic", "avg_pool"], abs=1e-12)


def test_the_modes_differ(rows):
    """Fails if the switch were never thrown."""
    assert any(rows["eval", probe, layer] != value for (_, probe, layer), value in rows.items())
