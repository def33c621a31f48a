"""An audit in real trackers, offline, read back with their own tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from digits import digits, network

import undertow as ut
from undertow.errors import BadValue
from undertow.integrations.trackers import log_audit, log_to


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> ut.Audit:
    folder = tmp_path_factory.mktemp("audit") / "run"
    with ut.Recorder(folder) as recorder:
        for epoch in range(3):
            recorder.save(network(), epoch)
    (x, given, _), test = digits()
    run = ut.open_run(folder, model=network)
    return ut.audit(
        run, (x[:200], given[:200]), (test[0][:100], test[1][:100]), lenses=["latent"], probes=["mean"]
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard(audited: ut.Audit, tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        log_audit(audited, writer)
        log_to(writer)({"undertow/d_lr": 0.5}, 7)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    name, value = next(iter(audited.measures.items()))
    assert events.Scalars(f"undertow/{name}")[0].value == pytest.approx(value)
    assert events.Scalars("undertow/d_lr")[0].step == 7
    assert "undertow/heat_map" in events.Tags()["images"]
    text = events.Tensors("undertow/table/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text.count("\n") == len(audited.table) + 1


def test_mlflow(audited: ut.Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        log_audit(audited, mlflow)
    found = mlflow.MlflowClient().get_run(run.info.run_id)
    for name, value in audited.measures.items():
        assert found.data.metrics[f"undertow/{name}"] == pytest.approx(value)
    folder = Path(found.info.artifact_uri.removeprefix("file://")) / "undertow"
    assert len(json.loads((folder / "table.json").read_text())["data"]) == len(audited.table)
    assert (folder / "heat_map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(audited: ut.Audit, tmp_path: Path):
    wandb = pytest.importorskip("wandb")
    run = wandb.init(
        mode="offline", dir=str(tmp_path), project="undertow", settings=wandb.Settings(silent=True)
    )
    log_audit(audited, run)
    summary = {name: run.summary[name] for name in run.summary.keys()}  # noqa: SIM118
    run.finish()
    assert all(
        summary[f"undertow/{name}"] == pytest.approx(value) for name, value in audited.measures.items()
    )
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert any(name.endswith(".table.json") for name in files)
    assert any(name.endswith(".png") for name in files)


def test_trackio(audited: ut.Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio", reason="trackio is not installed")
    run = trackio.init("undertow-test", embed=False)
    log_audit(audited, run)
    trackio.finish()
    assert any(tmp_path.rglob("*.db"))


def test_what_is_no_tracker_is_refused(audited: ut.Audit):
    with pytest.raises(BadValue, match="a TensorBoard SummaryWriter"):
        log_audit(audited, {})
