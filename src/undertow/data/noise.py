"""Wrong labels on purpose: drawn once from their own seed, the true ones kept beside them.

    noise = LabelNoise("uniform", 0.4, seed=7)      # or parse_noise("symmetric:0.3")
    noisy = noise.apply(data.train, classes=10)
    noisy.y, noisy.true                             # what training sees, what is so
    noise.transition(10)                            # (C, C): row c says what becomes of class c
    expected_wrong(0.4, 10)                         # 0.36: a uniform draw may hit the same class again

With probability p a label of class c is drawn anew from row c of a matrix R, so the transition is (1 - p) I + p R for
every kind but those that follow the input (`instance`, `part`, `margin`). For one seed the draws do not depend on p:
the labels replaced at p = 0.2 are among those replaced at p = 0.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from undertow.data.margin_noise import margin_flips
from undertow.data.samples import Samples, check_samples
from undertow.errors import BadData, BadValue, NotThere, unknown

NoiseKind = Literal["uniform", "symmetric", "pairwise", "asymmetric", "instance", "part", "margin"]
NoiseSource = Literal["torch", "authors"]

AUTHORS_SEED = 42
"""The seed of the published label draws, and the default here: `rng="authors"` gives them as it stands."""

RATE_SPREAD = 0.1
"""Standard deviation of the per-sample flip rates of `instance` and `part` noise, before they are cut to [0, 1]."""

FOLLOWS_INPUT = ("instance", "part", "margin")

SHARPNESS = 4.0
"""How strongly `instance` noise lets the input choose the wrong class (standard deviation of its scores)."""


@dataclass(frozen=True)
class LabelNoise:
    """How labels go wrong.

    Attributes:
        kind: `uniform` draws from all classes, the same one included; `symmetric` from the other classes;
            `pairwise` takes the next class (the last one: the first) or the one that `pairs` names;
            `asymmetric` draws from the row of `matrix`; `instance`, `part` and `margin` let the input decide (see
            `apply`).
        p: The probability that a label is drawn anew, 0 to 1.
        seed: The noise's own seed.
        rng: `authors`, for `uniform` only, repeats the published draws bit by bit.
        matrix: For `asymmetric`: row c holds the probabilities of what class c becomes; rows sum to 1.
            With p = 1 it is the whole transition.
        pairs: For `pairwise`: class c becomes `pairs[c]`.
    """

    kind: NoiseKind
    p: float
    seed: int = AUTHORS_SEED
    rng: NoiseSource = "torch"
    matrix: Sequence[Sequence[float]] | None = None
    pairs: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(NoiseKind):
            raise unknown("kind of label noise", self.kind, get_args(NoiseKind))
        if self.rng not in get_args(NoiseSource):
            raise unknown("source of label noise", self.rng, get_args(NoiseSource))
        check_share(self.p)
        self._check_fit()
        # Tuples make the noise hashable whatever sequence or array came.
        if self.matrix is not None:
            object.__setattr__(self, "matrix", _checked_matrix(self.matrix))
        if self.pairs is not None:
            object.__setattr__(self, "pairs", tuple(int(target) for target in self.pairs))

    def _check_fit(self) -> None:
        if self.rng == "authors" and self.kind != "uniform":
            raise BadValue(
                "label noise", "rng='authors' with uniform noise only", self.kind, "Leave rng out."
            )
        if self.kind == "asymmetric" and self.matrix is None:
            raise BadValue(
                "asymmetric label noise", "a transition matrix", None, "Give matrix= with a row per class."
            )
        if self.kind != "asymmetric" and self.matrix is not None:
            raise BadValue(
                "label noise", "a matrix with kind 'asymmetric' only", self.kind, "Change the kind."
            )
        if self.kind != "pairwise" and self.pairs is not None:
            raise BadValue("label noise", "pairs with kind 'pairwise' only", self.kind, "Change the kind.")

    def apply(self, samples: Samples, classes: int) -> Samples:
        """The samples with noisy labels in `y` and the labels until now in `true` (unless it was set before).

        `part` noise is the literature's part-dependent noise (Xia et al. 2020): sample i is flipped at its own rate,
        drawn from a normal distribution around p, and where to is drawn from softmax(W_y x_i) over the other classes
        with a standard normal W_y per class, x standardised. Here the distribution is cut symmetrically, so that the
        mean rate is p. `instance` noise lets the rate depend on the input too: ranks along a random direction become
        the quantiles of that distribution; inputs have length 1, which leaves the choice of class softer.
        `margin` noise flips labels between the two likeliest classes of a clean model (see margin_noise.py).
        """
        check_samples(samples, classes, "label noise")
        if self.rng == "authors":
            return samples.relabelled(self._authors(samples.y, classes))
        source = torch.Generator().manual_seed(self.seed)
        if self.kind in FOLLOWS_INPUT:
            given = self._by_input(samples.tensor, samples.y.cpu(), classes, source)
            return samples.relabelled(given.to(samples.y.device))
        chance, choice = torch.rand(2, len(samples), generator=source, dtype=torch.float64).to(
            samples.y.device
        )
        redrawn = draw_from_rows(self._redraw(classes).to(samples.y.device), samples.y, choice)
        return samples.relabelled(torch.where(chance < self.p, redrawn, samples.y))

    def transition(self, classes: int) -> Tensor:
        """The matrix (C, C) float64 of P(given label | true label)."""
        return (1 - self.p) * torch.eye(classes, dtype=torch.float64) + self.p * self._redraw(classes)

    def _redraw(self, classes: int) -> Tensor:
        """R (C, C) float64: what a replaced label becomes."""
        if classes < 2:
            raise BadValue("label noise", "two classes or more", classes, "One class has no wrong label.")
        same = torch.eye(classes, dtype=torch.float64)
        match self.kind:
            case "uniform":
                return torch.full_like(same, 1 / classes)
            case "symmetric":
                return (1 - same) / (classes - 1)
            case "pairwise":
                return same[self._targets(classes)]
            case "asymmetric":
                return self._given_matrix(classes)
            case _:
                raise BadValue(
                    "transition",
                    "a kind of noise with one matrix for all inputs",
                    self.kind,
                    "Count it on the noisy samples with counted_transition.",
                )

    def _targets(self, classes: int) -> list[int]:
        if self.pairs is None:
            return [(one + 1) % classes for one in range(classes)]
        if len(self.pairs) != classes or not all(0 <= target < classes for target in self.pairs):
            raise BadValue(
                "pairwise label noise", f"a class from 0 to {classes - 1} for each class", self.pairs
            )
        return list(self.pairs)

    def _given_matrix(self, classes: int) -> Tensor:
        matrix = torch.tensor(self.matrix, dtype=torch.float64)
        if len(matrix) != classes:
            raise BadValue(
                "asymmetric label noise",
                f"a matrix of {classes} rows, one per class",
                f"{len(matrix)} rows",
                "Give a matrix for this data set.",
            )
        return matrix

    def _authors(self, y: Tensor, classes: int) -> Tensor:
        # Their draws, in their order. The legacy generator is wanted: its stream is the published one.
        source = np.random.RandomState(self.seed)
        hit = torch.from_numpy(source.random_sample(len(y)) <= self.p).to(y.device)
        drawn = torch.from_numpy(source.randint(0, classes, int(hit.sum()))).to(y)
        given = y.clone()
        given[hit] = drawn
        return given

    def _by_input(self, x: Tensor, y: Tensor, classes: int, source: torch.Generator) -> Tensor:
        rows = _centred_rows(x, self.kind, each=self.kind == "instance")
        if self.kind == "margin":
            return margin_flips(rows, y, classes, self.p, source)
        chance, choice = torch.rand(2, len(rows), generator=source, dtype=torch.float64)
        if self.kind == "part":
            place, sharpness = torch.rand(len(rows), generator=source, dtype=torch.float64), 1.0
        else:
            place = rows @ torch.randn(rows.shape[1], generator=source, dtype=torch.float64)
            sharpness = SHARPNESS
        rate, given = flip_rates(place, self.p), y.clone()
        for one in range(classes):  # drawn for absent classes too: the others' draws stay as they are
            weights = torch.randn(rows.shape[1], classes, generator=source, dtype=torch.float64)
            mine = (y == one).nonzero().flatten()
            scores = sharpness * rows[mine] @ weights
            scores[:, one] = -torch.inf
            bounds = _bounds(scores.softmax(1))
            target = torch.searchsorted(bounds, choice[mine, None], right=True).flatten()
            given[mine] = torch.where(chance[mine] < rate[mine], target, one)
        return given


def expected_wrong(p: float, classes: int) -> float:
    """The expected share of truly wrong labels under uniform noise: p (C - 1) / C."""
    check_share(p)
    return p * (classes - 1) / classes


def counted_transition(samples: Samples, classes: int) -> Tensor:
    """The transition (C, C) float64 counted on noisy samples; a class without samples is refused."""
    if samples.true is None:
        raise BadData("counted_transition: wanted samples whose true labels are known, got none of them.")
    pairs = samples.true * classes + samples.y
    counts = torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes).double()
    empty = (counts.sum(1) == 0).nonzero()
    if len(empty):
        raise BadData(
            f"counted_transition: wanted samples of every class, got none of class {int(empty[0])}."
        )
    return counts / counts.sum(1, keepdim=True)


def flip_rates(place: Tensor, p: float) -> Tensor:
    """Per-sample flip rates (N,) in [0, 1] with mean p, rising with `place` (N,) float64.

    The middle rank of a sample is the quantile of a normal distribution N(p, RATE_SPREAD), cut at equal
    distance on both sides of p; equal places get equal rates.
    """
    ordered = place.sort().values
    below = torch.searchsorted(ordered, place, right=False)
    upto = torch.searchsorted(ordered, place, right=True)
    quantile = (below + upto).double() / (2 * len(place))  # (N,)
    reach = min(p, 1 - p) / RATE_SPREAD
    tail = torch.special.ndtr(torch.tensor(-reach, dtype=torch.float64))
    return p + RATE_SPREAD * torch.special.ndtri(tail + quantile * (1 - 2 * tail))


def parse_noise(text: str, seed: int = AUTHORS_SEED) -> LabelNoise:
    """The noise that a short text means; a seed in the text goes before `seed`.

    `0.4` is uniform noise; then `symmetric:0.3`, `pairwise:0.3`, `instance:0.3`, `part:0.4`, `margin:0.3`,
    `uniform:0.4,rng=authors,seed=42` and `asymmetric:1,matrix=FILE` (.npy, or text with commas).
    """
    head, *rest = text.split(",")
    kind, colon, share = head.partition(":")
    if not colon:
        kind, share = "uniform", head
    options = _options(text, rest)
    return LabelNoise(
        cast(NoiseKind, kind.strip()),
        _number(text, share),
        seed=_whole(text, options["seed"]) if "seed" in options else seed,
        rng=cast(NoiseSource, options.get("rng", "torch")),
        matrix=_read_matrix(Path(options["matrix"])) if "matrix" in options else None,
    )


def check_share(p: float) -> None:
    """Refuse a share that is not a number from 0 to 1."""
    if isinstance(p, bool) or not isinstance(cast(object, p), int | float) or not 0 <= p <= 1:
        raise BadValue("label noise", "a share from 0 to 1", p, "For 40 % write 0.4.")


def _checked_matrix(matrix: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    who, rows = "asymmetric label noise", tuple(tuple(float(cell) for cell in row) for row in matrix)
    for at, row in enumerate(rows):
        if len(row) != len(rows):
            raise BadValue(who, f"a square matrix of {len(rows)} rows", f"{len(row)} cells in row {at}")
        if not all(cell >= 0 for cell in row):  # NaN fails too
            raise BadValue(who, f"probabilities in row {at}", row, "None may be negative.")
        if not math.isclose(math.fsum(row), 1, abs_tol=1e-6):
            raise BadValue(who, f"row {at} to sum to 1", math.fsum(row), "Divide each row by its sum.")
    return rows


def draw_from_rows(rows: Tensor, y: Tensor, choice: Tensor) -> Tensor:
    """For each label a draw from its row of `rows` (C, C), made by `choice` (N,) in [0, 1)."""
    drawn = torch.empty_like(y)
    for one, bounds in enumerate(_bounds(rows)):  # a loop over classes: (N, C) would not fit for large sets
        mine = y == one
        drawn[mine] = torch.searchsorted(bounds, choice[mine], right=True)
    return drawn


def _bounds(rows: Tensor) -> Tensor:
    """Upper ends of the classes' parts of [0, 1), each row ending at exactly 1."""
    ends = rows.cumsum(-1)
    return ends / ends[..., -1:]


