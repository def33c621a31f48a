"""Where a checkpoint's features are while probes are fitted: held in memory, or moving past.

    source = Held(stream, train, test, layers, 10, room)         # one pass over each split, all after from memory
    source = Moving(stream, train, test, layer, route, 10, room) # a wide layer: moments or files; scored again later
    probes = source.fit("layer2", labels, ["masc", "velpic"])      # name -> a fitted probe or a reason
    for rows, features in source.blocks("layer2", "test"):
        ...

Both give the same probes up to rounding; `plan_groups` chooses, so that the memory budget is kept to. `room` is what
fitting may take: a probe whose matrices need more answers with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from torch import Tensor

from undertow.data.samples import Samples
from undertow.errors import BadData
from undertow.features.budget import Route, RouteKind, choose_route
from undertow.features.moments import Moments, MomentsAccumulator
from undertow.features.spill import FeatureStore
from undertow.features.stream import Batch
from undertow.latent.discriminant import LDA, QDA
from undertow.latent.logistic import LogisticProbe
from undertow.latent.masc import MASC
from undertow.latent.nearest import KNN, NearestMean
from undertow.latent.probe import MomentsProbe, Probe, class_means
from undertow.latent.velpic import VeLPIC
from undertow.sizes import show_size

PROBES: Mapping[str, Callable[[], Probe]] = {
    "masc": MASC,
    "velpic": VeLPIC,
    "logistic": LogisticProbe,
    "mean": NearestMean,
    "knn": KNN,
    "lda": LDA,
    "qda": QDA,
}
"""The probes of the grid by name, with the paper's settings."""

Stream = Callable[[Samples, Sequence[str]], Iterator[Batch]]
"""Features of samples at some layers, batch by batch."""

Outcome = Probe | str
"""A fitted probe, or why there is none."""


class Source(Protocol):
    """Features of one checkpoint at one layer or more."""

    def fit(self, layer: str, labels: Tensor, probes: Sequence[str]) -> dict[str, Outcome]:
        """Fit the probes with one set of training labels (N,)."""
        ...

    def blocks(self, layer: str, split: str) -> Iterator[tuple[slice, Tensor]]:
        """Rows and features (N, D) of a split, in order."""
        ...

    def close(self) -> None:
        """Let go of memory and files."""
        ...


def _attempt(fit: Callable[[], Probe]) -> Outcome:
    """A probe that these features do not allow is a reason in the table, not the end of the grid."""
    try:
        return fit()
    except BadData as error:
        return str(error)


def fit_layer(
    rows: Tensor, label_sets: Mapping[str, Tensor], probes: Sequence[str], *, classes: int, room: int
) -> dict[tuple[str, str], Outcome]:
    """The probes fitted with each set of labels, by (labels, probe)."""
    found: dict[tuple[str, str], Outcome] = {}
    for fit, labels in label_sets.items():
        labels = labels.to(rows.device)
        own: dict[str, Outcome] = {}
        for name in [one for one in PROBES if one in probes]:
            probe, subspaces = PROBES[name](), own.get("masc")
            if reason := _no_room(name, probe, len(rows), rows.shape[1], classes, room):
                own[name] = reason
            elif isinstance(probe, VeLPIC) and isinstance(subspaces, MASC):
                own[name] = _velpic_of(probe, subspaces, rows, labels)
            else:
                own[name] = _attempt(partial(probe.fit, rows, labels))
        found |= {(fit, name): one for name, one in own.items()}
    return found


class Held:
    """All features of some layers in memory, after one pass over each split."""

    def __init__(
        self, stream: Stream, train: Samples, test: Samples, layers: Sequence[str], classes: int, room: int
    ) -> None:
        self._classes, self._room = classes, room
        self._features = {"train": _hold(stream, train, layers), "test": _hold(stream, test, layers)}

    def fit(self, layer: str, labels: Tensor, probes: Sequence[str]) -> dict[str, Outcome]:
        """Fit the probes with one set of training labels."""
        rows = self._features["train"][layer]
        labels = labels.to(rows.device)
        found: dict[str, Outcome] = {}
        for name in probes:
            probe, subspaces = PROBES[name](), found.get("masc")
            if reason := _no_room(name, probe, len(rows), rows.shape[1], self._classes, self._room):
                found[name] = reason
            elif isinstance(probe, VeLPIC) and isinstance(subspaces, MASC):
                found[name] = _velpic_of(probe, subspaces, rows, labels)
            else:
                found[name] = _attempt(partial(probe.fit, rows, labels))
        return found

    def blocks(self, layer: str, split: str) -> Iterator[tuple[slice, Tensor]]:
        """All rows at once."""
        rows = self._features[split][layer]
        yield slice(0, len(rows)), rows

    def close(self) -> None:
        """Forget the features."""
        self._features = {}


def _velpic_of(probe: VeLPIC, subspaces: MASC, rows: Tensor, labels: Tensor) -> Probe:
    """VeLPIC's vectors are the first directions of MASC's subspaces: no second eigenproblem."""
    names, index, counts = labels.unique(return_inverse=True, return_counts=True)
    return probe.fit_bases(subspaces.bases_, class_means(rows, index, counts), counts, names)


