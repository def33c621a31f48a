"""Samples that are read again and again, in one order, and never held.

    x = SampleStream(open_reader(dataset), "train")     # reads once: how many, labels, a digest of each sample
    len(x), x.labels, x.fingerprint
    for part in x.batches(512, slice(0, 65_536)): ...   # inputs in memory, decoded by workers where that pays
    x.take(torch.tensor([3, 70_000]))                   # some samples in memory

What can be streamed: torch Datasets, map-style and iterable; DataLoaders (in the order of the data, not of a shuffling
sampler); Hugging Face datasets, streaming ones too; folders of .tar shards or .parquet files (shards.py).
Each pass is compared with the first: a source that gives other samples each time is refused, since no statistic of it
would mean anything.
"""

from __future__ import annotations

import hashlib
import sys
import time
import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, default_collate

from undertow.data.entries import LABELS, is_hub_dataset, without_texts
from undertow.data.items import Collate, counted, guarded
from undertow.data.lost_workers import put_away
from undertow.data.plain import as_array
from undertow.errors import BadData, UndertowError

Inputs = Tensor | dict[str, Tensor]
Parts = tuple[Inputs, Tensor | None]
"""Inputs (B, ...) and labels (B,), or no labels."""

SLOW = 1e-3
"""Seconds for a sample from which worker processes read samples."""
TRIED = 16
PATIENCE = 300.0
"""Seconds more than it should take after which worker processes that bring no batch are given up."""
READ = 256
"""Samples of a batch in the first pass."""
KEPT = 512
"""So many samples at the beginning are held: what is tried on a few samples needs no pass."""


class Reader(Protocol):
    """Batches of a source in its one order."""

    def read(self, start: int, stop: int | None, size: int) -> Iterator[Parts]:
        """From the sample `start` up to `stop`, or to the end, `size` at a time."""
        ...

    def pick(self, rows: Sequence[int]) -> Inputs | None:
        """Some samples by number; None where the source can only be read from its beginning."""
        ...