def _centred_rows(x: Tensor, kind: str, *, each: bool) -> Tensor:
    """Inputs (N, D) float64 on the CPU: each value centred and rows of root mean square length 1, or standardised."""
    if not (x.is_floating_point() or x.dtype == torch.uint8):
        raise BadData(
            f"{kind} label noise: wanted pixels or vectors, got {x.dtype} tokens. Take another kind."
        )
    rows = x.flatten(1).double().cpu()
    off = rows - rows.mean(0)
    length = off.square().sum(1).mean().sqrt()
    if length == 0:
        raise BadData(f"{kind} label noise: wanted inputs that differ, got equal ones. Take another kind.")
    return off / length if each else (rows - rows.mean()) / rows.std()


def _options(text: str, parts: list[str]) -> Mapping[str, str]:
    pairs = [part.partition("=") for part in parts]
    for name, equals, value in pairs:
        if name.strip() not in ("rng", "seed", "matrix"):
            raise unknown(f"option of label noise in {text!r}:", name.strip(), ("rng", "seed", "matrix"))
        if not (equals and value.strip()):
            raise BadValue(
                "label noise", "options as name=value", text, "For example uniform:0.4,rng=authors."
            )
    return {name.strip(): value.strip() for name, _, value in pairs}


def _number(text: str, share: str) -> float:
    try:
        return float(share)
    except ValueError:
        wanted = "a share from 0 to 1, alone or after a kind"
        raise BadValue("label noise", wanted, text, "Write 0.4 or symmetric:0.3.") from None


def _whole(text: str, seed: str) -> int:
    try:
        return int(seed)
    except ValueError:
        raise BadValue("label noise", "a whole number as seed", text, "Write seed=7.") from None


def _read_matrix(path: Path) -> list[list[float]]:
    try:
        # Never unpickles: a transition matrix is numbers.
        table = (
            np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(path, delimiter=",")
        )
        return [[float(cell) for cell in row] for row in table]
    except OSError as error:
        raise NotThere(f"There is no transition matrix at {path}: {error.strerror or error}.") from error
    except (ValueError, TypeError) as error:
        raise BadData(f"{path}: wanted a square matrix of numbers, got: {error}.") from error
