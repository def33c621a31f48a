"""What every layer knew at every checkpoint: layer x checkpoint x probe, with controls and intervals.

    table = probe_grid(run)                                        # undertow's own runs know their data
    table = probe_grid(run, train=(x, y), test=(x2, y2), probes=["masc", "velpic"], layers=["layer*"])
    table = probe_grid(run, train=({"input_ids": ids, "attention_mask": mask}, y), test=...)      # model(**entries)
    table.query("probe == 'velpic' and fit == 'given' and split == 'test'")

Each probe is fitted on the training features of a layer with the labels the model was trained on (`given`),
with the true ones where they are known (`true`), and with shuffled ones (`shuffled`, a control that should
scatter around chance: which classes one shuffle favours is luck, more than the interval shows). It answers
for the test split, and for the training split against given and true labels. The model's own accuracy
stands beside them (layer "output", probe "model"). A checkpoint at 0 is the random-initialisation control;
where a run kept none, a fresh model of the factory stands in as -1.

One pass per checkpoint and split while features fit into the memory budget. Rows are kept in the run's
folder: what is done is not done again, a killed grid goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from undertow.data.entries import count, first_entry, trial_rows
from undertow.data.inputs import preparing
from undertow.data.load import load_data
from undertow.data.samples import DataSet, Samples
from undertow.errors import BadValue
from undertow.features.compatibility import check_used, explained
from undertow.features.layers import INPUT, resolve_layers
from undertow.features.stream import Batch, stream_features
from undertow.latent.grid_config import GridConfig, GridWatcher, Silent, listed
from undertow.latent.masc import MASC
from undertow.latent.sources import Passes, Source, Stream, plan_groups, room_for_fits, source_for
from undertow.latent.table import Cell, GridTable, accuracy_row, dimension_row, missing_row
from undertow.sizes import parse_size
from undertow.training.prepare import find_device, objective_of
from undertow.training.run import Run
from undertow.training.schedule import CheckpointSchedule
from undertow.training.seeds import global_stream
from undertow.training.seeds import stream as random_stream

if TYPE_CHECKING:
    import pandas as pd

NO_INPUT = "the inputs are tokens: their numbers are names, not features that a probe could read"
FRESH = -1
"""The number of the fresh model that stands in for a missing checkpoint 0."""


def probe_grid(
    run: Run,
    train: Any = None,
    test: Any = None,
    *,
    config: GridConfig | None = None,
    out: str | Path | None = None,
    watch: GridWatcher | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Probe every layer at every checkpoint; returns one row per number.

    Args:
        run: an opened run.
        train: the training split, Samples, (x, y) or a Dataset; the run's own data when not given. A DataSet
            stands for both splits. Models that take several inputs by name get x as a dict of tensors of one
            length, or a Dataset of dicts with the labels under label or labels (Hugging Face's, too).
        test: the test split, likewise; its labels count as true.
        config: what to measure; or give its fields as `settings`.
        out: the table's file; probes.parquet in the run's folder when not given.
        watch: is told about progress.
        settings: fields of `GridConfig`.
    """
    chosen = config or GridConfig(**listed(settings))
    data = _data(run, train, test)
    grid = _Grid(run, chosen, data, watch or Silent())
    return grid.work(GridTable.open(Path(out or run.path / "probes.parquet")))


def _data(run: Run, train: Any, test: Any) -> DataSet:
    if train is None and test is None:
        return run.data()
    # A run that undertow trained says how its inputs were scaled; what else is handed over is fed as it is.
    scaling = run.facts.data["scaling"] if run.facts.data else None
    if isinstance(train, DataSet):
        return replace(train, scaling=scaling or train.scaling)
    if train is None or test is None:
        raise BadValue("probe grid", "both a training and a test split", "one of them")
    if isinstance(train, Samples) and isinstance(test, Samples):
        count = int(max(train.y.max(), test.y.max())) + 1
        data = DataSet("given", train, test, tuple(map(str, range(count))))
    else:
        data = load_data((train, test))
    return replace(data, scaling=scaling or "none")


