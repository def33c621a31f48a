"""Results in a folder or behind a URL: the same files, whole or not at all."""

from __future__ import annotations

import json
import sys

import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from undertow.cli import main
from undertow.engine import Engine, Store, run_tasks
from undertow.engine.result_place import open_place, refuse_other_version, results_folder, work_folder
from undertow.errors import BadValue, RunProblem
from undertow.stored.study_folder import read_study_facts


@pytest.fixture(params=["folder", "file URL", "memory"])
def out(request, tmp_path):
    """A place of results of each kind."""
    if request.param == "memory":
        yield f"memory://{tmp_path.name}/out"
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
    else:
        yield str(tmp_path / "out") if request.param == "folder" else (tmp_path / "out").as_uri()


def test_a_place_keeps_files(out):
    place = open_place(out, "under")
    assert place.names() == set()
    assert not place.exists("a")
    place.write("a", b"one")
    place.write("a", b"two")
    place.write("deep/b", b"three")
    assert place.read("a") == b"two"
    assert open_place(f"{out}/under/").read("deep/b") == b"three"
    assert "a" in place.names()
    place.remove("a")
    place.remove("a")
    assert "a" not in place.names()
    assert not place.exists("a")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_is_the_same_wherever_its_answers_lie(out, tasks, tmp_path, workers):
    """With two workers too: a process that wrote to its own memory:// would be alone with its answers."""
    store, todo = Store.under(out), [*tasks("square", 1, 2), *tasks("bad", 3)]
    engine = Engine(workers=workers)
    assert list(run_tasks(todo, store, workspace=tmp_path, engine=engine)) == [todo[2].key]
    assert store.rows(todo)["number"].tolist() == [1, 1, 2, 2]
    assert store.failure(todo[2]) == "no good. Try another."
    assert store.missing(todo) == todo[2:]
    assert run_tasks(todo[:2], store, workspace=tmp_path, engine=engine) == {}
    assert [(tmp_path / f"ran-{n}").read_text().count("\n") for n in (1, 2)] == [1, 1]


def test_results_appear_when_the_block_ends_well(out):
    with results_folder(out, "study/smoke") as folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rows.csv").write_text("a,b")
    assert open_place(out, "study/smoke").read("rows.csv") == b"a,b"


def test_half_of_the_results_are_not_uploaded():
    with pytest.raises(ZeroDivisionError), results_folder("memory://half/out", "study") as folder:  # noqa: PT012
        (folder / "rows.csv").write_text("a,b")
        _ = 1 / 0
    assert not open_place("memory://half/out", "study").exists("rows.csv")


def test_training_needs_a_folder(out, tmp_path, monkeypatch):
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    wanted = tmp_path / "cache" / "work" if out.startswith("memory") else tmp_path / "out"
    assert work_folder(out) == wanted


def test_results_of_another_version_are_not_overwritten(out):
    refuse_other_version(out, "study/smoke")
    place = open_place(out, "study/smoke")
    place.write("study.json", b'{"undertow": "0.0.9"}')
    with pytest.raises(
        RunProblem, match=r"holds results of undertow 0\.0\.9; undertow .* does not overwrite them"
    ):
        refuse_other_version(out, "study/smoke")
    place.write("study.json", b"torn")
    with pytest.raises(RunProblem, match="holds results that cannot be read"):
        refuse_other_version(out, "study/smoke")


@pytest.mark.parametrize("content", ["{}", "", "torn"])
def test_run_and_report_say_the_same_of_what_cannot_be_read(tmp_path, content):
    """Fails if the report says to run again and the run refuses to."""
    facts = tmp_path / "study" / "smoke" / "study.json"
    facts.parent.mkdir(parents=True)
    facts.write_text(content)
    todo = r"study\.json.* Delete that file and run the study again"
    with pytest.raises(RunProblem, match=todo):
        refuse_other_version(tmp_path, "study/smoke")
    with pytest.raises(RunProblem, match=todo):
        read_study_facts(facts.parent)
    facts.unlink()
    refuse_other_version(tmp_path, "study/smoke")


def test_a_mark_that_cannot_be_read_can_be_deleted(tmp_path):
    store = Store.under(tmp_path)
    store.place.write("store.json", b"")
    with pytest.raises(RunProblem, match=r"store\.json: .* Delete that file and run the study again"):
        store.claim()
    store.place.remove("store.json")
    store.claim()


def test_a_kind_of_url_that_nobody_knows_is_refused():
    with pytest.raises(BadValue, match=r"out: wanted a folder or a URL .* got 'nothing://x/tasks'"):
        Store.under("nothing://x").place  # noqa: B018


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(RunProblem, match=r"s3:// needs a package that is not here .*s3fs"):
        open_place("s3://bucket/out")


def test_a_place_that_fails_says_where(monkeypatch):
    def refuse(self, path, value, **options):
        raise PermissionError("access denied")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    with pytest.raises(RunProblem, match=r"Cannot write memory://shut/x \(PermissionError: access denied\)"):
        open_place("memory://shut/x").write("a", b"")


RUN = ["study", "run", "richness/target-scale", "--scale", "smoke"]


def test_a_study_can_write_to_a_url(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    assert main([*RUN, "--workers", "1", "--out", "memory://studies/mine"]) == 0
    assert "memory://studies/mine/richness/target-scale/smoke/figure.png" in capsys.readouterr().out
    place = open_place("memory://studies/mine", "richness/target-scale/smoke")
    wanted = {"study.json", "rows.parquet", "comparison.csv", "claims.json", "figure.png", "figure.svg"}
    assert wanted <= place.names()
    assert len(pd.read_parquet("memory://studies/mine/richness/target-scale/smoke/rows.parquet")) > 0
    assert list((tmp_path / "cache" / "work" / "runs").iterdir())

    facts = json.loads(place.read("study.json"))
    place.write("study.json", json.dumps({**facts, "undertow": "9.9"}).encode())
    assert main([*RUN, "--workers", "1", "--out", "memory://studies/mine"]) == 1
    assert "results of undertow 9.9" in capsys.readouterr().err
    assert json.loads(place.read("study.json"))["undertow"] == "9.9"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--engine", "rai"], "There is no engine 'rai'. Did you mean 'ray'?"),
        (["--memory", "much"], "memory: wanted a size like 2GB, 512MB or 1.5GiB, got 'much'."),
        (["--memory", "1kB"], "memory: wanted at least 400 MB for a task"),
        (["--address", "auto"], "address is a setting of the Ray engine. Add --engine ray"),
        (["--gpus", "1"], "gpus is a setting of the Ray engine. Add --engine ray"),
        (["--engine", "ray", "--cpus=-1"], "cpus: wanted 0 or more, got -1.0."),
        (["--workers=-1"], "workers: wanted 0 (chosen for you) or more, got -1."),
        (["--out", "nothing://x"], "out: wanted a folder or a URL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_settings_are_told_before_any_work(options, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*RUN, *options]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
