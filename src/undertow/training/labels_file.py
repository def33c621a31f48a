"""Labels to train on, from a file: a cleaned set, or anyone's own.

    cleaned = LabelsFile.read(Path("cleaned.parquet"))        # or .csv; columns sample and label
    people = LabelsFile.read(Path("CIFAR-10_human.pt:worse_label"))   # a named column of a .parquet, .csv or .pt file
    cleaned.apply(data.train, classes=10, known=True)         # those samples only, with those labels
    cleaned.mark                                              # hash of the content, whatever the order of its rows
    LabelsFile.of(sample, label, inputs_mark(data.train)).write(path)

`sample` is a row of the training split as it is loaded, cut to size and before any noise; samples that are not listed
are left out, the others keep their order. A file without that column has one label for each sample, in their order, as
label files of named sets are published (CIFAR-N); a .npy file is one such column. A parquet file may say in its schema,
under `undertow.data`, which inputs its rows belong to; on others it is refused. A csv file cannot say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pyarrow import csv, parquet
from torch import Tensor

from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, ChangedFile, NotThere, unknown
from undertow.spreadsheets import write_csv
from undertow.stored.seals import check_seal
from undertow.stored.tables import arrow_file, write_table
from undertow.training.harmless import harmless_types

if TYPE_CHECKING:
    import pandas as pd

SAMPLE, LABEL = "sample", "label"
KINDS = (".parquet", ".csv", ".npy", ".pt")
INPUTS_KEY = b"undertow.data"
COPY = "trained_labels.parquet"
"""The name of a run's own copy, so that the run needs the original no more."""


@dataclass(frozen=True, eq=False)
class LabelsFile:
    """Which samples are trained on, in ascending order, and with which labels."""

    sample: Tensor  # (K,) int64, ascending, each once
    label: Tensor  # (K,) int64
    inputs: str | None  # `inputs_mark` of the split that the rows belong to
    where: str  # who complains
    of_all: bool = False  # it named no samples, so there must be one label for each

    @classmethod
    def read(cls, path: Path) -> LabelsFile:
        """The labels in a file, or in its column if `path` ends in `:COLUMN`; nonsense is refused with the row."""
        path, column = _named_column(path)
        table = _read_table(path)
        names = table.column_names
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise BadData(f"{path}: wanted each column once, got {twice} twice. Leave one out.")
        meant = [SAMPLE] if SAMPLE in names or get_close_matches(SAMPLE, names, cutoff=0.8) else []
        for name in (column, *meant):
            if name not in names:
                hint = "A labels file has the columns sample and label; FILE:COLUMN takes another than label."
                raise unknown(f"column in {path}:", name, names, hint)
        if not table.num_rows:
            raise BadData(f"{path}: wanted at least one sample, got an empty table.")
        label = torch.from_numpy(_whole_numbers(table, column, path))
        if not meant:
            return cls(torch.arange(len(label)), label, None, str(path), of_all=True)
        sample = torch.from_numpy(_whole_numbers(table, SAMPLE, path))
        metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
        inputs = metadata[INPUTS_KEY].decode(errors="replace") if INPUTS_KEY in metadata else None
        return cls.of(sample, label, inputs, str(path))

    @classmethod
    def of(
        cls, sample: Tensor, label: Tensor, inputs: str | None = None, where: str = "labels file"
    ) -> LabelsFile:
        """Labels in any order; a sample may be listed once."""
        ordered, order = sample.sort(stable=True)
        twice = (ordered.diff() == 0).nonzero()
        if len(twice):
            number = int(ordered[twice[0]])
            raise BadData(
                f"{where}: wanted each sample once, got sample {number} {int((sample == number).sum())} times"
                f" ({len(twice)} rows too many). Keep one row for each."
            )
        return cls(ordered, label[order], inputs, where)

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def table(self) -> pd.DataFrame:
        """Sample and label, as pandas has them."""
        import pandas as pd

        return pd.DataFrame({"sample": self.sample.numpy(), "label": self.label.numpy()})

    def write(self, path: str | Path, names: Sequence[str] = ()) -> None:
        """Write a parquet or csv file, whole or not at all; with `names` of the classes, a column of them too."""
        columns: dict[str, Any] = {"sample": self.sample.numpy(), "label": self.label.numpy()}
        if names:
            columns["name"] = [names[number] for number in self.label.tolist()]
        table = pa.table(columns)
        if Path(path).suffix == ".csv":
            write_csv(Path(path), table.to_pandas())
            return
        if self.inputs is not None:
            table = table.replace_schema_metadata({INPUTS_KEY: self.inputs.encode()})
        write_table(Path(path), table)

    @cached_property
    def mark(self) -> str:
        """A hash of samples and labels: the same for the same content in another order or format."""
        seen = hashlib.blake2b(digest_size=16)
        for part in (self.sample, self.label):
            seen.update(part.contiguous().numpy().data)
        return seen.hexdigest()

    def apply(self, samples: Samples, classes: int, *, known: bool) -> Samples:
        """The listed samples with the file's labels.

        Args:
            samples: the training split as it is loaded.
            classes: how many there are.
            known: whether the split's own labels count as the true ones; they do in any case where it says so.
        """
        self._check(samples, classes)
        listed = samples.take(self.sample)
        true = listed.true if listed.true is not None or not known else listed.y
        return replace(listed, y=self.label, true=true)

    def _check(self, samples: Samples, classes: int) -> None:
        if self.inputs is not None:
            way_out = "Train with the data, the sizes and the noise seed of the run it came from."
            check_mark(self.inputs, inputs_mark(samples), self.where, way_out)
        if self.of_all and len(self) != len(samples):
            raise BadData(
                f"{self.where}: wanted a label for each of {len(samples)} training samples in their order, got "
                f"{len(self)}. Add a column sample that says whose they are."
            )
        for name, numbers, most in (("sample", self.sample, len(samples)), ("label", self.label, classes)):
            bad = ((numbers < 0) | (numbers >= most)).nonzero()
            if len(bad):
                first = int(bad[0])
                got = (
                    int(numbers[first]) if name == "sample" else f"{numbers[first]} for {self.sample[first]}"
                )
                what = "sample numbers" if name == "sample" else "class numbers"
                raise BadData(
                    f"{self.where}: wanted {what} from 0 to {most - 1}, got {got} ({len(bad)} such rows)."
                    " Was it made for this data set?"
                )


