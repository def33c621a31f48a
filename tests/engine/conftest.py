"""Tasks that processes anywhere on this machine can import."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from undertow.studies.task import Task

MODULE = "undertow_engine_tasks"
SOURCE = '''
import os
import time
from pathlib import Path
from undertow.errors import BadData

def square(number, workspace):
    with (workspace / f"ran-{number}").open("a") as log:
        log.write(f"{os.getpid()}\\n")
    return [{"number": number, "square": number**2}, {"number": number, "extra": "x"}]

def held_square(number, free, gate, log, workspace):
    """Says where it runs when it begins and when it ends; from number `free` on it waits until the gate is there.

    All processes of a node are one session.
    """
    node = os.getsid(0)
    with Path(log).open("a") as lines:
        lines.write(f"begin {number} {node}\\n")
    while number >= free and not Path(gate).exists():
        time.sleep(0.02)
    with Path(log).open("a") as lines:
        lines.write(f"end {number} {node}\\n")
    return [{"number": number, "square": number**2, "node": node}]

def bad(number, workspace):
    raise BadData("no good. Try another.")

def bug(number, workspace):
    return 1 / 0

def killed(number, workspace):
    with (workspace / f"ran-{number}").open("a") as log:
        log.write("x\\n")
    os.kill(os.getpid(), 9)

def dies_once(number, workspace):
    """As a task whose process the machine ended for another's sake."""
    mark = workspace / f"died-{number}"
    if not mark.exists():
        mark.touch()
        os._exit(3)
    return [{"number": number}]

def threads(number, workspace):
    import torch
    return [{"threads": torch.get_num_threads(), "told": int(os.environ["OMP_NUM_THREADS"])}]

def process(number, workspace):
    return [{"pid": os.getpid()}]

def where(number, workspace):
    return [{"workspace": str(workspace)}]

def unsendable(number, workspace):
    return [{"function": lambda: None}]

class Opens:
    """Can be sent, and not be made again where it arrives."""
    def __reduce__(self):
        return (open, ("/no/such/file/of/undertow",))

def unmakeable(number, workspace):
    return [{"file": Opens()}]

def untabled(number, workspace):
    return [{"mixed": 1}, {"mixed": {"a": 1}}]

def fill_with_torch(number, gigabytes, workspace):
    import torch
    return [{"sum": float(torch.ones(int(gigabytes * 250_000_000)).sum())}]

def fill_with_numpy(number, gigabytes, workspace):
    import numpy as np
    return [{"sum": float(np.ones(int(gigabytes * 125_000_000)).sum())}]

KEPT = []

def fill_and_keep(number, megabytes, workspace):
    """Leaves its process with less room than it found."""
    KEPT.append(bytearray(megabytes * 1_000_000))
    return [{"number": number}]
'''


DRIVER = "driver.py"
DRIVER_SOURCE = '''
"""Tasks on Ray as a user's script runs them; prints what came of it."""
import json
import sys
from pathlib import Path
from undertow.engine import Engine, Store, run_tasks
from undertow.studies.task import Task

if __name__ == "__main__":
    out, settings, todo = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
    done = []
    failed = run_tasks(
        [Task(**one) for one in todo], Store(out / "tasks"), workspace=out,
        engine=Engine("ray", **settings), watch=lambda told: done.append(told.done),
    )
    print(json.dumps({"failed": failed, "done": done}))
