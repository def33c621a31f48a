"""The loop behind a composite matrix: shallow part by shallow part, block by block.

    work = MatrixEvaluation(load, settings, data)        # load(at, into=None) gives the whole model of a checkpoint
    work.plan.words                                # what will be held in memory
    work.run(progress)                             # CompositeMatrix

For a shallow checkpoint: features of a block of samples at all cuts from one pass; then every deep part answers to
them. Deep parts are held where they fit into the memory budget, else loaded when their turn comes. The first
composite that is a whole model, composite(s, s), is compared with that model on all samples: information that goes
round a cut only for some of them (a padding mask, say) is found there and not in the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from undertow.errors import BadData
from undertow.features.tap import Inputs, device_of, main_tensor
from undertow.temporal.batchnorm import Statistics, estimate, even_batches, norms_after, with_statistics
from undertow.temporal.compose_split import Cut, Deep, capture
from undertow.temporal.cuts import SAMPLES, same_answers
from undertow.temporal.feature_buffer import FeatureBuffer
from undertow.temporal.matrix_data import CompositeSamples
from undertow.temporal.matrix_plan import make_plan
from undertow.temporal.matrix_result import CompositeMatrix
from undertow.temporal.matrix_scores import Read, Scores, Shape, class_outputs

WHOLE = ""  # no module has this name


class Load(Protocol):
    """Gives the whole model of a checkpoint, built or loaded into one that was built before."""

    def __call__(self, at: int, into: nn.Module | None = None) -> nn.Module:
        """The model in evaluation mode."""
        ...


@dataclass(frozen=True)
class MatrixSettings:
    """What is evaluated and how."""

    cuts: tuple[Cut, ...]
    shallow: tuple[int, ...]
    deep: tuple[int, ...]
    batch_size: int
    memory: int  # bytes
    sample_losses: bool = False
    read: Read | None = None  # how outputs are read as a class, where they are not one for each

    @property
    def shape(self) -> Shape:
        """Which composites there are."""
        return Shape(tuple(cut.name for cut in self.cuts), self.shallow, self.deep)


@dataclass(frozen=True, eq=False)
class Piece:
    """What one batch gives to the deep parts."""

    rows: slice
    inputs: Inputs  # one sample, or all where the network reads their number after the cut
    features: dict[str, Any]  # cut -> its output
    whole: Tensor | None  # the whole model's outputs, where they were wanted


class _Counter:
    """Tells about progress."""

    def __init__(self, steps: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._steps, self._progress = 0, steps, progress

    def __call__(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._steps)


class DeepParts:
    """The deep parts of checkpoints: all held once they were loaded, or one at a time."""

    def __init__(self, load: Load, cuts: tuple[Cut, ...], *, hold: bool) -> None:
        self._load, self._cuts, self._hold = load, cuts, hold
        self._held: dict[int, list[tuple[Cut, Deep]]] = {}
        self._one: nn.Module | None = None

    def __getitem__(self, at: int) -> list[tuple[Cut, Deep]]:
        """The deep parts at all cuts; not held, they are good until the next checkpoint is asked for."""
        if at in self._held:
            return self._held[at]
        model = self._one = self._load(at, None if self._hold else self._one)
        parts = [(cut, Deep(model, cut)) for cut in self._cuts]
        if self._hold:
            self._held[at] = parts
        return parts


class MatrixEvaluation:
    """The work on one data set."""

    def __init__(
        self,
        load: Load,
        settings: MatrixSettings,
        data: CompositeSamples,
        calibration: CompositeSamples | None = None,
    ) -> None:
        self.settings, self.data, self.calibration = settings, data, calibration
        self._load, self._front = load, load(settings.shallow[0])  # the model that runs shallow parts
        self._device = device_of(self._front)
        self._buffer, self._ones = FeatureBuffer(SAMPLES), dict[int, Inputs]()
        few = self._piece(data, slice(0, min(SAMPLES, data.count)), go_on=True)
        outputs = class_outputs(main_tensor(few.whole)).shape[1]
        self.scores = Scores(
            settings.shape, data, outputs, read=settings.read, sample_losses=settings.sample_losses
        )
        self.plan = make_plan(
            settings.memory,
            results=self.scores.nbytes,
            model=_bytes([*self._front.parameters(), *self._front.buffers()]),
            deep=len(settings.deep),
            sample=_bytes(few.features) // min(SAMPLES, data.count),
            count=data.count,
            batch=settings.batch_size,
            calibration=0 if calibration is None else calibration.count,
        )
        most = max(sum(rows.stop - rows.start for rows in block) for block in self.plan.blocks)
        self._buffer = FeatureBuffer(max(most, 0 if calibration is None else calibration.count))
        self._parts = DeepParts(load, settings.cuts, hold=self.plan.hold)

    def run(self, progress: Callable[[int, int], None] | None = None) -> CompositeMatrix:
        """Evaluate everything; `progress` is told the steps done and all steps."""
        shape = self.settings.shape
        tick = _Counter(len(shape.shallow) * len(shape.deep) * len(self.plan.blocks), progress)
        # Recalibrated, composite(s, s) differs from the model on purpose: nothing to check.
        unchecked = self.calibration is None
        for at in shape.models:
            self._load(at, self._front)
            twice = at in shape.shallow and at in shape.deep and self.calibration is None
            go_on = unchecked or not twice
            statistics = self._statistics() if at in shape.shallow else {}
            for block in self.plan.blocks:
                self._block(at, block, statistics, tick, go_on=go_on)
            self.scores.close(at, own_from_composite=not go_on)
            unchecked = unchecked and not twice
        return self.scores.result(self.plan.words, tuple(map(self._policy, self.settings.cuts)))

    def _block(
        self, at: int, block: Sequence[slice], statistics: dict[Any, Statistics], tick: _Counter, *, go_on: bool
    ) -> None:  # fmt: skip
        """Features of some batches and what all deep parts answer to them; forgotten when it returns."""
        pieces = [self._piece(self.data, rows, first=block[0].start, go_on=go_on) for rows in block]
        for piece in pieces if go_on else ():
            self.scores.own(at, piece.rows, main_tensor(piece.whole))
        for deep in self.settings.deep if at in self.settings.shallow else ():
            self._answers(at, deep, pieces, statistics)
            tick()

    def _piece(self, data: CompositeSamples, rows: slice, *, first: int = 0, go_on: bool) -> Piece:
        """Features of one batch from one pass; with `go_on` the whole model's outputs too.

        Sample `first` has the first place in the buffer.
        """
        inputs = data.batch(rows, self._device)
        features, whole = capture(self._front, inputs, self.settings.shape.cuts, go_on=go_on)
        if not any(cut.whole_prefix for cut in self.settings.cuts):
            inputs = self._one_of(data)
        place = rows.start - first
        outputs = self._buffer.put(WHOLE, place, main_tensor(whole)) if go_on else None
        kept = {name: self._buffer.put(name, place, part) for name, part in features.items()}
        return Piece(rows, inputs, kept, outputs)

    def _one_of(self, data: CompositeSamples) -> Inputs:
        """The sample that runs before a cut while other features take its place."""
        if id(data) not in self._ones:
            self._ones[id(data)] = data.batch(slice(0, 1), self._device)
        return self._ones[id(data)]

    def _answers(self, at: int, deep: int, pieces: list[Piece], statistics: dict[Any, Statistics]) -> None:
        """What one deep part answers to one shallow part's features, at all cuts."""
        for cut, part in self._parts[deep]:
            new = statistics.get((deep, cut.name))
            norms = [] if new is None else norms_after(part.model, cut.shallow)
            with nullcontext() if new is None else with_statistics(norms, new):
                for piece in pieces:
                    outputs = main_tensor(part(piece.features[cut.name], piece.inputs))
                    if at == deep and piece.whole is not None and self.calibration is None:
                        _compare(cut, outputs, piece)
                    self.scores.composite(cut.name, at, deep, piece.rows, outputs)

    def _statistics(self) -> dict[Any, Statistics]:
        """Batch-norm statistics of every deep part on the features of the shallow part at hand."""
        if self.calibration is None:
            return {}
        batches = even_batches(self.calibration.count, self.settings.batch_size)
        pieces = [self._piece(self.calibration, rows, go_on=False) for rows in batches]
        found: dict[Any, Statistics] = {}
        for deep in self.settings.deep:
            for cut, part in self._parts[deep]:
                norms = norms_after(part.model, cut.shallow)
                if norms:
                    found[deep, cut.name] = estimate(norms, partial(_feed, cut.name, part, pieces))
        return found

    def _policy(self, cut: Cut) -> str:
        if not norms_after(self._front, cut.shallow):
            return "no batch-norm statistics after the cut"
        if self.calibration is None:
            return "batch norm: own statistics of the deep part"
        return f"batch norm: recalibrated on {self.calibration.count} {self.calibration.split} samples"


def _feed(name: str, part: Deep, pieces: list[Piece]) -> None:
    for piece in pieces:
        part(piece.features[name], piece.inputs)


def _compare(cut: Cut, outputs: Tensor, piece: Piece) -> None:
    """A composite of one checkpoint is the model of that checkpoint, for every sample."""
    if piece.whole is not None and not same_answers(outputs, piece.whole):
        raise BadData(
            f"cut {cut.name}: wanted composites of a checkpoint with itself to answer like the model, but among "
            f"samples {piece.rows.start} to {piece.rows.stop - 1} one does not: something goes round the cut there "
            "(padding or a mask that only some samples have?). Choose another cut, or samples of one form."
        )


def _bytes(tree: Any) -> int:
    return sum(leaf.numel() * leaf.itemsize for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
