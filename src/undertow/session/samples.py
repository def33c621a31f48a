"""The samples of a session, in one of three situations: the one place where they are read.

    held = gather_samples(run, None, None, config)               # undertow's own runs know their data
    held = gather_samples(run, (x, y), (x2, y2), config)         # anyone's; also Samples, Datasets, a DataSet
    held = gather_samples(run, (x, y, true), loader, config)     # true labels beside; DataLoaders: see handed.py
    held = gather_samples(run, None, x2, config)                 # no labels at all: a tensor, or a dict of entries
    held = gather_samples(run, (x, y), None, config)             # nothing held out
    held.train, held.test, held.classes, held.scaling, held.fingerprint

Held-out labels count as true, unless the configuration says that they are noisy or that there are none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from undertow.data.entries import LABELS, SampleInputs, hash_inputs
from undertow.data.own import is_split, load_arrays, read_samples
from undertow.data.plain import check_range
from undertow.data.samples import DataSet, Samples, names_up_to
from undertow.data.streamed import MapReader, SampleStream, fits, open_reader, read_small
from undertow.errors import BadData, BadValue
from undertow.features.stream import count_samples
from undertow.features.tap import Inputs
from undertow.session.handed import Handed, as_sources
from undertow.session.scalings import likeliest_scaling
from undertow.session.sequences import fitted_to
from undertow.session.settings import Labels, SessionConfig
from undertow.session.splits import Split, read_inputs, read_split, seen_before
from undertow.sizes import parse_size
from undertow.training.run import Run
from undertow.training.seeds import global_stream, stream

TRAIN, TEST = "train", "test"
MISSING = -1
"""In place of a training label that nobody gave, where labels are searched."""
Taken = TypeVar("Taken", Samples, Split)


@dataclass(frozen=True, eq=False)
class SessionSamples:
    """Both splits of a session; either may be missing."""

    name: str
    classes: tuple[str, ...]  # empty where there are no labels
    train: Split | None
    test: Split | None
    scaling: str | None  # None: fed as they are
    labels: Labels
    note: str = ""
    source: DataSet | None = None  # as it came, for its fingerprint
    drawn: tuple[int | None, int] = (None, 0)  # how many samples at most, and the seed that drew them

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all samples and labels, and of how they are fed; content is hashed once, by the data itself."""
        seen = hashlib.blake2b(f"{self.scaling} {self.labels} {self.drawn}".encode(), digest_size=16)
        if self.source is not None:
            seen.update(self.source.fingerprint.encode())
            return seen.hexdigest()
        for split in (self.train, self.test):
            for part in () if split is None else (split.x, split.given, split.true):
                if isinstance(part, SampleStream):
                    seen.update(part.fingerprint)
                elif part is not None:
                    hash_inputs(seen, _by_name(part))
        return seen.hexdigest()

    def fitted_to(self, build: Callable[[], nn.Module]) -> SessionSamples:
        """The same, as the model takes them: rows of steps are no pictures."""
        train, test = fitted_to((self.train, self.test), self.scaling, build)
        return self if train is self.train and test is self.test else replace(self, train=train, test=test)

    @property
    def stream(self) -> bool:
        """Whether samples of a split are read anew in each pass."""
        return any(split is not None and split.streams for split in (self.train, self.test))

    @property
    def test_labels(self) -> str:
        """What rows call the held-out labels."""
        return "given" if self.labels == "noisy" else "true"

    @property
    def test_classes(self) -> int:
        """How many classes the held-out labels have; 0 where there are none."""
        labels = None if self.test is None else self.test.labels
        return 0 if labels is None else len(labels.unique())

    @property
    def both_labelled(self) -> bool:
        """Whether probes can be fitted on one split and judged on the other."""
        splits = (self.train, self.test)
        return all(split is not None and split.labels is not None for split in splits)

    @cached_property
    def overlap(self) -> int:
        """How many held-out samples are training samples too, bit for bit."""
        if self.train is None or self.test is None:
            return 0
        return int(seen_before(self.train.x, self.test.x).sum())

    def overlap_words(self) -> str:
        """What a user should know of it."""
        if not self.overlap or self.test is None:
            return ""
        return (
            f"{self.overlap:,} of the {len(self.test):,} test samples are training samples too: accuracies on them say "
            "how much was memorised, not what was learned. Leave them out of one split."
        )

    def split(self, name: str) -> Split:
        """The split called train or test."""
        found = self.train if name == TRAIN else self.test
        if found is None:
            raise BadValue("session", f"a {name} split", "none", f"Give {name}=...")
        return found

    def wrong_labels(self) -> tuple[int, int] | None:
        """How many training labels are wrong, and of how many; None where nobody knows."""
        if self.train is None or self.train.given is None or self.train.true is None:
            return None
        return int((self.train.given != self.train.true).sum()), len(self.train)


