"""Repairing a classifier with what its layers still know, where held-out samples say that it is worth it.

    fixed = repair(model, train=(x, y), test=(x2, y2))    # VeLPIC into the last linear layer
    fixed = repair(run)                                         # undertow's own runs know their data
    fixed = repair(run, layer="layer2", probe="masc")           # a shorter model with a head on layer2
    fixed = repair(run, layer="best")       # the head or layer that half of the evidence likes best
    print(fixed); fixed.model, fixed.accepted, fixed.reason, fixed.before, fixed.after
    fixed.undo(); fixed.save("fixed.safetensors")

The probe learns from the training samples with the labels that the model was trained on: no clean label is
needed for that. Whether to take it is another question, and training samples cannot answer it: the model
has memorised their labels. So held-out samples are wanted, clean or noisy (`test_noise`);
without them the answer is "cannot tell" and the model stays as it is, unless `gate=False`.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue
from undertow.features.head import layer_called
from undertow.features.layers import INPUT, resolve_layers, unwrap
from undertow.latent.layer_fits import fit_probes
from undertow.latent.probe import Probe
from undertow.repairing.calibrate import Calibration, calibrate
from undertow.repairing.gate import Judgement, judge
from undertow.repairing.graft import Graft, fold_temperature, make_graft, single_layer
from undertow.repairing.head_edit import HeadEdit, write_head
from undertow.repairing.head_fits import TOO_WIDE
from undertow.repairing.outcome import Repair
from undertow.repairing.settings import BEST, RepairConfig
from undertow.repairing.shared_pass import SharedPass
from undertow.repairing.transfer import LINEAR, linear_parts, reader_with_head
from undertow.room import further, in_all, taken
from undertow.session.progress import Progress, asked_progress
from undertow.session.reader import ENTERING, Reader
from undertow.session.samples import TEST, TRAIN, SessionSamples, gather_samples
from undertow.session.session import Session, session_of
from undertow.session.splits import Split, check_labels, seen_before, take
from undertow.sizes import parse_size
from undertow.training.run import Opened, as_run
from undertow.training.seeds import stream

TRIED_FIRST = 64
"""Training samples by which it is told what a pass takes."""
TRIED = 16
"""Held-out samples on which a repaired model is run to see that it answers as its probe did."""
NO_EVIDENCE = (
    "cannot tell: no sample here is one that the model was not trained on, and of the others it may have memorised "
    "the labels. Give test=..., clean or noisy, or gate=False to repair in any case"
)


def repair(
    model: Opened | Session,
    train: Any = None,
    test: Any = None,
    *,
    in_place: bool = False,
    checkpoint: int = -1,
    config: RepairConfig | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> Repair:
    """Give a classifier a head that is a probe of its features, if held-out samples say that it helps.

    Args:
        model: any classifier, a run or its path, or a session of one.
        train: what it was trained on: (x, y), Samples, a DataSet or a torch Dataset; x may be a tensor or a dict
            or tuple of tensors. A run's own data when not given.
        test: samples that it was not trained on, likewise; the test split of a DataSet when not given.
        in_place: write into the model itself instead of a copy (its own head only).
        checkpoint: which checkpoint of a run; the last one when not given.
        config: how; or give its fields as `settings`.
        progress: is told what the work takes; True shows it.
        settings: fields of `RepairConfig`.
    """
    chosen = RepairConfig.chosen(config, settings)
    # Held-out labels count as true unless it is said that they are noisy.
    if not isinstance(model, Session):
        chosen = replace(chosen, labels="clean" if chosen.test_noise == 0 else "noisy")
    if isinstance(model, nn.Module):
        if train is None:
            raise BadValue("repair", "the samples that the model was trained on", None, "Give train=(x, y).")
        return _Work(
            model, gather_samples(None, train, test, chosen, model), chosen, in_place, progress=progress
        ).repaired(None)
    if not isinstance(model, Session):
        model = as_run(model, "repair")
        train = model.data().train if train is None and test is not None else train
    session = session_of(model, train, test, chosen)
    chosen = replace(chosen, **session.config.shared())
    if chosen.labels == "noisy" and chosen.test_noise == 0:
        chosen = replace(chosen, test_noise=None)
    at = session.run.checkpoint(checkpoint).at
    work = _Work(session.model(at), session.samples, chosen, in_place, SharedPass(session, at), progress)
    return work.repaired(session.run.facts.model)


class _Work:
    """One repair in progress."""

    def __init__(
        self,
        model: nn.Module,
        samples: SessionSamples,
        config: RepairConfig,
        in_place: bool,
        shared: SharedPass | None = None,
        progress: Progress | bool | None = None,
    ) -> None:
        self.progress = asked_progress(progress)
        self.model, self.config, self.in_place = model, config, in_place
        self.train, self.scaling = samples.split(TRAIN), samples.scaling
        self.notes: list[str] = [samples.note] if samples.note else []
        self.at_head = config.layer in (None, ENTERING)
        self.shared = shared if config.probe == "velpic" and samples.test is not None else None
        if in_place and not (self.at_head and config.probe in LINEAR):
            raise BadValue(
                "repair(in_place=True)", "a linear probe for the model's own head (layer=None)",
                f"{config.probe} at {config.layer or 'the head'}", "A graft is always a model of its own.",
            )  # fmt: skip
        plain = Reader(
            model,
            scaling=self.scaling,
            batch_size=config.batch_size,
            conv=config.conv,
            tokens=config.tokens,
        )
        self.few = plain.inputs(take(self.train.x, torch.arange(min(8, len(self.train.y)))))
        plain.check_fit(self.train.x, TRAIN)
        self.reader = self._reader(plain)
        self.classes = self._count_classes()
        check_labels(self.train, self.classes, TRAIN, every_class=True)
        self.rows: Tensor | None = None  # numbers of the held-out samples that count
        self.held: Split | None = None
        if samples.test is not None:
            plain.check_fit(samples.test.x, TEST)
            check_labels(samples.test, self.classes, TEST)
            self._keep_unseen(samples.test)

    def repaired(self, facts: dict[str, Any] | None) -> Repair:
        """Fit, build, judge and calibrate."""
        layer, probe, rows = self._choose()
        held = None if self.held is None or rows is None else self.held.take(rows)
        before = self._before(rows)
        self._compare_with_training()
        made, edit = self._build(layer, probe)
        try:
            after = self._after(made, layer, rows)
            judgement = self._judge(held, before, after)
            calibration = self._calibrate(held, before, after)
        except BaseException:
            self._put_back(edit)
            raise
        if judgement.accepted:
            self._fold(made, calibration)
        else:
            self._put_back(edit)
        return Repair(
            made if judgement.accepted else self.model, judgement, self._name(layer), self.config.probe, calibration,
            tuple(self.notes), self.model, edit, facts, self.scaling, self.few,
        )  # fmt: skip

    def _put_back(self, edit: HeadEdit | None) -> None:
        if edit is not None and self.in_place:
            edit.undo()

    def _reader(self, plain: Reader) -> Reader:
        """With the head, which a graft on a named layer can do without."""
        if self.at_head:
            return reader_with_head(plain, self.train)
        try:
            return reader_with_head(plain, self.train)
        except BadValue:
            return plain

    def _count_classes(self) -> int:
        if self.reader.head is not None:
            return self.reader.head.classes
        outputs = next(
            self.reader.stream(take(self.train.x, torch.arange(min(2, len(self.train.y)))), [INPUT])
        ).outputs
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            raise BadValue(
                f"repair of {type(self.model).__name__}", "one output per class (N, C)",
                f"outputs of shape {tuple(outputs.shape)}", "Probes tell classes apart.",
            )  # fmt: skip
        return outputs.shape[1]

    def _keep_unseen(self, held: Split) -> None:
        """Held-out samples without those that are training samples too."""
        seen = seen_before(self.train.x, held.x)
        if bool(seen.any()):
            count = int(seen.sum())
            self._note(f"{count} of {len(seen)} held-out samples are training samples too and do not count.")
        if not bool(seen.all()):
            self.held, self.rows = held, (~seen).nonzero()[:, 0]

    def _before(self, rows: Tensor | None) -> Tensor | None:
        """What the model answers on held-out samples."""
        if self.held is None or rows is None:
            return None
        known = None if self.shared is None else self.shared.before()
        return self.reader.answers(take(self.held.x, rows)) if known is None else known[rows]

    def _after(self, made: nn.Module, layer: str, rows: Tensor | None) -> Tensor | None:
        """What the repaired model answers on held-out samples; from the shared pass where it gives the same."""
        if self.held is None or rows is None:
            return None
        known = None if self.shared is None else self.shared.after(layer)
        if known is not None:
            few = rows[:TRIED]
            tried = self._reader_of(made).answers(take(self.held.x, few))
            if torch.allclose(tried, known[few].to(tried.dtype), rtol=1e-3, atol=1e-4):
                return known[rows]
        return self._reader_of(made).answers(take(self.held.x, rows))

    def _choose(self) -> tuple[str, Probe, Tensor | None]:
        """The layer, the probe fitted there, and the held-out samples that are left to judge it."""
        config = self.config
        if config.layer == BEST:
            return self._best_layer()
        layer = ENTERING if self.at_head else single_layer(self.model, config.layer or "")
        found = self._fit([layer])[layer]
        if isinstance(found, str):
            raise BadData(found)
        return layer, found, self.rows

    def _best_layer(self) -> tuple[str, Probe, Tensor]:
        if self.rows is None:
            raise BadValue(
                "repair(layer='best')",
                "held-out samples to choose by",
                "none",
                "Give test=..., or name a layer.",
            )
        random = stream(self.config.seed, "halves of the evidence")
        order = self.rows[torch.randperm(len(self.rows), generator=random)]
        half = (len(order) + 1) // 2
        choosing, judging = order[:half], order[half:]
        found = self._fit(self._candidates())
        fitted = {name: one for name, one in found.items() if not isinstance(one, str)}
        for name in found.keys() - fitted.keys():
            self._note(f"layer {name!r} is left out: {found[name]}")
        if not fitted:
            raise BadData(f"repair(layer='best'): no layer could be probed. {next(iter(found.values()), '')}")
        scores = self._scores(fitted, choosing)
        best = max(scores, key=lambda name: scores[name])
        own = self._right(self._before(choosing), choosing)
        listed = ", ".join(f"{self._name(name)} {100 * share:.1f} %" for name, share in scores.items())
        self._note(
            f"{self._name(best)!r} chosen on {len(choosing)} of the held-out samples ({listed}; the model as it is "
            f"{100 * own:.1f} %), judged on the others."
        )
        return best, fitted[best], judging

    def _candidates(self) -> list[str]:
        """What enters the head, which a functional ReLU may hide from every layer, and the layers themselves."""
        head = self.reader.head
        own = [ENTERING] if head is not None and (self.config.probe in LINEAR or not head.per_token) else []
        return [*own, *(name for name in resolve_layers(self.model, "auto") if name != INPUT)]

    def _right(self, outputs: Tensor | None, rows: Tensor) -> float:
        assert self.held is not None
        assert outputs is not None
        return float((outputs.argmax(1).cpu() == self.held.y[rows]).double().mean())

    def _scores(self, fitted: dict[str, Probe], rows: Tensor) -> dict[str, float]:
        assert self.held is not None
        known = {name: None if self.shared is None else self.shared.after(name) for name in fitted}
        labels = self.held.y[rows]
        if all(one is not None for one in known.values()):
            return {name: self._right(one[rows], rows) for name, one in known.items() if one is not None}
        hits = dict.fromkeys(fitted, 0)
        for batch in self.reader.stream(take(self.held.x, rows), list(fitted)):
            for name, probe in fitted.items():
                said = torch.as_tensor(probe.predict(batch.features[name])).cpu()
                hits[name] += int((said == labels[batch.rows]).sum())
        return {name: count / len(labels) for name, count in hits.items()}

    def _fit(self, layers: list[str]) -> dict[str, Probe | str]:
        config = self.config
        self._plan(layers)
        if self.shared is not None:
            fits = self.shared.fits(layers)
            known: dict[str, Probe | str] = {
                name: fit.reason or fit.probe() for name, fit in fits.items() if fit.reason != TOO_WIDE
            }
            if len(known) == len(layers):
                return known
        return fit_probes(self.reader, self.train, self.classes, layers, config.probe, config.memory)

    def _plan(self, layers: list[str]) -> None:
        """Say what the process will take, by a pass of some samples."""
        before, few = taken(), take(self.train.x, torch.arange(min(TRIED_FIRST, len(self.train.y))))
        width = sum(part.shape[1] for part in next(self.reader.stream(few, layers)).features.values())
        count = len(self.train.y) + (0 if self.held is None else len(self.held.y))
        work = min(parse_size(self.config.memory), 3 * 4 * count * width)
        work += further(before, min(TRIED_FIRST, len(self.train.y)), self.config.batch_size)
        self.progress.plan(f"This takes {in_all(work)}.", 0)

    def _build(self, layer: str, probe: Probe) -> tuple[nn.Module, HeadEdit | None]:
        head = self.reader.head
        if layer == ENTERING and self.config.probe in LINEAR:
            assert head is not None
            target = self.model if self.in_place else deepcopy(unwrap(self.model))
            return target, write_head(target, head.name, *linear_parts(probe))
        options: dict[str, Any] = {"conv": self.config.conv, "tokens": self.config.tokens}
        if layer != ENTERING:
            return make_graft(self.model, layer, probe, example=self.few, **options), None
        assert head is not None
        if head.per_token:
            raise BadValue(
                f"repair with {self.config.probe}", "a head that is applied once per sample", "one for each token",
                "Name a layer to graft on.",
            )  # fmt: skip
        return make_graft(self.model, head.name, probe, example=self.few, entering=True, **options), None

    def _reader_of(self, made: nn.Module) -> Reader:
        return replace(self.reader, model=made, head=None if isinstance(made, Graft) else self.reader.head)

    def _judge(self, held: Split | None, before: Tensor | None, after: Tensor | None) -> Judgement:
        """The gate's answer; where it is not asked, its numbers all the same."""
        config = self.config
        if held is None or before is None or after is None:
            found = Judgement("cannot tell", NO_EVIDENCE)
        else:
            found = judge(
                before.argmax(1), after.argmax(1), held.y, classes=self.classes, noise=config.test_noise,
                least=config.least, confidence=config.confidence, seed=config.seed,
            )  # fmt: skip
        if not config.gate:
            return replace(found, verdict="not asked", reason=f"made without a gate ({found.reason})")
        if found.verdict == "cannot tell":
            warnings.warn(f"repair: {found.reason}. The model is left as it was.", stacklevel=4)
        return found

    def _calibrate(
        self, held: Split | None, before: Tensor | None, after: Tensor | None
    ) -> Calibration | None:
        noise = self.config.test_noise
        if held is None or before is None or after is None or len(held.y) < 2:
            self._note("No held-out samples: the scores of the new head are not calibrated.")
            return None
        if noise is None or noise == 1:
            self._note("Without the rate of the label noise the scores of the new head cannot be calibrated.")
            return None
        return calibrate(before, after, held.y, noise)

    def _fold(self, made: nn.Module, calibration: Calibration | None) -> None:
        if not self.config.calibrate or calibration is None:
            return
        head = self.reader.head
        if isinstance(made, Graft):
            fold_temperature(made.head, calibration.temperature)
        elif head is not None:
            fold_temperature(layer_called(made, head.name), calibration.temperature)

    def _compare_with_training(self) -> None:
        """Say so if the model knows nothing of the labels that it is said to be trained with."""
        few = self.train.take(torch.arange(min(1000, len(self.train.y))))
        known = None if self.shared is None else self.shared.said()
        said = self.reader.answers(few.x).argmax(1) if known is None else known[: len(few.y)]
        agrees = float((said == few.y).double().mean())
        chance = 1 / self.classes
        if agrees < chance + 3 * (chance * (1 - chance) / len(few.y)) ** 0.5:
            self._note(
                f"The model agrees with {100 * agrees:.1f} % of the training labels, no more than chance: it was "
                "perhaps never trained on them, or the inputs are scaled otherwise."
            )

    def _name(self, layer: str) -> str:
        return self.reader.head.name if layer == ENTERING and self.reader.head is not None else layer

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
