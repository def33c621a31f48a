"""The same tasks on a real Ray cluster of two nodes, one of which is killed while it works."""

from __future__ import annotations

import json
import re
import secrets
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from undertow.cli import main
from undertow.crew.ray_connection import Unreachable, connected
from undertow.engine import Store
from undertow.engine.cluster import Caller, attempt_there

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'undertow[ray]'")

PATIENCE = 300
"""Seconds for a process to start or to end, however busy the machine; nothing waits for them to pass."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def logged(log: Path, word: str) -> list[list[str]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1:] for line in lines if line.startswith(word)]


def unfinished(log: Path, node: str) -> str | None:
    """The number that a node has begun and not ended."""
    begun, ended = (
        [number for number, there in logged(log, word) if there == node] for word in ("begin", "end")
    )
    return next((number for number in begun if number not in ended), None)


@pytest.fixture
def driver(tmp_path, task_folder):
    """Starts tasks in a process of its own: Ray reads its token when it is first imported."""
    started = []

    def start(todo, **settings):
        texts = [json.dumps(settings), json.dumps([task.to_dict() for task in todo])]
        command = [sys.executable, "-W", "error", task_folder / "driver.py", tmp_path, *texts]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def told(process: subprocess.Popen) -> dict:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return json.loads(out)


def test_a_cluster_of_this_machine_is_started_if_none_is_named(tmp_path, tasks, driver, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    todo = tasks("square", 1, 2)
    assert told(driver(todo, workers=2))["failed"] == {}
    assert Store(tmp_path / "tasks").rows(todo)["square"].dropna().tolist() == [1, 4]


def test_the_command_line_takes_an_address(tmp_path, capsys):
    command = ["study", "run", "richness/target-scale", "--scale", "smoke", "--out", str(tmp_path)]
    address = f"127.0.0.1:{free_port()}"
    assert main([*command, "--engine", "ray", "--address", address, "--cpus", "2", "--gpus", "0.5"]) == 1
    assert f"Cannot reach a Ray cluster at {address}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_node_works_where_it_can_see_the_callers_folder_else_in_its_own(tmp_path, tasks, monkeypatch):
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    (task,) = tasks("where", 1)
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / ".shared-abc").touch()

    def place(token):
        caller = Caller("0.1.0", str(shared), token, threads=1)
        return Path(attempt_there(task, caller).rows[0]["workspace"])

    assert place("abc") == shared
    assert place("other") == tmp_path / "cache" / "work"


def test_a_node_with_another_undertow_answers_nothing(tasks):
    answer = attempt_there(*tasks("where", 1), Caller("7.0", "/", "", threads=1))
    assert answer.rows == []
    assert "has undertow 0.1.0, the caller 7.0. Install the same on all nodes." in answer.error


def test_bad_tasks_stop_no_other_and_finished_ones_run_once(tmp_path, tasks, cluster, driver):
    store = Store(tmp_path / "tasks")
    done = tasks("square", 1)
    store.keep(*done, [{"number": 1}], 0.0)
    todo = [*tasks("bad", 1), *tasks("killed", 0), *tasks("square", 2), *tasks("threads", 1), *done]
    answer = told(driver(todo, address=cluster.address))
    failed = answer["failed"]
    assert failed[todo[0].key] == "no good. Try another."
    assert failed[todo[1].key].startswith("its process or node was lost 4 times (WorkerCrashedError")
    assert len(failed) == 2
    assert store.failure(todo[1]) == failed[todo[1].key]
    assert answer["done"] == [1, 2, 3, 4]
    assert (tmp_path / "ran-0").read_text().count("\n") == 4
    assert store.rows(todo[3:4])["threads"].tolist() == [1]
    assert (tmp_path / "ran-2").exists()
    assert not (tmp_path / "ran-1").exists()


def test_what_no_node_has_is_refused(tasks, cluster, driver):
    _, err = driver(tasks("square", 1), address=cluster.address, gpus=1).communicate(timeout=PATIENCE)
    assert "a task needs 1 CPU, 1 GPU, the largest node has 1 CPU, 0 GPU and" in err


def test_from_afar_by_the_client_address(tmp_path, tasks, cluster, driver):
    store, todo = Store(tmp_path / "tasks"), tasks("where", 1, 2)
    assert told(driver(todo, address=cluster.client))["failed"] == {}
    assert set(store.rows(todo)["workspace"]) == {str(tmp_path)}
    assert [one.name for one in tmp_path.iterdir()] == ["tasks"]  # no mark is left behind


def test_a_wrong_token_is_told(cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
    reason = re.escape("it refused our token. Set RAY_AUTH_MODE=token")
    with pytest.raises(Unreachable, match=reason), connected(cluster.address):
        pass


def test_a_whole_study_gives_the_same_rows_as_here(tmp_path, cluster):
    """Trained on the nodes, in the folder that they share with the caller."""
    tables = {}
    for name, options in {
        "ray": ["--engine", "ray", "--address", cluster.address],
        "here": ["--workers", "1"],
    }.items():
        out = tmp_path / name
        command = ["study", "run", "richness/target-scale", "--scale", "smoke", "--out", str(out), *options]
        done = subprocess.run(
            [sys.executable, "-m", "undertow", *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert list((out / "runs").iterdir())
        tables[name] = pd.read_parquet(out / "richness/target-scale/smoke/rows.parquet")
    pd.testing.assert_frame_equal(tables["ray"], tables["here"])


def test_a_killed_node_loses_and_doubles_nothing(tmp_path, tasks, cluster, driver):
    """The last test of the cluster: the second node is gone after it."""
    log, gate, store, count = tmp_path / "log", tmp_path / "gate", Store(tmp_path / "tasks"), 12
    todo = tasks("held_square", *range(count), free=4, gate=str(gate), log=str(log))
    process = driver(todo, address=cluster.address)
    deadline = time.monotonic() + PATIENCE
    lost = cluster.second.name
    while not (caught := unfinished(log, lost)) or len(logged(log, "end")) < 4:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    cluster.second.kill()
    gate.touch()

    assert told(process) == {"failed": {}, "done": list(range(1, count + 1))}
    rows = store.rows(todo)
    assert rows["number"].tolist() == list(range(count))
    assert rows["square"].tolist() == [number**2 for number in range(count)]
    assert len([name for name in store.place.names() if name.endswith(".parquet")]) == count
    # What the lost node was at when it was killed was done again by the other.
    assert unfinished(log, lost) == caught
    assert rows.set_index("number").loc[int(caught), "node"] == cluster.head.guard.pid
