"""Tasks run once, in this process or in a pool; a bad one stops no other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path

import pandas as pd
import pytest

from undertow.crew.limits import share_of_threads
from undertow.engine.engines import run_local
from undertow.engine.store import Store, failure_words
from undertow.errors import BadData, RunProblem


def lines(path):
    return path.read_text().count("\n")


@pytest.mark.parametrize("workers", [1, 2])
def test_finished_tasks_are_never_run_again(tmp_path, tasks, workers):
    store, todo = Store(tmp_path / "tasks"), tasks("square", 1, 2, 3)
    seen = []
    assert run_local(todo, store, workspace=tmp_path, workers=workers, watch=seen.append) == {}
    assert run_local([*todo, *tasks("square", 3, 4)], store, workspace=tmp_path, workers=workers) == {}
    assert [lines(tmp_path / f"ran-{n}") for n in (1, 2, 3, 4)] == [1, 1, 1, 1]
    assert sorted(one.done for one in seen) == [1, 2, 3]
    assert {one.task.label for one in seen} == {"square 1", "square 2", "square 3"}


def test_rows_of_different_columns_are_all_kept(tmp_path, tasks):
    """Pyarrow alone would take the columns of the first row and drop the rest."""
    store, todo = Store(tmp_path / "tasks"), tasks("square", 5)
    run_local(todo, store, workspace=tmp_path)
    table = store.rows(todo)
    assert list(table.columns) == ["number", "square", "extra"]
    assert table["extra"].tolist()[1] == "x"
    assert store.seconds(todo) >= 0
    assert isinstance(store.rows(tasks("square", 99)), pd.DataFrame)


def test_answers_can_be_read_while_others_run(tmp_path, tasks):
    store, todo, seen = Store(tmp_path / "tasks"), tasks("square", 1, 2, 3), []
    run_local(todo, store, workspace=tmp_path, watch=lambda told: seen.append(len(store.rows(todo))))
    assert seen == [2, 4, 6]


@pytest.mark.parametrize("workers", [1, 2])
def test_one_bad_task_stops_no_other(tmp_path, tasks, workers):
    store = Store(tmp_path / "tasks")
    todo = [*tasks("bad", 1), *tasks("bug", 1), *tasks("untabled", 1), *tasks("square", 1, 2)]
    failed = run_local(todo, store, workspace=tmp_path, workers=workers)
    assert failed[todo[0].key] == "no good. Try another."
    assert failed[todo[1].key] == "ZeroDivisionError: division by zero"
    assert "Arrow" in failed[todo[2].key]
    assert len(failed) == 3
    assert store.failure(todo[0]) == "no good. Try another."
    assert store.has(todo[3])
    assert store.has(todo[4])


def test_a_failure_is_forgotten_when_the_task_succeeds(tmp_path, tasks):
    store, (task,) = Store(tmp_path / "tasks"), tasks("square", 1)
    store.fail(task, "once")
    run_local([task], store, workspace=tmp_path)
    assert store.failure(task) is None


def test_a_task_that_kills_its_process_twice_fails_alone(tmp_path, tasks):
    """Fails with the standard library's pool, where all waiting tasks fail with the first death."""
    store = Store(tmp_path / "tasks")
    todo = [*tasks("killed", 0), *tasks("square", 1, 2, 3), *tasks("unsendable", 4)]
    failed = run_local(todo, store, workspace=tmp_path, workers=2)
    assert set(failed) == {todo[0].key, todo[4].key}
    assert failed[todo[0].key].startswith("its process died 2 times (SIGKILL: out of memory?)")
    assert "pickle" in failed[todo[4].key]
    assert lines(tmp_path / "ran-0") == 2
    assert [lines(tmp_path / f"ran-{n}") for n in (1, 2, 3)] == [1, 1, 1]
    assert len(store.rows(todo)) == 6


