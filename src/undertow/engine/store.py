"""Where the answers of tasks lie: one file per task, named by its key, written whole or not at all.

store = Store(folder)
store.has(task)                          # finished already: never run again
store.keep(task, rows, seconds)          # also from another process, while others read
store.rows([task, ...])                  # a pandas table of what is there
store.fail(task, error); store.failure(task)     # a failure is kept in words and tried again next time
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from undertow.errors import UndertowError
from undertow.files import aside, write_text
from undertow.studies.task import Rows, Task

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Store:
    """A folder of answers."""

    folder: Path

    def has(self, task: Task) -> bool:
        """Whether the task is done."""
        return self._answer(task).exists()

    def keep(self, task: Task, rows: Rows, seconds: float) -> None:
        """Store the answer; the task itself and its seconds lie inside the file."""
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq

        # Through pandas: rows need not have the same columns, and pyarrow alone would take the first one's.
        table = pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False)
        about = {"task": json.dumps(task.to_dict()), "seconds": f"{seconds:.3f}", "rows": str(len(rows))}
        with aside(self._answer(task)) as part:
            pq.write_table(table.replace_schema_metadata(about), part)
        self._error(task).unlink(missing_ok=True)

    def fail(self, task: Task, error: str) -> None:
        """Keep the words of a failure."""
        write_text(self._error(task), json.dumps({"error": error, "task": task.to_dict()}, indent=2) + "\n")

    def failure(self, task: Task) -> str | None:
        """What went wrong the last time, if it did and was not mended since."""
        path = self._error(task)
        return json.loads(path.read_text(encoding="utf-8"))["error"] if path.exists() else None

    def seconds(self, tasks: Iterable[Task]) -> float:
        """How long the finished ones of these tasks took, added up."""
        import pyarrow.parquet as pq

        about = [pq.read_schema(self._answer(task)).metadata for task in tasks if self.has(task)]
        return sum(float(one[b"seconds"]) for one in about)

    def rows(self, tasks: Iterable[Task]) -> pd.DataFrame:
        """The rows of the finished ones of these tasks, in their order."""
        import pandas as pd
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = [pq.read_table(self._answer(task)) for task in tasks if self.has(task)]
        full = [part for part in parts if part.num_columns]
        return pa.concat_tables(full, promote_options="permissive").to_pandas() if full else pd.DataFrame()

    def _answer(self, task: Task) -> Path:
        return self.folder / f"{task.key}.parquet"

    def _error(self, task: Task) -> Path:
        return self.folder / f"{task.key}.error.json"


def failure_words(error: BaseException) -> str:
    """One line for people: our own errors speak for themselves, others name their kind."""
    text = str(error).strip().splitlines()
    first = text[0] if text else ""
    return first if isinstance(error, UndertowError) else f"{type(error).__name__}: {first}"
