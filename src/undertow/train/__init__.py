"""Training: the loop, checkpoint schedules, interventions, the recorder and the run's folder.

run = train(TrainConfig(model="mlp:256-256", data="digits", noise="0.4"), "runs/d40")
run = open_run("runs/d40")                  # or anyone's folder of checkpoints, with model=
recorder = Recorder("runs/mine")            # for anyone's own loop
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy, make_callable
from undertow.train.config import TrainConfig
from undertow.train.facts import RunFacts
from undertow.train.schedule import CheckpointSchedule

if TYPE_CHECKING:
    from undertow.train.interventions import EditAt, FreezeAt, Intervention, ReinitialiseAt
    from undertow.train.loop import Watcher, train
    from undertow.train.record import Recorder
    from undertow.train.run import Run, list_runs, open_run

__all__ = [
    "CheckpointSchedule",
    "EditAt",
    "FreezeAt",
    "Intervention",
    "Recorder",
    "ReinitialiseAt",
    "Run",
    "RunFacts",
    "TrainConfig",
    "Watcher",
    "list_runs",
    "open_run",
    "train",
]

make_callable(__name__)
__getattr__, __dir__ = lazy(
    __name__,
    {
        "EditAt": "undertow.train.interventions",
        "FreezeAt": "undertow.train.interventions",
        "Intervention": "undertow.train.interventions",
        "ReinitialiseAt": "undertow.train.interventions",
        "Recorder": "undertow.train.record",
        "Run": "undertow.train.run",
        "Watcher": "undertow.train.loop",
        "list_runs": "undertow.train.run",
        "open_run": "undertow.train.run",
        "train": "undertow.train.loop",
    },
)
