"""A whole file of another run, or the answer to another task: its seal fits, and it is refused all the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import undertow as ut
from undertow.cli import main
from undertow.engine.store import Store
from undertow.errors import ChangedFile, RunProblem
from undertow.files import aside
from undertow.labels.suspects import write_suspects
from undertow.stored.archives import seal_archive
from undertow.stored.documents import AuditDocument
from undertow.stored.door import read_document, write_document
from undertow.stored.tables import write_table
from undertow.studies.task import Task
from undertow.training.seal_again import seal_again

OTHERS = "belongs to another run than run.json"


def made(folder: Path, **settings) -> ut.Run:
    """A run with everything that a report is made from."""
    config = ut.TrainConfig(
        "mlp:12-12", data="digits", epochs=2, checkpoints="every:1", train_size=200, test_size=60, **settings
    )
    run = ut.train(config, folder)
    ut.audit(run, lenses="latent", probes="mean", fits="given")
    found = ut.label_errors(run, checkpoints="last", folds=2)
    pixels = run.data().train.x
    write_suspects(found, pixels, folder, owner=run.facts.id)
    ut.probe_grid(run, probes="mean", fits="given", checkpoints="last")
    return run


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("pair")
    made(place / "a", noise="0.4")
    made(place / "b", noise="0.2", seed=5)
    return place / "a", place / "b"


@pytest.fixture
def exchange(pair: tuple[Path, Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of the first run in which some files are the second's."""

    def put(*names: str) -> Path:
        run = Path(shutil.copytree(pair[0], tmp_path / "runs" / "a"))
        for name in names:
            shutil.copy(pair[1] / name, run / name)
        return run

    return put


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command that fails says, on one line."""
    assert main([str(word) for word in words]) != 0, words
    told = capsys.readouterr()
    return " ".join((told.out + told.err).split())


def told_of(names: str) -> str:
    """What is said of a file: that run.json was exchanged, the checkpoints tell."""
    return "run.json: it belongs to another run than the checkpoints" if names == "run.json" else OTHERS


READERS = {
    "metrics.parquet": (lambda run: ut.open_run(run).metrics, ("show", "report")),
    "labels.parquet": (lambda run: ut.open_run(run).labels, ()),
    "audit.json audit.parquet": (None, ("report",)),
    "suspects.parquet suspects.npz": (None, ("report",)),
    "run.json": (lambda run: ut.open_run(run).metrics, ("show", "report", "figure")),
}


@pytest.mark.parametrize("names", READERS)
def test_a_file_of_another_run_is_refused(exchange, capsys, names: str):
    """Fails if a seal alone is looked at: `report` told the other run's verdict under this one's name."""
    run, (read, verbs) = exchange(*names.split()), READERS[names]
    if read is not None:
        with pytest.raises(ChangedFile, match=told_of(names)):
            read(run)
    for verb in verbs:
        more = ("latent-dynamics",) if verb == "figure" else ()
        assert told_of(names) in fails(capsys, verb, run, *more), verb


def test_without_checkpoints_the_tables_tell_that_run_json_was_exchanged(exchange, capsys):
    run = exchange("run.json")
    shutil.rmtree(run / "checkpoints")
    assert OTHERS in fails(capsys, "report", run)


@pytest.mark.parametrize("name", ["metrics.parquet", "run.json"])
def test_a_list_names_the_run_and_hides_no_other(exchange, pair, capsys, name: str):
    run = exchange(name)
    shutil.copytree(pair[1], run.parent / "b")
    assert main(["runs", str(run.parent), "--json"]) == 0
    damaged, whole = capsys.readouterr().out.strip().splitlines()
    assert '"damaged"' in damaged
    assert told_of(name) in damaged
    assert '"finished"' in whole


def test_training_does_not_go_on_from_the_state_of_another_run(exchange):
    """Fails if weights and optimiser of the other are taken up in silence."""
    run = exchange("state.pt")
    with pytest.raises(RunProblem, match=f"state.pt: it {OTHERS}.*Delete it to train this run anew"):
        ut.train(ut.open_run(run).config, run, resume=True)
    (run / "state.pt").unlink()
    assert ut.train(ut.open_run(run).config, run, resume=True).metrics.shape[0] == 3


def recorded(folder: Path, epochs: int) -> Path:
    with ut.Recorder(folder) as recorder:
        for epoch in range(epochs):
            recorder.save(nn.Linear(2, 2), epoch, loss=float(epoch))
    return folder


def test_a_recorder_takes_no_rows_of_another_run(tmp_path: Path):
    """Fails if the table of a longer run makes this one longer."""
    one, longer = recorded(tmp_path / "one", 2), recorded(tmp_path / "longer", 4)
    shutil.copy(longer / "metrics.parquet", one / "metrics.parquet")
    for read in (lambda: ut.open_run(one).metrics, lambda: ut.Recorder(one)):
        with pytest.raises(ChangedFile, match=OTHERS):
            read()


def test_a_whole_run_may_be_copied_and_renamed(pair, tmp_path: Path, capsys):
    run = Path(shutil.copytree(pair[0], tmp_path / "elsewhere" / "renamed"))
    assert main(["report", str(run)]) == 0
    assert main(["show", str(run)]) == 0
    assert len(ut.open_run(run).labels) == 200
    assert main(["runs", str(run.parent)]) == 0
    assert "damaged" not in capsys.readouterr().out
    assert seal_again(run) == []


@pytest.mark.parametrize(
    "names",
    [
        (
            "metrics.parquet",
            "labels.parquet",
            "probes.parquet",
            "suspects.parquet",
            "suspects.npz",
            "state.pt",
        ),
        ("audit.json", "audit.parquet", "checkpoints/epoch-000001.safetensors"),
        ("run.json",),
    ],
)
def test_a_meant_exchange_is_taken_by_seal(exchange, capsys, names: tuple[str, ...]):
    """Fails if `undertow seal` leaves the mark of the other run in a file."""
    run = exchange(*names)
    found = {str(path.relative_to(run)) for path in seal_again(run)}
    if "run.json" not in names:
        assert found == set(names)
    assert seal_again(run) == []
    opened = ut.open_run(run)
    assert len(opened.metrics) == 3
    assert opened.labels is not None
    assert opened.weights(1)
    assert main(["report", str(run)]) == 0


def test_audits_kept_elsewhere_take_each_others_place(pair, tmp_path: Path):
    out = tmp_path / "out"
    for run in pair:
        ut.audit(ut.open_run(run), lenses="latent", probes="mean", fits="given", out=out)
        assert main(["report", str(out)]) == 0


def test_files_without_a_mark_are_read_as_before(exchange):
    """Those of older versions; fails if a mark is asked for."""
    run = exchange()
    write_table(run / "metrics.parquet", [{"epoch": 0, "test_accuracy": 0.5}])
    audit = read_document(run / "audit.json", AuditDocument)
    del audit["run_id"]
    write_document(run / "audit.json", audit)
    with aside(run / "state.pt") as part:
        shutil.copy(run / "state.pt", part)
        seal_archive(part)
    assert ut.open_run(run).metrics.iloc[0]["test_accuracy"] == 0.5
    assert ut.train(ut.open_run(run).config, run, resume=True)
    assert main(["report", str(run)]) == 0


def test_pictures_of_another_run_are_refused(exchange, pair, capsys):
    """With the table's own seal in them, so that the mark alone tells."""
    run = exchange("suspects.npz")
    with np.load(pair[0] / "suspects.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez_compressed(run / "suspects.npz", **arrays)
    seal_archive(run / "suspects.npz", owner=ut.open_run(pair[1]).facts.id)
    assert OTHERS in fails(capsys, "report", run)
    seal_archive(run / "suspects.npz", owner=ut.open_run(run).facts.id)
    assert main(["report", str(run)]) == 0


def test_a_state_that_was_sealed_twice_is_read_by_torch(exchange):
    """Fails if the second comment leaves letters of the first behind it."""
    run = exchange()
    for owner in ("a" * 64, "", "b" * 32):
        seal_archive(run / "state.pt", owner)
        assert torch.load(run / "state.pt", weights_only=True)["epoch"] == 2


def test_answers_of_two_tasks_are_not_exchanged(tmp_path: Path):
    """Fails if a file's name alone says whose answer it holds: the numbers of two tasks changed places."""
    store = Store(tmp_path)
    store.claim()
    tasks = [Task("operator:abs", {"number": number}) for number in (1, 2)]
    one, other = (tmp_path / f"{task.key}.parquet" for task in tasks)
    for task, value in zip(tasks, (1.0, 2.0), strict=True):
        store.keep(task, [{"value": value}], 3.0)
    assert store.rows(tasks)["value"].tolist() == [1.0, 2.0]
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    for ask in (store.rows, store.seconds):
        with pytest.raises(ChangedFile, match=r"belongs to another task\. Delete it: its task is run again"):
            ask(tasks[:1])
    one.unlink()
    assert store.missing(tasks) == tasks[:1]


def test_answers_of_before_the_marks_are_read(tmp_path: Path):
    store, task = Store(tmp_path), Task("operator:abs", {})
    store.claim()
    write_table(tmp_path / f"{task.key}.parquet", [{"value": 4.0}])
    assert store.rows([task])["value"].tolist() == [4.0]