def test_rows_that_cannot_be_made_again_here_are_their_tasks_fault(tmp_path, tasks):
    """Fails if what goes wrong while an answer is read passes for the death of the process that gave it."""
    store, todo = Store(tmp_path / "tasks"), [*tasks("unmakeable", 0), *tasks("square", 1, 2)]
    failed = run_local(todo, store, workspace=tmp_path, workers=2)
    assert set(failed) == {todo[0].key}
    assert "/no/such/file/of/undertow" in failed[todo[0].key]
    assert len(store.rows(todo)) == 4


def test_a_full_disk_is_not_the_tasks_fault(tmp_path, tasks, monkeypatch):
    store, todo = Store(tmp_path / "tasks"), tasks("square", 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "keep", full)
        with pytest.raises(OSError, match="No space left"):
            run_local(todo, store, workspace=tmp_path, workers=1)
    assert store.failure(todo[0]) is None
    assert run_local(todo, store, workspace=tmp_path, workers=1) == {}


def test_a_process_that_dies_once_costs_nothing(tmp_path, tasks):
    store, todo = Store(tmp_path / "tasks"), tasks("dies_once", 1, 2)
    assert run_local(todo, store, workspace=tmp_path, workers=2) == {}
    assert store.rows(todo)["number"].tolist() == [1, 2]


