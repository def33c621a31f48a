"""All composites of a run's checkpoints: T shallow passes for all cuts together, T x T deep ones for each cut.

    found = composite_matrix(run)                              # the run's own cuts, checkpoints and test data
    found = composite_matrix(run, x, y, cuts=["layer1", "layer2"], checkpoints="every:10", memory="1GB")
    found = composite_matrix(run, "train", deep=[300])         # a column: all shallow parts, one deep part
    found.predictions                                          # (cuts, S, D, N); see matrix_result.py
    found.table                                                # tidy rows

    composer = Composer(run, "layer2")                         # the cut is checked once
    composer.model(10, 50)                                     # composite(10, 50) as a module
    composer.matrix("train"); composer.matrix(corrupted, split="fog 3")

Shallow checkpoints are taken one after the other: one pass gives the features at all cuts, every deep part answers
to them, and they are forgotten. So memory holds the features of one checkpoint at a time (of as many samples as the
budget allows), and no sample goes through a shallow part twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import Tensor, nn

from undertow.errors import BadValue
from undertow.features.tap import device_of
from undertow.session.checkpoints import Checkpoints, choose
from undertow.session.session import Session
from undertow.sizes import parse_size
from undertow.temporal.compose_merge import merge
from undertow.temporal.compose_split import Cut
from undertow.temporal.cuts import SAMPLES, find_cuts
from undertow.temporal.matrix_data import Source, gather, gather_calibration
from undertow.temporal.matrix_evaluation import MatrixEvaluation, MatrixSettings
from undertow.temporal.matrix_result import CompositeMatrix
from undertow.training.objective import Objective
from undertow.training.run import Opened

BatchNorm = Literal["own", "recalibrated"]
Tell = Callable[[int, int], None]
"""Hears how many steps are done, and of how many."""


class Composer:
    """Composites of one run at cuts that were checked."""

    def __init__(
        self,
        run: Opened | Session,
        cuts: str | Iterable[str] = "auto",
        *,
        x: Source = None,
        batch_norm: BatchNorm = "own",
        calibration: Source = None,
        memory: str | int = "2GB",
        batch_size: int = 256,
        device: str | None = None,
    ) -> None:
        """Check the cuts on a few samples.

        Args:
            run: an opened run that can build its model, or a session of one.
            cuts: names or patterns of modules; auto takes the model's own choice (see `find_cuts`).
            x: samples to check the cuts on; the run's own test data when not given.
            batch_norm: whose statistics a deep part uses: its own, or recalibrated on the composite.
            calibration: samples for that; some of the run's training samples when not given.
            memory: how much results, weights and features may take together; the samples, one model and what a
                forward pass needs come on top.
            batch_size: samples per forward pass.
            device: where the models run; where the run's model is built when not given.
        """
        if batch_norm not in ("own", "recalibrated"):
            raise BadValue("batch_norm", "own or recalibrated", batch_norm)
        if batch_size < 1:
            raise BadValue("batch_size", "1 or more", batch_size)
        self.session = run if isinstance(run, Session) else Session(run, device=device)
        self.run, self.batch_norm, self.batch_size = self.session.run, batch_norm, batch_size
        self.memory = parse_size(memory)
        recalibrated = batch_norm == "recalibrated"
        self._calibration = gather_calibration(self.session, calibration) if recalibrated else None
        model = self.load(self.run.epochs[-1])
        few = gather(self.session, x).batch(slice(0, 2 * SAMPLES), device_of(model))
        self.cuts: tuple[Cut, ...] = tuple(find_cuts(model, cuts, few))

    def load(self, at: int, into: nn.Module | None = None) -> nn.Module:
        """The whole model at a checkpoint in evaluation mode; built, or loaded into one that was built before."""
        return self.session.model(at, into)

    def model(self, shallow: int, deep: int, cut: str | None = None) -> nn.Module:
        """composite(shallow, deep) as a module of its own, with own statistics; the first cut if none is named."""
        names = [one.name for one in self.cuts]
        if cut is not None and cut not in names:
            raise BadValue("Composer.model", f"one of its cuts ({', '.join(names)})", cut)
        chosen = self.cuts[0 if cut is None else names.index(cut)]
        return merge(self.session.fresh(), self.run.weights(shallow), self.run.weights(deep), chosen)

    def matrix(
        self,
        x: Source = None,
        y: Tensor | None = None,
        *,
        checkpoints: Checkpoints = "all",
        shallow: Checkpoints | None = None,
        deep: Checkpoints | None = None,
        split: str | None = None,
        sample_losses: bool = False,
        progress: Tell | None = None,
    ) -> CompositeMatrix:
        """Answers of all composites; see `composite_matrix`."""
        settings = MatrixSettings(
            cuts=self.cuts,
            shallow=choose(self.run, checkpoints if shallow is None else shallow),
            deep=choose(self.run, checkpoints if deep is None else deep),
            batch_size=self.batch_size,
            memory=self.memory,
            sample_losses=sample_losses,
            read=self._scalar_answers(),
        )
        data = gather(self.session, x, y, split)
        return MatrixEvaluation(self.load, settings, data, self._calibration).run(progress)

    def _scalar_answers(self) -> Callable[[Tensor], Tensor] | None:
        """How one output is read as a class, where the run was trained so; None for one output per class."""
        config = self.run.config
        if config is None or config.target != "scalar":
            return None
        classes = len(self.session.samples.classes)
        return Objective(config.loss, classes, config.alpha, config.target).predict


def composite_matrix(
    run: Opened | Session,
    x: Source = None,
    y: Tensor | None = None,
    *,
    cuts: str | Iterable[str] = "auto",
    checkpoints: Checkpoints = "all",
    shallow: Checkpoints | None = None,
    deep: Checkpoints | None = None,
    split: str | None = None,
    test: Any = None,
    batch_norm: BatchNorm = "own",
    calibration: Source = None,
    memory: str | int = "2GB",
    batch_size: int = 256,
    device: str | None = None,
    sample_losses: bool = False,
    progress: Tell | None = None,
) -> CompositeMatrix:
    """Predictions, losses and accuracies of composite(s, t) for all s, t and cuts.

    Args:
        run: an opened run that can build its model, or a session of one.
        x: Samples, a DataSet, inputs (tensor, dict or tuple), or "train" or "test" for the run's own data; test
            when not given.
        y: class numbers (N,) where `x` are bare inputs; without them there are predictions only.
        cuts: names or patterns of modules; auto takes the model's own choice.
        checkpoints: all, last, every:5, a list such as "0,10,60", or numbers; for both parts.
        shallow: other checkpoints for the shallow part.
        deep: other checkpoints for the deep part.
        split: what the rows call these samples; test (or the named split) when not given.
        test: held-out samples as other verbs take them, (x, y), a Dataset or a DataLoader, in place of `x` and `y`.
        batch_norm: own statistics of the deep part, or recalibrated on the composite.
        calibration: samples for that; some of the run's training samples when not given.
        memory: how much results, weights and features may take together.
        batch_size: samples per forward pass.
        device: where the models run.
        sample_losses: keep the loss of every sample too (float32).
        progress: is called with the steps done and all steps.
    """
    if test is not None and (x is not None or isinstance(run, Session)):
        raise BadValue("composite_matrix(test=...)", "a run and no other samples", "both", "Leave one out.")
    session = run if isinstance(run, Session) else Session(run, test=test, device=device)
    data = gather(session, x, y, split)
    composer = Composer(
        session, cuts, x=data, batch_norm=batch_norm, calibration=calibration, memory=memory, batch_size=batch_size
    )  # fmt: skip
    return composer.matrix(
        data,
        checkpoints=checkpoints,
        shallow=shallow,
        deep=deep,
        sample_losses=sample_losses,
        progress=progress,
    )
