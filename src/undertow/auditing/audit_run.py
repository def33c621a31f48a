"""One call from a run to a verdict: all lenses over checkpoints and layers, kept as it goes.

    result = audit(run)                                       # undertow's own runs know their data
    result = audit(run, train=(x, y), test=(x2, y2))          # anyone's checkpoints, opened with a model factory
    result = audit(run, test=x2)                              # no labels: richness, consistency and drift only
    result = audit(session)                                   # labels and repair on it then cost no more passes
    result.table; print(result.verdict); result.headline; result.measures["latent_gap"]

The road: a session reads the samples; each lens says what it wants of the one pass over each split at each checkpoint
(its gauges); the session visits the checkpoints once for all of them; composites run their own passes over at most
1,000 test samples; each lens gives a typed result; the verdict reads the results; text is made last.

Everything is kept by checkpoint, under a hash of the weights and the samples. A killed audit goes on; a new checkpoint
or layer costs what is new. Checkpoints with NaN in them are told and left out. A lens that a model or its data does not
allow is left out with a note, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from undertow.auditing.answers_lens import AnswersLens
from undertow.auditing.budget import Part, affordable
from undertow.auditing.composites_lens import CompositesLens, CompositesResult
from undertow.auditing.drift_lens import DriftLens
from undertow.auditing.estimate import Estimate, Work, estimate
from undertow.auditing.evidence import Context, Evidence
from undertow.auditing.labels_lens import LabelsLens
from undertow.auditing.latent_lens import LatentLens
from undertow.auditing.lens import Lens, Result, find_lens, gauges_of
from undertow.auditing.outcome import FACTS, QUICK, Audit, holds_full_audit, make_audit
from undertow.auditing.own_log import other_words
from undertow.auditing.repairs_lens import RepairsLens
from undertow.auditing.settings import LENSES, AuditConfig, name_of
from undertow.errors import BadData, BadValue, RunProblem, UndertowError
from undertow.features.layers import INPUT
from undertow.files import why_forbidden
from undertow.latent.settings import check_probes
from undertow.outputs import as_path, check_output_folder
from undertow.richness.run_richness import RichnessLens
from undertow.session.checkpoints import thinned
from undertow.session.field_types import folder
from undertow.session.gauge import Gauge
from undertow.session.progress import Progress, python_progress
from undertow.session.reader import ENTERING
from undertow.session.samples import TEST
from undertow.session.session import Session, count_of, session_of
from undertow.session.splits import take
from undertow.session.views import views_of
from undertow.stored.documents import AuditDocument
from undertow.stored.door import read_document
from undertow.temporal.cuts import SAMPLES as CUT_SAMPLES
from undertow.temporal.cuts import find_cut, find_cuts, sort_cuts
from undertow.training.run import ModelRun, Opened, as_run

T = TypeVar("T")
COMPOSITES = CompositesLens((), 2, 2)
"""Stands for composites in notes, before their cuts are known."""
FIELDS = {
    "latent": "latent", "richness": "richness", "temporal": "drift", "repair": "repairs", "labels": "wrong",
}  # fmt: skip
"""Lens -> where its result stands in the evidence."""


def audit(
    run: Opened | Session,
    train: Any = None,
    test: Any = None,
    *,
    config: AuditConfig | None = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> Audit:
    """Audit a run; the result is saved as audit.parquet and audit.json.

    Args:
        run: an opened run that can build its model, its path, one model by itself, or a session.
        train: what it was trained on: Samples, (x, y), (x, y, true), a Dataset, a DataLoader or the name of a data
            set; the run's own data when neither split is given.
            A DataSet stands for both splits. Models that take several inputs by name get x as a dict of tensors of
            one length, or a Dataset of dicts with the labels under label or labels (Hugging Face's, too).
        test: samples it was not trained on, likewise; bare inputs (a tensor, a dict without labels) where no labels
            are known.
        config: what to look at; or give its fields as `settings`.
        out: the folder for what is kept; the run's own when not given. A quick audit never replaces a full one there
            by itself: it goes to audit-quick in the run's folder.
        progress: is told how the work goes; True shows a bar, False nothing.
        settings: fields of `AuditConfig`.
    """
    if out is not None:
        check_output_folder("audit", "out", as_path(out, "out"))
    chosen = AuditConfig.chosen(config, settings).thinned()
    check_probes(chosen.probes, chosen.fits)
    if isinstance(run, Session) and chosen.quick:
        raise BadValue("audit(quick=True)", "a run", "a session", "Give Session(run, samples=1000, ...).")
    if not isinstance(run, Session):
        run = as_run(run, "audit")
    place = folder(out, run.out if isinstance(run, Session) else run.path)
    beside = out is None and chosen.quick and holds_full_audit(place)
    kept = place / QUICK if beside else place
    in_memory = out is None and isinstance(run.run if isinstance(run, Session) else run, ModelRun)
    if not in_memory:
        _check_place(kept)
    progress = python_progress(progress)
    session = session_of(run, train, test, chosen, out=kept, progress=progress)
    session.checkpoints = thinned(session.checkpoints, chosen.most_checkpoints or len(session.checkpoints))
    config = replace(chosen, **session.config.shared())
    auditor = Auditor(session, config, shares=isinstance(run, Session))
    if not isinstance(run, Session) and not (chosen.full or chosen.quick or chosen.samples):
        part = _known_part(kept, session) or auditor.affordable()
        if part is not None:
            config = replace(config, samples=part.samples)
            session = session_of(run, train, test, config, out=kept, progress=progress)
            session.checkpoints = thinned(session.checkpoints, part.checkpoints)
            auditor = Auditor(session, config, part=part)
    if beside:
        auditor.note(f"kept in {kept}, as {place} holds a full audit.")
    try:
        with session.working():
            made = auditor.audited()
    finally:
        session.progress.close()
    # What is kept of a model in memory goes with it, unless a folder was named.
    return made if in_memory else replace(made, folder=made.save(kept))


def _check_place(kept: Path) -> None:
    """Refuse a folder that cannot take the audit's table, before anything is measured."""
    if why := why_forbidden(kept):
        raise RunProblem(
            f"audit: cannot write into {kept}: {why}. Choose a folder that you may write to. --out names it (out= in "
            "Python)."
        )


def _known_part(kept: Path, session: Session) -> Part | None:
    """The part that the audit kept there looked at, if it was of as many checkpoints and samples: it stays."""
    try:
        known = Part(**read_document(kept / FACTS, AuditDocument, owner=session.run.facts.id)["part"])
    except (UndertowError, KeyError, TypeError):
        return None
    whole = (len(session.checkpoints), max(count_of(session.samples.train), count_of(session.samples.test)))
    return known if (known.of_checkpoints, known.of_samples) == whole else None


class Auditor:
    """One audit in progress."""

    def __init__(
        self, session: Session, config: AuditConfig, *, shares: bool = False, part: Part | None = None
    ) -> None:
        """Audit a session; `shares` says that other verbs will go on with it."""
        if session.samples.test is None:
            raise BadValue(
                "audit", "samples that the model was not trained on", "training samples only", "Give test=..., "
                "with labels (x, y) or without (x).",
            )  # fmt: skip
        self.session, self.config, self.shares = session, config, shares
        samples = session.samples
        told = (samples.note, samples.overlap_words(), *session.run.notes)
        self.part = part
        self.notes = [note for note in (*told, "" if part is None else part.words) if note]

    def audited(self) -> Audit:
        """Visit the checkpoints, look through each lens, judge."""
        session = self.session
        session.check_fit()
        self.layers = views_of(session, self.config.layers)
        gauges = [one for lens in self.shared for one in self._gauges(lens)]
        self._plan(gauges)
        session.visit(
            gauges, self._order(), lambda at: self._step("passes", at, 1 / len(session.checkpoints))
        )
        seen = self._evidence()
        now = seen.accuracy(seen.last) if seen.numbers else None
        if now is not None and (said := other_words(session.run.metrics, session.run.unit, seen.last, now)):
            self.note(said)
        return make_audit(seen, self._about())

    def affordable(self) -> Part | None:
        """What of the session can be looked at in about two minutes; None where all of it can."""
        session = self.session
        session.check_fit()
        self.layers = views_of(session, self.config.layers)
        gauges = [one for lens in self.shared for one in self._gauges(lens)]
        if not session.missing(gauges):
            return None

        def looked(trial: Session) -> None:
            own = Auditor(trial, self.config)
            own.layers = self.layers
            trial.visit([one for lens in own.shared for one in own._gauges(lens)], [trial.example])

        return affordable(session, self._estimated(gauges), looked)

    def _gauges(self, lens: Lens) -> Sequence[Gauge[Any]]:
        return self._or_note(lens, lambda: gauges_of(lens, self.session), [])

    def note(self, text: str) -> None:
        """Keep a note for the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    # ------------------------------------------------------------------ lenses

    @cached_property
    def named(self) -> list[str | Lens]:
        """The lenses that were asked for: built-in ones by name, anyone's as functions."""
        return [find_lens(one, LENSES) for one in self.config.lenses]

    @cached_property
    def shared(self) -> list[Lens]:
        """Lenses that take part in the one pass."""
        known: dict[str, Callable[[], Lens]] = {
            "richness": RichnessLens,
            "latent": lambda: LatentLens(self.layers, self.config.probes, self.config.fits),
            "temporal": lambda: DriftLens(self.followed),
            "repair": RepairsLens,
            "labels": lambda: LabelsLens(self.config.layers),
        }
        built = [known[name]() for name in known if name in self.named and self._allowed(name)]
        return [AnswersLens(), *built, *self.own]

    @property
    def own(self) -> list[Lens]:
        """Anyone's own lenses."""
        return [one for one in self.named if not isinstance(one, str)]

    def _allowed(self, name: str) -> bool:
        if name == "labels":
            train = self.session.samples.train
            # Where the truth is known there is nothing to find out, unless another verb will ask.
            return train is not None and train.given is not None and (self.shares or train.true is None)
        if name not in ("latent", "repair") or self.session.samples.both_labelled:
            return True
        why = {"latent": "no probes", "repair": "nothing can be written back"}[name]
        self.note(f"{name}: {why} without labels of both splits.")
        return False

    def _evidence(self) -> Evidence:
        """What each lens found."""
        session = self.session
        answers = AnswersLens()(session)
        found = {name_of(lens): lens for lens in self.shared if lens not in self.own}
        looked: dict[str, Any] = {}
        if answers.at:
            looked = {field: self._look(found[name]) for name, field in FIELDS.items() if name in found}
            if "temporal" in self.named:
                looked["composites"] = self._or_note(COMPOSITES, self._composites, None)
        others = [self._look(lens) for lens in self.own if answers.at]
        for name, reason in session.refused.items():
            self.note(f"{name}: {reason}")
        context = Context(
            name=session.run.name, unit=session.run.unit, labels=session.samples.labels,
            classes=len(session.samples.classes), test_classes=session.samples.test_classes,
            wrong_labels=session.samples.wrong_labels(),
        )  # fmt: skip
        return Evidence(context, answers, **looked, others=tuple(one for one in others if one is not None))

    def _composites(self) -> CompositesResult:
        own = self.config
        lens = CompositesLens(self.cuts, own.matrix_checkpoints, own.matrix_samples, self._pair)
        return lens(self.session)

    def _look(self, lens: Lens) -> Result | None:
        return self._or_note(lens, lambda: lens(self.session), None)

    def _or_note(self, lens: Lens, work: Callable[[], T], instead: T) -> T:
        """What a lens gives; where the model or its data does not allow it, a note."""
        try:
            return work()
        except (BadData, BadValue) as reason:
            self.note(f"{name_of(lens)}: {str(reason).rstrip('.')}.")
            return instead

    # ------------------------------------------------------------------ what there is to do

    @cached_property
    def cuts(self) -> tuple[str, ...]:
        """Where the network is parted: its own choice, or those of the named layers that can be cut at."""
        session, model = self.session, self.session.example_model
        test = session.samples.split(TEST)
        few: Any = session.reader(model).inputs(take(test.x, torch.arange(min(2 * CUT_SAMPLES, len(test)))))
        if self.config.layers == ("auto",) and isinstance(few, torch.Tensor):
            return tuple(cut.name for cut in find_cuts(model, "auto", few))
        names = [name for name in self.layers if name not in (INPUT, ENTERING)]
        if self.config.layers == ("auto",):
            # What goes round a layer is often one of the other inputs, a mask: that is worth telling.
            valid, reasons = sort_cuts(model, names, few)
            for reason in dict.fromkeys(reasons.values()):
                where = ", ".join(name for name, one in reasons.items() if one == reason)
                self.note(f"temporal: no composites at {where}: {reason}.")
            return tuple(valid)
        found = [
            self._or_note(COMPOSITES, lambda name=name: find_cut(model, name, few).name, "") for name in names
        ]
        return tuple(filter(None, found))

    @cached_property
    def followed(self) -> tuple[str, ...]:
        """Layers whose drift is measured: the cuts, or all layers of a network that has none."""
        try:
            found = self.cuts
        except (BadData, BadValue):
            found = ()
        return found or tuple(name for name in self.layers if name not in (INPUT, ENTERING))

    def _order(self) -> Sequence[int]:
        """Checkpoints that others are compared with come first: the one before training, and the last."""
        first = [*([0] if self.session.initial == 0 else []), self.session.example]
        numbers = self.session.checkpoints
        return [
            *(at for at in dict.fromkeys(first) if at in numbers),
            *(at for at in numbers if at not in first),
        ]

    def _estimated(self, gauges: Sequence[Gauge[Any]]) -> Estimate:
        session = self.session
        new = session.missing(gauges)
        matrix = len(thinned(session.checkpoints, self.config.matrix_checkpoints))
        pairs = 0
        if "temporal" in self.named:
            cuts = self._or_note(COMPOSITES, lambda: len(self.cuts), 0)
            # A new checkpoint makes composites with all others, in both orders.
            pairs = cuts * (matrix**2 - max(0, matrix - len(new)) ** 2)
        return estimate(session, self.config, self.layers, gauges, Work(len(new), pairs))

    def _plan(self, gauges: Sequence[Gauge[Any]]) -> None:
        session = self.session
        self.estimate = self._estimated(gauges)
        if self.part is not None:
            session.progress.plan(self.part.words, 0)
        words = f"This takes {self.estimate}." if self.estimate.seconds else "All of it was computed before."
        session.progress.plan(words, len(session.checkpoints) if self.estimate.seconds else 0)

    def _pair(self, at: int, share: float) -> None:
        self._step("composites", at, share)

    def _step(self, stage: str, at: int, share: float) -> None:
        self.session.progress.step(
            f"{stage}, {self.session.run.unit} {at}", share * self.estimate.share(stage)
        )

    def _about(self) -> dict[str, Any]:
        """What else audit.json tells."""
        samples, mark = self.session.samples, self.session.run.facts.id
        return {
            **({"run_id": mark} if mark else {}),
            "quick": self.config.quick,
            **({} if self.part is None else {"part": asdict(self.part)}),
            "settings": {**self.config.to_dict(), "estimate": str(self.estimate), "notes": self.notes},
            "data": {
                "name": samples.name, "classes": list(samples.classes), "train": count_of(samples.train),
                "test": count_of(samples.test),
            },
        }  # fmt: skip
