"""Watching a training loop from beneath: checkpoints, numbers at chosen epochs, a warning, and a report at the end.

    watch = Watch("runs/mine", train=(x, y), test=(x2, y2), keep="every:5")
    watch.epoch(model, 0)                         # before training
    for epoch in range(1, 101):
        train_one_epoch(model, loader)
        watch.epoch(model, epoch, loss=loss)      # does nothing where nothing is due
    watch.close(model)                            # the last checkpoint, the audit, report.html

    torch.save({"watch": watch.state_dict(), ...}, path)          # plain values: loads with weights_only=True
    watch.load_state_dict(torch.load(path, weights_only=True)["watch"])

Lightning's and transformers' callbacks are this watch behind their events. Under torch.distributed every process calls
it, with the same numbers; the first one writes, logs and warns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from torch import nn

from undertow.auditing.audit_run import audit
from undertow.auditing.outcome import Audit
from undertow.errors import FOREIGN, BadValue, RunProblem, UnknownName
from undertow.features.layers import unwrap
from undertow.integrations.alarm import alarm
from undertow.integrations.look import Look, Looker
from undertow.integrations.processes import is_first
from undertow.integrations.settings import WatchConfig, is_due
from undertow.report.page import write_report
from undertow.session.sight import first_bad_tensor
from undertow.stored.documents import WatchDocument
from undertow.stored.door import read_document, write_document
from undertow.training.record import Recorder
from undertow.training.run import open_run

STATE = "watch.json"
ANEW = "Delete it to look at the training anew."
Log = Callable[[dict[str, float], int], None]


class MemorisationWarning(UserWarning):
    """The model has begun to memorise."""


class Watch:
    """One training run, watched."""

    def __init__(
        self,
        path: str | Path,
        train: Any = None,
        test: Any = None,
        *,
        config: WatchConfig | None = None,
        log: Log | None = None,
        **settings: Any,
    ) -> None:
        """Say what to watch; the folder is made at the first call.

        Args:
            path: the run's folder. One that holds a run already is taken only on resume.
            train: some of what the model is trained on, with its labels: (x, y), (x, y, true), a Dataset.
            test: held-out samples with labels, likewise.
            config: when and how; or give its fields as `settings`.
            log: is called with flat numbers and the epoch or step they belong to.
            settings: fields of `WatchConfig`.
        """
        self.path = Path(path)
        self.config = config or WatchConfig.of(**settings)
        self.log = log
        self.looks: list[Look] = []
        self.memorised_at: int | None = None
        self.audit: Audit | None = None
        self._given = (train, test)
        self._last: tuple[int, bool] = (-1, False)  # the newest number, and whether it was kept
        self._resumed = False
        self._recorder: Recorder | None = None
        self._told: set[str] = set()  # what was warned of already

    @cached_property
    def looker(self) -> Looker:
        """The samples to look with, read at the first look."""
        return Looker(*self._given, self.config)

    # ------------------------------------------------------------------ in the loop

    def epoch(self, model: nn.Module, at: int, **metrics: float) -> Look | None:
        """Tell that `at` epochs are done; what was found, where a look was due."""
        return self.moment(model, at, metrics) if self.config.unit == "epoch" else None

    def step(self, model: nn.Module, at: int, **metrics: float) -> Look | None:
        """Tell that `at` steps of the optimiser are done; what was found, where a look was due."""
        return self.moment(model, at, metrics) if self.config.unit == "step" else None

    def due(self, at: int) -> bool:
        """Whether anything is to be done after `at` epochs or steps."""
        own = self.config
        return any(is_due(schedule, at, own.last) for schedule in (own.schedule, own.looks))

    def moment(
        self, model: nn.Module, at: int, metrics: Mapping[str, float], *, force: bool = False
    ) -> Look | None:
        """Keep and look where that is due; whatever a look comes to, the checkpoint is kept first."""
        keep = force or is_due(self.config.schedule, at, self.config.last)
        self._last = (at, keep)
        if keep and is_first():
            self.recorder.save(unwrap(model), **{self.config.unit: at}, **_columns(metrics))  # pyright: ignore[reportArgumentType]
        look = self.look(model, at) if force or is_due(self.config.looks, at, self.config.last) else None
        if keep and is_first():
            if look is not None:
                self.recorder.add(self.config.unit, at, _columns(look.measures()))
            self.write_state()
        return look

    def look(self, model: nn.Module, at: int) -> Look | None:
        """Look at the model now, whatever the schedule says; one that gives no numbers is noted, not raised.

        Raises:
            UndertowError: before the first look, where the samples or the layers asked for are not there.
        """
        looker = self.looker
        try:
            found = looker.look(model, at)
        except UnknownName:
            if not self.looks:
                raise
            found = self._failed(model, at, "its layers have other names now")
        except FOREIGN as error:  # a look is never worth a training, whoever's error it is
            found = self._failed(model, at, (str(error).splitlines() or [type(error).__name__])[0])
        if found is None:
            return None
        self.looks = [*(other for other in self.looks if other.at < at), found]
        self._logged(found)
        if not found.failed:
            self._warn()
        return found

    def _failed(self, model: nn.Module, at: int, reason: str) -> Look:
        """A look that found nothing, and why: mostly the training has diverged."""
        bad = first_bad_tensor(unwrap(model))
        why = f"diverged: NaN or infinity in {bad}" if bad is not None else f"failed: {reason}"
        self._tell_once(
            "look",
            f"undertow's look at {self.config.unit} {at} {why}. The training goes on, checkpoints are kept.",
        )
        return Look(at, diverged=bad is not None, failed=True, notes=(why,))

    def _logged(self, found: Look) -> None:
        if self.log is None:
            return
        try:
            self.log({f"undertow/{name}": value for name, value in found.measures().items()}, found.at)
        except FOREIGN as error:  # a tracker that is gone is no reason to end a training
            self._tell_once(
                "log",
                f"log= of {type(self).__name__} raised {type(error).__name__}: {error}. The training goes on.",
            )

    def _tell_once(self, about: str, text: str) -> None:
        if about not in self._told and is_first():
            warnings.warn(text, stacklevel=3)
        self._told.add(about)

    def _warn(self) -> None:
        samples = self.looker.samples
        classes = len(samples.classes) if samples is not None else 0
        words = alarm(self.looks, self.config.unit, classes) if self.memorised_at is None else ""
        if words:
            self.memorised_at = self.looks[-1].at
            if is_first():
                warnings.warn(
                    f"{words} {self.path} keeps the checkpoints.", MemorisationWarning, stacklevel=2
                )

    def close(self, model: nn.Module | None = None) -> Audit | None:
        """Keep the last checkpoint, wait for the files, audit the run and write report.html."""
        at, kept = self._last
        if model is not None and at >= 0 and not kept:
            self.moment(model, at, {}, force=True)
        if self._recorder is None:
            return None
        self._recorder.close()
        if model is None or self.config.report == "none":
            return None
        try:
            self.audit = self._audited(unwrap(model))
        except FOREIGN as reason:  # the training is done and kept: a report that fails must not undo that
            warnings.warn(f"undertow wrote no report of {self.path}: {reason}", stacklevel=2)
        return self.audit

    def _audited(self, model: nn.Module) -> Audit | None:
        train, test = self._given
        if test is None:
            return None
        run = open_run(self.path, model=lambda: bare_copy(model))
        quick: dict[str, Any] = {"quick": True} if self.config.report == "quick" else {}
        found = audit(run, train, test, layers=self.config.layers, scaling=self.config.scaling, **quick)
        write_report([found.folder or self.path], self.path / "report.html")
        return found

    # ------------------------------------------------------------------ resuming

    @property
    def recorder(self) -> Recorder:
        """Writes the files; made when the first is due."""
        if self._recorder is None:
            if not self._resumed and (self.path / "run.json").exists():
                raise RunProblem(
                    f"{self.path} holds a run already. Give another folder, or resume that training from its own "
                    "checkpoint."
                )
            self._recorder = Recorder(self.path)
        return self._recorder

    def resume(self, at: int) -> None:
        """Go on in the folder after epoch or step `at`, with what its watch.json knows up to there."""
        self._resumed = True
        kept = self.path / STATE
        if kept.exists() and not self.looks:
            self.load_state_dict(read_document(kept, WatchDocument, next_step=ANEW))
        self.looks = [look for look in self.looks if look.at <= at]
        if self.memorised_at is not None and self.memorised_at > at:
            self.memorised_at = None

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs, in plain values."""
        return {
            "format": 1, "unit": self.config.unit, "looks": [look.to_dict() for look in self.looks],
            "memorised_at": self.memorised_at,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`."""
        if state.get("unit") != self.config.unit:
            raise BadValue("Watch.load_state_dict", f"a state in {self.config.unit}s", state.get("unit"))
        try:
            looks = [Look.from_dict(dict(one)) for one in state["looks"]]
            memorised_at = msgspec.convert(state["memorised_at"], int | None)
        except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
            raise BadValue(
                "Watch.load_state_dict", "what state_dict() gave", f"another value ({error})", ANEW
            ) from error
        self._resumed, self.looks, self.memorised_at = True, looks, memorised_at

    def write_state(self) -> None:
        """Keep the state beside the checkpoints, for loops that have no state of their own."""
        state = self.state_dict()
        self.recorder.do(lambda: write_document(self.path / STATE, state))

    def until(self, last: float) -> None:
        """Say which epoch or step is the last, where nobody said so before."""
        if self.config.last == float("inf"):
            self.config = replace(self.config, last=last)


def _columns(numbers: Mapping[str, float]) -> dict[str, float]:
    """By names that a table and a keyword can have."""
    return {name.replace("/", "."): value for name, value in numbers.items()}


def bare_copy(model: nn.Module) -> nn.Module:
    """A copy of a module without the trainer that Lightning ties to it."""
    tied = {name: model.__dict__.pop(name) for name in ("_trainer", "_fabric") if name in model.__dict__}
    try:
        copy = deepcopy(model)
    finally:
        model.__dict__.update(tied)
    copy.__dict__.update(dict.fromkeys(tied))
    return copy
