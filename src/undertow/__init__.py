"""undertow reads a neural network's training run from beneath.

    import undertow as ut

    recorder = ut.Recorder("runs/mine")                     # in anyone's own training loop
    recorder.save(model, epoch, test_accuracy=accuracy)

    run = ut.train(ut.TrainConfig(model="mlp", data="mnist", noise="0.4"), "runs/m40")
    run = ut.open_run("runs/m40")                           # or a folder of .pt/.pth/.ckpt/.safetensors
    run.model(20); run.metrics; run.data()

    table = ut.probe_grid(run)                              # what every layer knew at every checkpoint
    probe = ut.MASC(variance=0.99).fit(features, labels)    # scikit-learn estimators
    result = ut.audit(run); print(result.verdict)           # all lenses, and what follows from them
    ut.d_lr(features, outputs)                              # 0 rich, towards 1 lazy
    with ut.Tap(model, ["layer2", "blocks.*.mlp"]) as tap:  # features of any module
        outputs, features = tap(x)

Importing undertow imports no torch: names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy
from undertow._version import __version__

if TYPE_CHECKING:
    from undertow.audit.settings import AuditConfig
    from undertow.audit.work import audit
    from undertow.data.load import load_data
    from undertow.data.noise import LabelNoise
    from undertow.data.samples import DataSet, Samples
    from undertow.errors import UndertowError
    from undertow.features.moments import Moments
    from undertow.features.tap import Tap
    from undertow.latent.discriminant import LDA, QDA
    from undertow.latent.grid import probe_grid
    from undertow.latent.logistic import LogisticProbe
    from undertow.latent.masc import MASC
    from undertow.latent.nearest import KNN, NearestMean
    from undertow.latent.velpic import VeLPIC
    from undertow.models.build import build_model
    from undertow.repair.choice import choose_checkpoint
    from undertow.repair.export import load_graft
    from undertow.repair.labels import label_errors
    from undertow.repair.mend import repair
    from undertow.report.page import render
    from undertow.richness.alignment import d_lr, d_lr_from_moments
    from undertow.richness.collapse import neural_collapse
    from undertow.richness.dimension import effective_dimension
    from undertow.richness.eigenfunctions import spectrum
    from undertow.richness.intervals import d_lr_interval
    from undertow.richness.measure import measure_richness
    from undertow.richness.similarity import cka, parameter_norm, s_init
    from undertow.richness.streaming import DLR, NeuralCollapse
    from undertow.richness.tracker import RichnessTracker
    from undertow.temporal.compose_merge import compose
    from undertow.temporal.cuts import valid_cuts
    from undertow.temporal.matrix import composite_matrix
    from undertow.temporal.swap import swap_profile
    from undertow.train.config import TrainConfig
    from undertow.train.interventions import EditAt, FreezeAt, ReinitialiseAt
    from undertow.train.loop import train
    from undertow.train.record import Recorder
    from undertow.train.run import Run, open_run

__all__ = [
    "DLR",
    "KNN",
    "LDA",
    "MASC",
    "QDA",
    "AuditConfig",
    "DataSet",
    "EditAt",
    "FreezeAt",
    "LabelNoise",
    "LogisticProbe",
    "Moments",
    "NearestMean",
    "NeuralCollapse",
    "Recorder",
    "ReinitialiseAt",
    "RichnessTracker",
    "Run",
    "Samples",
    "Tap",
    "TrainConfig",
    "UndertowError",
    "VeLPIC",
    "__version__",
    "audit",
    "build_model",
    "choose_checkpoint",
    "cka",
    "compose",
    "composite_matrix",
    "d_lr",
    "d_lr_from_moments",
    "d_lr_interval",
    "effective_dimension",
    "label_errors",
    "load_data",
    "load_graft",
    "measure_richness",
    "neural_collapse",
    "open_run",
    "parameter_norm",
    "probe_grid",
    "render",
    "repair",
    "s_init",
    "spectrum",
    "swap_profile",
    "train",
    "valid_cuts",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "d_lr": "undertow.richness.alignment",
        "d_lr_from_moments": "undertow.richness.alignment",
        "d_lr_interval": "undertow.richness.intervals",
        "cka": "undertow.richness.similarity",
        "s_init": "undertow.richness.similarity",
        "parameter_norm": "undertow.richness.similarity",
        "neural_collapse": "undertow.richness.collapse",
        "effective_dimension": "undertow.richness.dimension",
        "spectrum": "undertow.richness.eigenfunctions",
        "DLR": "undertow.richness.streaming",
        "NeuralCollapse": "undertow.richness.streaming",
        "measure_richness": "undertow.richness.measure",
        "RichnessTracker": "undertow.richness.tracker",
        "DataSet": "undertow.data.samples",
        "EditAt": "undertow.train.interventions",
        "FreezeAt": "undertow.train.interventions",
        "KNN": "undertow.latent.nearest",
        "LDA": "undertow.latent.discriminant",
        "LabelNoise": "undertow.data.noise",
        "LogisticProbe": "undertow.latent.logistic",
        "MASC": "undertow.latent.masc",
        "Moments": "undertow.features.moments",
        "NearestMean": "undertow.latent.nearest",
        "QDA": "undertow.latent.discriminant",
        "Recorder": "undertow.train.record",
        "ReinitialiseAt": "undertow.train.interventions",
        "Run": "undertow.train.run",
        "Samples": "undertow.data.samples",
        "Tap": "undertow.features.tap",
        "TrainConfig": "undertow.train.config",
        "UndertowError": "undertow.errors",
        "VeLPIC": "undertow.latent.velpic",
        "build_model": "undertow.models.build",
        "load_data": "undertow.data.load",
        "open_run": "undertow.train.run",
        "probe_grid": "undertow.latent.grid",
        "train": "undertow.train",
        "audit": "undertow.audit",
        "AuditConfig": "undertow.audit.settings",
        "repair": "undertow.repair",
        "render": "undertow.report.page",
        "choose_checkpoint": "undertow.repair.choice",
        "label_errors": "undertow.repair.labels",
        "load_graft": "undertow.repair.export",
        "compose": "undertow.temporal.compose_merge",
        "composite_matrix": "undertow.temporal.matrix",
        "swap_profile": "undertow.temporal.swap",
        "valid_cuts": "undertow.temporal.cuts",
    },
)
