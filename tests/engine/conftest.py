"""Tasks that processes anywhere on this machine can import."""

from __future__ import annotations

import os

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
