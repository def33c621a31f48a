"""Features of any layer: taps, streams, mergeable moments, and stored features for wide layers.

    from undertow.features import Tap, gather_moments, stream_features

    with Tap(model, "auto") as tap:
        logits, features = tap(x)                            # layer name -> (N, D)
    moments = gather_moments(model, x, y, "auto", classes=10)  # layer name -> Moments, one pass
    choose_route([1000] * 10, dim=16384, budget="2GB").reason  # which side of the matrix, and why

Names are imported when they are first used; sizes and routes need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy

if TYPE_CHECKING:
    from undertow.features.budget import (
        Estimate,
        Route,
        choose_route,
        estimate_memory,
        plan_routes,
    )
    from undertow.features.joint import Joint
    from undertow.features.layers import resolve_layers, unwrap
    from undertow.features.moments import Moments, MomentsAccumulator, Spread, merge_all
    from undertow.features.processes import reduce_over_processes
    from undertow.features.spill import FeatureStore, StoredRows
    from undertow.features.stream import Batch, gather_moments, stream_features
    from undertow.features.tap import Tap
    from undertow.features.wide import Leading, Rows, TensorRows, gram, leading, project

__all__ = [
    "Batch",
    "Estimate",
    "FeatureStore",
    "Joint",
    "Leading",
    "Moments",
    "MomentsAccumulator",
    "Route",
    "Rows",
    "Spread",
    "StoredRows",
    "Tap",
    "TensorRows",
    "choose_route",
    "estimate_memory",
    "gather_moments",
    "gram",
    "leading",
    "merge_all",
    "plan_routes",
    "project",
    "reduce_over_processes",
    "resolve_layers",
    "stream_features",
    "unwrap",
]

_HOMES = {
    "budget": ("Estimate", "Route", "choose_route", "estimate_memory", "plan_routes"),
    "joint": ("Joint",),
    "layers": ("resolve_layers", "unwrap"),
    "moments": ("Moments", "MomentsAccumulator", "Spread", "merge_all"),
    "processes": ("reduce_over_processes",),
    "spill": ("FeatureStore", "StoredRows"),
    "stream": ("Batch", "gather_moments", "stream_features"),
    "tap": ("Tap",),
    "wide": ("Leading", "Rows", "TensorRows", "gram", "leading", "project"),
}

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
