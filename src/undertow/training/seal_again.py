"""Taking a run's files as they are: new seals for what was changed on purpose.

    seal_again(Path("runs/m40"))       # the files that got a new seal

What cannot be read at all is refused as ever; only the mark of change goes. A file of another run gets the mark of the
run that it lies in, a checkpoint also the epoch or step that its name says.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from undertow.errors import UndertowError
from undertow.files import aside
from undertow.stored.archives import owner_of_archive, seal_archive
from undertow.stored.documents import AuditDocument, Document, RunDocument
from undertow.stored.door import (
    MOST_JSON,
    check_document,
    decode,
    document_text,
    read_bytes,
    read_document,
    write_document,
)
from undertow.stored.exchanged import FOLDER
from undertow.stored.seals import FIELD, seal_of, stamp
from undertow.stored.tables import owner_of_table, write_table
from undertow.stored.tensors import check_content, write_tensors
from undertow.training.checkpoint_files import find_checkpoints
from undertow.training.facts import run_mark
from undertow.training.own_checkpoint import METRICS, checked_header

TABLES = ("metrics.parquet", "labels.parquet", "probes.parquet", "audit.parquet", "suspects.parquet")


def seal_again(run: Path) -> list[Path]:
    """Seal what changed in a run's folder; returns those files."""
    done = [
        run / name for name in ("run.json",) if (run / name).exists() and _document(run / name, RunDocument)
    ]
    mark = run_mark(run)
    done += [run / name for name in TABLES if (run / name).exists() and _table(run / name, mark)]
    if (run / "audit.json").exists() and _audit(run / "audit.json", mark):
        done.append(run / "audit.json")
    if (run / "suspects.npz").exists() and _pictures(run / "suspects.npz", mark):
        done.append(run / "suspects.npz")
    if (run / "state.pt").exists() and _archive(run / "state.pt", mark):
        done.append(run / "state.pt")
    if (run / FOLDER).is_dir():
        done += [
            one.path
            for one in find_checkpoints(run / FOLDER).checkpoints
            if _checkpoint(one.path, one.unit, one.at, run)
        ]
    return done


def _audit(path: Path, mark: str) -> bool:
    table, stored = path.with_name("audit.parquet"), decode(read_bytes(path, MOST_JSON), str(path))
    change = {"table": seal_of(table)} if table.exists() else {}
    if isinstance(stored, dict) and AuditDocument.owner in stored:
        change[AuditDocument.owner] = mark
    return _document(path, AuditDocument, change)


def _document(path: Path, kind: type[Document], change: dict[str, Any] | None = None) -> bool:
    content = read_bytes(path, MOST_JSON)
    stored: Any = decode(content, str(path))
    values = {**stored, **(change or {})} if isinstance(stored, dict) else stored
    if isinstance(values, dict):
        values.pop(FIELD, None)
        if document_text(values).encode() == content:
            return False
    check_document(document_text(values).encode() if isinstance(values, dict) else content, str(path), kind)
    write_document(path, values)
    read_document(path, kind)
    return True


def _table(path: Path, mark: str) -> bool:
    from pyarrow import parquet

    before = seal_of(path)
    if before is None or owner_of_table(path) not in ("", mark):
        write_table(path, parquet.read_table(path), mark)
        return True
    return _stamped(path, before)


def _stamped(path: Path, before: str) -> bool:
    with aside(path) as part:
        part.write_bytes(path.read_bytes())
        with part.open("r+b") as file:
            return stamp(file) != before


def _archive(path: Path, mark: str) -> bool:
    before = seal_of(path)
    if before is not None and owner_of_archive(path) in ("", mark):
        return _stamped(path, before)
    with zipfile.ZipFile(path) as archive:
        archive.testzip()
    with aside(path) as part:
        part.write_bytes(path.read_bytes())
        seal_archive(part, mark)
    return True


def _pictures(path: Path, mark: str) -> bool:
    with np.load(path, allow_pickle=False) as stored:
        arrays = {str(name): stored[name] for name in stored.files}
    seal = seal_of(path.with_name("suspects.parquet"))
    if str(arrays.get("table")) == seal and seal_of(path) is not None:
        return _archive(path, mark)
    with aside(path) as part:
        with part.open("wb") as file:
            np.savez_compressed(file, **{**arrays, "table": np.array(seal)})  # pyright: ignore
        seal_archive(part, mark)
    return True


def _checkpoint(path: Path, unit: str, at: int, run: Path) -> bool:
    from safetensors.torch import load_file

    if path.suffix != ".safetensors":
        return False
    try:
        check_content(path, need_seal=True)
        checked_header(path)
    except UndertowError:
        words = read_words(path)
        kept = {METRICS: words[METRICS]} if METRICS in words else {}
        write_tensors(path, load_file(path), {unit: str(at), **kept, "run": run_mark(run)})
        return True
    return False


def read_words(path: Path) -> dict[str, str]:
    """What the header of a file says, whether its seal fits or not."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return dict(file.metadata() or {})