class _Grid:
    """The work on one run."""

    def __init__(self, run: Run, config: GridConfig, data: DataSet, watch: GridWatcher) -> None:
        self.run, self.config, self.data, self.watch = run, config, data, watch
        self.device = None if config.device is None else find_device(config.device)
        self.train = _drawn(data.train, config.samples, config.seed)
        self.test = _drawn(data.test, config.samples, config.seed)
        self.labels = _label_sets(self.train, config)
        self.numbers = _chosen(run, config.checkpoints)
        model = self._model(self.numbers[-1])
        self.layers = resolve_layers(model, config.layers)
        self.dims = self._widths(model)

    def work(self, table: GridTable) -> pd.DataFrame:
        """Fill the table, checkpoint by checkpoint."""
        setups = {at: self.config.setup(self.data, self._weights(at)) for at in self.numbers}
        todo = {
            at: [cell for cell in self._cells(at) if not table.has(setups[at], cell)] for at in self.numbers
        }
        whole = len(self.numbers) * len(self._cells(0))
        self.watch.plan(self._passes(self.layers)[1], whole, whole - sum(map(len, todo.values())))
        try:
            for at, cells in todo.items():
                if cells:
                    own = None if table.has(setups[at], _own(at)) else _own(at)
                    table.add(setups[at], self._checkpoint(at, cells, own))
                    table.save()
                self.watch.checkpoint(at, len(cells))
        finally:
            self.watch.close()
        return table.frame((setups[at], cell) for at in self.numbers for cell in [_own(at), *self._cells(at)])

    def _widths(self, model: nn.Module) -> dict[str, int]:
        """How wide the layers are, from a few samples that show whether model and data fit together."""
        found: dict[str, int] = {}
        for samples, split in ((self.test, "test"), (self.train, "train")):
            few = trial_rows(samples.x)
            with explained(model, few, f"{self.data.name}/{split}"):
                check_used(model, few)
                blank = torch.zeros(count(few), dtype=torch.int64)
                for batch in self._stream(model, {})(Samples.of(few, blank), self.layers):
                    found = {name: part.shape[1] for name, part in batch.features.items()}
        return found

    @property
    def _tokens_by_name(self) -> bool:
        """Whether the inputs are entries by name of which the first holds tokens: no features, then."""
        x = self.data.train.x
        return not isinstance(x, Tensor) and not first_entry(x).is_floating_point()

    def _cells(self, at: int) -> list[Cell]:
        return [
            Cell(at, layer, probe, fit)
            for layer in self.layers
            for probe in self.config.probes
            for fit in self.labels
        ]

    def _weights(self, at: int) -> str:
        """A hash of the checkpoint's file, or of the fresh model's weights."""
        seen = hashlib.blake2b(digest_size=16)
        if at != FRESH:
            with self.run.checkpoint(at).path.open("rb") as file:
                return hashlib.file_digest(file, lambda: seen).hexdigest()
        for value in self._model(at).state_dict().values():
            seen.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy())
        return seen.hexdigest()

    def _checkpoint(self, at: int, cells: list[Cell], own: Cell | None) -> Iterator[dict[str, Any]]:
        """All rows of one checkpoint, in as few passes as the memory allows; `own` is the model's cell."""
        said: dict[int, Tensor] = {}
        stream, classes = self._stream(self._model(at), said), len(self.data.classes)
        wanted = list(dict.fromkeys(cell.layer for cell in cells))
        room = room_for_fits(parse_size(self.config.memory))
        for layers, route in self._passes(wanted)[0]:
            source = source_for(stream, self.train, self.test, layers, route, classes, room)
            for layer in layers:
                yield from self._fit_rows(source, [cell for cell in cells if cell.layer == layer])
            del source  # before the next pass holds its features
        if own is not None:
            yield from self._own_rows(own, said)

    def _own_rows(self, own: Cell, said: dict[int, Tensor]) -> Iterator[dict[str, Any]]:
        """The model's own accuracy, where its outputs mean classes."""
        for split, samples in (("test", self.test), ("train", self.train)):
            if id(samples) in said:
                yield from _accuracies(own, split, said[id(samples)], samples)
            elif split == "test":
                yield missing_row(own, "the model's outputs are not one number per class")

    def _fit_rows(self, source: Source, cells: list[Cell]) -> Iterator[dict[str, Any]]:
        """Fit the probes of one layer, and score them on both splits."""
        layer, names = cells[0].layer, list(dict.fromkeys(cell.probe for cell in cells))
        if layer == INPUT and self._tokens_by_name:
            yield from (missing_row(cell, NO_INPUT) for cell in cells)
            return
        wanted = {cell.fit for cell in cells}
        sets = {fit: labels for fit, labels in self.labels.items() if fit in wanted}
        outcomes, said = source.fit_and_answer(layer, sets, names)
        for cell in cells:
            outcome = outcomes[cell.fit, cell.probe]
            if isinstance(outcome, str):
                yield missing_row(cell, outcome)
                continue
            if isinstance(outcome, MASC):
                yield dimension_row(cell, torch.as_tensor(outcome.dimensions_))
            for split, samples in (("test", self.test), ("train", self.train)):
                yield from _accuracies(cell, split, said[split][cell.fit, cell.probe].cpu(), samples)

    def _passes(self, layers: Sequence[str]) -> tuple[Passes, list[str]]:
        budget, dims = parse_size(self.config.memory), {name: self.dims[name] for name in layers}
        return plan_groups(
            dims, self.train, self.test, len(self.data.classes), budget, self.config.batch_size
        )

    def _model(self, at: int) -> nn.Module:
        # A user's factory may draw from the global generator: the same draws each time, and none lost.
        with global_stream(self.config.seed, "fresh model", 0, torch.device("cpu")):
            if at != FRESH:
                return self.run.model(at).to(self.device)
            return self.run.fresh().eval().to(self.device)

    def _stream(self, model: nn.Module, said: dict[int, Tensor]) -> Stream:
        """Features of any samples; the model's own answers on the way are noted in `said`."""
        config, answer = self.config, self._answer()

        def stream(samples: Samples, layers: Sequence[str]) -> Iterator[Batch]:
            for batch in stream_features(
                model, samples.x, layers, batch_size=config.batch_size, device=self.device,
                prepare=preparing(samples.x, self.data.scaling), conv=config.conv, tokens=config.tokens,
            ):  # fmt: skip
                answers = answer(batch.outputs)
                if answers is not None:
                    empty = torch.empty(len(samples), dtype=torch.int64)
                    said.setdefault(id(samples), empty)[batch.rows] = answers.cpu()
                yield batch

        return stream

    def _answer(self) -> Callable[[Tensor], Tensor | None]:
        """How outputs are read as classes; None where they are not one number per class."""
        trained = self.run.config
        if trained is not None and trained.target == "scalar":
            return objective_of(trained, self.data).predict
        count = len(self.data.classes)
        return lambda outputs: outputs.argmax(1) if outputs.ndim == 2 and outputs.shape[1] >= count else None


