"""The files around a run in progress: who may write into a folder, and what it starts with.

path = claim_folder(Path("runs/m40"), facts, resume=False)
write_labels(path, data.train, facts.id)
state = read_state(path)            # None where nothing was written yet
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from undertow.data.samples import Samples
from undertow.errors import BadFile, RunProblem
from undertow.files import is_unfinished, sweep
from undertow.stored.archives import check_archive
from undertow.stored.tables import write_table
from undertow.training.facts import RunFacts, run_mark
from undertow.training.foreign import read_plain

LARGEST = 1 << 40
"""Bytes of a state that can be meant."""
ANEW = "Delete it to train this run anew."


def claim_folder(path: Path, facts: RunFacts, *, resume: bool) -> RunFacts:
    """Make `path` the folder of the run that `facts` describe, or say why it cannot be.

    Returns the facts; a resumed run keeps the time at which it was begun.
    """
    if (path / "run.json").exists():
        if not resume:
            raise RunProblem(
                f"{path} holds a run already. Add --resume to go on with it, or choose another --out."
            )
        begun = RunFacts.read(path)
        _check_same(path, begun, facts)
        facts = replace(facts, made=begun.made, id=begun.id)
        for folder in (path, path / "checkpoints"):
            sweep(folder)
    elif path.is_dir() and not all(map(is_unfinished, path.iterdir())):
        # Unfinished files alone are what a run left that was killed before its run.json was written.
        raise RunProblem(f"{path} is not empty and holds no run. Choose another --out.")
    facts.write(path)
    return facts


def _check_same(path: Path, old: RunFacts, new: RunFacts) -> None:
    """A resumed run must be the same run; only more epochs are allowed, where no earlier one would differ."""
    before, after = {**(old.config or {})}, {**(new.config or {})}
    before["interventions"], after["interventions"] = old.interventions, new.interventions
    before["labels"], after["labels"] = _labels_content(old), _labels_content(new)
    changed = [name for name in after if before.get(name) != _as_stored(after[name])]
    if changed == ["epochs"] and after["epochs"] > before["epochs"] and not _depends_on_length(after):
        changed = []
    if changed:
        name = changed[0]
        raise RunProblem(
            f"{path}: wanted the settings it was started with ({name} = {before.get(name)!r}), got {after[name]!r}. "
            "Resume with the same settings, or choose another --out."
        )
    if old.data and new.data and old.data["fingerprint"] != new.data["fingerprint"]:
        raise RunProblem(f"{path}: the data has changed since the run was started. Choose another --out.")


def _labels_content(facts: RunFacts) -> str | None:
    """The labels file by what is in it: where it lies may change."""
    file = (facts.data or {}).get("labels")
    return None if file is None else f"content {file['content'][:16]}"


def _depends_on_length(config: dict[str, Any]) -> bool:
    """Whether what happens in an epoch depends on how many there are: rates, stages, checkpoints."""
    return config["schedule"] == "cosine" or config["greedy"] or config["checkpoints"].startswith("log")


def _as_stored(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def write_labels(path: Path, samples: Samples, owner: str) -> None:
    """Write labels.parquet: the sample's number, the label it was trained with and, if known, the true one."""
    import pyarrow as pa

    columns = {"index": samples.index.numpy(), "given": samples.y.numpy()}
    if samples.true is not None:
        columns["true"] = samples.true.numpy()
    write_table(path / "labels.parquet", pa.table(columns), owner)


def read_state(path: Path) -> dict[str, Any] | None:
    """What a killed run left for its successor."""
    file, mark = path / "state.pt", run_mark(path)
    if not file.exists():
        return None
    try:
        check_archive(file, LARGEST, what="the state of a run", need=bool(mark), owner=mark)
        state = read_plain(file)
        _check_state(file, state)
    except RunProblem as error:
        raise RunProblem(f"{error} {ANEW}") from error
    return state


def _check_state(file: Path, state: Any) -> None:
    wanted = {"epoch": int, "step": int, "metrics": list, "net": dict, "optimiser": dict}
    if not isinstance(state, dict):
        raise BadFile(file, "", f"wanted the state of a run, got {type(state).__name__}")
    for name, kind in wanted.items():
        if not isinstance(state.get(name), kind) or (kind is int and state[name] < 0):  # pyright: ignore
            raise BadFile(file, name, f"wanted {kind.__name__}, got {type(state.get(name)).__name__}")  # pyright: ignore
