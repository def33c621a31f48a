"""What the studies of weights and feature space measure: drift, trajectories, induction, the bound.

rows = drift(run, case="mlp", seed=0, first=150)
rows = plane(run, case="2-D features", seed=0, first=50)               # regions and trajectories
rows = perturbed(run, case="mlp", seed=0, cut="layer2")
rows = bound(run, case="mlp", seed=0, first=50, checkpoints="100,200")
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undertow.data.inputs import to_inputs
from undertow.data.samples import Samples
from undertow.errors import BadData
from undertow.features.stream import stream_features
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.studies.temporal.bound_table import SURROGATES, bound_table, correlate_surrogates
from undertow.studies.temporal.composite_measures import some
from undertow.studies.temporal.induction import class_regions, directional_noise, region_share
from undertow.temporal.compose_split import chain_after
from undertow.temporal.drift import feature_drift, feature_trajectories, parameter_drift
from undertow.training.run import Run


def features_at(run: Run, at: int, samples: Samples, layers: list[str]) -> tuple[dict[str, Tensor], Tensor]:
    """Flattened features of layers at a checkpoint, and the model's outputs."""
    scaling = run.data().scaling
    batches = list(
        stream_features(
            run.model(at), samples.x, layers, prepare=lambda x: to_inputs(x, scaling), tokens="flatten"
        )
    )
    features = {name: torch.cat([batch.features[name] for batch in batches]) for name in layers}
    return features, torch.cat([batch.outputs for batch in batches])


def cuts_of(run: Run) -> list[str]:
    """The cuts that the run's model names itself."""
    return [str(cut) for cut in run.fresh().cuts]  # pyright: ignore[reportGeneralTypeIssues]


def drift(run: Run, *, case: str, seed: int, first: int, samples: int = 200) -> Rows:
    """How far weights and features at checkpoints from `first` on lie from the last ones.

    The paper's number is |theta_last - theta_first| / |theta_last|.
    """
    last, times = run.epochs[-1], [at for at in run.epochs if at >= first]
    end, rows = run.weights(last), Rows()
    for at in times:
        moved = parameter_drift(end, run.weights(at))
        rows.append(row("parameter_drift", moved.value, checkpoint=at, layer="all"))
        rows += [
            row("parameter_drift", value, checkpoint=at, layer=name) for name, value in moved.layers.items()
        ]
    cuts, few = cuts_of(run), some(run.data().test, samples)
    seen = [features_at(run, at, few, cuts)[0] for at in times]
    for cut in cuts:
        stack = [one[cut] for one in seen]
        moved = feature_drift(stack).to_reference
        rows += [
            row("feature_drift", value, checkpoint=at, layer=cut)
            for at, value in zip(times, moved, strict=True)
        ]
        rows += _trajectory_rows(torch.stack(stack), few, times, cut)
    return rows


def _trajectory_rows(features: Tensor, samples: Samples, times: list[int], cut: str) -> Rows:
    paths = feature_trajectories(features)
    rows = [
        row("explained", float(value), layer=cut, position=place)
        for place, value in enumerate(paths.explained)
    ]
    return rows + _path_rows(paths.points, samples, times, 60, layer=cut)


def _path_rows(points: Any, samples: Samples, times: list[int], shown: int, **where: Any) -> Rows:
    """Where the first samples are in the plane (T, N, 2)."""
    return [
        row("trajectory", float(points[t, n, 0]), y=float(points[t, n, 1]), **where, checkpoint=at, sample=n,
            label=int(samples.y[n]))
        for t, at in enumerate(times)
        for n in range(min(shown, len(samples)))
    ]  # fmt: skip


def induction(run: Run, *, case: str, seed: int, task: str, first: int, samples: int) -> Rows:
    """Regions and trajectories in the plane, or noise along the main directions of wide features."""
    if task == "plane":
        return plane(run, case=case, seed=seed, first=first, samples=samples)
    return perturbed(run, case=case, seed=seed, first=first, samples=samples, cut=cuts_of(run)[-1])


