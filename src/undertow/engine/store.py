"""Where the answers of tasks lie: one file per task, named by its key, which it also says, written whole or not at all.

store = Store(folder)                    # or a URL: Store("s3://bucket/studies/tasks")
store = Store.under(out)                 # the one of a study's --out
store.has(task)                          # finished already: never run again
store.keep(task, rows, seconds)          # while others read
store.rows([task, ...])                  # a pandas table of what is there
store.fail(task, error); store.failure(task)     # a failure is kept in words and tried again next time

A key holds undertow's version, so answers of several versions can lie side by side; `claim` refuses a store
whose form a later undertow changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from undertow._version import __version__
from undertow.engine.result_place import ResultPlace, open_place
from undertow.errors import UndertowError
from undertow.stored.documents import FailureDocument, StoreDocument
from undertow.stored.door import check_document, document_text
from undertow.stored.study_folder import ANEW
from undertow.stored.tables import TableSchema, read_table, table_bytes
from undertow.studies.task import Rows, Task

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FORMAT = StoreDocument.newest
"""Raised when an older undertow could no longer read the answers."""

MARK = "store.json"
AGAIN = "Delete it: its task is run again."
ANSWERS = TableSchema("answers", {"value": "number"}, others="any", again=AGAIN, owner="task", restore=AGAIN)


@dataclass(frozen=True)
class Store:
    """A folder of answers."""

    folder: Path | str  # a path or a URL

    @classmethod
    def under(cls, out: Path | str) -> Store:
        """The answers of a place of results."""
        return cls(f"{str(out).rstrip('/')}/tasks")

    @cached_property
    def place(self) -> ResultPlace:
        """The files."""
        return open_place(self.folder)

    def claim(self) -> None:
        """Mark the place as ours; refuse one that a later undertow made in another form."""
        if not self.place.exists(MARK):
            mark = {"format": FORMAT, "undertow": __version__}
            self.place.write(MARK, document_text(mark).encode())
            return
        check_document(self.place.read(MARK), f"{self.folder}/{MARK}", StoreDocument, next_step=ANEW)

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """The tasks that are not done, each once; one listing, however many there are."""
        there = self.place.names()
        return list({task.key: task for task in tasks if _answer(task) not in there}.values())

    def has(self, task: Task) -> bool:
        """Whether the task is done."""
        return self.place.exists(_answer(task))

    def keep(self, task: Task, rows: Rows, seconds: float) -> None:
        """Store the answer; the task itself and its seconds lie inside the file."""
        import pandas as pd
        import pyarrow as pa

        # Through pandas: rows need not have the same columns, and pyarrow alone would take the first one's.
        table = pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False)
        about = {"task": json.dumps(task.to_dict()), "seconds": f"{seconds:.3f}", "rows": str(len(rows))}
        self.place.write(_answer(task), table_bytes(table.replace_schema_metadata(about), task.key))
        self.place.remove(_error(task))

    def fail(self, task: Task, error: str) -> None:
        """Keep the words of a failure."""
        self.place.write(_error(task), document_text({"error": error, "task": task.to_dict()}).encode())

    def failure(self, task: Task) -> str | None:
        """What went wrong the last time, if it did and was not mended since."""
        name = _error(task)
        if not self.place.exists(name):
            return None
        told = check_document(
            self.place.read(name), f"{self.folder}/{name}", FailureDocument, next_step=AGAIN
        )
        return str(told["error"])

    def seconds(self, tasks: Iterable[Task]) -> float:
        """How long the finished ones of these tasks took, added up."""
        return sum(_seconds(part) for part in self._answers(tasks))

    def rows(self, tasks: Iterable[Task]) -> pd.DataFrame:
        """The rows of the finished ones of these tasks, in their order."""
        import pandas as pd
        import pyarrow as pa

        full = [part for part in self._answers(tasks) if part.num_columns]
        return pa.concat_tables(full, promote_options="permissive").to_pandas() if full else pd.DataFrame()

    def _answers(self, tasks: Iterable[Task]) -> list[pa.Table]:
        there = self.place.names()
        return [
            read_table(f"{self.folder}/{name}", ANSWERS, content=self.place.read(name), owner=task.key)
            for task in tasks
            if (name := _answer(task)) in there
        ]


def _seconds(part: pa.Table) -> float:
    told = (part.schema.metadata or {}).get(b"seconds", b"0")
    try:
        return float(told)
    except ValueError:
        return 0.0


def _answer(task: Task) -> str:
    return f"{task.key}.parquet"


def _error(task: Task) -> str:
    return f"{task.key}.error.json"


def failure_words(error: BaseException) -> str:
    """One line for people: our own errors speak for themselves, others name their kind."""
    text = str(error).strip().splitlines()
    first = text[0] if text else ""
    return first if isinstance(error, UndertowError) else f"{type(error).__name__}: {first}"
