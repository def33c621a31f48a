"""The training loop: plain, resumable, the same bits for the same seeds on one machine.

    run = train("mlp:256-256", data="digits", noise=0.4, epochs=60, out="runs/d40")
    run = train(config, "runs/d40", resume=True)               # goes on after a kill, to the same bits
    run = train(config, "runs/own", data=my_data, model=my_module)
    run = train(config, "runs/cut", interventions=[FreezeAt(20, "layer2")])

Every epoch draws its order, augmentation and dropout from its own stream (see seeds.py) and the learning
rate is a function of the epoch, so weights, optimiser state and metrics are all that a resumed run needs.
They are written behind each kept checkpoint, in that order: what the state knows is always on disk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from undertow.data.samples import DataSet
from undertow.errors import BadFile, BadValue, UndertowError
from undertow.training.batches import Batches
from undertow.training.config import TrainConfig
from undertow.training.evaluate import evaluate
from undertow.training.facts import RunFacts, now
from undertow.training.folder import ANEW, claim_folder, read_state, write_labels
from undertow.training.freeze import set_training
from undertow.training.interventions import Intervention, checked, names_of
from undertow.training.labels_file import COPY, LabelsFile
from undertow.training.optimise import forget, make_optimiser, set_rate
from undertow.training.prepare import named_labels, objective_of, pick_device, prepare_data, prepare_model
from undertow.training.record import Recorder, save_state, snapshot
from undertow.training.run import Run, open_run
from undertow.training.schedule import CheckpointSchedule, Unit
from undertow.training.seeds import global_stream
from undertow.training.stages import Stage, plan_stages

LAG = 0.3
"""By no more the running accuracy lags behind the fit after its epoch, unless training is made harder than use."""
STATE_EVERY = 20.0
"""Seconds after which the state is written even if no checkpoint was due."""


class Watcher(Protocol):
    """Whoever wants to see how training goes: a progress bar, a log, a notebook."""

    def begin(self, config: TrainConfig, data: DataSet, steps_per_epoch: int, done: int) -> None:
        """Training starts; `done` epochs lie behind it already."""
        ...

    def step(self, epoch: int, step: int) -> None:
        """A batch was learned; called often, so it must be quick."""
        ...

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch ended with these numbers."""
        ...

    def end(self, reason: str) -> None:
        """Training ended."""
        ...


class Diverged(UndertowError):
    """The loss is no longer a number."""


def train(
    what: TrainConfig | str | nn.Module | None = None,
    out: str | Path | None = None,
    *,
    data: DataSet | str | None = None,
    model: nn.Module | str | None = None,
    interventions: Sequence[Intervention] = (),
    resume: bool = False,
    watch: Watcher | None = None,
    **settings: Any,
) -> Run:
    """Train a network and leave a run in the folder `out`.

    Args:
        what: a model's spec ("mlp", "resnet18:width=16"), a module, or a whole `TrainConfig`.
        out: the run's folder; one that holds a run already is refused unless `resume`.
        data: a named set or a path; or a DataSet, which the run then cannot load again by itself.
        model: the same as `what` for a spec or a module; a module beside a `TrainConfig`.
        interventions: changes of the model after given epochs.
        resume: go on with the run in `out`.
        watch: is told about progress.
        settings: fields of `TrainConfig`: noise=0.4, epochs=60, lr=1e-3, ...
    """
    config, module = _asked(what, model, data, settings)
    if out is None:
        raise BadValue("train(out=...)", "a folder for the run", None, 'For example out="runs/mine".')
    return _trained(
        config, Path(out), data if isinstance(data, DataSet) else None, module, interventions, resume, watch
    )


def _asked(
    what: TrainConfig | str | nn.Module | None,
    model: nn.Module | str | None,
    data: DataSet | str | None,
    settings: dict[str, Any],
) -> tuple[TrainConfig, nn.Module | None]:
    """The configuration that was asked for in whatever form, and the module where one was given."""
    given = dict(settings)
    for one in (what, model):
        if isinstance(one, str):
            given["model"] = one
    if isinstance(data, str | Path):
        given["data"] = str(data)
    if isinstance(given.get("noise"), int | float):
        given["noise"] = str(given["noise"])
    module = next((one for one in (what, model) if isinstance(one, nn.Module)), None)
    if not isinstance(what, TrainConfig):
        return TrainConfig.from_dict(given), module
    if given:
        raise BadValue(
            "train",
            "a TrainConfig or single settings",
            f"both ({', '.join(given)})",
            "Use dataclasses.replace.",
        )
    return what, module


