"""Features, labels, texts and pictures from files, for people without a run.

    files = GivenFiles(features=("clip=a.npy", "dino=b.npy"), labels=Path("y.csv"))
    label_errors(features=files.read_features(), labels=files.read_labels())
    files.read_shown(count)            # Shown: texts, picture files or pixels in sample order, where given

A table's column is called label (text), or is the only one. In a csv or txt file an empty cell and nan are missing;
NA and None may be names of classes.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, BadValue, NotThere, unknown
from undertow.room import check_room
from undertow.spreadsheets import unguarded

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
ARRAYS = (".npy", ".npz", ".parquet")
COLUMNS = (".csv", ".parquet", ".npy", ".npz", ".txt")
"""A cell of text that begins like a formula is written behind an apostrophe, as spreadsheets run it otherwise."""
WHOLE = re.compile(r"[-+]?(0|[1-9]\d*)(\.\d*)?")


@dataclass(frozen=True, eq=False)
class Shown:
    """How samples are shown to people; row i is sample i."""

    texts: tuple[str, ...] | None = None
    files: tuple[Path, ...] | None = None
    pixels: NDArray[Any] | None = None  # (N, C, H, W)

    @property
    def any(self) -> bool:
        """Whether there is something to show."""
        return any(own is not None for own in (self.texts, self.files, self.pixels))


@dataclass(frozen=True, kw_only=True)
class GivenFiles:
    """What to search without a run, and how samples are shown."""

    features: tuple[str, ...] | None = None
    """Without a run: features (samples, numbers) as .npy, .npz or .parquet; several as clip=a.npy,dino=b.npy."""
    labels: Path | None = None
    """Their labels, numbers or names: .csv, .parquet, .npy or .txt; the column label, or the only one."""
    probabilities: tuple[str, ...] | None = None
    """Out-of-sample class probabilities (samples, classes) as .npy, beside features or instead of them."""
    images: Path | None = None
    """Pictures of the samples, for the report: a folder (in the order of its file names, 2 before 10) or .npy."""
    texts: Path | None = None
    """Texts of the samples, for tables and the report: .csv, .parquet or .txt; the column text, or the only one."""

    @property
    def any(self) -> bool:
        """Whether there is something to search."""
        return bool(self.features or self.probabilities or self.labels)

    def read_features(self) -> dict[str, NDArray[Any]] | None:
        """Features by name; None where there are none."""
        return _read_named(self.features, "--features") if self.features else None

    def read_probabilities(self) -> list[NDArray[Any]] | None:
        """Tables of probabilities; None where there are none."""
        found = _read_named(self.probabilities or (), "--probabilities")
        return list(found.values()) or None

    def read_labels(self, count: int | None = None) -> NDArray[Any]:
        """Labels, -1 or None where one is missing; `count` is how many there should be."""
        if self.labels is None:
            raise BadValue("labels", "--labels FILE beside features", None, "For example --labels y.csv.")
        return read_label_file(self.labels, count)

    def read_shown(self, count: int) -> Shown:
        """Texts and pictures of `count` samples."""
        cells = None if self.texts is None else _column(self.texts, "text", "--texts", count)
        texts = (
            None if cells is None else tuple("" if one is None or one != one else str(one) for one in cells)
        )
        shown = Shown(texts) if self.images is None else _pictures(self.images, texts)
        for flag, found in (("--texts", texts), ("--images", shown.files), ("--images", shown.pixels)):
            if found is not None and len(found) != count:
                raise BadData(
                    f"{flag}: wanted one for each of {count} samples in their order, got {len(found)}."
                )
        return shown


def read_label_file(path: Path, count: int | None = None) -> NDArray[Any]:
    """The labels in a file as numbers or names."""
    found = _column(path, "label", "--labels", count)
    return found if isinstance(found, np.ndarray) else as_labels(found)


def as_labels(cells: Sequence[str]) -> NDArray[Any]:
    """Cells of a text file as numbers where all are, else as names; None where one is missing."""
    texts = [unguarded(cell.strip()) for cell in cells]
    known = [None if text.lower() in ("", "nan") else text for text in texts]
    if all(text is None or WHOLE.fullmatch(text) for text in known):
        return np.array([-1.0 if text is None else float(text) for text in known])
    return np.array(known, dtype=object)


def read_rows(path: Path, who: str) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a csv file, all as text; a blank line is an empty cell of the only column."""
    check_file(path, who, (".csv",))
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            first = stream.readline()
            stream.seek(0)
            split = max(",;\t", key=first.count)
            rows = list(csv.reader(stream, delimiter=split))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise unreadable(path, who, "a csv file in UTF-8", error) from error
    if not rows:
        raise BadData(f"{who}: {path} is empty. Wanted a head and one row for each sample.")
    head = [name.strip() for name in rows[0]]
    body = [row or [""] for row in rows[1:] if row or len(head) == 1]
    for number, row in enumerate(body, 2):
        if len(row) != len(head):
            raise BadData(
                f"{who}: wanted {len(head)} cells in each row of {path}, got {len(row)} in row {number}. Put texts "
                "with commas in quotes."
            )
    return head, body


