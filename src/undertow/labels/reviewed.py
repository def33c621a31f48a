"""Labels that people have reviewed, read back.

    answers = read_review(Path("reviewed.csv"))          # or .parquet, or a Label Studio export (.json)
    done = apply_review(given, answers, "reviewed.csv")   # given: GivenLabels; done: Reviewed
    print(done); done.labels                             # what was changed, confirmed, left open, not reviewed, unknown

A table has the columns sample, and reviewed or label: a class's name or number; an empty cell is not reviewed, and ?,
unsure or unknown leave the question open, as a skipped task of Label Studio does. What cannot be meant (two labels for
a sample, an unknown class, labels of another data set) is refused as a whole, so that no answer is lost unseen.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
from torch import Tensor

from undertow.errors import BadData, unknown
from undertow.labels.cells import WHOLE, check_file, read_rows, unreadable, whole_number
from undertow.labels.given import GivenLabels
from undertow.room import check_room
from undertow.spreadsheets import unguarded
from undertow.stored.door import as_kind, decode, read_bytes
from undertow.training.labels_file import check_mark, mark_of_file

WHO = "labels --apply"
LABEL_COLUMNS = ("reviewed", "label")
OPEN = ("?", "unsure", "unknown")
"""Answers that leave the question open, unless a class is called so."""


EXPORT = "Export as JSON or JSON-MIN."
MOST_TASKS = 4 << 30
"""Bytes of an export that can be meant: tasks may hold their pictures."""


class Choices(msgspec.Struct):
    """What Label Studio stores of a choice."""

    choices: list[str | int | float | bool]


class Choice(msgspec.Struct):
    """A mark in an annotation that chooses classes."""

    value: Choices


class Result(msgspec.Struct):
    """One mark in an annotation; other kinds than choices have values of other kinds."""

    type: Any = None
    value: Any = None


class Annotation(msgspec.Struct):
    """What one person said of a task."""

    result: list[Result] | None = None
    was_cancelled: bool | None = None


class Task(msgspec.Struct):
    """A task of Label Studio with its annotations, under either of their names."""

    annotations: list[Annotation] | None = None
    completions: list[Annotation] | None = None


@dataclass(frozen=True)
class Answer:
    """What someone said of one sample; "" leaves the question open."""

    sample: int
    label: str
    given: str | None = None  # the label as it was when it was reviewed, where the file says so


@dataclass(frozen=True, eq=False)
class Reviewed:
    """Labels after a review, and what became of each answer (numbers of samples)."""

    labels: Tensor  # (N,) int64, -1 where there is none
    changed: tuple[int, ...]
    confirmed: tuple[int, ...]
    left_open: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def not_reviewed(self) -> int:
        """How many labels nobody looked at."""
        return len(self.labels) - len(self.changed) - len(self.confirmed) - len(self.left_open)

    @property
    def without_label(self) -> int:
        """How many samples have no label still."""
        return int((self.labels < 0).sum())

    def __str__(self) -> str:
        told = (
            f"{len(self.changed):,} changed, {len(self.confirmed):,} confirmed, {len(self.left_open):,} left open, "
            f"{self.not_reviewed:,} not reviewed, {len(self.unknown):,} unknown."
        )
        if self.unknown:
            first = ", ".join(map(str, self.unknown[:5])) + ", ..." * (len(self.unknown) > 5)
            told += f" There is no sample {first} among {len(self.labels):,}: those answers were not used."
        if self.without_label:
            told += f" {self.without_label:,} samples without a label are left out."
        return told


def read_review(path: Path) -> list[Answer]:
    """All answers in a file; samples that nobody answered for are not among them."""
    check_file(path, WHO, (".csv", ".parquet", ".json"))
    records = {".csv": _csv_records, ".parquet": _parquet_records, ".json": _json_records}[path.suffix](path)
    found = [answer for place, record in enumerate(records) for answer in _answers(record, place, path)]
    if not found:
        raise BadData(
            f"{WHO}: {path} holds no answer. Fill the column reviewed or label, or export annotated tasks."
        )
    return found


def check_samples(path: Path, mark: Callable[[], str | None]) -> None:
    """Refuse labels that say that they are of other samples than those whose mark of inputs `mark` tells."""
    made_for = mark_of_file(path) if path.suffix == ".parquet" else None
    found = None if made_for is None else mark()
    if made_for is not None and found is not None:
        check_mark(made_for, found, f"{WHO}: {path}", "Give the run, or the labels, that it was made from.")


def apply_review(given: GivenLabels, answers: Iterable[Answer], where: str) -> Reviewed:
    """The labels with all answers in their places."""
    labels, count = given.labels.clone(), len(given.labels)
    answered: dict[int, int | None] = {}
    outside: dict[int, None] = {}
    for answer in answers:
        number = _class_of(answer.label, given.names, where)
        if not 0 <= answer.sample < count:
            outside[answer.sample] = None
            continue
        _check_given(answer, number, given, where)
        known = answered.get(answer.sample)
        if known is not None and number is not None and known != number:
            pair = f"{given.names[known]} and {given.names[number]}"
            raise BadData(
                f"{where}: sample {answer.sample} is labelled both {pair}. Keep one answer for each."
            )
        answered[answer.sample] = known if number is None else number
    decided = {sample: number for sample, number in answered.items() if number is not None}
    for sample, number in decided.items():
        labels[sample] = number
    same = {sample for sample, number in decided.items() if number == int(given.labels[sample])}
    return Reviewed(
        labels, tuple(sorted(decided.keys() - same)), tuple(sorted(same)),
        tuple(sorted(answered.keys() - decided.keys())), tuple(sorted(outside)),
    )  # fmt: skip


def _class_of(label: str, names: Sequence[str], where: str) -> int | None:
    """The number of a class by its name, or by its number where no class is called so; None for an open question."""
    places = {name: place for place, name in enumerate(names)}
    if label in places:
        return places[label]
    if not label or label.lower() in OPEN:
        return None
    if (number := whole_number(label)) is not None:
        if str(number) in places:  # 3.0, as tables with gaps write it
            return places[str(number)]
        if 0 <= number < len(names) and not any(map(WHOLE.fullmatch, names)):
            return number
    raise unknown(f"class (in {where})", label, names)


def _check_given(answer: Answer, number: int | None, given: GivenLabels, where: str) -> None:
    """Refuse answers on other labels: their samples are others too."""
    if answer.given is None:
        return
    now = int(given.labels[answer.sample])
    then = -1 if answer.given in ("", "-1") else _class_of(answer.given, given.names, where)
    if now not in (then, number):
        called = given.names[now] if now >= 0 else "without a label"
        raise BadData(
            f"{where}: wanted answers on these labels, but it says that sample {answer.sample} was given "
            f"{answer.given or 'no label'}, and here it is {called}. Give the run or the labels that were reviewed."
        )


def _csv_records(path: Path) -> Iterator[dict[str, Any]]:
    head, body = read_rows(path, WHO)
    return (dict(zip(head, row, strict=True)) for row in body)


def _parquet_records(path: Path) -> Iterable[dict[str, Any]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, WHO, "a parquet table", error) from error


def _json_records(path: Path) -> list[dict[str, Any]]:
    content = read_bytes(path, MOST_TASKS)
    check_room(3 * len(content), f"{WHO}: {path}")
    stored = decode(content.removeprefix(BOM_UTF8), str(path), EXPORT)
    if not isinstance(stored, list) or not all(isinstance(one, dict) for one in cast("list[Any]", stored)):
        raise BadData(f"{WHO}: wanted a list of Label Studio tasks in {path}. Export as JSON or JSON-MIN.")
    return cast("list[dict[str, Any]]", stored)


def _answers(record: Mapping[str, Any], place: int, path: Path) -> Iterator[Answer]:
    """The answers in a row, or in a task with any number of annotations."""
    data: Mapping[str, Any] = record["data"] if isinstance(record.get("data"), dict) else record
    sample = _sample(data, place, path)
    raw = data.get("given_label", data.get("given"))
    given = None if raw is None else _text(raw)
    if "annotations" in record or "completions" in record:
        task = as_kind(record, Task, str(path), EXPORT)
        for one in task.annotations or task.completions or ():
            yield Answer(sample, _choice(one, sample, path), given)
        return
    column = next((name for name in LABEL_COLUMNS if name in data), None)
    if column is None:
        # Tasks that nobody has annotated lack it in JSON-MIN.
        if path.suffix == ".json":
            return
        hint = f"Add it to the table, filled where you have looked; there are {', '.join(map(str, data))}."
        raise unknown(f"column in {path} ({WHO}):", "reviewed or label", [], hint)
    label = _text(data[column])
    if label:
        yield Answer(sample, label, given)


def _sample(data: Mapping[str, Any], place: int, path: Path) -> int:
    text = _text(data.get("sample"))
    number = whole_number(text)
    if number is None:
        got = "no such column" if "sample" not in data else text or "an empty cell"
        raise BadData(
            f"{WHO}: wanted a sample's number in column sample of {path}, got {got} in row {place}. "
            "Review a table or tasks that undertow wrote."
        )
    return number


def _choice(annotation: Annotation, sample: int, path: Path) -> str:
    """The class that an annotation names; "" where it was skipped."""
    results = [one for one in annotation.result or () if one.type == "choices"]
    marks = [as_kind({"value": one.value}, Choice, str(path), EXPORT) for one in results]
    chosen = [choice for one in marks for choice in one.value.choices]
    if annotation.was_cancelled or not chosen:
        return ""
    if len(chosen) > 1:
        raise BadData(
            f"{path}: sample {sample} is labelled both {chosen[0]} and {chosen[1]}. Keep one answer for each."
        )
    return str(chosen[0])


def _text(value: Any) -> str:
    """A cell as text; nothing where it is missing."""
    if isinstance(value, dict):  # JSON-MIN with several choices
        chosen = cast("dict[str, Any]", value).get("choices")
        return ", ".join(map(str, cast("list[Any]", chosen))) if isinstance(chosen, list) else _text(chosen)
    return "" if value is None or value != value else unguarded(str(value).strip())