def gather_samples(
    run: Run | None, train: Any, test: Any, config: SessionConfig, model: nn.Module | None = None
) -> SessionSamples:
    """The samples given, or the run's own; see the module's docstring. Without a run, `model` is who takes them."""
    # Some runs say how their inputs were scaled; what else is handed over is fed as it is.
    scaling = config.scaling or (None if run is None else run.scaling)
    if train is None and test is None and run is not None:
        train = run.data()
    train, test = (_streamed(part, name, config) for part, name in ((train, TRAIN), (test, TEST)))
    handed = as_sources(train, test, () if run is None else run.class_names)
    found = _gathered(handed, scaling, config, run)
    if found.classes and (names := handed.classes or _names_of(run, found.classes)):
        found = replace(found, classes=names)
    if model is not None:
        found = found.fitted_to(lambda: model)
    elif run is not None and run.config is None:  # undertow's own networks take pictures as they are read
        found = found.fitted_to(lambda: _fresh(run, config.seed))
    return replace(found, note=" ".join(filter(None, [found.note, handed.note])))


def _names_of(run: Run | None, numbers: tuple[str, ...]) -> tuple[str, ...]:
    """What the run calls classes that came as numbers."""
    names = () if run is None else run.class_names
    return names if len(names) >= len(numbers) and numbers == tuple(map(str, range(len(numbers)))) else ()


def _fresh(run: Run, seed: int) -> nn.Module:
    """An untrained model; a user's factory may draw from the global generator, which is left as it was."""
    with global_stream(seed, "fresh model", 0, torch.device("cpu")):
        return run.fresh()


def _gathered(handed: Handed, scaling: str | None, config: SessionConfig, run: Run | None) -> SessionSamples:
    train, test = handed.train, handed.test
    known = () if run is None else run.class_names
    if isinstance(train, DataSet):
        data = train if test is None else replace(train, test=_samples(test, TEST))
        return _of_data(data, scaling or data.scaling, config)
    for part in (train, test):
        _refuse_bytes(part, scaling, run)
    pair = train is not None and test is not None
    if pair and not any(_goes_alone(one) for one in (train, test)):
        data, own = _data_set(train, test, known)
        _refuse_bytes(data.train, scaling, run)
        return _of_data(data, scaling or own, config)
    return _of_parts(train, test, scaling, config, handed.classes or known)


def _refuse_bytes(source: Any, scaling: str | None, run: Run | None) -> None:
    """Ask how pictures in bytes were scaled in training: fed as 0 to 255 a model would answer, and answer nonsense."""
    pair = isinstance(source, tuple | list) and len(cast("Sequence[Any]", source)) == 2
    x = source.x if isinstance(source, Samples | Split) else source[0] if pair else source
    if scaling is None and str(getattr(x, "dtype", "")) in ("torch.uint8", "uint8"):
        raise BadValue(
            "samples", "how the model was fed with them in training", "pictures in bytes from 0 to 255",
            _likely_scaling(run, source) or "Say scaling='unit' (0 to 1), 'half' (-1 to 1), 'imagenet', 'cifar', "
            "'none' (0 to 255), or means and deviations such as '0.286/0.353'.",
        )  # fmt: skip


def _likely_scaling(run: Run | None, source: Any) -> str:
    """Which scaling the trained model itself speaks for; nothing where it cannot be asked, or does not care."""
    if run is None or run.factory is None or isinstance(source, Tensor):
        return ""
    held = source if isinstance(source, Samples) else read_samples(*source, where=TRAIN)
    likely = likeliest_scaling(run.model(), held.x, held.y, "unit")
    return f"Say scaling={likely.name!r}: {likely.words}." if likely.words else ""


def _streamed(source: Any, where: str, config: SessionConfig) -> Any:
    """A source that is too large to be held as a stream; any other as it is, or read into memory."""
    reader = open_reader(source)
    if reader is None:
        return source
    room = parse_size(config.memory)
    if isinstance(reader, MapReader) and not isinstance(source, str | Path) and fits(reader, room):
        return source  # those who read data sets into memory know more of them
    held = read_small(reader, room)
    if held is None:
        x = SampleStream(reader, where)
        return Split(x, x.labels)
    return held[0] if held[1] is None else held


def _goes_alone(source: Any) -> bool:
    """Whether a split makes no data set with another: bare inputs, several by position, a stream."""
    return isinstance(source, Split) or _is_bare(source) or _is_positional(source)


def _data_set(train: Any, test: Any, classes: tuple[str, ...]) -> tuple[DataSet, str]:
    """Both splits as a DataSet, and how its samples are fed unless somebody says otherwise: as they are."""
    if not (isinstance(train, Samples) and isinstance(test, Samples)):
        train, test = (_as_split(one, where) for one, where in ((train, TRAIN), (test, TEST)))
        return load_arrays((train, test), 0, classes=classes or None), "none"
    return DataSet("given", train, test, names_up_to(train.y, test.y)), "none"


