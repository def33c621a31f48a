"""Which training labels are wrong, what they should be, and how labels go wrong.

    found = label_errors(run)                        # undertow's own runs know their data
    found = label_errors(run, train=(x, y))          # anyone's checkpoints
    found.table                                      # sample, given, proposed, score, confidence
    found.noise_rate, found.noise_low, found.noise_high, found.noise_matrix
    found.pred_probs                                 # (N, C) in cleanlab's shape: out of fold, without the own label
    found.clean("relabel").to_parquet(path)          # for `undertow train --labels`

A network learns the right labels first and the wrong ones by heart later, and its layers know more than its
answers. So every layer of a few checkpoints votes on every sample, by VeLPIC's vectors and by a discriminant with a
shared covariance, both learned from the other samples (voters.py). A noise model turns each vote and the given
label into a belief in the true class (noise_model.py); beliefs are averaged, the discriminants learn once more from
the average instead of the labels, and the belief in a class other than the given one is the score. Clean labels are
needed nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.data.samples import DataSet
from undertow.errors import BadData, BadValue, unknown
from undertow.features.layers import INPUT, resolve_layers
from undertow.repair.evidence import Reader, Split, check_labels, read_split
from undertow.repair.label_findings import LabelErrors
from undertow.repair.noise_model import NoiseFit, NoiseShape, better_kind, fit_noise
from undertow.repair.voters import Discriminant, directions_votes, split_folds
from undertow.train.prepare import find_device
from undertow.train.run import Run

if TYPE_CHECKING:
    pass

MOST_CHECKPOINTS = 8
"""Chosen evenly in the logarithm of the epoch: early ones know the classes, late ones the labels."""
FEWEST_SAMPLES = 50
KEPT_BYTES = 1 << 30
"""Features of discriminants up to this size are kept for the second round; beyond it they are computed again."""
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
        scaling, names, train = config.scaling or train.scaling, tuple(train.classes), train.train
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
        self.done, self.total, self.watch = 0, 2 * len(self.epochs), watch
        self.answers: dict[int, Tensor] = {}
        self.judges: dict[Voter, Discriminant] = {}

    def found(self) -> LabelErrors:
        """Two rounds: votes from given labels, then discriminants from what the first round believes."""
        votes, answers = self._first_votes(), self.answers
        kind, fits = self._fits(votes)
        first = _average(list(fits.values()))
        for voter, again in self._second_votes(first):
            fits[voter] = fit_noise(again, self.split.y, kind)
        beliefs = _average(list(fits.values()))
        rates = self._rates(fits)
        least_leak = max(rates, key=lambda epoch: rates[epoch])
        judges = [fit for voter, fit in fits.items() if voter.epoch == least_leak]
        early = _average(
            [fit for voter, fit in fits.items() if rates[voter.epoch] >= NEAR_MOST * rates[least_leak]]
        )
        low, high = _interval(judges, self.split.y)
        return LabelErrors(
            self.split.y, beliefs, torch.stack([fit.clean for fit in fits.values()]).mean(0).numpy(), kind,
            rates[least_leak], low, high, _matrix(judges, self.split.y), early, rates,
            _knowledge(votes, early), self.layers, self.names, self.true, self._notes(answers),
        )  # fmt: skip

    def _fits(self, votes: dict[Voter, Tensor]) -> tuple[NoiseShape, dict[Voter, NoiseFit]]:
        labels, asked = self.split.y, self.config.noise
        if asked is not None:
            return asked, {voter: fit_noise(one, labels, asked) for voter, one in votes.items()}
        # Cosines are no likelihoods and have no say here: what they leave unsaid would pass for a noise matrix.
        both = {
            voter: (fit_noise(one, labels, "even"), fit_noise(one, labels, "matrix"))
            for voter, one in votes.items()
            if voter.probe == "lda"
        }
        kind = better_kind(list(both.values()), labels, self.folds)
        return kind, {
            voter: both[voter][kind == "matrix"] if voter in both else fit_noise(one, labels, kind)
            for voter, one in votes.items()
        }

    def _first_votes(self) -> dict[Voter, Tensor]:
        labels, votes = self.split.y, dict[Voter, Tensor]()
        given = torch.nn.functional.one_hot(labels, self.classes).double()
        for epoch, layer, features in self._features():
            where = f"{self.run.unit} {epoch}, layer {layer!r}"
            votes[Voter(epoch, layer, "velpic")] = directions_votes(
                features, labels, self.folds, classes=self.classes, where=where
            )
            judge, voter = Discriminant(features, self.folds, where=where), Voter(epoch, layer, "lda")
            votes[voter] = judge.votes(given)
            self.judges[voter] = judge
            if sum(one.bytes for one in self.judges.values()) > KEPT_BYTES:
                self.judges = {}
        return votes

    def _second_votes(self, beliefs: Tensor) -> Iterator[tuple[Voter, Tensor]]:
        if len(self.judges) == len(self.epochs) * len(self.layers):
            yield from ((voter, judge.votes(beliefs)) for voter, judge in self.judges.items())
            return
        for epoch, layer, features in self._features():
            yield Voter(epoch, layer, "lda"), Discriminant(features, self.folds).votes(beliefs)

    def _features(self) -> Iterator[tuple[int, str, Tensor]]:
        """Every layer of every checkpoint, one pass per checkpoint; the model's answers are kept."""
        for epoch in self.epochs:
            parts: dict[str, list[Tensor]] = {name: [] for name in self.layers}
            said: list[Tensor] = []
            for batch in self._reader(epoch).stream(self.split.x, self.layers):
                said.append(batch.outputs.argmax(1).cpu())
                for name, rows in batch.features.items():
                    parts[name].append(rows.float())
            self.answers[epoch] = torch.cat(said)
            for name in self.layers:
                yield epoch, name, torch.cat(parts.pop(name))
            self.done += 1
            if self.watch:
                self.watch(self.done, self.total)

    def _reader(self, epoch: int) -> Reader:
        model = self.run.model(epoch)
        if self.config.device is not None:
            model = model.to(find_device(self.config.device))
        return Reader(model, scaling=self.scaling, batch_size=self.config.batch_size)

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

    def _rates(self, fits: dict[Voter, NoiseFit]) -> dict[int, float]:
        """The share of wrong labels as each checkpoint sees it; it falls as the network learns them by heart."""
        return {
            epoch: float(
                np.mean([_wrong(fit, self.split.y).mean() for v, fit in fits.items() if v.epoch == epoch])
            )
            for epoch in self.epochs
        }

    def _notes(self, answers: dict[int, Tensor]) -> tuple[str, ...]:
        notes: list[str] = []
        last = self.epochs[-1]
        share = float((answers[last] == self.split.y).double().mean())
        most = float(self.split.y.bincount().max()) / len(self.split.y)
        if last and share <= 1.1 * most:
            notes.append(
                f"At {self.run.unit} {last} the model agrees with {share:.1%} of the labels, as much as always naming "
                "the commonest class would: was it trained on these samples with this scaling?"
            )
        if len(self.epochs) == 1:
            notes.append(
                f"One checkpoint only ({self.run.unit} {last}): if it has learned the labels by heart, its layers "
                "say of wrong ones that they are right. Early checkpoints tell more."
            )
        missing = (self.split.y.bincount(minlength=self.classes) == 0).nonzero()[:, 0].tolist()
        if missing:
            notes.append(
                f"No sample is labelled {', '.join(self.names[c] for c in missing)}: never proposed."
            )
        return tuple(notes)


