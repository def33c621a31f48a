"""What a layer knows: probes of its features, as scikit-learn estimators.

    from undertow.latent import MASC, VeLPIC, LogisticProbe, NearestMean, KNN, LDA, QDA

    probe = MASC(variance=0.99).fit(features, labels)     # (N, D) numpy or torch, CPU or GPU
    probe.score(test_features, test_labels)
    MASC().fit_moments(moments)                           # gathered in one pass, merged in any order

MASC and VeLPIC are the paper's probes; the logistic probe and the rest are its baselines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy

if TYPE_CHECKING:
    from undertow.latent.discriminant import LDA, QDA
    from undertow.latent.grid import probe_grid
    from undertow.latent.grid_config import GridConfig
    from undertow.latent.logistic import LogisticProbe
    from undertow.latent.masc import MASC
    from undertow.latent.nearest import KNN, NearestMean
    from undertow.latent.probe import Probe
    from undertow.latent.velpic import VeLPIC

__all__ = [
    "KNN",
    "LDA",
    "MASC",
    "QDA",
    "GridConfig",
    "LogisticProbe",
    "NearestMean",
    "Probe",
    "VeLPIC",
    "probe_grid",
]

_HOMES = {
    "discriminant": ("LDA", "QDA"),
    "grid": ("probe_grid",),
    "grid_config": ("GridConfig",),
    "logistic": ("LogisticProbe",),
    "masc": ("MASC",),
    "nearest": ("KNN", "NearestMean"),
    "probe": ("Probe",),
    "velpic": ("VeLPIC",),
}

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