def _trained(
    config: TrainConfig,
    path: Path,
    data: DataSet | None,
    model: nn.Module | None,
    interventions: Sequence[Intervention],
    resume: bool,
    watch: Watcher | None,
) -> Run:
    device = pick_device(config)
    labels = named_labels(config)
    samples = prepare_data(config, data, labels=labels)
    untrained = None if model is None else deepcopy(model)
    made = (model, None) if model is not None else prepare_model(config, samples)
    facts = RunFacts.of_this_machine(
        config=config.to_dict(), model=made[1], data=describe(samples, labels),
        interventions=names_of(interventions),
    )  # fmt: skip
    # Everything that can be refused is refused before the folder is touched.
    trainer = Trainer(config, samples, made[0].to(device), path, interventions, device, watch)
    facts = claim_folder(path, facts, resume=resume)
    if labels is not None:
        labels.write(path / COPY)
    if resume:
        trainer.restore()
    trainer.begin(facts)
    reason = trainer.go_on()
    replace(facts, finished=now(), ended=reason).write(path)
    return open_run(path, model=None if untrained is None else (lambda: deepcopy(untrained)))


def describe(data: DataSet, labels: LabelsFile | None = None) -> dict[str, Any]:
    """What run.json says of the data, and of the file that the labels came from."""
    about = {
        "name": data.name, "fingerprint": data.fingerprint, "classes": list(data.classes),
        "train": len(data.train), "test": len(data.test), "scaling": data.scaling, "note": data.note,
    }  # fmt: skip
    return about if labels is None else {**about, "labels": {"file": labels.where, "content": labels.mark}}


