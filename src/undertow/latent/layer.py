"""All probes of one layer, fitted with several sets of labels at once: what fits share is done once.

    found = fit_layer(rows, {"given": y, "true": y2}, ["masc", "velpic"], classes=10, room=10**9)
    found["given", "masc"]                       # a fitted probe, or why there is none
    answer_layer(found, test_rows)               # {("given", "masc"): predicted classes (N,), ...}
    found, said = fit_and_answer(rows, ...)      # with the answers for the very rows, which come cheaper together

    fit_moments({"given": moments}, probes, room=...)          # of a layer that streamed by
    fit_stored({"given": [rows of class 0, ...]}, probes)      # of a layer on disk

Logistic fits take their steps together, nearest neighbours are looked for once, VeLPIC takes MASC's first
directions, and where a layer is wide MASC's classes are parts of one matrix of inner products. The probes are those
of single fits up to rounding. `room` is what fitting may take in bytes: a probe whose matrices need more answers with
a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product

import torch
from torch import Tensor

from undertow.errors import BadData
from undertow.features.moments import Moments
from undertow.features.wide import Rows, TensorRows, mean_of
from undertow.latent.arrays import as_tensor
from undertow.latent.discriminant import LDA, QDA
from undertow.latent.logistic import LogisticProbe
from undertow.latent.masc import MASC
from undertow.latent.nearest import KNN, NearestMean
from undertow.latent.probe import MomentsProbe, Probe, by_class, class_means
from undertow.latent.velpic import VeLPIC
from undertow.room import give_back
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
"""The probes by name, with the paper's settings."""

Outcome = Probe | str
"""A fitted probe, or why there is none."""

Key = tuple[str, str]
"""A set of labels and a probe, by name."""

Answers = dict[Key, Tensor]
"""Predicted classes (N,)."""

WIDE = 6
"""From how many columns for each row of the largest class one kernel for all classes is faster, as measured."""

MATRICES = 32
"""Bytes that MASC takes for each entry of a class's matrix: it, a copy, its eigenvectors and LAPACK's own, float64."""


def fit_layer(
    rows: Tensor, label_sets: Mapping[str, Tensor], probes: Sequence[str], *, classes: int, room: int
) -> dict[Key, Outcome]:
    """Fit each probe with each set of labels on the same rows.

    Args:
        rows: features (N, D).
        label_sets: class numbers (N,) by name.
        probes: names out of `PROBES`.
        classes: number of classes.
        room: bytes that fitting may take beside the rows.
    """
    sets = {fit: labels.to(rows.device) for fit, labels in label_sets.items()}
    return _fit_rows(rows, sets, probes, {}, classes, room)


def fit_and_answer(
    rows: Tensor, label_sets: Mapping[str, Tensor], probes: Sequence[str], *, classes: int, room: int
) -> tuple[dict[Key, Outcome], Answers]:
    """`fit_layer`, and what the probes predict for the rows themselves."""
    sets = {fit: labels.to(rows.device) for fit, labels in label_sets.items()}
    found: dict[Key, Outcome] = {}
    said: Answers = {}
    if "masc" in probes and _one_kernel_pays(rows, sets, room):
        with suppress(BadData):  # each by itself then says what it lacks
            each = MASC().fit_and_answer(rows, list(sets.values()))
            for fit, (probe, own) in zip(sets, each, strict=True):
                found[fit, "masc"], said[fit, "masc"] = probe, own
    found = _fit_rows(rows, sets, probes, found, classes, room)
    rest = {key: outcome for key, outcome in found.items() if key not in said}
    return found, said | answer_layer(rest, rows)


def answer_layer(found: Mapping[Key, Outcome], rows: Tensor) -> Answers:
    """What the fitted probes predict for rows (N, D)."""
    fitted = {key: probe for key, probe in found.items() if isinstance(probe, Probe)}
    return dict(zip(fitted, map(as_tensor, Probe.predict_each(list(fitted.values()), rows)), strict=True))


def fit_moments(moments: Mapping[str, Moments], probes: Sequence[str], *, room: int) -> dict[Key, Outcome]:
    """Fit each probe from the moments of each set of labels; some need the rows, and say so."""
    found: dict[Key, Outcome] = {}
    for name, (fit, seen) in product(_ordered(probes), moments.items()):
        probe, masc = PROBES[name](), found.get((fit, "masc"))
        if not isinstance(probe, MomentsProbe):
            found[fit, name] = needs_rows(name)
        elif reason := _no_room(name, probe, seen.count, seen.dim, seen.classes, len(moments), room):
            found[fit, name] = reason
        elif isinstance(probe, VeLPIC) and isinstance(masc, MASC):
            found[fit, name] = probe.fit_bases(masc.bases_, seen.means, seen.counts)
        else:
            found[fit, name] = _attempt(partial(probe.fit_moments, seen))
    return found


