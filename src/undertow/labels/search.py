"""Which training labels are wrong, what they should be, and how many.

    found = label_errors(run)                                   # undertow's own runs know their data
    found = label_errors(run, train=(x, y))                     # anyone's checkpoints
    found = label_errors(features=X, labels=y)                  # embeddings and labels, no run
    found = label_errors(features={"clip": A, "dino": B}, labels=names)
    found = label_errors(pred_probs=P, labels=y)                # out-of-sample probabilities; also several
    found.table, found.rate, found.suspects(50), found.clean("relabel")

Every view of the samples votes on every label, by probes and neighbours that did not learn it: the inputs, which never
saw a label; the layers of early checkpoints, which saw each once or twice; those of late ones, which may have
memorised it; and the network's own answers over time. docs/labels.md says why this works and what it assumes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undertow.data.streamed import SampleStream
from undertow.errors import BadData, BadValue
from undertow.features.layers import INPUT
from undertow.labels.cost import SearchCost
from undertow.labels.findings import LabelErrors
from undertow.labels.given import GivenLabels, evened, read_features, read_labels, read_probabilities
from undertow.labels.judge import Judge, LabelBeliefs, ViewVotes
from undertow.labels.present import judge_present
from undertow.labels.settings import AUTO, LabelConfig
from undertow.labels.shelf import Shelf
from undertow.labels.views import Plan, View
from undertow.labels.votes_gauge import TrainOutputsGauge, VotesGauge, epochs_at, filed, seen_at
from undertow.room import further, taken
from undertow.session.gauge import Gauge
from undertow.session.progress import Progress, asked_progress, python_progress
from undertow.session.reader import ENTERING
from undertow.session.samples import TRAIN
from undertow.session.session import Session, session_of
from undertow.session.sight import pack
from undertow.session.splits import take
from undertow.session.views import views_of
from undertow.sizes import parse_size
from undertow.training.run import Opened

MOST_CHECKPOINTS = 8
"""Chosen evenly in the logarithm of the epoch: early ones know the classes, late ones the labels."""
FEWEST_SAMPLES = 50
TIMED = 256
"""Samples in the batch by which a pass is timed."""


def label_errors(
    run: Opened | Session | None = None,
    train: Any = None,
    test: Any = None,
    *,
    features: Any = None,
    labels: Any = None,
    pred_probs: Any = None,
    config: LabelConfig | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> LabelErrors:
    """Score every label by what everything else says of its sample.

    Args:
        run: checkpoints, ours or anyone's (`open_run`), their path, a session of them, or one model.
        train: what it was trained on, with the labels it was trained on: (x, y), (x, y, true), Samples, a DataSet, a
            torch Dataset or a DataLoader; a run's own data when not given.
        test: samples that it was not trained on, for other verbs that share the session; no label of theirs is judged.
        features: without a run: (N, D) features that never saw the labels, or several by name.
        labels: their labels: class numbers or names; -1, NaN, None or an empty text where one is missing.
        pred_probs: (N, C) out-of-sample probabilities in the order of the sorted class names, or several of them.
        config: how; or give its fields as `settings`.
        progress: is told how the work goes; True shows a bar, False nothing.
        settings: fields of `LabelConfig`.
    """
    chosen = LabelConfig.chosen(config, settings)
    if run is None:
        return _without_run(features, labels, pred_probs, chosen, asked_progress(progress))
    if features is not None or labels is not None or pred_probs is not None:
        raise BadValue("label_errors", "a run, or features and labels", "both", "Leave one of them out.")
    session = session_of(run, train, test, search_config(chosen), progress=python_progress(progress))
    return LabelSearch(session, chosen).watched()


def search_config(config: LabelConfig) -> LabelConfig:
    """With checkpoints as a session takes them: the search chooses among all."""
    return config if config.checkpoints != AUTO else replace(config, checkpoints="all")


def table_room(config: LabelConfig) -> int:
    """Bytes for tables of samples x classes: half of the memory; the rest is for features and products."""
    return parse_size(config.memory) // 2


def cost_of(
    views: Sequence[View], likely: Sequence[Any], given: GivenLabels, config: LabelConfig
) -> SearchCost:
    """What a search without a run will take."""
    return SearchCost(
        samples=len(given.labels), classes=len(given.names), widths=tuple(view.rows.shape[1] for view in views),
        asked=len(views), others=len(likely), room=table_room(config),
        features=sum(view.in_memory for view in views) + sum(4 * one.numel() for one in likely),
    )  # fmt: skip


def _without_run(
    features: Any, labels: Any, pred_probs: Any, config: LabelConfig, progress: Progress
) -> LabelErrors:
    if labels is None or (features is None and pred_probs is None):
        raise BadValue(
            "label_errors", "a run, or labels with features or pred_probs", "none of them",
            "For example label_errors(features=X, labels=y).",
        )  # fmt: skip
    seen = [evened(view) for view in read_features(features)]
    views, notes = [view for view, _ in seen], tuple(note for _, note in seen if note)
    likely = read_probabilities(pred_probs)
    given = read_labels(labels, max((one.shape[1] for one in likely), default=0))
    _check_count(len(given.labels))
    progress.plan(str(cost_of(views, likely, given, config)), 0)
    found = judge_present(
        given.labels, len(given.names), views, likely, folds=config.folds, seed=config.seed,
        room=table_room(config),
    )  # fmt: skip
    return LabelErrors(found, given.names, own_notes=notes)


def _check_count(count: int) -> None:
    if count < FEWEST_SAMPLES:
        raise BadData(f"label_errors: wanted at least {FEWEST_SAMPLES} samples, got {count}.")


class LabelSearch:
    """One search in progress."""

    def __init__(self, session: Session, config: LabelConfig) -> None:
        self.session, self.config, self._tells = session, config, False
        train = session.samples.split(TRAIN)
        self.given, self.true = train.y, train.true
        _check_count(len(self.given))
        session.check_fit()
        self.classes = self._count_classes()
        self.names = session.samples.classes
        if len(self.names) != self.classes:
            self.names = tuple(map(str, range(self.classes)))
        self.plan = Plan.of(self.given, self.classes, config.folds, session.config.seed)
        self.shelf = Shelf.of(len(self.given), self.classes, table_room(config))
        layers = [name for name in session.layers(config.layers) if name != INPUT]
        if not layers:
            raise BadValue(
                "label_errors", "a model with layers before its head", type(session.example_model).__name__,
                "Name them: layers=...",
            )  # fmt: skip
        self.layers = (*([] if session.tokens_by_name else [INPUT]), *layers)
        self.numbers = session.checkpoints if config.checkpoints != AUTO else self._spread()

    @cached_property
    def voters(self) -> list[VotesGauge]:
        """One for each layer; neighbours are asked of the input, or else of the first checkpoint if it is honest."""
        first = self.numbers[0]
        honest = INPUT not in self.layers and seen_at(self.session, self.layers[0], first).honest
        ask_at = first if honest else None
        return [self._voter(name, ask_at) for name in self.layers]

    def _voter(self, layer: str, ask_at: int | None = None) -> VotesGauge:
        return VotesGauge(layer, self.plan, self.config.folds, self.numbers, ask_at, self.shelf)

    @cached_property
    def outputs(self) -> TrainOutputsGauge:
        """The model's own answers."""
        return TrainOutputsGauge(self.numbers)

    @property
    def gauges(self) -> list[Gauge[Any]]:
        """All that is wanted of the pass."""
        return [*self.voters, self.outputs]

    def cost(self) -> SearchCost:
        """What the search will take, by one batch through the network; what was measured before is not taken off."""
        session, count = self.session, len(self.given)
        widths = session.widths(self.layers)
        few = take(session.samples.split(TRAIN).x, torch.arange(min(TIMED, count)))
        before, begun = taken(), time.process_time()
        for _ in session.example_reader.stream(few, list(self.layers)):
            pass
        larger = further(before, min(TIMED, count), session.config.batch_size)
        a_pass = (time.process_time() - begun) * count / min(TIMED, count)
        sizes = {name: 4 * count * width for name, width in widths.items()}
        rounds = pack(sizes, parse_size(session.config.memory) // 3)
        held = max((sum(sizes[name] for name in one) for one in rounds), default=0)
        wide = [name for name in self.layers if not any(name in one for one in rounds)]
        if wide:  # in a file, maps averaged over places
            averaged = next(replace(session.example_reader, conv="mean").stream(few, wide))
            widths |= {name: part.shape[1] for name, part in averaged.features.items()}
        voting = [
            widths[name]
            for name in self.layers
            for _ in (self.numbers[:1] if name == INPUT else self.numbers)
        ]
        return SearchCost(
            samples=count, classes=self.classes, widths=tuple(voting), others=len(self.numbers), keeps=True,
            room=table_room(self.config), features=2 * held + larger,
            passes=a_pass * len(self.numbers) * max(1, len(rounds)),
            filed=max((4 * count * widths[name] for name in wide), default=0),
        )  # fmt: skip

    def found(self) -> LabelErrors:
        """Votes of all views folded in, one after the other."""
        self.session.visit(self.gauges, self.numbers, self._tell)
        if not self.sound:
            at = self.numbers[-1]
            raise BadData(
                f"label_errors: no checkpoint gives numbers; {self.session.run.at_words(at)}: "
                f"{self.session.broken[at]}. Without a run: "
                "label_errors(features=X, labels=y)."
            )
        beliefs = self._judged()
        return LabelErrors(
            beliefs,
            self.names,
            self.true,
            self._knowledge(beliefs, self.voters),
            tuple(self._notes()),
            self.layers,
            self.session.run,
        )

    def watched(self) -> LabelErrors:
        """The same, told to the session's progress."""
        progress, count = self.session.progress, len(self.numbers)
        progress.plan(str(self.cost()), count)
        self._tells = True
        try:
            with self.session.working():
                return self.found()
        finally:
            progress.close()

    def _tell(self, at: int) -> None:
        if self._tells:
            self.session.progress.step(self.session.run.at_words(at), 1 / len(self.numbers))

    def _judged(self) -> LabelBeliefs:
        judge = Judge(self.plan, self.shelf)
        for at in self.sound:  # answers first: they tell how much a checkpoint has memorised
            said = self.session.value(self.outputs, at)
            if said is not None:
                judge.pool.add_outputs(torch.from_numpy(said.outputs), epochs_at(self.session, at))
        for gauge in self.voters:
            for at in self.numbers[:1] if gauge.layer == INPUT else self.sound:
                votes = self._votes(gauge, at)
                if votes is not None:
                    judge.add(seen_at(self.session, gauge.layer, at), votes)
        if not judge.pool.voters:
            raise next(iter(self.session.refused.values()))
        return judge.conclude(self._inputs(), self.session.config.seed)

    def _inputs(self) -> Generator[View]:
        """The inputs as the model takes them, where they can vote; in a file where the memory has no room for them."""
        x, votes = self.session.samples.split(TRAIN).x, self.voters[0]
        if (
            votes.layer != INPUT
            or votes.name in self.session.refused
            or not isinstance(x, Tensor | SampleStream)
        ):
            return
        reader = self.session.reader(self.session.example_model)
        parts = x.split(reader.batch_size) if isinstance(x, Tensor) else x.batches(reader.batch_size)
        fed = (torch.as_tensor(reader.inputs(part)).flatten(1).float() for part in parts)
        size = 4 * len(self.given) * self.session.widths([INPUT])[INPUT]
        if size <= parse_size(self.session.config.memory) // 3:
            yield View("inputs", rows=torch.cat(list(fed)))
        else:
            yield View("inputs", rows=filed(fed, len(self.given), self.shelf))

    @property
    def sound(self) -> list[int]:
        """Checkpoints that gave numbers."""
        return [at for at in self.numbers if at not in self.session.broken]

    def _votes(self, gauge: VotesGauge, at: int) -> ViewVotes | None:
        """What a layer said; a damaged file is measured again."""
        found = self.session.value(gauge, at)
        if found is None and gauge.name not in self.session.refused:
            self.session.visit([gauge], [at])
            found = self.session.value(gauge, at)
        return found

    def entering_knowledge(self, beliefs: LabelBeliefs) -> dict[tuple[int, str], float]:
        """What a head of VeLPIC's vectors promises in place of the model's own; nothing where a layer shows it.

        It has no vote on labels: of all features these have memorised most, and the layer before votes already.
        """
        if ENTERING not in views_of(self.session, self.config.layers):
            return {}
        gauge = self._voter(ENTERING)
        self.session.visit([gauge], self.numbers)
        return self._knowledge(beliefs, [gauge])

    def _knowledge(self, beliefs: LabelBeliefs, voters: Sequence[VotesGauge]) -> dict[tuple[int, str], float]:
        """How much belief there is in the class that VeLPIC names on each layer, on average over the samples."""
        found: dict[tuple[int, str], float] = {}
        for gauge in voters:
            for at in self.sound if gauge.layer != INPUT else ():
                votes = self._votes(gauge, at)
                if votes is not None:
                    named = torch.from_numpy(votes.directions).argmax(1)
                    found[at, gauge.layer] = float(beliefs.belief_in(named).mean())
        return found

    def _spread(self) -> tuple[int, ...]:
        """A few trained checkpoints; before them the untrained one where inputs cannot vote: it saw no label either."""
        known = self.session.checkpoints
        before = tuple(at for at in known if at == 0) if self.session.initial == 0 else ()
        trained = spread([at for at in known if at not in before] or known)
        start = () if INPUT in self.layers else before
        return tuple(dict.fromkeys((*start, *trained)))

    def _count_classes(self) -> int:
        outputs, who = self.session.outputs, type(self.session.example_model).__name__
        if outputs < 2:
            raise BadValue(
                f"label_errors of {who}", "a classifier with one output per class (N, C)",
                f"{outputs or 'other'} outputs", "A regression has no labels to find wrong.",
            )  # fmt: skip
        most = int(self.given.max())
        if most >= outputs:
            raise BadData(
                f"label_errors: the model has {outputs} outputs, but a label is {most}. Give the data that it was "
                "trained on."
            )
        return outputs

    def _notes(self) -> list[str]:
        notes, last = list(self.session.run.notes), self.sound[-1]
        refused = self.session.refused
        notes += [
            f"{one.layer} has no vote: {refused[one.name]}" for one in self.voters if one.name in refused
        ]
        when = self.session.run.at_words(last)
        said = self.session.value(self.outputs, last)
        known = self.plan.labelled.numpy()
        share = 0.0 if said is None else float((said.outputs.argmax(1) == self.given.numpy())[known].mean())
        most = float(self.plan.shares.max())
        if last and share - most <= 0.1 * (1 - most):
            notes.append(
                f"At {when} the model agrees with {share:.1%} of the labels, hardly more than always naming the "
                f"commonest class ({most:.1%}). Was it trained on these samples with this scaling?"
            )
        if len(self.numbers) == 1:
            notes.append(
                f"There is one checkpoint only ({when}). If it has memorised the labels, its layers call wrong ones "
                "right. Early checkpoints tell more."
            )
        missing = (self.plan.shares == 0).nonzero()[:, 0].tolist()
        if missing:
            notes.append(
                f"No sample is labelled {', '.join(self.names[c] for c in missing)}: never proposed."
            )
        return notes


def spread(trained: Sequence[int]) -> tuple[int, ...]:
    """Up to eight of some checkpoints, evenly in the logarithm of their number."""
    if len(trained) <= MOST_CHECKPOINTS:
        return tuple(trained)
    more = int(trained[0] == 0)  # a first epoch that is called 0
    wanted = np.geomspace(trained[0] + more, trained[-1] + more, MOST_CHECKPOINTS)
    nearest = (min(trained, key=lambda epoch: abs(np.log((epoch + more) / want))) for want in wanted)
    return tuple(dict.fromkeys(nearest))