def _deep_part(run: Run, cut: str) -> nn.Module:
    deep = chain_after(run.model(), cut)
    assert deep is not None  # our own networks are chains
    return deep


def plane(run: Run, *, case: str, seed: int, first: int, samples: int = 1000, resolution: int = 80) -> Rows:
    """Features in the plane: regions of the last deep part, and whether earlier features lie in them."""
    times, few, cut = (
        [at for at in run.epochs if at >= first],
        some(run.data().train, samples),
        cuts_of(run)[-1],
    )
    deep = _deep_part(run, cut)
    paths = torch.stack([features_at(run, at, few, [cut])[0][cut] for at in times])  # (T, N, 2)
    seen = region_share(deep, paths, seed=seed)
    regions = class_regions(deep, paths.flatten(0, 1), resolution=resolution)
    rows = [
        row("region_share", seen.share),
        row("region_control", seen.control, low=seen.control_low, high=seen.control_high),
        row("region_p", seen.p),
    ]
    rows += [
        row("region", int(regions.classes[i, j]), x=float(x), y=float(y))
        for i, y in enumerate(regions.y)
        for j, x in enumerate(regions.x)
    ]
    return rows + _path_rows(paths, few, times, 100)


def perturbed(
    run: Run, *, case: str, seed: int, cut: str, first: int, samples: int = 500, size: float = 1.0
) -> Rows:
    """Noise along the two main directions of late features, classified by the last deep part."""
    times, few = [at for at in run.epochs if at >= first], some(run.data().train, samples)
    deep = _deep_part(run, cut)
    rows: Rows = []
    for at in times:
        features = features_at(run, at, few, [cut])[0][cut]
        spread = float(features.std(0).norm() / features.shape[1] ** 0.5)
        found = directional_noise(deep, features, size=size, seed=seed)
        where: dict[str, Any] = {"checkpoint": at, "layer": cut, "n": len(few), "spread": spread}
        rows += [
            row("kept", found.kept, **where),
            row("kept_random", found.control, low=found.control_low, high=found.control_high, **where),
        ]
    return rows


def bound(run: Run, *, case: str, seed: int, first: int, samples: int = 2000, permutations: int = 99) -> Rows:
    """Class-wise generalisation gap beside the stand-ins for total variation, at every cut."""
    import pandas as pd

    last, data = run.epochs[-1], run.data()
    train, test, cuts = some(data.train, samples), some(data.test, samples), cuts_of(run)
    times = [at for at in run.epochs if at >= first]
    seen = [features_at(run, at, train, cuts) for at in times]
    test_features, test_outputs = features_at(run, last, test, cuts)
    tables: list[pd.DataFrame] = []
    for cut in cuts:
        stack = torch.stack([features[cut] for features, _ in seen])  # (T, N, D)
        table = bound_table(
            stack, train.y, test_features[cut], test.y, seen[-1][1].argmax(1), test_outputs.argmax(1),
            permutations=permutations, seed=seed,
        )  # fmt: skip
        tables.append(table.assign(layer=cut, checkpoint=last))
    return _bound_rows(pd.concat(tables), seed)


def _bound_rows(table: Any, seed: int) -> Rows:
    rows: Rows = [
        row(
            name,
            float(line[name]),
            layer=line["layer"],
            checkpoint=line["checkpoint"],
            position=int(line["class"]),
        )
        for line in table.to_dict("records")
        for name in ("gap", *SURROGATES)
    ]
    return rows + [_correlation_row(table, name, seed) for name in SURROGATES]


def _correlation_row(table: Any, name: str, seed: int) -> dict[str, Any]:
    try:
        found = correlate_surrogates(table, [name], seed=seed).iloc[0]
    except BadData as reason:
        return row(f"correlation_{name}", None, note=str(reason))
    return row(f"correlation_{name}", found["rho"], low=found["low"], high=found["high"], p=found["p"])