def inputs_mark(samples: Samples) -> str:
    """A hash of the inputs alone: which samples these are, whatever their labels."""
    seen = hashlib.blake2b(f"{samples.tensor.dtype}{tuple(samples.tensor.shape)}".encode(), digest_size=16)
    seen.update(samples.tensor.contiguous().cpu().numpy().data)
    return seen.hexdigest()


def mark_of_file(path: Path) -> str | None:
    """Which inputs a parquet file says that its rows belong to; None where it says nothing."""
    try:
        found: Mapping[bytes, bytes] = parquet.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return None  # said by whoever reads its rows
    return found[INPUTS_KEY].decode(errors="replace") if INPUTS_KEY in found else None


def check_mark(made_for: str, found: str, where: str, way_out: str) -> None:
    """Refuse labels that were made for other samples."""
    if made_for != found:
        raise BadData(
            f"{where}: wanted the training samples it was made for (inputs {made_for[:8]}), got others "
            f"({found[:8]}). {way_out}"
        )


def _read_table(path: Path) -> pa.Table:
    if path.suffix not in KINDS:
        raise BadValue("labels file", f"a {' or '.join(KINDS)} file", str(path))
    if not path.is_file():
        raise NotThere(f"There is no labels file {path}. It has the columns sample and label.")
    try:
        if path.suffix in (".npy", ".pt"):
            return _columns_of(path)
        if path.suffix == ".csv":
            return csv.read_csv(path)
        with arrow_file(path) as file:
            check_seal(file, path)  # one of ours that changed would train on other labels
            file.seek(0)
            return parquet.read_table(file, use_threads=False)
    except ChangedFile:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, UnpicklingError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadData(f"{path}: wanted a table of labels, but it cannot be read ({reason}).") from error


def _named_column(path: Path) -> tuple[Path, str]:
    """A file and its column: `labels.pt:worse_label`; label where none is named."""
    before, colon, column = path.name.rpartition(":")
    if path.exists() or not colon or not column:
        return path, LABEL
    return path.with_name(before), column


def _columns_of(path: Path) -> pa.Table:
    """The only column of a .npy file, or the columns of one length of a .pt file's dict."""
    if path.suffix == ".npy":
        return pa.table({LABEL: np.load(path, allow_pickle=False)})
    with torch.serialization.safe_globals(harmless_types()):
        stored: Any = torch.load(path, map_location="cpu", weights_only=True)
    found: dict[str, Any] = stored if isinstance(stored, dict) else {LABEL: stored}
    columns = {str(name): np.asarray(one) for name, one in found.items() if np.ndim(one) == 1}
    return pa.table(columns)


def _whole_numbers(table: pa.Table, name: str, path: Path) -> NDArray[np.int64]:
    """A column as int64; floats are taken if they are whole, as spreadsheets write them."""
    column = table.column(name).combine_chunks()
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) and len(column):
        raise BadData(
            f"{path}: wanted whole numbers in column {name}, got {column.type}, {column[0].as_py()!r} in the first row."
        )
    values = column.to_numpy(zero_copy_only=False)  # a missing number becomes NaN
    bad = np.flatnonzero(~np.isfinite(values) | (np.abs(values.astype(np.float64)) >= 2**53))
    if not len(bad):
        bad = np.flatnonzero(values != np.floor(values))
    if len(bad):
        got = column[int(bad[0])].as_py()
        raise BadData(
            f"{path}: wanted whole numbers in column {name}, got {'none' if got is None else got} in row "
            f"{int(bad[0])} ({len(bad)} such rows)."
        )
    return values.astype(np.int64)
