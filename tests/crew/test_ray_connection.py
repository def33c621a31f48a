"""Joining Ray: whoever does not answer is told in time, who is slow is tried again, and nobody else is let in."""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from undertow.crew import ray_connection
from undertow.crew.ray_connection import IN_TIME, Unreachable, connected, dial_first
from undertow.errors import BadValue

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'undertow[ray]'")

PATIENCE = 300
"""Seconds for a process to start or to end, however busy the machine; nothing waits for them to pass."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_whoever_does_not_answer_is_told_in_time(tmp_path, monkeypatch):
    """A port that is closed or silent, and the file that a dead cluster left behind; Ray alone dials for minutes."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # lest a cluster that lives on this machine lets us in
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{free_port()}")

    def dial(address: str) -> tuple[str, float]:
        began = time.monotonic()
        with pytest.raises(Unreachable) as caught, connected(address):
            pass
        return str(caught.value), time.monotonic() - began

    with socket.socket() as door, ThreadPoolExecutor() as pool:
        door.bind(("127.0.0.1", 0))
        door.listen()
        silent, closed = f"127.0.0.1:{door.getsockname()[1]}", f"127.0.0.1:{free_port()}"
        addresses = ["auto", silent, closed, f"ray://{silent}", f"ray://{closed}"]
        for address, (words, seconds) in zip(addresses, pool.map(dial, addresses), strict=True):
            assert words.startswith(f"Cannot reach a Ray cluster at {address}: ")
            assert seconds < 2 * IN_TIME  # twice: five at once, and the machine may be busy


def test_dialling_survives_a_thread_that_sets_variables(monkeypatch):
    """Fails ("Bad address") where the child is started with the environment that the thread moves meanwhile."""
    monkeypatch.setattr(ray_connection, "LOAD", 0.3)
    done = threading.Event()

    def set_variables() -> None:
        names = [f"UNDERTOW_TEST_{number}" for number in range(200)]
        while not done.is_set():
            os.environ.update(dict.fromkeys(names, "x" * 50))
            for name in names:
                del os.environ[name]

    with ThreadPoolExecutor(1) as pool:
        pool.submit(set_variables)
        try:
            for _ in range(5):
                with pytest.raises(Unreachable, match="Cannot reach a Ray cluster"):
                    dial_first("127.0.0.1:1")
        finally:
            done.set()


@pytest.mark.parametrize("address", ["nowhere", "host:port", "ray://10.0.0.1"])
def test_an_address_that_is_none_is_refused(address):
    with (
        pytest.raises(BadValue, match="address: wanted auto, HOST:PORT or ray://HOST:PORT"),
        connected(address),
    ):
        pass


def test_without_ray_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FileNotFoundError, match=re.escape("pip install 'undertow[ray]'")), connected():
        pass


FAILED = "RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err."
DEAF = "ConnectionError: ray client connection timeout"
DIED = "psutil.ZombieProcess: PID still exists but it's a zombie (pid=5631)"


class BusyCluster:
    """Stands in for `ray.init` on a cluster whose server for us fails to start so many times."""

    def __init__(self, failures: int, said: str = FAILED) -> None:
        self.failures, self.said, self.calls = failures, said, 0

    def init(self, **settings: object) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionAbortedError(
                f"Initialization failure from server:\nTraceback (most recent call last):\n{self.said}\n"
            )


@pytest.fixture
def door():
    """A port that answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"ray://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("said", [FAILED, DIED, DEAF], ids=["slow", "died while it was looked at", "deaf"])
def test_a_client_server_that_does_not_start_is_tried_again(door, monkeypatch, said):
    cluster = BusyCluster(failures=2, said=said)
    monkeypatch.setattr("ray.init", cluster.init)
    monkeypatch.setattr(ray_connection, "PAUSE", 0)
    with connected(door):
        assert cluster.calls == 3


@pytest.mark.parametrize(("said", "step"), [(FAILED, 50), (DEAF, 8)], ids=["slow", "deaf"])
def test_what_kept_us_out_is_said_when_time_is_up(door, monkeypatch, said, step):
    cluster, seconds = BusyCluster(failures=1000, said=said), itertools.count(step=step)
    monkeypatch.setattr("ray.init", cluster.init)
    # A clock of its own: on a busy machine the first try alone may take all the time there is.
    monkeypatch.setattr(
        ray_connection, "time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    )
    reason = re.escape(said.removesuffix(".")) + r" \(tried 3 times\)"
    with pytest.raises(Unreachable, match=reason), connected(door):
        pass
    assert cluster.calls == 3  # 50, 100 and 150 of 120 seconds; 8, 16 and 24 of 20


def test_other_failures_are_told_at_once(door, monkeypatch):
    def refuse(**settings: object) -> None:
        raise RuntimeError("version mismatch")

    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(Unreachable, match=f"at {door}: version mismatch. "), connected(door):
        pass


LISTENERS = """
import json
from contextlib import suppress
from undertow.crew.ray_connection import connected, load_ray

ray, found = load_ray(), []
import psutil  # comes with ray
with connected():
    ray.get(ray.remote(lambda: 1).remote())
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found += [one.laddr.ip for one in process.net_connections("inet") if one.status == "LISTEN"]
print(json.dumps(found))
"""


def test_a_cluster_that_we_start_listens_on_loopback_only(monkeypatch):
    """Fails with Ray's own settings on Linux, where it listens on all interfaces."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", LISTENERS], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) >= 4
    assert {address.removeprefix("::ffff:") for address in found} <= {"127.0.0.1", "::1"}
