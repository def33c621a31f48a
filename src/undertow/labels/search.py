"""Which training labels are wrong, what they should be, and how labels go wrong.

    found = label_errors(run)                        # undertow's own runs know their data
    found = label_errors(run, train=(x, y))          # anyone's checkpoints
    found.table                                      # sample, given, proposed, score, confidence
    found.noise_rate, found.noise_low, found.noise_high, found.noise_matrix
    found.pred_probs                                 # (N, C) in cleanlab's shape: out of fold
    found.clean("relabel").to_parquet(path)          # for `undertow train --labels`

A network learns the right labels first and the wrong ones by heart later, and its layers know more than its
answers. So every layer of a few checkpoints votes on every sample, by VeLPIC's vectors and by a discriminant with a
shared covariance, both learned from the other samples (voters.py). A noise model turns each vote and the given
label into a belief in the true class (noise_model.py); beliefs are averaged, the discriminants learn once more from
the average instead of the labels, and the belief in a class other than the given one is the score. Clean labels are
needed nowhere. No sample votes for its own label in the first round; in the second, the beliefs of the others have
seen it, which moves its own by less than a hundredth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undertow.data.samples import DataSet
from undertow.errors import BadData, BadValue, unknown
from undertow.features.layers import INPUT, resolve_layers
from undertow.features.tap import ConvRule
from undertow.labels.belief_sums import Tally
from undertow.labels.findings import LabelErrors
from undertow.labels.noise_model import NoiseFit, NoiseShape, better_kind, fit_noise
from undertow.labels.voters import Discriminant, directions_votes, split_folds
from undertow.session.reader import Reader
from undertow.session.splits import Split, check_labels, read_split
from undertow.sizes import parse_size, show_size
from undertow.training.prepare import find_device
from undertow.training.run import Run

MOST_CHECKPOINTS = 8
"""Chosen evenly in the logarithm of the epoch: early ones know the classes, late ones the labels."""
FEWEST_SAMPLES = 50
NEAR_MOST = 0.8
"""Checkpoints that see so large a part of the largest rate of wrong labels have learned few of them by heart."""
Watch = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class LabelConfig:
    """How wrong labels are looked for."""

    layers: str | Sequence[str] = "auto"
    """Layers that vote: names, patterns or auto."""
    checkpoints: Sequence[int] | None = None
    """Their epochs; when not given, up to eight trained ones, evenly in the logarithm of the epoch."""
    folds: int = 5
    """No sample votes on its own label: it is judged by what the other folds say."""
    noise: NoiseShape | None = None
    """even: every wrong class is as likely; matrix: learned for each pair of classes; None: what the labels say."""
    scaling: str | None = None
    """How samples become inputs (half, unit, ...); a run's or a DataSet's own; else they are fed as they are."""
    memory: str = "2GB"
    """What features and votes may take; convolutional maps that do not fit are averaged over places."""
    batch_size: int = 512
    """Samples per forward pass."""
    seed: int = 0
    """Of the folds."""
    device: str | None = None
    """Where the model is put; where it is when not given."""

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise BadValue("label_errors(folds=...)", "2 or more", self.folds)
        if self.noise not in (None, "even", "matrix"):
            raise unknown("kind of noise", self.noise, ("even", "matrix"))
        parse_size(self.memory)


def label_errors(
    run: Run,
    train: Any = None,
    *,
    config: LabelConfig | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> LabelErrors:
    """Score every training label by what the layers of a run's checkpoints say of the sample.

    Args:
        run: checkpoints, ours or anyone's (`open_run`).
        train: what it was trained on, with the labels it was trained on: (x, y), Samples, a DataSet or a torch
            Dataset; a run's own data when not given.
        config: how; or give its fields as `settings`.
        watch: told (done, total) after each pass over a checkpoint.
        settings: fields of `LabelConfig`.
    """
    chosen = config or LabelConfig(**settings)
    split, true, names, scaling = material(run, train, chosen)
    return _Search(run, split, true, names, chosen, scaling, watch).found()


def material(
    run: Run, train: Any, config: LabelConfig
) -> tuple[Split, Tensor | None, tuple[str, ...], str | None]:
    """Samples with given labels; true labels and names of the classes where they are known; the scaling."""
    if train is None:
        train = run.data()
    scaling = config.scaling or (run.facts.data["scaling"] if run.facts.data else None)
    true, names = None, ()
    if isinstance(train, DataSet):
        scaling, names, train = scaling or train.scaling, tuple(train.classes), train.train
    if isinstance(known := getattr(train, "true", None), Tensor):
        true = known
    split = read_split(train, "train")
    if len(split.y) < FEWEST_SAMPLES:
        raise BadData(f"label_errors: wanted at least {FEWEST_SAMPLES} samples, got {len(split.y)}.")
    return split, true, names, scaling


@dataclass(frozen=True)
class Voter:
    """A way to read a layer of a checkpoint."""

    epoch: int
    layer: str
    probe: str


@dataclass(frozen=True)
class Pass:
    """Layers whose features are held at once."""

    conv: ConvRule
    layers: tuple[str, ...]


class _Search:
    """One search in progress."""

    def __init__(
        self, run: Run, split: Split, true: Tensor | None, names: tuple[str, ...], config: LabelConfig,
        scaling: str | None, watch: Watch | None,
    ) -> None:  # fmt: skip
        self.run, self.split, self.true, self.config, self.scaling = run, split, true, config, scaling
        self.epochs = _spread(run.epochs) if config.checkpoints is None else self._asked()
        model = run.model(self.epochs[-1])
        self.classes = self._count_classes(model, len(names))
        self.layers = tuple(name for name in resolve_layers(model, config.layers) if name != INPUT)
        if not self.layers:
            raise BadValue(
                "label_errors",
                "a model with layers before its head",
                type(model).__name__,
                "Name them: layers=...",
            )
        self.names = names or tuple(map(str, range(self.classes)))
        check_labels(split, self.classes, "train")
        self.folds = split_folds(split.y, classes=self.classes, count=config.folds, seed=config.seed)
        self.room = parse_size(config.memory) // 3
        self.passes, self.notes = self._plan(model)
        self.done, self.total, self.watch = 0, 2 * len(self.epochs) * len(self.passes), watch
        self.answers: dict[int, Tensor] = {}
        self.judges: dict[Voter, Discriminant] | None = {}  # None: they take too much, and are made again

    def found(self) -> LabelErrors:
        """Two rounds: votes from given labels, then discriminants from what the first round believes."""
        votes = self._first_votes()
        kind, directions, discriminants = self._tallies(votes)
        first = directions.joined(discriminants)
        if not len(first):
            raise BadData(
                "label_errors: no layer of these checkpoints tells the labels better than the sizes of the classes do. "
                "Was the model trained on these samples with this scaling?"
            )
        final = directions.joined(self._second_round(first.beliefs(), kind))
        self._tell(self.total)
        rates = {epoch: final.rate(epoch) for epoch in self.epochs if epoch in final.rates}
        least_leak = max(rates, key=lambda epoch: rates[epoch])
        early = final.beliefs(epoch for epoch in rates if rates[epoch] >= NEAR_MOST * rates[least_leak])
        return LabelErrors(
            self.split.y, final.beliefs(), final.clean().numpy(), kind, rates[least_leak],
            *final.interval(least_leak), final.matrix(least_leak), early, rates, _knowledge(votes, early),
            self.layers, self.names, self.true, (*self.notes, *self._notes(len(votes) - len(first))),
        )  # fmt: skip

    def _tallies(self, votes: dict[Voter, Tensor]) -> tuple[NoiseShape, Tally, Tally]:
        """The kind of noise, and what is believed by VeLPIC's votes and by the discriminants'."""
        labels, asked = self.split.y, self.config.noise
        by_kind: dict[NoiseShape, Tally] = {"even": Tally(labels), "matrix": Tally(labels)}

        def pairs() -> Iterator[tuple[NoiseFit, NoiseFit]]:
            for voter in [one for one in votes if one.probe == "lda"]:
                even, matrix = (fit_noise(votes[voter], labels, kind) for kind in by_kind)
                if even.informative:
                    by_kind["even"].add(voter.epoch, even)
                    by_kind["matrix"].add(voter.epoch, matrix)
                    yield even, matrix

        # Cosines are no likelihoods and have no say here: what they leave unsaid would pass for a noise matrix.
        better = better_kind(pairs(), labels, self.folds)
        kind = asked or better
        directions = Tally(labels)
        for voter in [one for one in votes if one.probe == "velpic"]:
            if (fit := fit_noise(votes[voter], labels, kind)).informative:
                directions.add(voter.epoch, fit)
        return kind, directions, by_kind[kind]

    def _first_votes(self) -> dict[Voter, Tensor]:
        """(N, C) float32 of every voter."""
        labels, votes = self.split.y, dict[Voter, Tensor]()
        given = torch.nn.functional.one_hot(labels, self.classes).double()
        for epoch, layer, features in self._features():
            where = f"{self.run.unit} {epoch}, layer {layer!r}"
            seen = directions_votes(features, labels, self.folds, classes=self.classes, where=where)
            votes[Voter(epoch, layer, "velpic")] = seen.float()
            judge, voter = Discriminant(features, self.folds, where=where), Voter(epoch, layer, "lda")
            votes[voter] = judge.votes(given).float()
            self._remember(voter, judge)
        return votes

    def _remember(self, voter: Voter, judge: Discriminant) -> None:
        """Keep discriminants for the second round, as long as all of them have room."""
        if self.judges is not None:
            self.judges[voter] = judge
            if sum(one.bytes for one in self.judges.values()) > self.room:
                self.judges = None

    def _second_round(self, beliefs: Tensor, kind: NoiseShape) -> Tally:
        tally = Tally(self.split.y)
        for epoch, judge in self._judges():
            if (fit := fit_noise(judge.votes(beliefs), self.split.y, kind)).informative:
                tally.add(epoch, fit)
        return tally

    def _judges(self) -> Iterator[tuple[int, Discriminant]]:
        if self.judges is not None:
            yield from ((voter.epoch, judge) for voter, judge in self.judges.items())
            return
        for epoch, _, features in self._features():
            yield epoch, Discriminant(features, self.folds)

    def _plan(self, model: torch.nn.Module) -> tuple[list[Pass], list[str]]:
        """Layers in passes whose features have room; maps that have none as the means of their channels."""
        count, whole = len(self.split.y), self._widths(model, "flatten")
        wide = [name for name, width in whole.items() if count * width * 4 > self.room]
        pooled = self._widths(model, "mean") if wide else {}
        widths = {name: pooled[name] if name in wide else whole[name] for name in self.layers}
        votes = 2 * len(self.epochs) * len(self.layers) * count * self.classes * 4
        need = max(votes, *(count * width * 4 for width in widths.values()))
        if need > self.room:
            raise BadValue(
                "label_errors(memory=...)", f"{show_size(3 * need)} at least for {count} samples", self.config.memory,
                "Or name fewer layers and checkpoints.",
            )  # fmt: skip
        sizes = {name: count * width * 4 for name, width in widths.items()}
        whole_maps = {name: size for name, size in sizes.items() if name not in wide}
        passes = [Pass("flatten", names) for names in _packed(whole_maps, self.room)]
        passes += [Pass("mean", names) for names in _packed({name: sizes[name] for name in wide}, self.room)]
        words = f"Averaged over places, to fit into {self.config.memory} of memory: {', '.join(wide)}."
        return passes, [words] if wide else []

    def _widths(self, model: torch.nn.Module, rule: ConvRule) -> dict[str, int]:
        reader = Reader(model, scaling=self.scaling, conv=rule)
        features = next(reader.stream(self.split.take(torch.arange(2)).x, self.layers)).features
        return {name: rows.shape[1] for name, rows in features.items()}

    def _features(self) -> Iterator[tuple[int, str, Tensor]]:
        """Every layer of every checkpoint; the model's answers are kept."""
        for epoch in self.epochs:
            for one in self.passes:
                parts: dict[str, list[Tensor]] = {name: [] for name in one.layers}
                said: list[Tensor] = []
                for batch in self._reader(epoch, one.conv).stream(self.split.x, one.layers):
                    said.append(batch.outputs.argmax(1).cpu())
                    for name, rows in batch.features.items():
                        parts[name].append(rows.float())
                self.answers[epoch] = torch.cat(said)
                for name in one.layers:
                    yield epoch, name, torch.cat(parts.pop(name))
                self._tell(self.done + 1)

    def _tell(self, done: int) -> None:
        self.done = done
        if self.watch:
            self.watch(done, self.total)

    def _reader(self, epoch: int, conv: ConvRule) -> Reader:
        model = self.run.model(epoch)
        if self.config.device is not None:
            model = model.to(find_device(self.config.device))
        return Reader(model, scaling=self.scaling, batch_size=self.config.batch_size, conv=conv)

    def _asked(self) -> tuple[int, ...]:
        asked = tuple(self.run.checkpoint(at).at for at in self.config.checkpoints or ())
        if not asked:
            raise BadValue("label_errors(checkpoints=...)", "at least one checkpoint", "none")
        return tuple(sorted(set(asked)))

    def _count_classes(self, model: torch.nn.Module, named: int) -> int:
        reader = Reader(model, scaling=self.scaling)
        few = self.split.take(torch.arange(2))
        reader.check_fit(self.split.x, "train")
        outputs = next(reader.stream(few.x, [INPUT])).outputs
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            raise BadValue(
                f"label_errors of {type(model).__name__}", "a classifier with one output per class (N, C)",
                f"outputs of shape {tuple(outputs.shape)}", "A regression has no labels to find wrong.",
            )  # fmt: skip
        if named and named != outputs.shape[1]:
            raise BadData(
                f"label_errors: the model has {outputs.shape[1]} outputs, the data {named} classes. Give the data "
                "that it was trained on."
            )
        return outputs.shape[1]

    def _notes(self, silent: int) -> Iterator[str]:
        last = self.epochs[-1]
        share = float((self.answers[last] == self.split.y).double().mean())
        most = float(self.split.y.bincount().max()) / len(self.split.y)
        if last and share - most <= 0.1 * (1 - most):
            yield (
                f"At {self.run.unit} {last} the model agrees with {share:.1%} of the labels, hardly more than always "
                f"naming the commonest class would ({most:.1%}): was it trained on these samples with this scaling?"
            )
        if len(self.epochs) == 1:
            yield (
                f"One checkpoint only ({self.run.unit} {last}): if it has learned the labels by heart, its layers "
                "say of wrong ones that they are right. Early checkpoints tell more."
            )
        missing = (self.split.y.bincount(minlength=self.classes) == 0).nonzero()[:, 0].tolist()
        if missing:
            yield f"No sample is labelled {', '.join(self.names[c] for c in missing)}: never proposed."
        if silent:
            voters = 2 * len(self.epochs) * len(self.layers)
            yield f"{silent} of {voters} voters told the labels no better than the classes' sizes do: they had no say."


