"""What Lightning's Trainer leaves."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

import undertow as ut
from undertow.errors import BadValue, NotThere

from . import worlds


def test_the_folder_the_checkpoints_and_what_is_above_open_alike(lightning):
    for place in (lightning, lightning / "checkpoints", lightning.parent):
        run = ut.open_run(place, model=worlds.lit_class())
        assert (run.epochs, run.unit) == ((0, 1, 2), "epoch")
        assert run.passed_over[0].name == "last.ckpt"
        assert "last.ckpt" in run.notes[0]


def test_metrics_and_hyperparameters(lightning):
    run = ut.open_run(lightning)
    table = pd.read_csv(lightning / "metrics.csv").groupby("epoch")["val_acc"].last()
    assert run.metrics.set_index("epoch")["val_acc"].to_dict() == pytest.approx(table.to_dict())
    assert run.hyperparameters() == {"width": 24, "lr": 3e-3}
    (lightning / "hparams.yaml").rename(lightning / "away.yaml")
    try:
        assert ut.open_run(lightning).hyperparameters() == {"width": 24, "lr": 3e-3}  # of the checkpoint
    finally:
        (lightning / "away.yaml").rename(lightning / "hparams.yaml")


def test_a_class_gets_its_hyperparameters(lightning):
    """Trained with width 24; the class alone would build width 16."""
    kind = worlds.lit_class()
    model = ut.open_run(lightning, model=kind).model(2)
    theirs = kind.load_from_checkpoint(next((lightning / "checkpoints").glob("epoch=2*")), weights_only=True)
    x = worlds.digits()[3]
    with torch.no_grad():
        torch.testing.assert_close(model(x), theirs.eval()(x))


def test_a_function_that_wants_more_is_told_so(lightning):
    with pytest.raises(BadValue, match="needs depth, which the run's hyper-parameters do not tell"):
        ut.open_run(lightning, model=lambda depth: None).model()


def test_a_function_that_ends_the_program_is_told(lightning):
    """Fails if its exit code becomes ours: 3 is the code of a gate."""

    def exits():
        raise SystemExit(3)

    with pytest.raises(BadValue, match=r"model function .*exits: .* got 'SystemExit'. It says: 3"):
        ut.open_run(lightning, model=exits).model()


def test_two_versions_are_named(lightning, tmp_path):
    for name in ("version_0", "version_1"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        torch.save({}, tmp_path / name / "checkpoints" / "epoch=0-step=1.ckpt")
    with pytest.raises(NotThere, match=r"holds 2 runs: .*version_0, .*version_1"):
        ut.open_run(tmp_path)


def test_scores_in_names_are_no_epochs(tmp_path):
    """Fails if 02-0.728.ckpt is taken for epoch 728: Lightning itself says which epoch each file is."""
    style = {"filename": "{epoch:02d}-{val_acc:.3f}", "auto_insert_metric_name": False}
    run = ut.open_run(worlds.lightning_run(tmp_path, **style))
    for one in run.checkpoints:
        assert torch.load(one.path, weights_only=True)["epoch"] == one.at
        assert "-0." in one.path.name
    assert run.epochs == (0, 1, 2)


def test_its_own_log_is_heeded(lightning, tmp_path):
    """Fails if samples that are fed otherwise than in training give a verdict without a word."""
    x, y, _, x2, y2 = worlds.digits()
    run = ut.open_run(lightning, model=worlds.lit_class())
    settings = {"quick": True, "lenses": ("richness",), "out": tmp_path}
    notes = {
        factor: " ".join(ut.audit(run, (factor * x, y), (factor * x2, y2), **settings).notes)
        for factor in (1, -1)
    }
    assert "Its own log says" not in notes[1]
    assert "(val_acc) at epoch 2, here it is" in notes[-1]
    told = ut.audit(run, (-x, y), (-x2, y2), **settings)
    assert "Note: Its own log says" in str(told)
    assert "Note: Its own log says" in told._repr_html_()
    assert "Note: Its own log says" in told.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
