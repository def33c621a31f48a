"""Running the tasks of studies: in this process, in a pool, or on a cluster.

from undertow.engine import Engine, Store, run_tasks

run_tasks(tasks, Store(out / "tasks"), workspace=out, engine=Engine(workers=2, memory="2GB"))
run_tasks(tasks, Store("s3://bucket/tasks"), workspace=out, engine=Engine("ray", address="auto"))
"""

from __future__ import annotations

from undertow.engine.engines import ENGINES, Engine, run_tasks
from undertow.engine.local import run_local
from undertow.engine.store import Store
from undertow.engine.sweep import Progress

__all__ = ["ENGINES", "Engine", "Progress", "Store", "run_local", "run_tasks"]