def test_the_processes_of_a_pool_share_the_cores(tmp_path, tasks, monkeypatch):
    monkeypatch.setattr("undertow.crew.limits.cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    store, todo = Store(tmp_path / "tasks"), tasks("threads", 1, 2)
    run_local(todo, store, workspace=tmp_path, workers=2)
    found = store.rows(todo)
    assert found["told"].tolist() == [3, 3]
    assert set(found["threads"]) <= {1, 2, 3}  # the maths library takes no more than the machine has


def test_the_users_number_of_threads_is_the_most(monkeypatch):
    monkeypatch.setattr("undertow.crew.limits.cores", lambda: 6)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [share_of_threads(count) for count in (1, 2, 3, 6, 12)] == [2, 2, 2, 1, 1]
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert [share_of_threads(count) for count in (1, 2, 3, 6, 12)] == [6, 3, 2, 1, 1]


EARLY = """
import os, signal, sys
if "--multiprocessing-fork" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_does_not_reach_a_worker_that_loads(tmp_path, tasks, monkeypatch, capfd):
    """Fails if a worker learns to ignore it only after its imports: it ended with a traceback out of importlib."""
    (tmp_path / "sitecustomize.py").write_text(EARLY)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    store, todo = Store(tmp_path / "tasks"), tasks("square", 1, 2)
    assert run_local(todo, store, workspace=tmp_path, workers=2) == {}
    assert "Traceback" not in capfd.readouterr().err


def test_ctrl_c_while_workers_start_is_not_lost(tmp_path, tasks, monkeypatch):
    """Fails if the signal is ignored, not held back, while a process is started."""
    start = BaseProcess.start

    def interrupted(process):
        os.kill(os.getpid(), signal.SIGINT)
        start(process)

    monkeypatch.setattr(BaseProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_local(tasks("square", 1, 2), Store(tmp_path / "tasks"), workspace=tmp_path, workers=2)
    assert active_children() == []


def test_a_stopped_sweep_leaves_no_process(tmp_path, tasks):
    def stop(told):
        raise KeyboardInterrupt

    todo = tasks("process", *range(6))
    with pytest.raises(KeyboardInterrupt):
        run_local(todo, Store(tmp_path / "tasks"), workspace=tmp_path, workers=2, watch=stop)
    assert active_children() == []


def test_a_script_without_its_guard_is_told(tmp_path, tasks):
    """Each worker imports the script again; without the guard it would start workers of its own."""
    script = tmp_path / "script.py"
    script.write_text(
        f"""
from pathlib import Path
from undertow.engine.engines import run_local
from undertow.engine.store import Store
from undertow.studies.task import Task

todo = [Task("undertow_engine_tasks:process", {{"number": n}}) for n in range(3)]
run_local(todo, Store(Path({str(tmp_path)!r}) / "tasks"), workspace=Path({str(tmp_path)!r}), workers=2)
"""
    )
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 1
    assert "RunProblem: A worker process could not start (exit code 1)" in found.stderr
    assert "if __name__ == '__main__':" in found.stderr


MB = 1_000_000


@pytest.mark.parametrize("name", ["fill_with_torch", "fill_with_numpy"])
def test_a_task_over_its_memory_fails_with_a_sentence(tmp_path, tasks, name):
    store = Store(tmp_path / "tasks")
    todo = [*tasks(name, 1, gigabytes=0.7), *tasks(name, 2, gigabytes=0.1), *tasks("process", 3)]
    failed = run_local(todo, store, workspace=tmp_path, workers=1, memory=600 * MB)
    assert failed == {todo[0].key: "needed more than 600 MB; raise --memory."}
    assert store.rows(todo[2:])["pid"].item() != os.getpid()
    assert run_local(todo, store, workspace=tmp_path, workers=1, memory=1500 * MB) == {}


def test_a_full_process_does_not_fail_the_task_after(tmp_path, tasks):
    """Three tasks that each leave 0.3 GB behind do not fit one process of 1 GB; each fits a fresh one."""
    store, todo = Store(tmp_path / "tasks"), tasks("fill_and_keep", 1, 2, 3, megabytes=300)
    assert run_local(todo, store, workspace=tmp_path, workers=1, memory=1000 * MB) == {}
    assert len(store.rows(todo)) == 3


def test_a_later_form_of_the_store_is_refused_and_left_alone(tmp_path, tasks):
    store = Store(tmp_path / "tasks")
    store.place.write("store.json", b'{"format": 99, "undertow": "7.0"}')
    with pytest.raises(RunProblem, match=re.escape("got 99 (undertow 7.0). Update undertow")):
        run_local(tasks("square", 1), store, workspace=tmp_path)
    store.place.write("store.json", b"[]")
    with pytest.raises(RunProblem, match="wanted a JSON object, got an array"):
        run_local(tasks("square", 1), store, workspace=tmp_path)
    assert store.place.names() == {"store.json"}


def test_user_errors_keep_their_words():
    assert failure_words(BadData("a: b.")) == "a: b."
    assert failure_words(KeyError("x")) == "KeyError: 'x'"


ASKING = """
import sys
import time
from contextlib import suppress
from pathlib import Path
from undertow.engine.engines import run_local
from undertow.engine.store import Store
from undertow.studies.task import Task

if __name__ == "__main__":
    place = Path(sys.argv[1])
    held = {"free": 0, "gate": str(place / "never"), "log": str(place / "log")}
    tasks = [Task(function=sys.argv[2], arguments={"number": n, **held}) for n in (1, 2)]
    run_local(tasks, Store(place / "tasks"), workspace=place, workers=2)
"""


def group_of(leader: int) -> list[str]:
    """The states of the live processes in a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(group) == leader and state != "Z":
                found.append(state)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc to see which processes live")
def test_a_killed_sweep_leaves_no_workers_behind(tmp_path, tasks):
    """Fails if workers go on with a task whose answer nobody will hear; it may take hours."""
    (tmp_path / "asking.py").write_text(ASKING)
    name = tasks("held_square", 1)[0].function
    asking = subprocess.Popen(
        [sys.executable, tmp_path / "asking.py", tmp_path, name], start_new_session=True
    )
    log = tmp_path / "log"
    try:
        wait_for(lambda: log.exists() and lines(log) == 2)
        asking.kill()
        asking.wait()
        wait_for(lambda: not group_of(asking.pid))
    finally:
        with suppress(ProcessLookupError):  # what should have ended by itself
            os.killpg(asking.pid, signal.SIGKILL)


def wait_for(happened):
    """Asked for, not slept for; the limit is for a machine that hangs."""
    late = time.monotonic() + 600
    while not happened():
        assert time.monotonic() < late, "it does not happen"
        time.sleep(0.02)
