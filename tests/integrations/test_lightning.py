"""UndertowCallback in a real Lightning Trainer: loggers, monitors, resume, accumulation, two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from digits import digits, loader
from lightning_ddp import Normed

import undertow as ut
from undertow.errors import RunProblem
from undertow.integrations.lightning import UndertowCallback

pl = pytest.importorskip("lightning.pytorch")
pytestmark = pytest.mark.filterwarnings(
    "ignore::lightning.fabric.utilities.rank_zero.LightningDeprecationWarning",
    "ignore:.*does not have many workers.*",
    "ignore:.*GPU available.*",
    "ignore:.*number of training batches.*",
    "ignore:.*`isinstance.treespec.*",
    "ignore:.*Starting from v1.9.0.*",
    "ignore:.*exists and is not empty.*",
    "ignore::undertow.integrations.watch.MemorisationWarning",
)


def watcher(folder: Path, **settings: Any) -> UndertowCallback:
    (x, given, true), test = digits()
    own = {"keep": "every:2", "report": "none", "labels": False, **settings}
    return UndertowCallback(folder / "run", ut.Samples.of(x, given, true), test, **own)


def fit(
    folder: Path, callback: UndertowCallback, epochs: int, *, resume: Path | None = None, **more: Any
) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder}
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", log_every_n_steps=100,
        **{"logger": False, **quiet, **more, "callbacks": [callback, *more.get("callbacks", [])]},
    )  # fmt: skip
    trainer.fit(Normed(), loader(), ckpt_path=resume, weights_only=True if resume else None)
    return trainer


def test_numbers_go_through_the_loggers_and_to_monitors(tmp_path: Path):
    callback = watcher(tmp_path, report="quick")
    kept = pl.callbacks.ModelCheckpoint(
        tmp_path / "best", monitor="undertow/test_accuracy", mode="max", every_n_epochs=2
    )
    logger = pl.loggers.CSVLogger(tmp_path, "csv")
    trainer = fit(tmp_path, callback, 4, logger=logger, callbacks=[kept])
    table = pd.read_csv(tmp_path / "csv" / "version_0" / "metrics.csv")
    looks = table.dropna(subset="undertow/test_accuracy")
    assert list(looks["step"]) == [0, 24, 48], (
        "epochs 0, 2 and 4 of 12 steps each, in the trainer's own steps"
    )
    assert {"undertow/d_lr", "undertow/latent/body/masc", "undertow/train_wrong_fit"} <= set(table.columns)
    assert kept.best_model_score is not None
    assert float(kept.best_model_score) == pytest.approx(
        max(look.test.value for look in callback.watch.looks[1:])
    )
    run = ut.open_run(tmp_path / "run")
    assert run.epochs == (0, 2, 4)
    assert run.metrics["loss"].notna().sum() == 2, "what the module logged stands beside the checkpoints"
    assert (tmp_path / "run" / "report.html").exists()
    assert callback.watch.audit is not None
    for name, value in ut.open_run(tmp_path / "run", model=Normed).model(4).state_dict().items():
        assert torch.equal(value, trainer.model.state_dict()[name])


def test_resumed_training_goes_on_where_it_was(tmp_path: Path):
    """Fails if a state cannot be read with weights_only=True, or if looks are lost or doubled."""
    whole, first, second = (watcher(tmp_path / name) for name in ("whole", "part", "part"))
    fit(tmp_path, whole, 6)
    trainer = fit(tmp_path, first, 3)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]
    assert [one["at"] for key, own in state.items() if "Undertow" in key for one in own["looks"]] == [0, 2, 3]
    fit(tmp_path, second, 6, resume=tmp_path / "last.ckpt")
    assert [look.at for look in second.watch.looks] == [0, 2, 3, 4, 6]
    assert second.watch.looks[0].test == whole.watch.looks[0].test
    assert ut.open_run(tmp_path / "part" / "run").epochs == (0, 2, 3, 4, 6)
    with pytest.raises(RunProblem, match="holds a run already"):
        fit(tmp_path, watcher(tmp_path / "part"), 1)


def test_accumulated_batches_are_one_step(tmp_path: Path):
    callback = watcher(tmp_path, keep="every:2steps")
    fit(tmp_path, callback, 1, accumulate_grad_batches=3)  # 12 batches, 4 steps
    assert [look.at for look in callback.watch.looks] == [0, 2, 4]
    assert ut.open_run(tmp_path / "run").unit == "step"


def test_two_processes_see_what_one_would(tmp_path: Path):
    """Fails if a process waits for ever, if batch statistics of rank 1 are mixed in, or if ranks differ."""
    here = Path(__file__).parent
    env = os.environ | {
        "PYTHONPATH": f"{here}:{os.environ.get('PYTHONPATH', '')}",
        "PYTHONWARNINGS": "ignore",
    }
    subprocess.run(
        [sys.executable, here / "lightning_ddp.py", tmp_path],
        check=True,
        env=env,
        timeout=500,
        capture_output=True,
    )
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    assert first["looks"] == second["looks"]
    assert first["body"] != second["body"], "each process keeps its own statistics"
    assert first["steps"] == 12, "two processes share the batches"
    last = first["looks"]["looks"][-1]
    assert last["at"] == 2
    assert last["test"]["count"] == 401
    model = ut.open_run(tmp_path / "run", model=Normed).model(2)
    (x, given, true), test = digits()
    with torch.no_grad():
        hits = int((model(test[0]).argmax(1) == test[1]).sum() + (model(x[:1]).argmax(1) == true[:1]).sum())
        assert last["test"]["hits"] == hits
        assert last["latent"]["body"]["masc"] == pytest.approx(
            ut.MASC().fit(model.body(x), given).score(
                model.body(torch.cat([test[0], x[:1]])), torch.cat([test[1], true[:1]])
            )
        )  # fmt: skip