class Trainer:
    """One run in progress."""

    def __init__(
        self,
        config: TrainConfig,
        data: DataSet,
        model: nn.Module,
        path: Path,
        interventions: Sequence[Intervention],
        device: torch.device,
        watch: Watcher | None,
    ) -> None:
        self.config, self.data, self.model, self.path, self.device = config, data, model, path, device
        self.interventions, self.watch = checked(interventions, model, config.epochs), watch
        self.objective = objective_of(config, data)
        dropped = any("dropout" in type(one).__name__.lower() for one in model.modules())
        self.eased = dropped or config.augment != "none"  # in use a sample is easier than in training
        self.train_batches = Batches(
            data.train, scaling=data.scaling, batch_size=config.batch_size, seed=config.batch_seed,
            shuffle=config.shuffle, augment=config.augment == "crop-flip", device=device,
        )  # fmt: skip
        self.test_batches = Batches(
            data.test, scaling=data.scaling, batch_size=config.batch_size, device=device
        )
        schedule = CheckpointSchedule.parse(config.checkpoints)
        self.unit: Unit = schedule.unit
        per_unit = len(self.train_batches) if schedule.unit == "step" else 1
        self.kept = schedule.moments(config.epochs * per_unit)
        self.stages = plan_stages(
            config, model, self.objective.outputs, next(self.test_batches.in_order(2))[0]
        )
        self.stage: Stage | None = None
        self.epoch = self.step = 0
        self.rows: list[dict[str, Any]] = []
        self.state_due = 0.0

    def restore(self) -> None:
        """Take up the state in the folder, if one was written before the kill."""
        state = read_state(self.path)
        if state is None:
            return
        self.epoch, self.step, self.rows = state["epoch"], state["step"], state["metrics"]
        try:
            self._enter_stage(max(1, self.epoch))
            self.net.load_state_dict(state["net"])
            self.optimiser.load_state_dict(state["optimiser"])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            reason = f"wanted the state of this run, got another ({str(error).splitlines()[0][:200]})"
            raise BadFile(self.path / "state.pt", "", reason, ANEW) from error
        for change in self.interventions:
            if change.epoch < self.epoch and not change.in_weights:
                change(self.model)

    def begin(self, facts: RunFacts) -> None:
        """Write what is known before the first epoch, and look at the untrained model."""
        self.recorder = Recorder(self.path, facts=facts, metrics=self.rows)
        write_labels(self.path, self.data.train, facts.id)
        if self.watch:
            self.watch.begin(self.config, self.data, len(self.train_batches), self.epoch)
        if not self.rows:
            self._enter_stage(1)
            self._end_epoch({"epoch": 0, "step": 0, "lr": self.config.learning_rate(1)})

    def go_on(self) -> str:
        """Train the epochs that are left; returns why it ended."""
        reason = f"{self.config.epochs} epoch{'' if self.config.epochs == 1 else 's'}"
        try:
            while self.epoch < self.config.epochs and not self._reached():
                self._intervene()
                self.epoch += 1
                self._enter_stage(self.epoch)
                self._end_epoch(self._train_epoch())
            if self._reached():
                reason = f"training accuracy {self.config.stop_at:g} at epoch {self.epoch}"
            if not self._is_due():
                self._look_at_tests(self.rows[-1])
                self._keep(self.rows[-1], last=True)
        except BaseException:
            reason = "an interruption"
            raise
        finally:
            if self.watch:
                self.watch.end(reason)
            self.recorder.close()
        return reason

    def _train_epoch(self) -> dict[str, Any]:
        """One pass over the training samples; sums stay on the device, so no step waits for them."""
        config, objective, optimiser = self.config, self.objective, self.optimiser
        rate = set_rate(optimiser, config.learning_rate(self.epoch))
        autocast = torch.autocast(self.device.type, torch.bfloat16) if config.amp else nullcontext()
        total = torch.zeros((), device=self.device)
        hits = torch.zeros((), device=self.device, dtype=torch.int64)
        learning = [one for one in self.net.parameters() if one.requires_grad]
        set_training(self.net)
        with global_stream(config.batch_seed, "dropout", self.epoch, self.device):
            for x, y in self.train_batches.epoch(self.epoch):
                optimiser.zero_grad()
                with autocast:
                    outputs = self.forward(x)
                    loss = objective.loss(outputs, y)
                loss.backward()
                if config.clip is not None:
                    nn.utils.clip_grad_norm_(learning, config.clip)
                optimiser.step()
                total += loss.detach() * len(y)
                hits += (objective.predict(outputs.detach()) == y).sum()
                self._after_step()
        count = self.train_batches.count
        return {
            "epoch": self.epoch, "step": self.step, "lr": rate,
            "train_loss": float(total) / count, "train_accuracy": int(hits) / count,
        }  # fmt: skip

    def _after_step(self) -> None:
        self.step += 1
        if self.unit == "step" and self.step in self.kept:
            self.recorder.keep(
                snapshot(self.model), "step", self.step, {"step": self.step, "epoch": self.epoch}
            )
        if self.watch:
            self.watch.step(self.epoch, self.step)

    def _end_epoch(self, row: dict[str, Any]) -> None:
        """Measure, keep what is due and tell the watcher."""
        if not math.isfinite(row.get("train_loss", 0.0)):
            raise Diverged(
                f"{self.path}: the training loss is {row['train_loss']} in epoch {self.epoch}. "
                "The checkpoints before it are kept; a smaller --lr or --clip 1 may help."
            )
        if self._is_due() or self.config.test_at == "epochs":
            self._look_at_tests(row)
        # Whether to stop is decided on an exact look: the running accuracy lags behind, with dropout far behind.
        if self._is_due() or self._may_have_reached(row.get("train_accuracy", 0.0)):
            fit = evaluate(self.net, self.train_batches, self.objective, self.data.train)
            row |= {"train_fit": fit.given, "train_true": fit.true, "train_wrong_fit": fit.wrong}
        self.rows.append(row)
        self._keep(row)
        if self.watch:
            self.watch.epoch(row)

    def _look_at_tests(self, row: dict[str, Any]) -> None:
        if "test_accuracy" not in row:
            test = evaluate(self.net, self.test_batches, self.objective, self.data.test)
            row |= {"test_loss": test.loss, "test_accuracy": test.given}

    def _keep(self, row: dict[str, Any], *, last: bool = False) -> None:
        """Queue checkpoint, metrics and state, in this order."""
        due = self._is_due() or last
        if due:
            at = self.epoch if self.unit == "epoch" else self.step
            self.recorder.keep(snapshot(self.model), self.unit, at, row)
        if due or time.monotonic() >= self.state_due:
            self.state_due = time.monotonic() + STATE_EVERY
            self.recorder.write_metrics()
            state, owner = self._state(), self.recorder.facts.id
            self.recorder.do(lambda: save_state(self.path / "state.pt", state, owner))

    def _is_due(self) -> bool:
        return (self.epoch if self.unit == "epoch" else self.step) in self.kept

    def _state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch, "step": self.step, "metrics": list(self.rows),
            "net": copied(self.net.state_dict()), "optimiser": copied(self.optimiser.state_dict()),
        }  # fmt: skip

    def _may_have_reached(self, running: float) -> bool:
        goal = self.config.stop_at
        return goal is not None and (self.eased or running >= goal - LAG)

    def _reached(self) -> bool:
        goal = self.config.stop_at
        return goal is not None and self.epoch > 0 and self.rows[-1].get("train_fit", 0.0) >= goal

    def _intervene(self) -> None:
        for change in self.interventions:
            if change.epoch == self.epoch:
                forget(self.optimiser, self.model, change(self.model))

    def _enter_stage(self, epoch: int) -> None:
        """Take the stage that `epoch` belongs to, with an optimiser of its own."""
        stage = next(one for one in self.stages if epoch <= one.last_epoch)
        if stage is not self.stage:
            self.stage, self.net = stage, stage.net.to(self.device)
            stage.enter(self.model)
            self.forward = torch.compile(self.net) if self.config.compile else self.net
            self.optimiser = make_optimiser(self.config, self.net)


def copied(value: Any) -> Any:
    """A copy of nested dicts, lists and tensors that later steps do not change."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}  # pyright: ignore
    if isinstance(value, list | tuple):
        return [copied(inner) for inner in value]  # pyright: ignore
    return value
