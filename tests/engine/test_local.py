"""Tasks run once, in this process or in a pool; a bad one stops no other."""

from __future__ import annotations

import os

import pandas as pd
import pytest

from undertow.engine.local import run_local
from undertow.engine.store import Store
from undertow.errors import BadData
from undertow.studies.task import Task

HERE = "undertow_engine_tasks"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that the processes of a pool can import too."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / f"{HERE}.py").write_text(
        """
import os
from pathlib import Path
from undertow.errors import BadData

def square(number, workspace):
    with (workspace / f"ran-{number}").open("a") as log:
        log.write(f"{os.getpid()}\\n")
    return [{"number": number, "square": number**2}, {"number": number, "extra": "x"}]

def bad(number, workspace):
    raise BadData("no good. Try another.")

def bug(number, workspace):
    return 1 / 0

def killed(number, workspace):
    os.kill(os.getpid(), 9)

def threads(number, workspace):
    import torch
    return [{"threads": torch.get_num_threads()}]
"""
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def tasks(name, *numbers):
    return [Task(f"{HERE}:{name}", {"number": number}, f"{name} {number}") for number in numbers]


@pytest.mark.parametrize("workers", [1, 2])
def test_finished_tasks_are_never_run_again(tmp_path, module, workers):
    store, todo = Store(tmp_path / "tasks"), tasks("square", 1, 2, 3)
    seen = []
    assert run_local(todo, store, workspace=tmp_path, workers=workers, watch=seen.append) == {}
    assert run_local([*todo, *tasks("square", 3, 4)], store, workspace=tmp_path, workers=workers) == {}
    assert [(tmp_path / f"ran-{n}").read_text().count("\n") for n in (1, 2, 3, 4)] == [1, 1, 1, 1]
    assert sorted(one.done for one in seen) == [1, 2, 3]
    assert {one.task.label for one in seen} == {"square 1", "square 2", "square 3"}


def test_rows_of_different_columns_are_all_kept(tmp_path, module):
    """Pyarrow alone would take the columns of the first row and drop the rest."""
    store, todo = Store(tmp_path / "tasks"), tasks("square", 5)
    run_local(todo, store, workspace=tmp_path)
    table = store.rows(todo)
    assert list(table.columns) == ["number", "square", "extra"]
    assert table["extra"].tolist()[1] == "x"
    assert store.seconds(todo) >= 0
    assert isinstance(store.rows(tasks("square", 99)), pd.DataFrame)


@pytest.mark.parametrize("workers", [1, 2])
def test_one_bad_task_stops_no_other(tmp_path, module, workers):
    store = Store(tmp_path / "tasks")
    todo = [*tasks("bad", 1), *tasks("bug", 1), *tasks("square", 1, 2)]
    failed = run_local(todo, store, workspace=tmp_path, workers=workers)
    assert failed == {
        todo[0].key: "no good. Try another.",
        todo[1].key: "ZeroDivisionError: division by zero",
    }
    assert store.failure(todo[0]) == "no good. Try another."
    assert store.has(todo[2])
    assert store.has(todo[3])


def test_a_failure_is_forgotten_when_the_task_succeeds(tmp_path, module):
    store, (task,) = Store(tmp_path / "tasks"), tasks("square", 1)
    store.fail(task, "once")
    run_local([task], store, workspace=tmp_path)
    assert store.failure(task) is None


def test_a_killed_process_is_said_and_the_rest_can_go_on(tmp_path, module):
    store = Store(tmp_path / "tasks")
    todo = [*tasks("killed", 1), *tasks("square", 1, 2)]
    failed = run_local(todo, store, workspace=tmp_path, workers=2)
    assert "killed" in failed[todo[0].key]
    assert run_local(todo[1:], store, workspace=tmp_path, workers=2) == {}
    assert len(store.rows(todo)) == 4


def test_a_pool_gives_each_process_one_thread(tmp_path, module):
    store, todo = Store(tmp_path / "tasks"), tasks("threads", 1, 2)
    run_local(todo, store, workspace=tmp_path, workers=2)
    assert store.rows(todo)["threads"].tolist() == [1, 1]


def test_user_errors_keep_their_words():
    from undertow.engine.store import failure_words

    assert failure_words(BadData("a: b.")) == "a: b."
    assert failure_words(KeyError("x")) == "KeyError: 'x'"