def _hold(stream: Stream, samples: Samples, layers: Sequence[str]) -> dict[str, Tensor]:
    held: dict[str, Tensor] = {}
    for batch in stream(samples, layers):
        for name, part in batch.features.items():
            if name not in held:
                held[name] = part.new_empty(len(samples), part.shape[1])
            held[name][batch.rows] = part
    return held


class Moving:
    """One layer that does not fit: moments or files of it, and the model run again for scores."""

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
        self._room = room
        self._stream, self._splits = stream, {"train": train, "test": test}
        self._layer, self._route, self._classes = layer, route, classes
        self._store: FeatureStore | None = None

    def fit(self, layer: str, labels: Tensor, probes: Sequence[str]) -> dict[str, Outcome]:
        """Fit the probes that this route allows; the others answer with a reason."""
        return (self._from_moments if self._route == "moments" else self._from_store)(labels, probes)

    def blocks(self, layer: str, split: str) -> Iterator[tuple[slice, Tensor]]:
        """Run the model once more, batch by batch."""
        for batch in self._stream(self._splits[split], [self._layer]):
            yield batch.rows, batch.features[self._layer]

    def close(self) -> None:
        """Remove the files."""
        if self._store is not None:
            self._store.__exit__(None, None, None)
            self._store = None

    def _from_moments(self, labels: Tensor, probes: Sequence[str]) -> dict[str, Outcome]:
        moments = self._gather(labels)
        found: dict[str, Outcome] = {}
        for name in probes:
            probe = PROBES[name]()
            short = _no_room(name, probe, moments.count, moments.dim, self._classes, self._room)
            if not isinstance(probe, MomentsProbe):
                found[name] = _needs_rows(name)
            else:
                found[name] = short or _attempt(partial(probe.fit_moments, moments))
        return found

    def _gather(self, labels: Tensor) -> Moments:
        seen: MomentsAccumulator | None = None
        for rows, part in self.blocks(self._layer, "train"):
            where = f"layer {self._layer!r}"
            seen = seen or MomentsAccumulator(part.shape[1], self._classes, device=part.device, where=where)
            seen.update(part, labels[rows].to(part.device))
        assert seen is not None  # a split is never empty
        return seen.compute()

    def _from_store(self, labels: Tensor, probes: Sequence[str]) -> dict[str, Outcome]:
        store = self._stored()
        parts = [store.rows(self._layer, c, labels=labels) for c in range(self._classes)]
        found: dict[str, Outcome] = {}
        for name in probes:
            probe = PROBES[name]()
            fits = isinstance(probe, MASC | VeLPIC | NearestMean)
            found[name] = _attempt(partial(probe.fit_rows, parts)) if fits else _needs_rows(name)
        return found

    def _stored(self) -> FeatureStore:
        """The training features on disk, written in the first pass."""
        if self._store is None:
            self._store = FeatureStore(self._splits["train"].y, self._classes).__enter__()
            for rows, part in self.blocks(self._layer, "train"):
                self._store.write(rows, {self._layer: part})
        return self._store


def _needs_rows(name: str) -> str:
    return f"{name} needs the layer's features in memory; give more --memory or fewer --samples"


def _no_room(name: str, probe: Probe, count: int, dim: int, classes: int, room: int) -> str:
    """Why the probe cannot be fitted within `room` bytes; empty if it can."""
    need = probe.fit_bytes(count, dim, classes) if isinstance(probe, LDA | QDA) else 0
    if need <= room:
        return ""
    return (
        f"{name} needs {show_size(need)} for the matrices of a layer of width {dim}, --memory leaves "
        f"{show_size(room)}: give more, or leave {name} out"
    )


Passes = list[tuple[tuple[str, ...], Route | None]]
"""Layers that are taken in one pass; the route of a layer that is not held in memory."""


def room_for_fits(budget: int) -> int:
    """What is left of a memory budget for fitting; the rest is for features."""
    return budget - budget // 3


def plan_groups(
    dims: Mapping[str, int], train: Samples, test: Samples, classes: int, budget: int, batch_size: int
) -> tuple[Passes, list[str]]:
    """Layers packed into passes that keep to the budget, and the plan in words.

    A pass holds its layers' features (route None); a layer that does not fit alone goes by a route of its own.
    A third of the budget is for features, the rest for what fitting them takes. The model, the samples and
    what Python and torch themselves take come on top.
    """
    counts = train.y.bincount(minlength=classes).tolist()
    passes: Passes = []
    words: list[str] = []
    packed: list[str] = []
    room = budget - room_for_fits(budget)
    for name, dim in dims.items():
        size = (len(train) + len(test)) * dim * 4
        if size > budget - room_for_fits(budget):
            route = choose_route(counts, dim, budget, batch_size=batch_size)
            passes.append(((name,), route))
            words.append(f"{name}: {route.reason}")
            continue
        if size > room:
            passes.append((tuple(packed), None))
            packed, room = [], budget - room_for_fits(budget)
        packed.append(name)
        room -= size
    if packed:
        passes.append((tuple(packed), None))
    held = [name for layers, route in passes if route is None for name in layers]
    if held:
        total = sum((len(train) + len(test)) * dims[name] * 4 for name in held)
        count = sum(route is None for _, route in passes)
        often = "one pass" if count == 1 else f"{count} passes"
        words.insert(0, f"{', '.join(held)}: {show_size(total)} of features held in memory, in {often}")
    return passes, words