def _as_split(source: Any, where: str) -> Any:
    """A split as data sets take it; a list of two means a pair too."""
    pair = tuple(cast("list[Any]", source)) if isinstance(source, list) else source
    if not is_split(pair):
        raise BadValue(where, "(x, y), Samples, a DataSet or a torch Dataset", type(source).__name__)
    return pair


def _of_data(data: DataSet, scaling: str, config: SessionConfig) -> SessionSamples:
    """Both splits with labels; what the configuration does not want to know is left out.

    The DataSet is kept as it came: it may know its fingerprint already.
    """
    note, drawn = data.note, (config.samples, config.seed if config.samples else 0)
    train, test = (_drawn(part, config) for part in (data.train, data.test))
    about: dict[str, Any] = {"note": note, "source": data, "drawn": drawn}
    if config.labels == "none":
        return SessionSamples(data.name, (), Split(train.x), Split(test.x), scaling, "none", **about)
    noisy = config.labels == "noisy"
    first = Split(train.x, train.y, None if noisy else train.true)
    right = test.y if test.true is None else test.true
    second = Split(test.x, test.y) if noisy else Split(test.x, None, right)
    return SessionSamples(data.name, data.classes, first, second, scaling, config.labels, **about)


def _of_parts(
    train: Any, test: Any, scaling: str | None, config: SessionConfig, known: tuple[str, ...]
) -> SessionSamples:
    """One split alone, or two of which one has no labels or is called with several inputs by position."""
    first = None if train is None else _part(train, TRAIN)
    second = None if test is None else _part(test, TEST)
    if config.labels == "none":
        first, second = (None if part is None else Split(part.x) for part in (first, second))
    # Of all samples: a few drawn ones may leave classes out.
    names = _numbered_names(first, second, known, missing=config.missing_labels)
    if second is not None and config.labels != "noisy":
        second = Split(second.x, None, second.labels)
    first, second = (None if part is None else _drawn(part, config) for part in (first, second))
    labels: Labels = config.labels if second is not None and second.labels is not None else "none"
    return SessionSamples("given", names, first, second, scaling, labels)


def _numbered_names(
    train: Split | None, test: Split | None, known: tuple[str, ...], *, missing: bool
) -> tuple[str, ...]:
    """The classes by number, after the checks that two labelled splits get; some may have no sample here."""
    labelled = {
        name: one for name, one in ((TRAIN, train), (TEST, test)) if one is not None and one.label_sets()
    }
    if not labelled:
        return ()
    classes = len(known or names_up_to(*(one.y for one in labelled.values())))
    for where, one in labelled.items():
        for kind, labels in one.label_sets().items():
            told = labels[labels != MISSING] if missing and where == TRAIN and kind == "given" else labels
            check_range(told, classes, f"{where} {kind} labels" if kind == "true" else f"{where} labels")
    return tuple(map(str, range(classes)))


def _part(source: Any, where: str) -> Split:
    if _is_bare(source):
        return Split(_bare(source, where))
    return read_split(_samples(source, where) if isinstance(source, DataSet) else source, where)


def _samples(source: Any, where: str) -> Samples:
    if isinstance(source, Samples):
        return source
    if isinstance(source, DataSet):
        return source.test if where == TEST else source.train
    found = read_split(source, where)
    return Samples.of(found.x, found.y)  # pyright: ignore[reportArgumentType]


def _by_name(x: Inputs) -> SampleInputs:
    """Tensors by name; positional ones by their place."""
    if isinstance(x, Tensor):
        return x
    parts = x.items() if isinstance(x, Mapping) else ((str(at), part) for at, part in enumerate(x))
    return {name: part for name, part in parts if isinstance(part, Tensor)}


def _is_bare(source: Any) -> bool:
    """Whether these are inputs without labels."""
    if isinstance(source, Mapping):
        return not any(name in cast("Mapping[str, Any]", source) for name in LABELS)
    return isinstance(source, Tensor)


def _is_positional(source: Any) -> bool:
    """Whether these are several inputs with labels, ((a, b), y): tensors that no data set holds."""
    pair = cast("Sequence[Any]", source)
    return isinstance(source, tuple | list) and len(pair) == 2 and isinstance(pair[0], tuple | list) and all(
        isinstance(part, Tensor) for part in cast("Sequence[Any]", pair[0])
    )  # fmt: skip


def _bare(given: Any, where: str) -> Inputs:
    x = read_inputs(given, where)
    if not count_samples(x):
        raise BadData(f"{where}: wanted samples, got none.")
    return x


def _drawn(samples: Taken, config: SessionConfig) -> Taken:
    most = config.samples
    if most is None or most >= len(samples):
        return samples
    order = torch.randperm(len(samples), generator=stream(config.seed, "audited samples"))
    return samples.take(order[:most].sort().values)
