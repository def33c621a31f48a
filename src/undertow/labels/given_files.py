"""Features, labels, texts and pictures from files, for people without a run.

    files = GivenFiles(features=("clip=a.npy", "dino=b.npy"), labels=Path("y.csv"))
    label_errors(features=files.read_features(), labels=files.read_labels())
    files.read_shown(count)            # Shown: texts, picture files or pixels in sample order, where given

A table's column is called label (text), or is the only one. Rows beside a column sample belong to those samples, and
samples that are not listed have no label. In a csv or txt file an empty cell and nan are missing; NA and None may be
names of classes. One table may hold features, label and text.
"""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from undertow.errors import BadData, BadValue, unknown
from undertow.labels.cells import WHOLE, as_labels, check_file, read_rows, unreadable
from undertow.labels.given_tables import (
    csv_arrays,
    in_order,
    placed_labels,
    read_parquet,
    table_arrays,
    unread_names,
)
from undertow.room import check_room

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
ARRAYS = (".npy", ".npz", ".parquet", ".csv")
COLUMNS = (".csv", ".parquet", ".npy", ".npz", ".txt")
"""A cell of text that begins like a formula is written behind an apostrophe, as spreadsheets run it otherwise."""


@dataclass(frozen=True, eq=False)
class Shown:
    """How samples are shown to people; row i is sample i."""

    texts: tuple[str, ...] | None = None
    files: tuple[Path, ...] | None = None
    pixels: Any = None  # (N, C, H, W), an array or a tensor

    @classmethod
    def of(cls, texts: Any = None, images: Any = None) -> "Shown":
        """Texts, and pixels (N, C, H, W) or paths of picture files, as Python has them."""
        words = (
            None if texts is None else tuple("" if one is None or one != one else str(one) for one in texts)
        )
        if images is None or getattr(images, "ndim", 1) == 4:
            return cls(words, pixels=images)
        return cls(words, tuple(Path(one) for one in images))

    def check(self, count: int, texts: str = "texts", images: str = "images") -> "Shown":
        """Itself, if there is one of each for each of `count` samples."""
        for name, found in ((texts, self.texts), (images, self.files), (images, self.pixels)):
            if found is not None and len(found) != count:
                raise BadData(
                    f"{name}: wanted one for each of {count} samples in their order, got {len(found)}."
                )
        return self

    @property
    def any(self) -> bool:
        """Whether there is something to show."""
        return any(own is not None for own in (self.texts, self.files, self.pixels))


@dataclass(frozen=True, kw_only=True)
class GivenFiles:
    """What to search without a run, and how samples are shown."""

    features: tuple[str, ...] | None = None
    """Without a run: features (samples, numbers) as .npy, .npz, .parquet or .csv; several as clip=a.npy,dino=b.npy."""
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

    @property
    def paths(self) -> list[Path]:
        """The files that are read."""
        named = [_named_path(one)[1] for one in (*(self.features or ()), *(self.probabilities or ()))]
        others = [one for one in (self.labels, self.texts, self.images) if one is not None]
        # Nothing that is written has the ending of a picture: a folder of them may hold tables, too.
        return [one for one in (*named, *others) if one.is_file()]

    def read_features(self) -> dict[str, NDArray[Any]] | None:
        """Features by name; None where there are none."""
        beside = [(path, name) for path, name in ((self.labels, "label"), (self.texts, "text")) if path]
        return _read_named(self.features, "--features", beside) if self.features else None

    def read_probabilities(self) -> list[NDArray[Any]] | None:
        """Tables of probabilities; None where there are none."""
        found = _read_named(self.probabilities or (), "--probabilities")
        return list(found.values()) or None

    def read_labels(self, count: int | None = None) -> NDArray[Any]:
        """Labels, -1 or None where one is missing; `count` is how many there should be."""
        if self.labels is None:
            raise BadValue("labels", "--labels FILE beside features", None, "For example --labels y.csv.")
        return read_label_file(self.labels, count)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of how rows found each other."""
        own = {_named_path(one)[1].resolve() for one in self.features or ()}
        if (
            self.labels is None or self.labels.resolve() in own
        ):  # a row's features and label stand side by side
            return ()
        return unread_names(self.labels, {"label", "text"})

    def read_shown(self, count: int) -> Shown:
        """Texts and pictures of `count` samples."""
        cells = None if self.texts is None else _texts(self.texts, count)
        shown = Shown.of(cells)
        if self.images is not None:
            shown = _pictures(self.images, shown.texts)
        return shown.check(count, "--texts", "--images")


def read_label_file(path: Path, count: int | None = None) -> NDArray[Any]:
    """The labels in a file as numbers or names, in the order of the samples."""
    placed = placed_labels(path, count)
    found = _column(path, "label", "--labels", count) if placed is None else placed
    return found if isinstance(found, np.ndarray) else as_labels(found)


def _read_named(
    parts: Sequence[str], who: str, beside: Sequence[tuple[Path, str]] = ()
) -> dict[str, NDArray[Any]]:
    """Arrays by name; a file with several arrays gives each its own. Columns `beside` features are left out."""
    found: dict[str, NDArray[Any]] = {}
    for part in parts:
        name, path = _named_path(part)
        others = {own for file, own in beside if file.resolve() == path.resolve()}
        for inner, array in _arrays(path, who, others).items():
            chosen = (name or inner or path.stem) if not (name and inner) else f"{name}.{inner}"
            if chosen in found:
                raise BadValue(who, "a name of its own for each", chosen, "Write clip=a.npy,dino=b.npy.")
            found[chosen] = array
    return found


def _named_path(part: str) -> tuple[str, Path]:
    """The name and the file of clip=a.npy; a file may have a sign of equality in its own name."""
    name, sign, rest = part.partition("=")
    return ("", Path(part)) if not sign or Path(part).exists() else (name.strip(), Path(rest))


def _arrays(path: Path, who: str, others: Set[str]) -> dict[str, NDArray[Any]]:
    """The arrays in a file: one without a name, or several with theirs."""
    check_file(path, who, ARRAYS)
    match path.suffix:
        case ".parquet":
            found = table_arrays(path, who, others)
        case ".csv":
            found = csv_arrays(path, who, others)
        case _:
            found = _numpy_arrays(path, who, mapped=True)
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
            table = read_parquet(path, who)
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


def _texts(path: Path, count: int) -> Sequence[str] | NDArray[Any]:
    """Texts of samples; a table may say whose they are."""
    found = _column(path, "text", "--texts", count)
    order = in_order(path, "--texts")
    return found if order is None else [found[row] for row in order]


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