def check_file(path: Path, who: str, endings: Sequence[str]) -> None:
    """Refuse what is not there or is of another kind."""
    if path.suffix not in endings:
        raise BadValue(who, f"a {' or '.join(endings)} file", str(path))
    if not path.is_file():
        raise NotThere(
            f"{who}: there is no file {path}. Wanted a {' or '.join(endings)} file; check its path."
        )


def unreadable(path: Path, who: str, what: str, error: Exception) -> BadData:
    """The error for a file that is there and is not what its name says."""
    reason = (str(error).splitlines() or ["damaged"])[0]
    return BadData(f"{who}: wanted {what}, but {path} cannot be read as one ({reason}).")


def _read_named(parts: Sequence[str], who: str) -> dict[str, NDArray[Any]]:
    """Arrays by name; a file with several arrays gives each its own."""
    found: dict[str, NDArray[Any]] = {}
    for part in parts:
        name, sign, rest = part.partition("=")
        name, path = ("", Path(part)) if not sign or Path(part).exists() else (name.strip(), Path(rest))
        for inner, array in _arrays(path, who).items():
            chosen = (name or inner or path.stem) if not (name and inner) else f"{name}.{inner}"
            if chosen in found:
                raise BadValue(who, "a name of its own for each", chosen, "Write clip=a.npy,dino=b.npy.")
            found[chosen] = array
    return found


def _arrays(path: Path, who: str) -> dict[str, NDArray[Any]]:
    """The arrays in a file: one without a name, or several with theirs."""
    check_file(path, who, ARRAYS)
    found = _table_arrays(path, who) if path.suffix == ".parquet" else _numpy_arrays(path, who, mapped=True)
    if not found or any(one.ndim < 2 or not one.size for one in found.values()):
        got = ", ".join(str(one.shape) for one in found.values()) or "nothing"
        raise BadData(
            f"{who}: wanted numbers (samples, columns) in {path}, got {got}. Give a row for each sample."
        )
    return found if len(found) > 1 else {"": next(iter(found.values()))}


def _numpy_arrays(path: Path, who: str, *, mapped: bool = False) -> dict[str, NDArray[Any]]:
    """Arrays by name; a `mapped` one stays in its file and is read when it is looked at."""
    how: Any = (
        "c" if mapped and path.suffix == ".npy" else None
    )  # torch wants arrays that could be written to
    try:
        stored: Any = np.load(path, how, allow_pickle=False)
        if path.suffix == ".npy":
            return {"": stored}
        with stored:
            check_room(sum(one.file_size for one in stored.zip.infolist()), f"{who}: {path}")
            return {name: np.asarray(stored[name]) for name in stored.files}
    except BadData:
        raise
    except Exception as error:  # numpy's readers of damaged files raise of many kinds
        raise unreadable(path, who, "an array of numbers or texts, not of Python objects", error) from error


