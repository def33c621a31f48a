"""undertow reads a neural network's training run from beneath.

    import undertow as ut

    recorder = ut.Recorder("runs/mine")                     # in anyone's own training loop
    recorder.save(model, epoch, test_accuracy=accuracy)

    run = ut.train(ut.TrainConfig(model="mlp", data="mnist", noise="0.4"), "runs/m40")
    run = ut.open_run("runs/m40")                           # or a folder of .pt/.pth/.ckpt/.safetensors
    run.model(20); run.metrics; run.data()

Importing undertow imports no torch: names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy
from undertow._version import __version__

if TYPE_CHECKING:
    from undertow.data.load import load_data
    from undertow.data.noise import LabelNoise
    from undertow.data.samples import DataSet, Samples
    from undertow.errors import UndertowError
    from undertow.models.build import build_model
    from undertow.train.config import TrainConfig
    from undertow.train.interventions import EditAt, FreezeAt, ReinitialiseAt
    from undertow.train.loop import train
    from undertow.train.record import Recorder
    from undertow.train.run import Run, open_run

__all__ = [
    "DataSet",
    "EditAt",
    "FreezeAt",
    "LabelNoise",
    "Recorder",
    "ReinitialiseAt",
    "Run",
    "Samples",
    "TrainConfig",
    "UndertowError",
    "__version__",
    "build_model",
    "load_data",
    "open_run",
    "train",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "DataSet": "undertow.data.samples",
        "EditAt": "undertow.train.interventions",
        "FreezeAt": "undertow.train.interventions",
        "LabelNoise": "undertow.data.noise",
        "Recorder": "undertow.train.record",
        "ReinitialiseAt": "undertow.train.interventions",
        "Run": "undertow.train.run",
        "Samples": "undertow.data.samples",
        "TrainConfig": "undertow.train.config",
        "UndertowError": "undertow.errors",
        "build_model": "undertow.models.build",
        "load_data": "undertow.data.load",
        "open_run": "undertow.train.run",
        "train": "undertow.train",
    },
)
