"""How rich the training was: did the network transform its features, or fit a readout on what it had?

    from undertow.richness import d_lr, d_lr_interval, measure_richness, neural_collapse, spectrum

    d_lr(features, outputs)                      # 0 = rich, towards 1 = lazy; tensors or arrays
    d_lr_interval(features, outputs).low         # where it would lie for many samples
    neural_collapse(features, labels).nc1        # how far the classes have collapsed
    spectrum(train, test, targets, outputs)      # which features express the target, and which are used
    measure_richness(model, x, y)                # all of it from one pass over the samples
    with RichnessTracker(model) as tracker:      # or from the batches that training runs anyway
        train_one_epoch(model, loader)
        tracker.compute().value

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy

if TYPE_CHECKING:
    from undertow.richness.alignment import (
        LowRank,
        d_lr,
        d_lr_from_moments,
        low_rank,
        low_rank_from_moments,
    )
    from undertow.richness.collapse import Collapse, neural_collapse, neural_collapse_from_moments
    from undertow.richness.dimension import effective_dimension, effective_dimension_from_moments
    from undertow.richness.eigenfunctions import Spectrum, spectrum
    from undertow.richness.head import last_layer
    from undertow.richness.intervals import Interval, d_lr_interval, jackknife
    from undertow.richness.measure import Richness, measure_richness
    from undertow.richness.pooled import Pooled, PooledAccumulator
    from undertow.richness.similarity import cka, parameter_norm, s_init
    from undertow.richness.streaming import DLR, NeuralCollapse
    from undertow.richness.tracker import RichnessTracker

__all__ = [
    "DLR",
    "Collapse",
    "Interval",
    "LowRank",
    "NeuralCollapse",
    "Pooled",
    "PooledAccumulator",
    "Richness",
    "RichnessTracker",
    "Spectrum",
    "cka",
    "d_lr",
    "d_lr_from_moments",
    "d_lr_interval",
    "effective_dimension",
    "effective_dimension_from_moments",
    "jackknife",
    "last_layer",
    "low_rank",
    "low_rank_from_moments",
    "measure_richness",
    "neural_collapse",
    "neural_collapse_from_moments",
    "parameter_norm",
    "s_init",
    "spectrum",
]

_HOMES = {
    "alignment": ("LowRank", "d_lr", "d_lr_from_moments", "low_rank", "low_rank_from_moments"),
    "collapse": ("Collapse", "neural_collapse", "neural_collapse_from_moments"),
    "dimension": ("effective_dimension", "effective_dimension_from_moments"),
    "eigenfunctions": ("Spectrum", "spectrum"),
    "head": ("last_layer",),
    "intervals": ("Interval", "d_lr_interval", "jackknife"),
    "measure": ("Richness", "measure_richness"),
    "pooled": ("Pooled", "PooledAccumulator"),
    "similarity": ("cka", "parameter_norm", "s_init"),
    "streaming": ("DLR", "NeuralCollapse"),
    "tracker": ("RichnessTracker",),
}

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
