"""One call from a run to a verdict: all lenses over checkpoints and layers, kept as it goes.

    result = audit(run)                                       # undertow's own runs know their data
    result = audit(run, train=(x, y), test=(x2, y2))          # anyone's checkpoints, opened with a model factory
    result = audit(run, test=x2)                              # no labels: richness, consistency and drift only
    result.table; print(result.verdict); result.headline; result.measures["latent_gap"]

What comes first is read first: the model's own answers and its richness (one pass over each split for a checkpoint),
then probes (one more pass over each split while features fit into the memory), then drift (200 samples), composites
(at most 1,000 test samples: a pass for each checkpoint, a part of one for each pair of checkpoints and each cut, and
the whole models once more in each of at most six rounds), then repair of the last checkpoint. So the training samples
go through a checkpoint's model twice, the test samples twice, and some of them more often for composites.

Everything is kept in the run's folder (or `out`) by checkpoint, under a hash of the weights and the samples. A killed
audit goes on; a new checkpoint or layer costs what is new. Checkpoints with NaN in them are told and left out. A lens
that a model or its data does not allow is left out with a note, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from undertow.auditing.change import Change, trajectory_rows
from undertow.auditing.composites import Composites, check_enough
from undertow.auditing.estimate import Estimate, Plan, estimate
from undertow.auditing.loader import Loader, first_bad_tensor
from undertow.auditing.material import Material, gather_material
from undertow.auditing.mending import mending_rows
from undertow.auditing.outcome import QUICK, Audit, Context, holds_full_audit, make_audit
from undertow.auditing.parts import Part, Parts, key_of
from undertow.auditing.probing import probe_rows
from undertow.auditing.reading import BROKEN, Broken, CheckpointReader
from undertow.auditing.rows import Row, find, thinned
from undertow.auditing.settings import AuditConfig
from undertow.auditing.watching import AuditWatcher, GridSteps, Silent
from undertow.data.entries import rows_of
from undertow.data.inputs import preparing
from undertow.errors import BadData, BadValue
from undertow.features.compatibility import check_fit
from undertow.features.layers import INPUT, resolve_layers
from undertow.latent.grid_config import GridConfig
from undertow.temporal.cuts import SAMPLES as CUT_SAMPLES
from undertow.temporal.cuts import find_cut, find_cuts, sort_cuts
from undertow.temporal.matrix_data import chosen_checkpoints
from undertow.training.run import Run

FOLDER = "audit-parts"
SPECTRA = 5
"""At most so many checkpoints have a spectrum."""


def audit(
    run: Run,
    train: Any = None,
    test: Any = None,
    *,
    config: AuditConfig | None = None,
    out: str | Path | None = None,
    watch: AuditWatcher | None = None,
    **settings: Any,
) -> Audit:
    """Audit a run; the result is saved as audit.parquet and audit.json.

    Args:
        run: an opened run that can build its model.
        train: what it was trained on: Samples, (x, y) or a Dataset; the run's own data when neither split is given.
            A DataSet stands for both splits. Models that take several inputs by name get x as a dict of tensors of
            one length, or a Dataset of dicts with the labels under label or labels (Hugging Face's, too).
        test: samples it was not trained on, likewise; bare inputs (a tensor, a dict without labels) where no labels
            are known.
        config: what to look at; or give its fields as `settings`.
        out: the folder for what is kept; the run's own when not given. A quick audit never replaces a full one there
            by itself: it goes to audit-quick in the run's folder.
        watch: is told about progress.
        settings: fields of `AuditConfig`.
    """
    chosen = config or AuditConfig.of(**settings)
    material = gather_material(run, train, test, chosen)
    place = Path(out or run.path)
    beside = out is None and chosen.quick and holds_full_audit(place)
    work = _Work(run, material, chosen, place / QUICK if beside else place, watch or Silent())
    if beside:
        work.notes.append(f"kept in {work.out}, as {place} holds a full audit.")
    try:
        made = work.done()
    finally:
        work.watch.close()
    return replace(made, folder=made.save(work.out))


class _Work:
    """One audit in progress."""

    def __init__(
        self, run: Run, material: Material, config: AuditConfig, out: Path, watch: AuditWatcher
    ) -> None:
        self.run, self.material, self.config, self.out, self.watch = run, material, config, out, watch
        self.loader, self.parts = Loader(run, config.device), Parts(out / FOLDER)
        self.notes = [material.data.note] if material.data is not None and material.data.note else []
        asked = chosen_checkpoints(run, config.checkpoints)
        self.numbers = thinned(asked, config.most_checkpoints or len(asked))
        self.reader = CheckpointReader(material, config, run.config)

    def done(self) -> Audit:
        """All stages, one after the other."""
        self._check_fit()
        self.estimate = self._estimated()
        self.watch.plan(self.estimate)
        rows = self._readings()
        self.sound = _sound(rows)
        if self.sound:
            rows += self._lens("latent", self._probes)
            rows += self._lens("temporal", self._drift)
            rows += self._lens("temporal", lambda: self._composites(_best(rows, self.material)))
            rows += self._lens("repair", self._repairs)
        context = Context(
            name=self.run.path.resolve().name, unit=self.run.unit, situation=self.material.situation,
            classes=len(self.material.classes), wrong_labels=self.material.wrong_labels(),
        )  # fmt: skip
        return make_audit(rows, context, self._about())

    def _about(self) -> dict[str, Any]:
        """What else audit.json tells."""
        train = self.material.train
        return {
            "quick": self.config.quick,
            "settings": {**self.config.to_dict(), "estimate": str(self.estimate), "notes": self.notes},
            "data": {
                "name": self.material.name, "classes": list(self.material.classes),
                "train": len(train) if train else 0, "test": len(self.material.test),
            },
        }  # fmt: skip

    def _lens(self, lens: str, work: Callable[[], Iterable[Row]]) -> list[Row]:
        """The rows of one lens; where the model or its data does not allow it, a note."""
        if lens not in self.config.lenses:
            return []
        try:
            return list(work())
        except (BadData, BadValue) as reason:
            self._note(f"{lens}: {reason}")
            return []

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _check_fit(self) -> None:
        """Refuse layers that are not there, and samples that the model cannot take, before anything is computed."""
        model = self.loader.model(self._example)
        resolve_layers(model, self.config.layers)
        GridConfig(probes=self.config.probes, fits=self.config.fits)
        for split in filter(None, (self.material.test, self.material.train)):
            check_fit(model, split.x, self.material.name, prepare=preparing(split.x, self.material.scaling))

    # ------------------------------------------------------------------ what there is to do

    @cached_property
    def layers(self) -> tuple[str, ...]:
        return resolve_layers(self.loader.model(self._example), self.config.layers)

    @cached_property
    def _example(self) -> int:
        """The last checkpoint without NaN: on one with, every cut would seem right."""
        whole = (at for at in reversed(self.numbers) if first_bad_tensor(self.loader.model(at)) is None)
        return next(whole, self.numbers[-1])

    @cached_property
    def cuts(self) -> tuple[str, ...]:
        """Where the network is parted: its own choice, or those of the named layers that can be cut at."""
        model = self.loader.model(self._example)
        few = self.material.inputs(rows_of(self.material.test.x, slice(0, 2 * CUT_SAMPLES)))
        if self.config.layers == ("auto",) and not self.material.by_name:
            return tuple(cut.name for cut in find_cuts(model, "auto", few))
        if self.config.layers == ("auto",):
            # What goes round a layer is often one of the other inputs, a mask: that is worth telling.
            valid, reasons = sort_cuts(model, [name for name in self.layers if name != INPUT], few)
            for reason in dict.fromkeys(reasons.values()):
                names = ", ".join(name for name, one in reasons.items() if one == reason)
                self._note(f"temporal: no composites at {names}: {reason}.")
            return tuple(valid)
        found: list[str] = []
        for name in self.layers:
            if name != INPUT:
                try:
                    found.append(find_cut(model, name, few).name)
                except BadValue as reason:
                    self._note(f"temporal: {reason}")
        return tuple(found)

    @property
    def followed(self) -> tuple[str, ...]:
        """Layers whose drift is measured: the cuts, or all layers of a network that has none."""
        return self.cuts or tuple(name for name in self.layers if name != INPUT)

    def _estimated(self) -> Estimate:
        missing = [at for at in self.numbers if self._reading_part(at) is None]
        new = len(missing)
        temporal, latent = "temporal" in self.config.lenses, self._can_probe("latent")
        matrix = len(thinned(self.numbers, self.config.matrix_checkpoints))
        try:
            cuts = len(self.cuts) if temporal else 0
        except (BadData, BadValue):
            cuts = 0
        # A new checkpoint makes composites with all others, in both orders.
        pairs = cuts * (matrix**2 - max(0, matrix - new) ** 2)
        plan = Plan(
            tuple(self.layers), new, new if latent else 0, new if temporal else 0, pairs,
            2 * bool(new) if self._can_probe("repair") else 0,
        )  # fmt: skip
        return estimate(self.loader, self.material, self.config, plan, self._example)

    def _can_probe(self, lens: str) -> bool:
        return lens in self.config.lenses and self.material.data is not None

    # ------------------------------------------------------------------ the model itself, and richness

    def _readings(self) -> list[Row]:
        rows: list[Row] = []
        for at in self.numbers:
            part = self._reading_part(at)
            if part is None:
                found = self.reader.rows(
                    self.loader.model(at),
                    at,
                    initial=lambda: self._initial,
                    with_spectrum=at in self._spectra,
                )
                part = self.parts.put("reading", at, self._reading_key(at), Part(found))
            rows += part.rows
            self._step("reading", at, 1 / len(self.numbers))
        return rows

    @cached_property
    def _spectra(self) -> tuple[int, ...]:
        return thinned(self.numbers, SPECTRA)

    @cached_property
    def _fingerprint(self) -> str:
        return self.material.fingerprint

    def _reading_part(self, at: int) -> Part | None:
        return self.parts.get("reading", at, self._reading_key(at))

    def _reading_key(self, at: int) -> str:
        lens, first = "richness" in self.config.lenses, self.run.epochs[0]
        start = self.loader.mark(first) if first == 0 else None
        return key_of(
            self._fingerprint, self.loader.mark(at), start, lens, at in self._spectra, self.config.memory,
            self.config.seed,
        )  # fmt: skip

    @cached_property
    def _initial(self) -> Tensor | None:
        """What entered the head before training, where that model is known."""
        model = self.loader.initial()
        if model is None:
            return None
        try:
            reader, _ = self.reader.reader(model)
            return self.reader.answers(reader, self.material.test).entering
        except Broken:
            return None

    # ------------------------------------------------------------------ probes

    def _probes(self) -> Iterable[Row]:
        if self.material.data is None:
            self._note("latent: no probes without labels of both splits.")
            return []
        whole = self.config.checkpoints == "all" and self.sound == self.run.epochs
        steps = GridSteps(lambda at: self._step("probes", at, 1 / len(self.sound)))
        numbers = "all" if whole else ",".join(map(str, self.sound))
        return probe_rows(self.run, self.material, self.config, numbers, self.out, steps)

    # ------------------------------------------------------------------ drift, trajectories, composites

    def _drift(self) -> Iterable[Row]:
        last = self.sound[-1]
        change = Change(self.loader, self.material, self.config, last)
        rows: list[Row] = []
        features: dict[str, dict[int, Any]] = {layer: {} for layer in self.followed}
        for at in self.sound:
            part = self._drift_part(change, at)
            rows += _in_order(part.rows, [*part.about["others"], *self.followed])
            for layer, own in features.items():
                own[at] = part.arrays[layer]
            self._step("drift", at, 1 / len(self.sound))
        for layer, own in features.items():
            rows += trajectory_rows(own, layer, self.material, change.drawn[: len(own[last])])
        return rows

    def _drift_part(self, change: Change, at: int) -> Part:
        """What is kept of a checkpoint, with the layers that were not asked for before."""
        key = key_of(
            self._fingerprint, self.loader.mark(at), self.loader.mark(change.last), self.config.seed
        )  # fmt: skip
        kept = self.parts.get("drift", at, key) or Part([])
        missing = tuple(layer for layer in self.followed if layer not in kept.arrays)
        if not missing:
            return kept
        return self.parts.put("drift", at, key, change.part(at, missing).beside(kept))

    def _composites(self, best: int | None) -> Iterable[Row]:
        if not self.cuts:
            self._note("temporal: no composites, as the network can be cut at none of its layers.")
            return []
        spread = thinned(self.sound, self.config.matrix_checkpoints)
        numbers: list[int] = sorted({*spread, *([] if best is None else [best])})
        check_enough(numbers, self.material)
        composites = Composites(self.loader, self.material, self.config, self.parts, self.cuts)
        composites.compute(numbers, lambda at, share: self._step("composites", at, share))
        return composites.rows(numbers, best)

    # ------------------------------------------------------------------ repair

    def _repairs(self) -> Iterable[Row]:
        if self.material.data is None:
            self._note("repair: nothing can be written back without labels of both splits.")
            return []
        last = self.sound[-1]
        key = key_of(self._fingerprint, self.loader.mark(last), self.config.memory, self.config.seed)
        part = self.parts.get("repair", last, key)
        if part is None:
            found = list(mending_rows(self.run, self.material, self.config, last))
            part = self.parts.put("repair", last, key, Part(found))
        self._step("repair", last, 1.0)
        return part.rows

    def _step(self, stage: str, at: int, share: float) -> None:
        self.watch.step(stage, f"{self.run.unit} {at}", share * self.estimate.share(stage))


def _in_order(rows: Iterable[Row], layers: list[str]) -> list[Row]:
    """The rows of these layers, measure by measure: the same whichever layer was asked for first."""
    kept = [one for one in rows if one["layer"] in layers]
    return sorted(kept, key=lambda one: (one["measure"], layers.index(one["layer"])))


def _sound(rows: Iterable[Row]) -> tuple[int, ...]:
    """The checkpoints that give numbers."""
    broken = {one["checkpoint"] for one in rows if one["note"].startswith(BROKEN)}
    return tuple(sorted({one["checkpoint"] for one in rows} - broken))


def _best(rows: Iterable[Row], material: Material) -> int | None:
    """The checkpoint with the best test accuracy, the first of equal ones; None without labels."""
    found = find(rows, "model", "accuracy", split="test", labels=material.test_labels)
    if not found:
        return None
    return max(found, key=lambda one: (one["value"], -one["checkpoint"]))["checkpoint"]
