"""What the studies of weights and feature space measure: drift, trajectories, induction, the bound.

rows = drift(run, case="mlp", seed=0, first=150)
rows = plane(run, case="2-D features", seed=0, first=50)               # regions and trajectories
rows = perturbed(run, case="resnet", seed=0, cut="layer3", first=250)  # noise along the main directions
rows = bound(run, case="mlp", seed=0, at=250, reach=50)                # both sides of the theorems
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undertow.data.inputs import to_inputs
from undertow.data.samples import Samples
from undertow.errors import BadData
from undertow.features.stopping import evaluating
from undertow.features.stream import stream_features
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.studies.temporal.bound_sides import ClassSides, class_sides, overall_bound
from undertow.studies.temporal.bound_table import SURROGATES, bound_table, correlate_surrogates
from undertow.studies.temporal.composite_measures import some
from undertow.studies.temporal.induction import class_regions, directional_noise, region_share
from undertow.temporal.compose_split import capture, chain_after
from undertow.temporal.drift import feature_drift, feature_trajectories, parameter_drift
from undertow.temporal.matrix import composite_matrix
from undertow.training.run import Run

SHOWN, DOTS = 5, 6
"""Samples that figure 14 follows, and noisy points around each of their features."""


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


def drift(
    run: Run, *, case: str, seed: int, first: int, last: int, every: int = 1, samples: int = 200
) -> Rows:
    """How far weights and features at checkpoints from `first` to `last` lie from the last ones.

    The paper's number is |theta_last - theta_first| / |theta_last|.
    """
    times = [at for at in run.epochs if first <= at <= last and (last - at) % every == 0]
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


def induction(
    run: Run, *, case: str, seed: int, task: str, first: int, last: int, every: int = 1, samples: int
) -> Rows:
    """Regions and trajectories in the plane, or noise along the main directions of wide features."""
    times = [at for at in run.epochs if first <= at <= last and (last - at) % every == 0]
    if task == "plane":
        return plane(run, case=case, seed=seed, times=times, samples=samples)
    return perturbed(run, case=case, seed=seed, times=times, samples=samples, cut=cuts_of(run)[-1])


def _deep_part(run: Run, cut: str, at: int) -> nn.Module:
    deep = chain_after(run.model(at), cut)
    assert deep is not None  # our own networks are chains
    return deep


def plane(
    run: Run, *, case: str, seed: int, times: list[int], samples: int = 1000, resolution: int = 80
) -> Rows:
    """Features in the plane: regions of the last deep part, and whether earlier features lie in them."""
    few, cut = some(run.data().train, samples), cuts_of(run)[-1]
    deep = _deep_part(run, cut, times[-1])
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
    run: Run, *, case: str, seed: int, cut: str, times: list[int], samples: int = 500, size: float = 1.0
) -> Rows:
    """Noise along the two main directions of the features of `times`, classified by the last one's deep part."""
    few, deep = some(run.data().train, samples), _deep_part(run, cut, times[-1])
    maps = torch.stack([_maps_at(run, at, few, cut) for at in times])  # (T, N, ...)
    pooled = maps.flatten(0, 1)
    found = directional_noise(deep, pooled, size=size, draws=4, controls=8, seed=seed)
    rows = pooled.flatten(1).double()
    spread = float((rows - rows.mean(0)).square().mean().sqrt())
    where: dict[str, Any] = {"checkpoint": times[-1], "layer": cut, "n": len(pooled), "spread": spread}
    return [
        row("kept", found.kept, **where),
        row("kept_random", found.control, low=found.control_low, high=found.control_high, **where),
        *_noisy_rows(deep, maps[:, :SHOWN], found.directions, rows.mean(0), size, seed),
    ]


def _maps_at(run: Run, at: int, samples: Samples, cut: str) -> Tensor:
    """Features of a cut in their own shape, which its deep part wants."""
    model, inputs = run.model(at), to_inputs(samples.tensor, run.data().scaling)
    with evaluating(model):
        return torch.cat([capture(model, part, [cut])[0][cut] for part in inputs.split(256)])


def _noisy_rows(
    deep: nn.Module, maps: Tensor, directions: Tensor, centre: Tensor, size: float, seed: int
) -> Rows:
    """The paths of a few samples in the plane, and noisy points around them with the class that they get."""
    generator = torch.Generator().manual_seed(seed)
    rows: Rows = []
    for n in range(maps.shape[1]):
        for t in range(0, len(maps), max(1, len(maps) // 10)):
            noise = (torch.rand(DOTS + 1, 2, generator=generator, dtype=torch.float64) * 2 - 1) * size
            noise[0] = 0  # the feature itself
            moved = maps[t, n].double() + (noise @ directions).reshape(-1, *maps.shape[2:])
            places = (moved.flatten(1) - centre) @ directions.T
            with torch.no_grad():
                classes = deep(moved.to(maps.dtype)).argmax(1)
            rows += [
                row("dot", int(label), x=float(x), y=float(y), sample=n, position=t, noisy=place > 0)
                for place, (label, (x, y)) in enumerate(zip(classes.tolist(), places.tolist(), strict=True))
            ]
    return rows


def bound(
    run: Run, *, case: str, seed: int, at: int, reach: int, samples: int = 2000, permutations: int = 99
) -> Rows:
    """Both sides of the theorems at every cut, and the stand-ins for total variation."""
    import pandas as pd

    data, cuts = run.data(), cuts_of(run)
    train, test = some(data.train, samples), some(data.test, samples)
    times = [one for one in run.epochs if abs(one - at) <= reach]
    answers = composite_matrix(run, train, split="train", shallow=times, deep=[at])
    test_features, test_outputs = features_at(run, at, test, cuts)
    seen, tables, rows = (
        [features_at(run, one, train, cuts)[0] for one in times],
        list[pd.DataFrame](),
        Rows(),
    )
    own, said = answers.own(at), test_outputs.argmax(1)
    for place, cut in enumerate(cuts):
        sides = class_sides(answers.predictions[place, :, 0], train.y, own, test.y, said)
        rows += [{**one, "layer": cut, "checkpoint": at} for one in _sides_rows(sides)]
        stack = torch.stack([features[cut] for features in seen])  # (T, N, D)
        table = bound_table(
            stack, train.y, test_features[cut], test.y, own, said, permutations=permutations, seed=seed
        )
        tables.append(table.assign(layer=cut, checkpoint=at))
    return rows + _bound_rows(pd.concat(tables), seed)


def _sides_rows(sides: list[ClassSides]) -> Rows:
    """Left and right side of every class, and of all classes together."""
    rows: Rows = []
    for one in sides:
        values = {
            "seen": one.seen, "moved": one.moved, "delta": one.delta, "chain_holds": one.chain_holds,
            "as_printed": one.as_printed, "step_holds": one.step_holds, "right": one.seen + one.delta,
        }  # fmt: skip
        rows += [row(name, value, position=one.label, n=one.train_count) for name, value in values.items()]
    whole = overall_bound(sides)
    names = ("gap", "seen", "delta", "labels", "worst", "right")
    return [
        *rows,
        row("delta_all", sides[0].delta_all),
        *(row(f"overall_{name}", getattr(whole, name)) for name in names),
    ]


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