def fit_stored(
    parts: Mapping[str, Sequence[Rows]], probes: Sequence[str], *, thin: bool, room: int | None = None
) -> dict[Key, Outcome]:
    """Fit each probe from rows that are read in blocks, one item per class for each set of labels.

    Args:
        parts: rows of each class, by the name of the set of labels.
        probes: names out of `PROBES`.
        thin: build no matrix (n_c, n_c) of a class with many rows.
        room: bytes that MASC's directions may take.
    """
    found: dict[Key, Outcome] = {}
    for name, (fit, rows) in product(_ordered(probes), parts.items()):
        give_back()
        probe, masc = PROBES[name](), found.get((fit, "masc"))
        if isinstance(probe, VeLPIC) and isinstance(masc, MASC):
            means = torch.stack([mean_of(part) for part in rows])
            found[fit, name] = probe.fit_bases(masc.bases_, means, as_tensor(masc.counts_))
        elif isinstance(probe, MASC):
            found[fit, name] = _attempt(partial(probe.fit_rows, rows, thin=thin, room=room))
        elif isinstance(probe, VeLPIC):
            found[fit, name] = _attempt(partial(probe.fit_rows, rows, thin=thin))
        elif isinstance(probe, NearestMean):
            found[fit, name] = _attempt(partial(probe.fit_rows, rows))
        else:
            found[fit, name] = needs_rows(name)
    return found


def needs_rows(name: str) -> str:
    """Why a probe cannot be fitted from moments or files."""
    return f"{name} needs the layer's features in memory; give more --memory or fewer --samples"


def _ordered(probes: Sequence[str]) -> list[str]:
    """In the order of the table: MASC comes before VeLPIC, which takes its directions."""
    return [name for name in PROBES if name in probes]


def _fit_rows(
    rows: Tensor,
    sets: Mapping[str, Tensor],
    probes: Sequence[str],
    found: Mapping[Key, Outcome],
    classes: int,
    room: int,
) -> dict[Key, Outcome]:
    """What is not in `found` yet, with it."""
    found = dict(found)
    for name in _ordered(probes):
        probe = PROBES[name]()
        if any(key[1] == name for key in found):
            continue
        if reason := _no_room(name, probe, len(rows), rows.shape[1], classes, len(sets), room):
            fitted: Iterable[Outcome] = [reason] * len(sets)
        elif isinstance(probe, VeLPIC) and (mascs := _mascs(found, sets)):
            fitted = [_velpic(masc, rows, labels) for masc, labels in zip(mascs, sets.values(), strict=True)]
        elif isinstance(probe, MASC | VeLPIC) and min(rows.shape[1], _most(sets)) ** 2 * MATRICES > room:
            fitted = [_attempt(partial(_fit_thin, type(probe)(), rows, labels)) for labels in sets.values()]
        else:
            fitted = _fit_each(name, rows, list(sets.values()))
        found |= {(fit, name): outcome for fit, outcome in zip(sets, fitted, strict=True)}
    return found


def _fit_each(name: str, rows: Tensor, label_sets: Sequence[Tensor]) -> Sequence[Outcome]:
    try:
        return PROBES[name]().fit_each(rows, label_sets)
    except BadData:  # then one by one: labels may be to blame, and not all of them
        return [_attempt(partial(PROBES[name]().fit, rows, labels)) for labels in label_sets]


def _fit_thin(probe: MASC | VeLPIC, rows: Tensor, labels: Tensor) -> Probe:
    names, index, counts = labels.unique(return_inverse=True, return_counts=True)
    parts = [TensorRows(rows, at) for at in by_class(index, counts)]
    return probe.fit_rows(parts, names, thin=True)


def _mascs(found: Mapping[Key, Outcome], sets: Iterable[str]) -> list[MASC]:
    """The MASC probes of all sets; none where one is missing."""
    each = [found.get((fit, "masc")) for fit in sets]
    mascs = [one for one in each if isinstance(one, MASC)]
    return mascs if len(mascs) == len(each) else []


def _velpic(masc: MASC, rows: Tensor, labels: Tensor) -> Outcome:
    """VeLPIC's vectors are the first directions of MASC's subspaces: no second eigenproblem."""
    names, index, counts = labels.unique(return_inverse=True, return_counts=True)
    return VeLPIC().fit_bases(masc.bases_, class_means(rows, index, counts), counts, names)


def _attempt(fit: Callable[[], Probe]) -> Outcome:
    """A probe that these features do not allow is a reason in the table, not the end of the grid."""
    try:
        return fit()
    except BadData as error:
        return str(error)


def _most(sets: Mapping[str, Tensor]) -> int:
    """Rows of the largest class of any set."""
    return max(int(labels.bincount().max()) for labels in sets.values())


def _one_kernel_pays(rows: Tensor, sets: Mapping[str, Tensor], room: int) -> bool:
    wide = rows.shape[1] >= WIDE * _most(sets)
    fits = 2 * len(rows) ** 2 * rows.element_size() <= room
    return len(sets) > 1 and wide and fits


def _no_room(name: str, probe: Probe, count: int, dim: int, classes: int, fits: int, room: int) -> str:
    """Why the probe cannot be fitted within `room` bytes; empty if it can."""
    need = probe.fit_bytes(count, dim, classes, fits) if isinstance(probe, LDA | QDA) else 0
    if need <= room:
        return ""
    return (
        f"{name} needs {show_size(need)} for the matrices of a layer of width {dim}, --memory leaves "
        f"{show_size(room)}: give more, or leave {name} out"
    )