def _table_arrays(path: Path, who: str) -> dict[str, NDArray[Any]]:
    """Columns of lists, each on its own, or else all columns of numbers together."""
    table = _parquet(path, who)
    lists = [name for name in table if len(table) and np.ndim(table[name].iloc[0]) == 1]
    if lists:
        return {name: _stacked(table[name].tolist(), f"{who}: column {name} of {path}") for name in lists}
    if "label" in table:
        raise BadData(
            f"{who}: {path} has a column label beside its numbers. Labels must not be features: leave it out."
        )
    return {"": table.select_dtypes("number").to_numpy()} if len(table.columns) else {}


def _stacked(rows: list[Any], who: str) -> NDArray[Any]:
    sizes = {np.shape(row) for row in rows}
    if len(sizes) > 1:
        raise BadData(f"{who}: wanted lists of one length, got {len(sizes)} lengths. Fill or cut them.")
    return np.stack(rows)


def _parquet(path: Path, who: str) -> Any:
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as table:
            told = table.metadata  # a small file can claim, and hold, rows without end
            check_room(8 * told.num_rows * told.num_columns, f"{who}: {path}")
            return table.read(use_threads=False).to_pandas(use_threads=False)
    except BadData:
        raise
    except Exception as error:  # damaged files: pyarrow's errors, and Python's own
        raise unreadable(path, who, "a parquet table", error) from error


def _column(path: Path, name: str, who: str, count: int | None) -> list[str] | NDArray[Any]:
    """One column of a file: texts of a csv or txt file, values of others."""
    check_file(path, who, COLUMNS)
    match path.suffix:
        case ".txt":
            try:
                return path.read_text(encoding="utf-8-sig").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise unreadable(path, who, "a text file in UTF-8", error) from error
        case ".csv":
            return _csv_column(path, name, who, count)
        case ".parquet":
            table = _parquet(path, who)
            return np.asarray(table[_chosen(list(table.columns), name, path, who)].to_numpy())
        case _:
            found = _numpy_arrays(path, who)
            return found[_chosen(list(found), name, path, who)]


def _csv_column(path: Path, name: str, who: str, count: int | None) -> list[str]:
    head, body = read_rows(path, who)
    place = head.index(_chosen(head, name, path, who))
    cells = [row[place] for row in body]
    # A file without a head: its first label would be lost as the head.
    if len(head) == 1 and head[0] != name and (len(cells) + 1 == count or WHOLE.fullmatch(head[0])):
        cells.insert(0, head[0])
    while count is not None and len(head) == 1 and len(cells) > count and not cells[-1]:
        cells.pop()  # blank lines at the end of the file
    return cells


def _chosen(names: Sequence[Any], wanted: str, path: Path, who: str) -> Any:
    if wanted in names or len(names) == 1:
        return wanted if wanted in names else names[0]
    hint = f"Call the column {wanted}, or leave only one; there are {', '.join(map(str, names)) or 'none'}."
    raise unknown(f"column in {path} ({who}):", wanted, [], hint)


def _pictures(path: Path, texts: tuple[str, ...] | None) -> Shown:
    if path.is_dir():
        files = [one for one in path.rglob("*") if one.suffix.lower() in PICTURES]
        return Shown(texts, tuple(sorted(files, key=_counted_up)))
    if path.suffix != ".npy":
        raise BadValue("--images", f"a folder of {', '.join(PICTURES)} files or a .npy file", str(path))
    check_file(path, "--images", (".npy",))
    pixels = _numpy_arrays(path, "--images")[""]
    if pixels.ndim == 3:
        return Shown(texts, pixels=pixels[:, None])
    if pixels.ndim == 4 and pixels.shape[-1] in (1, 3):
        return Shown(texts, pixels=np.moveaxis(pixels, -1, 1))
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        raise BadData(
            f"--images: wanted (samples, height, width) or with 1 or 3 colours, got {pixels.shape}."
        )
    return Shown(texts, pixels=pixels)


def _counted_up(path: Path) -> list[tuple[int, int | str]]:
    """Names in the order in which people count: 2.png before 10.png."""
    parts = cast("list[str]", re.split(r"(\d+)", str(path)))
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]