'''


@pytest.fixture(scope="session")
def task_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code")
    (folder / f"{MODULE}.py").write_text(SOURCE)
    (folder / DRIVER).write_text(DRIVER_SOURCE)
    return folder


@pytest.fixture
def tasks(task_folder, monkeypatch):
    """`tasks("square", 1, 2)`: tasks of a module that other processes can import too."""
    monkeypatch.syspath_prepend(task_folder)
    monkeypatch.setenv("PYTHONPATH", f"{task_folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def make(name, *numbers, **arguments):
        return [
            Task(f"{MODULE}:{name}", {"number": number, **arguments}, f"{name} {number}")
            for number in numbers
        ]

    return make


# ---------------------------------------------------------------------- a cluster of two nodes

PATIENCE = 300
"""Seconds for a process to start or to end, however busy the machine; nothing waits for them to pass."""


class Node:
    """`ray start --block` in a session of its own; it ends with this process, even if that is killed."""

    def __init__(self, log: Path, *options: str) -> None:
        # The shell tells the id, then waits until our end of its input closes: all of a node ends with that id.
        shell = '"$@" >"$0" 2>&1 & echo $!; read _; kill -9 $!'
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options]
        fixed = ["--num-cpus=1", "--object-store-memory=80000000", "--dashboard-agent-listen-port=0"]
        ports = ["--min-worker-port=0", "--max-worker-port=0"]
        self.log = log
        self.guard = subprocess.Popen(
            ["/bin/sh", "-c", shell, str(log), *command, *fixed, *ports],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.pid = int(self.guard.stdout.readline())

    def started(self, deadline: float) -> bool:
        """Wait until it says so; a node that gave up, or was not in time, has not."""
        while time.monotonic() < deadline and self.alive():
            if "Ray runtime started" in self.said():
                return True
            time.sleep(0.1)
        return False

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def alive(self) -> bool:
        """Whether its first process works; one that ended stays in the table until the shell ends."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    @property
    def name(self) -> str:
        """All its processes are one session."""
        return str(self.guard.pid)

    def kill(self) -> None:
        """As if its machine had lost power: all at once, each by its id."""
        every = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
        for pid in every:
            with suppress(ProcessLookupError):
                if pid != self.guard.pid and os.getsid(pid) == self.guard.pid:
                    os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        self.kill()
        self.guard.communicate(timeout=PATIENCE)


class TwoNodes:
    """A head and a second node of one CPU each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes = folder, []

    def start(self) -> None:
        self.head = self._start(self._head)
        self.second = self.join()

    def join(self, *options: str) -> Node:
        """One more node."""
        return self._start(lambda: [f"--address={self.address}", *options])

    def _head(self) -> list[str]:
        gcs, client = free_port(), free_port()
        self.address, self.client = f"127.0.0.1:{gcs}", f"ray://127.0.0.1:{client}"
        return [
            "--head", f"--port={gcs}", f"--ray-client-server-port={client}", "--node-ip-address=127.0.0.1",
            "--include-dashboard=false", f"--temp-dir={self.folder / 'ray'}",
        ]  # fmt: skip

    def restore(self) -> None:
        """A second node again, where a test has killed it; its name is another."""
        if not self.second.alive():
            self.second = self.join()

    def _start(self, options: Callable[[], list[str]]) -> Node:
        """A node that works; Ray gives its own processes half a minute, which a busy machine may not: then again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.nodes.append(Node(self.folder / f"node-{len(self.nodes)}.log", *options()))
            if self.nodes[-1].started(deadline):
                return self.nodes[-1]
            self.nodes[-1].end()
            if time.monotonic() > deadline:
                pytest.fail(f"a Ray node did not start:\n{self.nodes[-1].said()[-2000:]}")

    def end(self) -> None:
        for node in reversed(self.nodes):
            node.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def cluster(task_folder):
    """A cluster for each process of tests, whose ports, token and folder no other has.

    Head, node and driver need one token; Ray's sockets need a short path.
    """
    folder = Path(tempfile.mkdtemp(prefix="ut-"))
    token = secrets.token_hex(16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", token)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Twice Ray's own: a server for us that died is noticed then, and undertow asks for another.
        patch.setenv("RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S", "60")
        patch.setenv("PYTHONPATH", f"{task_folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        patch.delenv("RAY_ADDRESS", raising=False)
        two = TwoNodes(folder)
        try:
            two.start()
            yield two
        finally:
            two.end()
            shutil.rmtree(folder, ignore_errors=True)
