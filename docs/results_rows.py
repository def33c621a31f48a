"""The rows behind the ledger, seed by seed, a small file for each paper, so that later runs add seeds to earlier ones.

    keep_rows("studies", Path("docs/results-rows"))        # adds what is finished in studies/tasks
    restore_rows(Path("docs/results-rows"), "studies")     # puts answers back, as if they had just been computed

Only answers of the recipes as they stand are kept: what a task's name, settings and seed still ask for; thousands of
rows that are made again in seconds, without training, are not. An answer is
known by what was asked, without undertow's version. Answers with the same columns share a table, which keeps the file
small; every value is kept as it is, so that claims and hashes of rows come out the same.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from undertow.engine.store import Store
from undertow.studies.catalogue import STUDIES, find_study
from undertow.studies.task import Task

ASKED, SECONDS = "asked", "task_seconds"
SCALES = ("laptop", "paper")
MOST_SEEDS = 5
MANY_ROWS, FEW_SECONDS = 1000, 60.0
WHEN = (2000, 1, 1, 0, 0, 0)
"""The same rows make the same file."""


def wanted_tasks() -> dict[str, Task]:
    """All that the recipes as they stand can ask for, by what is asked."""
    every = (
        task for name in STUDIES for scale in SCALES for task in find_study(name).at(scale).tasks(MOST_SEEDS)
    )
    return {asked(task): task for task in every}


def asked(task: Task) -> str:
    """A hash of what a task asks for, in whatever version of undertow."""
    text = json.dumps([task.function, task.arguments], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def keep_rows(out: Path | str, kept: Path) -> int:
    """Add the answers in OUT/tasks; returns how many there are in all."""
    tasks = wanted_tasks()
    answers = {key: table for key, table in read_kept(kept) if key in tasks}
    folder = Path(out) / "tasks"
    for key, task in tasks.items():
        path = folder / f"{task.key}.parquet"
        if path.is_file():
            table = pq.read_table(path)
            seconds = float((table.schema.metadata or {}).get(b"seconds", b"0"))
            if not _made_again_at_once(task, len(table), seconds):
                answers[key] = _with(table.replace_schema_metadata(None), key, seconds)
    kept.mkdir(exist_ok=True)
    for room in sorted({_room(tasks[key]) for key in answers}):
        own = {key: table for key, table in answers.items() if _room(tasks[key]) == room}
        _write(own, kept / f"{room}.zip")
    return len(answers)


def _room(task: Task) -> str:
    return task.label.partition("/")[0]


def _made_again_at_once(task: Task, rows: int, seconds: float) -> bool:
    return task.arguments["config"] is None and rows > MANY_ROWS and seconds < FEW_SECONDS


def restore_rows(kept: Path, out: Path | str) -> int:
    """Put the answers into OUT/tasks, where they are not there yet; returns how many are kept."""
    tasks, store, count = wanted_tasks(), Store.under(out), 0
    store.claim()
    for key, table in read_kept(kept):
        count += 1
        if key in tasks and not store.has(tasks[key]):
            plain = table.drop_columns([ASKED, SECONDS])
            store.keep(tasks[key], plain.to_pylist(), table[SECONDS][0].as_py())
    return count


def read_kept(kept: Path) -> Iterator[tuple[str, pa.Table]]:
    """Every answer in the files."""
    for path in sorted(kept.glob("*.zip")):
        with zipfile.ZipFile(path) as file:
            for name in file.namelist():
                table = pq.read_table(io.BytesIO(file.read(name)))
                for key in table[ASKED].unique().to_pylist():
                    yield key, table.filter(pa.compute.equal(table[ASKED], key))


def _with(table: pa.Table, key: str, seconds: float) -> pa.Table:
    count = len(table)
    return table.append_column(ASKED, pa.array([key] * count)).append_column(
        SECONDS, pa.array([seconds] * count, pa.float64())
    )


def _write(answers: dict[str, pa.Table], kept: Path) -> None:
    alike: dict[str, list[pa.Table]] = {}
    for _, table in sorted(answers.items()):
        alike.setdefault(table.schema.to_string(), []).append(table)
    with zipfile.ZipFile(kept, "w") as file:
        for number, (_, tables) in enumerate(sorted(alike.items())):
            file.writestr(zipfile.ZipInfo(f"{number:03}.parquet", WHEN), _packed(pa.concat_tables(tables)))


def _packed(table: pa.Table) -> bytes:
    """The smaller of two forms: numbers that repeat pack best in a dictionary, others byte by byte."""
    numbers = [one.name for one in table.schema if pa.types.is_floating(one.type)]
    others = [name for name in table.column_names if name not in numbers]
    forms: list[bytes] = []
    for form in ({}, {"use_dictionary": others, "use_byte_stream_split": numbers}):
        written = io.BytesIO()
        pq.write_table(table, written, compression="zstd", compression_level=19, **form)
        forms.append(written.getvalue())
    return min(forms, key=len)