def _own(at: int) -> Cell:
    """The cell of the model itself."""
    return Cell(at, "output", "model", "given")


def _accuracies(cell: Cell, split: str, said: Tensor, samples: Samples) -> Iterator[dict[str, Any]]:
    """Against the true labels, and for training samples against the given ones."""
    true = samples.true
    if split == "test":
        yield accuracy_row(cell, split, "true", said == (samples.y if true is None else true))
        return
    yield accuracy_row(cell, split, "given", said == samples.y)
    if true is not None:
        yield accuracy_row(cell, split, "true", said == true)


def _drawn(samples: Samples, count: int | None, seed: int) -> Samples:
    if count is None or count >= len(samples):
        return samples
    return samples.take(torch.randperm(len(samples), generator=random_stream(seed, "probed samples"))[:count])


def _label_sets(train: Samples, config: GridConfig) -> dict[str, Tensor]:
    """Labels by name; true ones are left out where they are unknown or no different."""
    sets = {"given": train.y}
    if train.true is not None and not torch.equal(train.true, train.y):
        sets["true"] = train.true
    sets["shuffled"] = train.y[
        torch.randperm(len(train), generator=random_stream(config.seed, "shuffled labels"))
    ]
    chosen = {name: labels for name, labels in sets.items() if name in config.fits}
    if not chosen:
        raise BadValue(
            "fits", "given or shuffled, as true labels are unknown or no different here", config.fits
        )
    return chosen


def _chosen(run: Run, text: str) -> list[int]:
    """The checkpoints that `text` names; the fresh model goes first where `all` are wanted and 0 is missing."""
    if text == "all":
        return [*([FRESH] if run.factory is not None and 0 not in run.epochs else []), *run.epochs]
    if text == "last":
        return [run.epochs[-1]]
    try:
        schedule = CheckpointSchedule.parse(text)
    except BadValue:
        raise BadValue("checkpoints", "all, last, every:5 or a list such as 0,10,60", text) from None
    if schedule.kind == "list":
        return [run.checkpoint(at).at for at in schedule.numbers]
    return [at for at in run.epochs if at in schedule.moments(run.epochs[-1])]
