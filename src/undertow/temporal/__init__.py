"""How shallow and deep layers fit across time: composites of checkpoints, and what is measured on them.

    from undertow.temporal import compose, composite_matrix, valid_cuts

    valid_cuts(model, x)                                      # where a network can be parted
    compose(model, shallow=state_10, deep=state_50, cut="layer2")
    found = composite_matrix(run)                             # all pairs of checkpoints at all cuts
    found.predictions, found.losses, found.table
    at = found.cut("layer2")
    matrix = consistency_matrix(found.predictions[at], found.deep)
    memory_window(matrix.values, matrix.checkpoints).trend    # does the memory window widen?
    swap_profile(early_late, late_early, early, late, cuts).reading        # where memorisation sits
    noise = sgd_noise(model, x, y, probe_x, cut="layer2")     # what one SGD step does to features
    isotropy_test(noise.delta[:, 0]).p
    bound_table(train_features, train_labels, ...)            # class-wise gaps beside distances of features

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy

if TYPE_CHECKING:
    from undertow.temporal.batchnorm import recalibrated
    from undertow.temporal.bound import bound_table, correlate_surrogates, omega_rows
    from undertow.temporal.compose_merge import compose
    from undertow.temporal.consistency import (
        ConsistencyMatrix,
        Pointwise,
        consistency_matrix,
        pointwise_consistency,
    )
    from undertow.temporal.cuts import explain_cuts, find_cut, find_cuts, valid_cuts
    from undertow.temporal.density import Density, consistency_density
    from undertow.temporal.drift import (
        Drift,
        FeatureDrift,
        Trajectories,
        feature_drift,
        feature_trajectories,
        parameter_drift,
    )
    from undertow.temporal.forgetting import Forgetting, find_forgetting
    from undertow.temporal.induction import (
        DirectionalNoise,
        Regions,
        RegionShare,
        class_regions,
        directional_noise,
        region_share,
    )
    from undertow.temporal.intervals import Interval, bootstrap_mean
    from undertow.temporal.isotropy import (
        Isotropy,
        NoiseSpectrum,
        covariance_spectrum,
        isotropy_statistic,
        isotropy_test,
    )
    from undertow.temporal.matrix import Composer, composite_matrices, composite_matrix
    from undertow.temporal.matrix_result import CompositeMatrix
    from undertow.temporal.memory import Memory, Relation, memory_levels
    from undertow.temporal.mmd import MmdTest, median_distance, mmd_squared, mmd_test
    from undertow.temporal.ranks import RankCorrelation, rank_correlation
    from undertow.temporal.robustness import (
        CorruptionError,
        corruption_error,
        corruption_errors,
        paired_difference,
    )
    from undertow.temporal.sgd_steps import SgdNoise, draw_batches, sgd_noise
    from undertow.temporal.swap import SwapProfile, swap_profile
    from undertow.temporal.two_sample import TvBound, tv_lower_bound
    from undertow.temporal.wasserstein import sliced_wasserstein, wasserstein_1d
    from undertow.temporal.welch import Welch, welch_by_cut, welch_test
    from undertow.temporal.window import MemoryWindow, Trend, memory_window

__all__ = [
    "Composer",
    "CompositeMatrix",
    "ConsistencyMatrix",
    "CorruptionError",
    "Density",
    "DirectionalNoise",
    "Drift",
    "FeatureDrift",
    "Forgetting",
    "Interval",
    "Isotropy",
    "Memory",
    "MemoryWindow",
    "MmdTest",
    "NoiseSpectrum",
    "Pointwise",
    "RankCorrelation",
    "RegionShare",
    "Regions",
    "Relation",
    "SgdNoise",
    "SwapProfile",
    "Trajectories",
    "Trend",
    "TvBound",
    "Welch",
    "bootstrap_mean",
    "bound_table",
    "class_regions",
    "compose",
    "composite_matrices",
    "composite_matrix",
    "consistency_density",
    "consistency_matrix",
    "correlate_surrogates",
    "corruption_error",
    "corruption_errors",
    "covariance_spectrum",
    "directional_noise",
    "draw_batches",
    "explain_cuts",
    "feature_drift",
    "feature_trajectories",
    "find_cut",
    "find_cuts",
    "find_forgetting",
    "isotropy_statistic",
    "isotropy_test",
    "median_distance",
    "memory_levels",
    "memory_window",
    "mmd_squared",
    "mmd_test",
    "omega_rows",
    "paired_difference",
    "parameter_drift",
    "pointwise_consistency",
    "rank_correlation",
    "recalibrated",
    "region_share",
    "sgd_noise",
    "sliced_wasserstein",
    "swap_profile",
    "tv_lower_bound",
    "valid_cuts",
    "wasserstein_1d",
    "welch_by_cut",
    "welch_test",
]

_HOMES = {
    "batchnorm": ("recalibrated",),
    "bound": ("bound_table", "correlate_surrogates", "omega_rows"),
    "compose_merge": ("compose",),
    "consistency": ("ConsistencyMatrix", "Pointwise", "consistency_matrix", "pointwise_consistency"),
    "cuts": ("explain_cuts", "find_cut", "find_cuts", "valid_cuts"),
    "density": ("Density", "consistency_density"),
    "drift": (
        "Drift",
        "FeatureDrift",
        "Trajectories",
        "feature_drift",
        "feature_trajectories",
        "parameter_drift",
    ),
    "forgetting": ("Forgetting", "find_forgetting"),
    "induction": (
        "DirectionalNoise",
        "Regions",
        "RegionShare",
        "class_regions",
        "directional_noise",
        "region_share",
    ),
    "intervals": ("Interval", "bootstrap_mean"),
    "isotropy": ("Isotropy", "NoiseSpectrum", "covariance_spectrum", "isotropy_statistic", "isotropy_test"),
    "matrix": ("Composer", "composite_matrices", "composite_matrix"),
    "matrix_result": ("CompositeMatrix",),
    "memory": ("Memory", "Relation", "memory_levels"),
    "mmd": ("MmdTest", "median_distance", "mmd_squared", "mmd_test"),
    "ranks": ("RankCorrelation", "rank_correlation"),
    "robustness": ("CorruptionError", "corruption_error", "corruption_errors", "paired_difference"),
    "sgd_steps": ("SgdNoise", "draw_batches", "sgd_noise"),
    "swap": ("SwapProfile", "swap_profile"),
    "two_sample": ("TvBound", "tv_lower_bound"),
    "wasserstein": ("sliced_wasserstein", "wasserstein_1d"),
    "welch": ("Welch", "welch_by_cut", "welch_test"),
    "window": ("MemoryWindow", "Trend", "memory_window"),
}

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
