"""Damaged files of a run: only our own errors, and never another result in silence.

    python tests/stored/test_fuzz.py 10000          # the whole fuzz, with its table; 500 of them run with the tests

Each case changes one file of a run that was trained, audited and searched for wrong labels, then reads the run in every
way that a command does. Allowed: an `UndertowError`, or the very same results. Seeded: a case has a number.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from damage import changed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import undertow as ut
from undertow.cli import main
from undertow.errors import UndertowError
from undertow.report import read_saved
from undertow.report.gallery import suspects
from undertow.report.summary import about, facts, tiles

QUICK = 500
FILES = (
    "run.json", "audit.json", "metrics.parquet", "labels.parquet", "audit.parquet", "suspects.parquet", "suspects.npz",
    "checkpoints/epoch-000001.safetensors", "checkpoints/epoch-000002.safetensors",
)  # fmt: skip


def make_run(folder: Path) -> Path:
    """A small run with every file that a run can have."""
    with contextlib.redirect_stdout(io.StringIO()):
        run = ut.train(
            "mlp:8", folder / "run", data="digits", noise=0.4, epochs=2, train_size=120, test_size=60,
            checkpoints="every:1",
        )  # fmt: skip
        ut.audit(run, quick=True, out=run.path).save(run.path)
        assert main(["labels", str(run.path), "--json"]) == 0
    return run.path


def plain(value: object) -> str:
    return hashlib.sha1(repr(value).encode("utf-8", "backslashreplace")).hexdigest()


def printed(*words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(list(words))
    if code:
        raise UndertowError(out.getvalue())
    return out.getvalue()


def readings(run: Path) -> dict[str, Callable[[], str]]:
    """Every way to read the run, as a short mark of what came out."""
    return {
        "open": lambda: plain((ut.open_run(run).facts, ut.open_run(run).config)),
        "weights": lambda: plain(
            [
                (name, str(own.dtype), own.double().sum().item(), own.double().abs().sum().item())
                for at in (0, 1, 2)
                for name, own in ut.open_run(run).model(at).state_dict().items()
            ]
        ),
        "metrics": lambda: plain(ut.open_run(run).metrics.to_csv()),
        "labels": lambda: plain(ut.open_run(run).labels.to_csv()),
        "runs": lambda: plain(printed("runs", str(run.parent), "--json")),
        "show": lambda: plain(printed("show", str(run))),
        "report": lambda: plain(
            (
                lambda own: (
                    own.rows.to_csv(),
                    own.audit,
                    own.metrics.to_csv(),
                    tiles(own),
                    about(own),
                    facts(own),
                )
            )(read_saved(run))
        ),
        "gallery": lambda: plain(suspects(run, [str(digit) for digit in range(10)])),
    }


def of_file(name: str) -> tuple[str, ...]:
    """The readings that a file can change."""
    if name == "run.json":
        return ("open", "runs", "show", "report")
    if name.startswith("checkpoints"):
        return ("weights", "metrics")
    return {
        "metrics.parquet": ("metrics", "runs", "show", "report"), "labels.parquet": ("labels",),
        "audit.json": ("report",), "audit.parquet": ("report",),
    }.get(name, ("gallery",))  # fmt: skip


class Fuzz:
    """One run, read again after each change."""

    def __init__(self, run: Path) -> None:
        self.run, self.readings = run, readings(run)
        self.wanted = {name: read() for name, read in self.readings.items()}

    def outcome(self, number: int) -> tuple[str, str]:
        """What became of case `number`: own error, same, or what must not be."""
        rng = random.Random(number)
        name = rng.choice(FILES)
        path = self.run / name
        content = path.read_bytes()
        new = changed(content, name, rng)
        try:
            path.write_bytes(new)
            return self._read(name, json_unsealed=name.endswith(".json") and b'"seal"' not in new)
        finally:
            path.write_bytes(content)

    def _read(self, name: str, *, json_unsealed: bool) -> tuple[str, str]:
        refused = differs = ""
        for way in of_file(name):
            try:
                if self.readings[way]() != self.wanted[way]:
                    differs = differs or f"{name}: {way} differs"
            except UndertowError:
                refused = name
            except Exception as error:
                return "foreign", f"{name}: {way}: {type(error).__name__}: {error}"
        if refused:
            return "own error", ""
        # A document without a seal is one that undertow never sealed: a value that fits is a value.
        return ("unsealed" if json_unsealed else "silent", differs) if differs else ("same", "")


def fuzz(numbers: range, run: Path) -> tuple[Counter[str], list[str]]:
    """How the cases ended, and a line for each that must not be."""
    found, bad = Counter[str](), []
    own = Fuzz(run)
    for number in numbers:
        kind, words = own.outcome(number)
        found[kind] += 1
        if kind in ("foreign", "silent"):
            bad.append(f"case {number}: {kind}: {words}")
    return found, bad


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("fuzz"))


def test_five_hundred_damaged_files(run: Path):
    found, bad = fuzz(range(QUICK), run)
    assert not bad, "\n".join(bad[:10])
    assert found["own error"] > QUICK / 2, "the changes hardly reach the readers"


@pytest.mark.slow
def test_ten_thousand_damaged_files(run: Path):
    assert not fuzz(range(QUICK, 10_000), run)[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("format", "config", "model", "data", "versions", "id", "interventions", "finished", "made", "seal")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6) | JSON)
def test_any_document_in_place_of_run_json(tmp_path_factory: pytest.TempPathFactory, document: Any):
    """Opened or refused, whatever the JSON; NaN and lone surrogates included."""
    folder = tmp_path_factory.mktemp("any")
    (folder / "run.json").write_bytes(json.dumps(document).encode())
    for read in (
        lambda: ut.open_run(folder),
        lambda: read_saved(folder),
        lambda: printed("runs", str(folder)),
    ):
        with contextlib.suppress(UndertowError):
            read()


def share(count: int, parts: int, part: int) -> tuple[Counter[str], list[str]]:
    """One process's part of the cases, on a run of its own, in memory where the machine has such a folder."""
    torch.set_num_threads(1)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as place:
        return fuzz(range(part, count, parts), make_run(Path(place)))


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    parts, began = min(4, os.cpu_count() or 1), time.monotonic()
    with ProcessPoolExecutor(parts) as pool:
        shares = list(pool.map(share, [count] * parts, [parts] * parts, range(parts)))
    print(dict(sum((ended for ended, _ in shares), Counter[str]())), f"{time.monotonic() - began:.0f} s")
    print("\n".join([line for _, wrong in shares for line in wrong][:40]))
