"""Repairing a classifier with what its layers still know, where held-out samples say that it is worth it.

    fixed = repair(model, train=(x, y), validation=(x2, y2))    # VeLPIC into the last linear layer
    fixed = repair(run)                                         # undertow's own runs know their data
    fixed = repair(run, layer="layer2", probe="masc")           # a shorter model with a head on layer2
    fixed = repair(run, layer="best")                           # the layer that half of the evidence likes best
    print(fixed); fixed.model, fixed.accepted, fixed.reason, fixed.before, fixed.after
    fixed.undo(); fixed.save("fixed.safetensors")

The probe learns from the training samples with the labels that the model was trained on: no clean label is
needed for that. Whether to take it is another question, and training samples cannot answer it: the model
has learned their labels by heart. So validation samples are wanted, clean or noisy (`validation_noise`);
without them the answer is "cannot tell" and the model stays as it is, unless `gate=False`.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from undertow.data.samples import DataSet
from undertow.errors import BadData, BadValue
from undertow.features.head import layer_called
from undertow.features.layers import INPUT, resolve_layers, unwrap
from undertow.latent.layer_fits import fit_probes
from undertow.latent.probe import Probe
from undertow.repairing.calibrate import Calibration, calibrate
from undertow.repairing.gate import Judgement, judge
from undertow.repairing.graft import Graft, fold_temperature, make_graft, single_layer
from undertow.repairing.head_edit import HeadEdit, write_head
from undertow.repairing.outcome import BEST, Repair, RepairConfig
from undertow.repairing.transfer import LINEAR, linear_parts, reader_with_head
from undertow.session.reader import ENTERING, Reader
from undertow.session.splits import Split, check_labels, read_split, seen_before, take
from undertow.training.prepare import find_device
from undertow.training.run import Run
from undertow.training.seeds import stream

NO_EVIDENCE = (
    "cannot tell: no sample here is one that the model was not trained on, and of the others it may have learned "
    "the labels by heart. Give validation=..., clean or noisy, or gate=False to repair in any case"
)


def repair(
    model: nn.Module | Run,
    train: Any = None,
    *,
    validation: Any = None,
    in_place: bool = False,
    checkpoint: int = -1,
    config: RepairConfig | None = None,
    **settings: Any,
) -> Repair:
    """Give a classifier a head that is a probe of its features, if held-out samples say that it helps.

    Args:
        model: any classifier, or a run that undertow or a Recorder made.
        train: what it was trained on: (x, y), Samples, a DataSet or a torch Dataset; x may be a tensor or a dict
            or tuple of tensors. A run's own data when not given.
        validation: samples that it was not trained on, likewise; the test split of a DataSet when not given.
        in_place: write into the model itself instead of a copy (its own head only).
        checkpoint: which checkpoint of a run; the last one when not given.
        config: how; or give its fields as `settings`.
        settings: fields of `RepairConfig`.
    """
    chosen = config or RepairConfig(**settings)
    facts, note = None, ""
    if isinstance(model, Run):
        facts, run, model = model.facts.model, model, model.model(checkpoint)
        model = model if chosen.device is None else model.to(find_device(chosen.device))
        train = run.data() if train is None else train
        scaling = run.facts.data["scaling"] if run.facts.data else None
        chosen = replace(chosen, scaling=chosen.scaling or scaling)
    if isinstance(train, DataSet):
        validation = train.test if validation is None else validation
        chosen = replace(chosen, scaling=chosen.scaling or train.scaling)
        train, note = train.train, train.note
    if train is None:
        raise BadValue("repair", "the samples that the model was trained on", None, "Give train=(x, y).")
    held = None if validation is None else _held_out(validation, chosen)
    work = _Work(model, read_split(train, "train"), held, chosen, in_place)
    work.notes += [note] if note else []
    return work.repaired(facts)


def _held_out(validation: Any, config: RepairConfig) -> Split:
    """Validation samples: with their true labels, unless it is said that the labels are noisy."""
    source = validation.test if isinstance(validation, DataSet) else validation
    return read_split(source, "validation", true=config.validation_noise == 0)


class _Work:
    """One repair in progress."""

    def __init__(
        self, model: nn.Module, train: Split, held: Split | None, config: RepairConfig, in_place: bool
    ) -> None:
        self.model, self.train, self.config, self.in_place = model, train, config, in_place
        self.notes: list[str] = []
        self.into_head = config.layer is None and config.probe in LINEAR
        if in_place and not self.into_head:
            raise BadValue(
                "repair(in_place=True)", "a linear probe for the model's own head (layer=None)",
                f"{config.probe} at {config.layer or 'the head'}", "A graft is always a model of its own.",
            )  # fmt: skip
        plain = Reader(
            model,
            scaling=config.scaling,
            batch_size=config.batch_size,
            conv=config.conv,
            tokens=config.tokens,
        )
        self.few = plain.inputs(take(train.x, torch.arange(min(8, len(train.y)))))
        plain.check_fit(train.x, "train")
        self.reader = self._reader(plain)
        self.classes = self._count_classes()
        check_labels(train, self.classes, "train", every_class=True)
        if held is not None:
            plain.check_fit(held.x, "validation")
            check_labels(held, self.classes, "validation")
        self.held = None if held is None else self._unseen(held)

    def repaired(self, facts: dict[str, Any] | None) -> Repair:
        """Fit, build, judge and calibrate."""
        layer, probe, held = self._choose()
        before = None if held is None else self.reader.answers(held.x)
        self._compare_with_training()
        made, edit = self._build(layer, probe)
        try:
            after = None if held is None else self._reader_of(made).answers(held.x)
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
            tuple(self.notes), self.model, edit, facts, self.config.scaling, self.few,
        )  # fmt: skip

    def _put_back(self, edit: HeadEdit | None) -> None:
        if edit is not None and self.in_place:
            edit.undo()

    def _reader(self, plain: Reader) -> Reader:
        """With the head, which a graft on a named layer can do without."""
        if self.config.layer is None:
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

    def _unseen(self, held: Split) -> Split | None:
        """Held-out samples without those that are training samples too."""
        seen = seen_before(self.train.x, held.x)
        if not bool(seen.any()):
            return held
        count = int(seen.sum())
        self._note(f"{count} of {len(seen)} validation samples are training samples too and do not count.")
        return None if bool(seen.all()) else held.take((~seen).nonzero()[:, 0])

    def _choose(self) -> tuple[str, Probe, Split | None]:
        """The layer, the probe fitted there, and the evidence that is left to judge it."""
        config = self.config
        if config.layer == BEST:
            return self._best_layer()
        layer = ENTERING if config.layer is None else single_layer(self.model, config.layer)
        found = self._fit([layer])[layer]
        if isinstance(found, str):
            raise BadData(found)
        return layer, found, self.held

    def _best_layer(self) -> tuple[str, Probe, Split]:
        if self.held is None:
            raise BadValue(
                "repair(layer='best')",
                "validation samples to choose by",
                "none",
                "Give them, or name a layer.",
            )
        order = torch.randperm(len(self.held.y), generator=stream(self.config.seed, "halves of the evidence"))
        half = (len(order) + 1) // 2
        choosing, judging = self.held.take(order[:half]), self.held.take(order[half:])
        layers = [name for name in resolve_layers(self.model, "auto") if name != INPUT]
        found = self._fit(layers)
        fitted = {name: one for name, one in found.items() if not isinstance(one, str)}
        for name in found.keys() - fitted.keys():
            self._note(f"layer {name!r} is left out: {found[name]}")
        if not fitted:
            raise BadData(f"repair(layer='best'): no layer could be probed. {next(iter(found.values()), '')}")
        scores = self._scores(fitted, choosing)
        best = max(scores, key=lambda name: scores[name])
        listed = ", ".join(f"{name} {100 * share:.1f} %" for name, share in scores.items())
        self._note(
            f"{best!r} chosen on {len(choosing.y)} of the validation samples ({listed}), judged on the others."
        )
        return best, fitted[best], judging

    def _scores(self, fitted: dict[str, Probe], split: Split) -> dict[str, float]:
        hits = dict.fromkeys(fitted, 0)
        for batch in self.reader.stream(split.x, list(fitted)):
            for name, probe in fitted.items():
                said = torch.as_tensor(probe.predict(batch.features[name])).cpu()
                hits[name] += int((said == split.y[batch.rows]).sum())
        return {name: count / len(split.y) for name, count in hits.items()}

    def _fit(self, layers: list[str]) -> dict[str, Probe | str]:
        config = self.config
        return fit_probes(self.reader, self.train, self.classes, layers, config.probe, config.memory)

    def _build(self, layer: str, probe: Probe) -> tuple[nn.Module, HeadEdit | None]:
        head = self.reader.head
        if self.into_head:
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
                before.argmax(1), after.argmax(1), held.y, classes=self.classes, noise=config.validation_noise,
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
        noise = self.config.validation_noise
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
        agrees = float((self.reader.answers(few.x).argmax(1) == few.y).double().mean())
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
