"""Where a checkpoint's features are while probes are fitted: held in memory, or moving past.

    for layers, route in plan_groups(...)[0]:
        source = source_for(stream, train, test, layers, route, 10, room)       # Held, or Moving for a wide layer
        source.fit("layer2", {"given": labels}, ["masc", "velpic"])             # {("given", "masc"): probe, ...}
        source.fit_and_answer("layer2", {"given": labels}, ["masc"])            # and answers for both splits

Both give the same probes up to rounding; `plan_groups` chooses, so that the memory budget is kept to. `room` is what
fitting may take: see layer.py, which both call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from undertow.data.samples import Samples
from undertow.features.budget import Route, RouteKind, choose_route
from undertow.features.moments import Moments, MomentsAccumulator
from undertow.features.spill import FeatureStore
from undertow.features.stream import Batch
from undertow.latent.layer import (
    Answers,
    Key,
    Outcome,
    answer_layer,
    fit_and_answer,
    fit_layer,
    fit_moments,
    fit_stored,
)
from undertow.sizes import show_size

Stream = Callable[[Samples, Sequence[str]], Iterator[Batch]]
"""Features of samples at some layers, batch by batch."""

LabelSets = Mapping[str, Tensor]
"""Labels (N,) of the training samples, by name."""


class Source(Protocol):
    """Features of one checkpoint at one layer or more."""

    def fit(self, layer: str, label_sets: LabelSets, probes: Sequence[str]) -> dict[Key, Outcome]:
        """Fit each probe with each set of training labels."""
        ...

    def fit_and_answer(
        self, layer: str, label_sets: LabelSets, probes: Sequence[str]
    ) -> tuple[dict[Key, Outcome], dict[str, Answers]]:
        """The same, and what the probes predict for the samples of each split."""
        ...


class Held:
    """All features of some layers in memory, after one pass over each split."""

    def __init__(
        self, stream: Stream, train: Samples, test: Samples, layers: Sequence[str], classes: int, room: int
    ) -> None:
        self._classes, self._room = classes, room
        self._train, self._test = _hold(stream, train, layers), _hold(stream, test, layers)

    def fit(self, layer: str, label_sets: LabelSets, probes: Sequence[str]) -> dict[Key, Outcome]:
        """Fit each probe with each set of training labels."""
        return fit_layer(self._train[layer], label_sets, probes, classes=self._classes, room=self._room)

    def fit_and_answer(
        self, layer: str, label_sets: LabelSets, probes: Sequence[str]
    ) -> tuple[dict[Key, Outcome], dict[str, Answers]]:
        """The same, and what the probes predict for the samples of each split."""
        rows = self._train[layer]
        found, said = fit_and_answer(rows, label_sets, probes, classes=self._classes, room=self._room)
        return found, {"test": answer_layer(found, self._test[layer]), "train": said}


def _hold(stream: Stream, samples: Samples, layers: Sequence[str]) -> dict[str, Tensor]:
    held: dict[str, Tensor] = {}
    for batch in stream(samples, layers):
        for name, part in batch.features.items():
            if name not in held:
                held[name] = part.new_empty(len(samples), part.shape[1])
            held[name][batch.rows] = part
    return held


class Moving:
    """One layer that does not fit: moments or files of it, and the model run again for answers."""

    def __init__(
        self,
        stream: Stream,
        train: Samples,
        test: Samples,
        layer: str,
        route: RouteKind,
        classes: int,
        room: int,
    ) -> None:
        self._stream, self._splits = stream, {"test": test, "train": train}
        self._layer, self._route, self._classes, self._room = layer, route, classes, room

    def fit(self, layer: str, label_sets: LabelSets, probes: Sequence[str]) -> dict[Key, Outcome]:
        """Fit the probes that this route allows; the others answer with a reason."""
        if self._route == "moments":
            found: dict[Key, Outcome] = {}
            for moments in self._gathered(label_sets):
                found |= fit_moments(moments, probes, room=self._room)
            return found
        store = FeatureStore(self._layer, self._splits["train"].y, self._classes)
        try:
            for batch in self._batches("train"):
                store.write(batch.rows, batch.features[self._layer])
            parts = {
                fit: [store.rows(c, labels) for c in range(self._classes)]
                for fit, labels in label_sets.items()
            }
            return fit_stored(parts, probes, thin=self._route == "randomised", room=self._room)
        finally:
            store.close()

    def fit_and_answer(
        self, layer: str, label_sets: LabelSets, probes: Sequence[str]
    ) -> tuple[dict[Key, Outcome], dict[str, Answers]]:
        """The same, and what the probes predict, for which the model runs once more."""
        found = self.fit(layer, label_sets, probes)
        said: dict[str, Answers] = {}
        for split in self._splits:
            parts = [answer_layer(found, batch.features[self._layer]) for batch in self._batches(split)]
            said[split] = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        return found, said

    def _batches(self, split: str) -> Iterator[Batch]:
        return self._stream(self._splits[split], [self._layer])

    def _gathered(self, label_sets: LabelSets) -> Iterator[dict[str, Moments]]:
        """The moments of some sets of labels at a time: as many as there is room for, at least one."""
        left = dict(label_sets)
        while left:
            seen: dict[str, MomentsAccumulator] = {}
            for batch in self._batches("train"):
                part = batch.features[self._layer]
                seen = seen or self._accumulators(part, left)
                for fit, own in seen.items():
                    own.update(part, left[fit][batch.rows])
            yield {fit: own.compute() for fit, own in seen.items()}
            left = {fit: labels for fit, labels in left.items() if fit not in seen}

    def _accumulators(self, part: Tensor, left: LabelSets) -> dict[str, MomentsAccumulator]:
        dim, where = part.shape[1], f"layer {self._layer!r}"
        device = "cpu" if part.device.type == "mps" else part.device  # mps has no float64
        together = max(1, (self._room - 24 * dim**2) // (8 * self._classes * dim**2))
        return {
            fit: MomentsAccumulator(dim, self._classes, device=device, where=where)
            for fit in list(left)[:together]
        }


def source_for(
    stream: Stream,
    train: Samples,
    test: Samples,
    layers: Sequence[str],
    route: Route | None,
    classes: int,
    room: int,
) -> Source:
    """What one pass of `plan_groups` asks for."""
    if route is None:
        return Held(stream, train, test, layers, classes, room)
    return Moving(stream, train, test, layers[0], route.kind, classes, room)


Passes = list[tuple[tuple[str, ...], Route | None]]
"""Layers that are taken in one pass; the route of a layer that is not held in memory."""


def room_for_fits(budget: int, route: Route | None = None) -> int:
    """What is left of a memory budget for fitting: beside features, or beside what reading stored ones takes."""
    if route is None or route.kind == "moments":
        return budget - budget // 3
    return budget - route.estimate.total


def plan_groups(
    dims: Mapping[str, int], train: Samples, test: Samples, classes: int, budget: int, batch_size: int
) -> tuple[Passes, list[str]]:
    """Layers packed into passes that keep to the budget, and the plan in words.

    A pass holds its layers' features (route None); a layer that does not fit alone goes by a route of its own.
    A third of the budget is for features, the rest for what fitting them takes. The model, the samples and
    what Python and torch themselves take come on top.
    """
    sizes = {name: (len(train) + len(test)) * dim * 4 for name, dim in dims.items()}
    counts = _largest_counts(train, classes)
    passes: Passes = []
    words: list[str] = []
    packed: list[str] = []
    for name, dim in dims.items():
        if sizes[name] > budget // 3:
            route = choose_route(counts, dim, budget, batch_size=batch_size)
            passes.append(((name,), route))
            words.append(f"{name}: {route.reason}")
            continue
        if sum(sizes[one] for one in packed) + sizes[name] > budget // 3:
            passes.append((tuple(packed), None))
            packed = []
        packed.append(name)
    if packed:
        passes.append((tuple(packed), None))
    return passes, [*_held_words(passes, sizes), *words]


def _largest_counts(train: Samples, classes: int) -> list[int]:
    """Samples of each class by the given labels or, where those are more, by the true ones."""
    given = train.y.bincount(minlength=classes)
    if train.true is None:
        return given.tolist()
    return torch.maximum(given, train.true.bincount(minlength=classes)).tolist()


def _held_words(passes: Passes, sizes: Mapping[str, int]) -> list[str]:
    held = [layers for layers, route in passes if route is None]
    if not held:
        return []
    names = [name for layers in held for name in layers]
    often = "one pass" if len(held) == 1 else f"{len(held)} passes"
    total = show_size(sum(sizes[name] for name in names))
    return [f"{', '.join(names)}: {total} of features held in memory, in {often}"]