def _packed(sizes: dict[str, int], room: int) -> list[tuple[str, ...]]:
    """Names in order, in groups whose sizes add up to `room` at most."""
    groups: list[list[str]] = []
    left = -1
    for name, size in sizes.items():
        if size > left:
            groups.append([])
            left = room
        groups[-1].append(name)
        left -= size
    return [tuple(group) for group in groups]


def _spread(epochs: Sequence[int]) -> tuple[int, ...]:
    """Up to eight checkpoints after the start, evenly in the logarithm of their number."""
    trained = [epoch for epoch in epochs if epoch > 0] or list(epochs)
    if len(trained) <= MOST_CHECKPOINTS:
        return tuple(trained)
    wanted = np.geomspace(trained[0], trained[-1], MOST_CHECKPOINTS)
    nearest = (min(trained, key=lambda epoch: abs(np.log(epoch / want))) for want in wanted)
    return tuple(dict.fromkeys(nearest))


def _knowledge(votes: dict[Voter, Tensor], beliefs: Tensor) -> dict[tuple[int, str], float]:
    """How much belief there is in the class that VeLPIC names on each layer, on average over the samples."""
    return {
        (voter.epoch, voter.layer): float(beliefs.gather(1, one.argmax(1, keepdim=True)).mean())
        for voter, one in votes.items()
        if voter.probe == "velpic"
    }
