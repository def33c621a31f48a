"""Running studies and their tasks: in this process, in a pool, or on a cluster.

from undertow.engine import Engine, Store, run_study, run_tasks

run_study("richness/target-scale", "smoke", out="studies")
run_tasks(tasks, Store(out / "tasks"), workspace=out, engine=Engine(workers=2, memory="2GB"))
run_tasks(tasks, Store("s3://bucket/tasks"), workspace=out, engine=Engine("ray", address="auto"))
"""

from __future__ import annotations

from undertow.crew.engine import ENGINES, Engine
from undertow.engine.engines import run_local, run_tasks
from undertow.engine.store import Store
from undertow.engine.study_runner import check_studies, minutes_left, run_study
from undertow.engine.sweep import SweepProgress

__all__ = [
    "ENGINES",
    "Engine",
    "Store",
    "SweepProgress",
    "check_studies",
    "minutes_left",
    "run_local",
    "run_study",
    "run_tasks",
]  # fmt: skip
