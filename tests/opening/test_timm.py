"""What scripts like timm's and torchvision's leave."""

from __future__ import annotations

import argparse
import warnings

import pytest
import torch

import undertow as ut
from undertow.errors import BadValue, NotThere, RunProblem

from . import worlds


class Settings:
    """An object of somebody's own in a checkpoint."""


def test_tar_files_with_namespaces_open(timm):
    run = ut.open_run(timm, model=worlds.timm_net)
    assert (run.epochs, run.unit) == ((0, 1, 2), "epoch")
    assert run.hyperparameters()["model"] == "timm_net"
    x, y = worlds.digits()[3:]
    with torch.no_grad():
        right = float((run.model(2)(x).argmax(1) == y).float().mean())
    told = run.metrics.set_index("epoch")["eval_top1"]
    assert 100 * right == pytest.approx(told[2], abs=0.01)


def test_averaged_weights_can_be_asked_for(timm):
    own, average = (ut.open_run(timm, model=worlds.timm_net, weights=which) for which in ("own", "ema"))
    stored = torch.load(timm / "checkpoint-2.pth.tar", weights_only=False)
    assert torch.equal(own.weights(2)["3.weight"], stored["state_dict"]["module.3.weight"])
    assert torch.equal(average.weights(2)["3.weight"], stored["state_dict_ema"]["3.weight"])
    assert not torch.equal(own.weights(2)["3.weight"], average.weights(2)["3.weight"])
    assert own.mark(2) != average.mark(2)
    assert any("--weights ema" in note for note in own.notes)
    assert not any("--weights ema" in note for note in average.notes)


def test_torchvisions_layout(tmp_path):
    """model_ema is an AveragedModel's state: module. and n_averaged; training weights lie under model."""
    model = worlds.plain_net()
    average = torch.optim.swa_utils.AveragedModel(model)
    with torch.no_grad():
        next(average.parameters()).add_(1)
    for epoch in (0, 1):
        state = {
            "model": model.state_dict(),
            "model_ema": average.state_dict(),
            "args": argparse.Namespace(lr=0.1),
        }
        torch.save({**state, "epoch": epoch, "lr_scheduler": {}}, tmp_path / f"model_{epoch}.pth")
    torch.save(state, tmp_path / "checkpoint.pth")
    with pytest.warns(UserWarning, match="checkpoint.pth"):
        run = ut.open_run(tmp_path, model=worlds.plain_net)
    assert torch.equal(run.model(1)[1].weight, model[1].weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = ut.open_run(tmp_path, model=worlds.plain_net, weights="ema")
    assert torch.equal(other.model(1)[1].weight, average.module[1].weight)


def test_no_average_is_said(plain):
    with pytest.raises(BadValue, match=r"a checkpoint with averaged weights, got 'epoch_60\.pt'"):
        ut.open_run(plain, model=worlds.plain_net, weights="ema").model()


def test_what_needs_code_names_the_class_and_the_way_out(tmp_path):
    torch.save(
        {"state_dict": worlds.plain_net().state_dict(), "args": Settings()}, tmp_path / "epoch_1.pth.tar"
    )
    with pytest.raises(RunProblem, match=r"must run code.*Settings.*add_safe_globals\(\[Settings\]\)"):
        ut.open_run(tmp_path, model=worlds.plain_net).model()
    with torch.serialization.safe_globals([Settings]):
        ut.open_run(tmp_path, model=worlds.plain_net).model()


def test_nothing_is_passed_over_in_silence(tmp_path):
    """One file with a word in its name must not hide ten with bare numbers, nor the other way round."""
    state = worlds.plain_net().state_dict()
    torch.save(state, tmp_path / "kept_epoch30.pt")
    for number in range(10):
        torch.save(state, tmp_path / f"net_{number}.pt")
    assert ut.open_run(tmp_path).epochs == (*range(10), 30)
    (tmp_path / "old.pkl").write_bytes(b"")
    torch.save(state, tmp_path / "mine.pt")
    torch.save({}, tmp_path / "optimizer.pt")
    torch.save(state, tmp_path / "best.pt")
    with pytest.warns(
        UserWarning, match=r"old\.pkl \(undertow does not read \.pkl files\); mine\.pt \(its name"
    ):
        run = ut.open_run(tmp_path)
    assert {one.name for one in run.passed_over} == {"old.pkl", "mine.pt", "optimizer.pt", "best.pt"}
    assert "best.pt" in run.notes[0]


def test_a_pattern_that_fits_nothing_is_named(timm):
    with pytest.raises(NotThere, match=r"none of its \d+ checkpoints.*matches the pattern 'nothing_"):
        ut.open_run(timm, model=worlds.timm_net, pattern=r"nothing_(\d+)")