class MapReader:
    """A source that gives any sample by its number."""

    def __init__(
        self,
        dataset: Dataset[Any],
        collate: Any = None,
        workers: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._dataset, self._workers = guarded(dataset), workers
        self._collate = Collate(collate) if collate else PUT_TOGETHER
        self._patience = patience
        self._each: float | None = None

    def __len__(self) -> int:
        return len(self._dataset)  # pyright: ignore[reportArgumentType]

    def read(self, start: int, stop: int | None, size: int) -> Iterator[Parts]:
        """By worker processes where decoding a sample takes long; what they do not bring is decoded here."""
        rows = range(start, len(self) if stop is None else stop)
        workers = self._count(rows)
        if workers:
            for batch in self._by_workers(rows, size, workers):
                yield parted(batch)
                rows = rows[size:]
        for batch in self._loader(rows, size):
            yield parted(batch)

    def _by_workers(self, rows: range, size: int, workers: int) -> Iterator[Any]:
        """Batches up to the first that no worker brings: one was lost, cannot be made, or waits for ever."""
        each = self._seconds(rows)
        # Beside Ray a forked process may inherit locks that nobody will ever open: it must begin anew.
        context = "spawn" if beside_ray() else None
        more = {"timeout": self._patience + 10 * size * each, "multiprocessing_context": context}
        try:
            yield from self._loader(rows, size, num_workers=workers, **more)
        except Exception as error:  # a sample's own error comes again where it is read here
            self._workers = 0
            put_away(error)
            # A worker that died may show as a broken pipe, too: only ours is not about the workers.
            if not isinstance(error, UndertowError):
                gave_up = f"Worker processes that read samples gave up ({error})."
                warnings.warn(f"{gave_up} This process reads them now, more slowly.", stacklevel=2)

    def _loader(self, rows: range, size: int, **more: Any) -> DataLoader[Any]:
        return DataLoader(Subset(self._dataset, rows), batch_size=size, collate_fn=self._collate, **more)

    def pick(self, rows: Sequence[int]) -> Inputs:
        """By number."""
        return parted(self._collate([self._dataset[row] for row in rows]))[0]

    def _count(self, rows: range) -> int:
        if self._workers is None:
            threads = torch.get_num_threads()
            slow = threads > 1 and self._seconds(rows) > SLOW
            self._workers = threads if slow else 0
        return self._workers if len(rows) > TRIED else 0

    def _seconds(self, rows: range) -> float:
        """How long a sample takes; the median, since a busy machine makes some wait."""
        if self._each is None:
            taken: list[float] = []
            for row in rows[:TRIED]:
                began = time.perf_counter()
                _ = self._dataset[row]
                taken.append(time.perf_counter() - began)
            self._each = median(taken) if taken else 0.0
        return self._each


def beside_ray() -> bool:
    """Whether this process is connected to Ray, as a worker or as a driver."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


class IterableReader:
    """A source that can only be read from its beginning; `batched` if it gives batches."""

    def __init__(self, source: Any, *, batched: bool = False) -> None:
        self._source, self._batched = source, batched
        self._who = type(source).__name__

    def read(self, start: int, stop: int | None, size: int) -> Iterator[Parts]:
        """What comes before `start` is read and dropped."""
        read = counted(self._source, self._who, "batch" if self._batched else "sample")
        items = chain.from_iterable(map(_rows, read)) if self._batched else read
        items = islice(items, start, stop)
        while some := list(islice(items, size)):
            yield parted(PUT_TOGETHER(some))

    def pick(self, rows: Sequence[int]) -> None:
        """Not without a pass."""
        return


class SampleStream:
    """Samples of a reader, known by number; read once when it is made."""

    def __init__(self, reader: Reader, where: str) -> None:
        self._reader, self.where = reader, where
        # Two growing blocks, not many small ones: those would lie between batches and hold their memory.
        digests, labels, count = bytearray(), array("q"), 0
        self._few: list[Inputs] = []
        for x, y in reader.read(0, None, READ):
            found = digests_of(x)
            digests += b"".join(found)
            count += len(found)
            if y is not None:
                labels.extend(_checked_labels(y, count, where).tolist())
            if count <= KEPT:
                self._few.append(x)
        if not count:
            raise BadData(f"{where}: wanted samples, got none.")
        self.digests = np.frombuffer(digests, np.uint8).reshape(count, -1)
        self.labels = torch.tensor(labels, dtype=torch.int64) if labels else None
        if self.labels is not None and len(self.labels) != count:
            raise BadData(f"{where}: wanted a label with each sample, got {len(self.labels)} with {count}.")
        self._picked: dict[bytes, Inputs] = {}

    def __len__(self) -> int:
        return len(self.digests)

    def __iter__(self) -> Iterator[Inputs]:
        """All samples, batch by batch."""
        return self.batches(READ)

    @property
    def few(self) -> Inputs:
        """The first samples, in memory."""
        return joined(self._few)

    @property
    def fingerprint(self) -> bytes:
        """A hash of all samples in their order."""
        return hashlib.blake2b(self.digests.data, digest_size=16).digest()

    def batches(self, size: int, rows: slice = slice(None)) -> Iterator[Inputs]:
        """Inputs of the samples `rows` in order, `size` at a time."""
        start, stop, _ = rows.indices(len(self))
        at = start
        for x, y in self._reader.read(start, stop, size):
            self._check(x, y, at)
            yield x
            at += len(_first(x))
        if at < stop:
            raise BadData(
                f"{self.where}: wanted {len(self)} samples in each pass, got {at} this time. {_ORDER}"
            )

    def take(self, rows: Tensor) -> Inputs:
        """The samples at `rows`, in memory; of a source without numbers by a pass, which is remembered."""
        wanted = [int(row) % len(self) for row in rows]
        few = self.few
        if not wanted or max(wanted) < len(_first(few)):
            return _at(few, torch.tensor(wanted, dtype=torch.int64))
        key = np.asarray(wanted, np.int64).tobytes()
        if key not in self._picked:
            found = self._reader.pick(wanted)
            self._picked = {key: self._passed(wanted) if found is None else found}
        return self._picked[key]

    def _passed(self, wanted: Sequence[int]) -> Inputs:
        places = torch.tensor(wanted)
        parts: list[Inputs] = []
        numbers: list[Tensor] = []
        at = 0
        for x in self.batches(READ, slice(0, int(places.max()) + 1)):
            own = places[(places >= at) & (places < at + len(_first(x)))].unique()
            parts, numbers = [*parts, _at(x, own - at)], [*numbers, own]
            at += len(_first(x))
        return _at(joined(parts), torch.searchsorted(torch.cat(numbers), places))

    def _check(self, x: Inputs, y: Tensor | None, at: int) -> None:
        """Compare with the first pass: labels all, of the inputs the first of the batch."""
        first = np.frombuffer(digests_of(_at(x, torch.tensor([0])))[0], np.uint8)
        same = bool((first == self.digests[at]).all())
        if self.labels is not None and y is not None:
            same = same and torch.equal(y.long().cpu(), self.labels[at : at + len(y)])
        if not same:
            raise BadData(
                f"{self.where}: got other samples than in the first pass, from sample {at} on. {_ORDER}"
            )


_ORDER = "Fix the order, and leave random transforms out."


def sample_bytes(x: Inputs) -> int:
    """What samples take in memory."""
    return sum(part.numel() * part.element_size() for part in ([x] if isinstance(x, Tensor) else x.values()))


def fits(reader: Reader, room: int) -> bool:
    """Whether all samples take at most `room` bytes; yes where nobody knows how many there are."""
    return not isinstance(reader, MapReader) or len(reader) * sample_bytes(reader.pick([0])) <= room


def read_small(reader: Reader, room: int) -> Parts | None:
    """All samples of a source in memory; None where they take more than `room` bytes."""
    if not fits(reader, room):
        return None
    inputs: list[Inputs] = []
    labels: list[Tensor] = []
    for x, y in reader.read(0, None, READ):
        room -= sample_bytes(x)
        if room < 0:
            return None
        inputs.append(x)
        labels += [] if y is None else [y]
    return (joined(inputs), torch.cat(labels) if labels else None) if inputs else None


def open_reader(source: Any) -> Reader | None:
    """How a source is streamed; None for what is no such source."""
    if isinstance(source, str | Path):
        from undertow.data.shards import open_shards  # which needs pyarrow

        found = open_shards(Path(source))
        return None if found is None else MapReader(found)
    if isinstance(source, DataLoader):
        own = cast("DataLoader[Any]", source)
        if isinstance(own.dataset, IterableDataset):
            return IterableReader(own, batched=own.batch_size is not None)
        return MapReader(own.dataset, own.collate_fn, own.num_workers)
    if isinstance(source, IterableDataset) or _is_hub_stream(source):
        return IterableReader(source)
    if is_hub_dataset(source):
        source = without_texts(source)
        return MapReader(source.with_format(None) if source.format["type"] is None else source)
    return MapReader(cast("Dataset[Any]", source)) if isinstance(source, Dataset) else None


def _is_hub_stream(source: object) -> bool:
    return type(source).__module__.startswith("datasets.") and type(source).__name__ == "IterableDataset"


# -- what a source gives, as tensors


def collated(items: Sequence[Any]) -> Any:
    """Samples as one batch; pictures become uint8 (C, H, W)."""
    return default_collate([_plain(item) for item in items])


PUT_TOGETHER = Collate(collated, own=True)


def parted(batch: Any) -> Parts:
    """A batch as inputs and labels."""
    if isinstance(batch, Mapping):
        entries = dict(cast("Mapping[str, Any]", batch))
        names = [name for name in LABELS if name in entries]
        y = entries.pop(names[0]) if names else None
        # A picture or a vector alone is the input itself; several entries go by their names.
        lonely = len(entries) == 1 and next(iter(entries)) in ("image", "img", "x", "features")
        return next(iter(entries.values())) if lonely else entries, y
    if isinstance(batch, Tensor):
        return batch, None
    pair = cast("Sequence[Any]", batch)
    if len(pair) != 2:
        raise BadData(f"samples: wanted pairs (x, y), got {len(pair)} parts.")
    return pair[0], pair[1]


def _plain(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {name: _plain(value) for name, value in cast("Mapping[str, Any]", item).items()}
    if isinstance(item, tuple | list) and len(cast("Sequence[Any]", item)) == 2:
        return tuple(_plain(part) for part in cast("Sequence[Any]", item))
    if type(item).__module__.startswith("PIL."):
        return _pixels(item)
    if isinstance(item, Tensor):
        return item.float() if item.dtype in (torch.float64, torch.float16) else item
    array = as_array(item)
    if array.dtype.kind not in "iufb":
        hint = " Turn texts into tokens first: tokenizer(texts, padding='max_length')." * isinstance(
            item, str
        )
        raise BadData(f"samples: wanted numbers or pictures, got {type(item).__name__}.{hint}")
    kind = np.float32 if array.dtype.kind == "f" else array.dtype if array.dtype == np.uint8 else np.int64
    return torch.from_numpy(np.array(array, kind))


def _pixels(picture: Any) -> Tensor:
    pixels = np.asarray(picture if picture.mode in ("L", "RGB") else picture.convert("RGB"))
    return torch.from_numpy(np.array(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)))


def _checked_labels(y: Any, seen: int, where: str) -> Tensor:
    if not isinstance(y, Tensor) or y.ndim != 1 or y.is_floating_point() or y.is_complex():
        raise BadData(
            f"{where}: wanted a whole number as label of each sample, got "
            f"{tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__} before sample {seen}."
        )
    return y.long().cpu()


def digests_of(x: Inputs) -> list[bytes]:
    """A hash of each sample: of all its entries, in the order of their names."""
    parts = [x] if isinstance(x, Tensor) else [x[name] for name in sorted(x)]
    rows = [
        part.detach().cpu().contiguous().reshape(len(part), -1).view(torch.uint8).numpy() for part in parts
    ]
    found: list[bytes] = []
    for row in zip(*rows, strict=True):
        seen = hashlib.blake2b(digest_size=16)
        for part in row:
            seen.update(part.data)
        found.append(seen.digest())
    return found


def joined(parts: Sequence[Inputs]) -> Inputs:
    """Batches as one."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(cast("list[Tensor]", list(parts)))
    return {name: torch.cat([cast("dict[str, Tensor]", part)[name] for part in parts]) for name in first}


def _rows(batch: Any) -> Iterator[Any]:
    """The samples of a batch."""
    x, y = parted(batch)
    for row in range(len(_first(x))):
        one = x[row] if isinstance(x, Tensor) else {name: part[row] for name, part in x.items()}
        yield one if y is None else (one, y[row])


def _first(x: Inputs) -> Tensor:
    return x if isinstance(x, Tensor) else next(iter(x.values()))


def _at(x: Inputs, rows: Tensor) -> Inputs:
    return x[rows] if isinstance(x, Tensor) else {name: part[rows] for name, part in x.items()}