def _spread(epochs: Sequence[int]) -> tuple[int, ...]:
    """Up to eight checkpoints after the start, evenly in the logarithm of their number."""
    trained = [epoch for epoch in epochs if epoch > 0] or list(epochs)
    if len(trained) <= MOST_CHECKPOINTS:
        return tuple(trained)
    wanted = np.geomspace(trained[0], trained[-1], MOST_CHECKPOINTS)
    nearest = (min(trained, key=lambda epoch: abs(np.log(epoch / want))) for want in wanted)
    return tuple(dict.fromkeys(nearest))


def _wrong(fit: NoiseFit, labels: Tensor) -> Tensor:
    return 1 - fit.beliefs.gather(1, labels[:, None])[:, 0]


def _average(fits: Sequence[NoiseFit]) -> Tensor:
    return torch.stack([fit.beliefs for fit in fits]).mean(0)


def _knowledge(votes: dict[Voter, Tensor], beliefs: Tensor) -> dict[tuple[int, str], float]:
    """How much belief there is in the class that VeLPIC names on each layer, on average over the samples."""
    return {
        (voter.epoch, voter.layer): float(beliefs.gather(1, one.argmax(1, keepdim=True)).mean())
        for voter, one in votes.items()
        if voter.probe == "velpic"
    }


def _interval(judges: Sequence[NoiseFit], labels: Tensor) -> tuple[float, float]:
    """The range of the voters' rates, widened by the sampling error of a share among so many labels."""
    rates = [float(_wrong(fit, labels).mean()) for fit in judges]
    middle = float(np.mean(rates))
    error = 1.96 * (max(middle * (1 - middle), 0.0) / len(labels)) ** 0.5
    return max(0.0, min(rates) - error), min(1.0, max(rates) + error)


def _matrix(judges: Sequence[NoiseFit], labels: Tensor) -> NDArray[np.float64]:
    """Beliefs counted by given label; a class that nobody believes in has the row of one that stays itself."""
    beliefs = _average(judges)
    counts = beliefs.T @ torch.nn.functional.one_hot(labels, beliefs.shape[1]).double()
    sizes = counts.sum(1, keepdim=True)
    own = torch.eye(len(counts), dtype=torch.float64)
    return torch.where(sizes > 0, counts / sizes.clamp(min=torch.finfo(torch.float64).tiny), own).numpy()
