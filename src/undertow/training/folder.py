"""The files around a run in progress: who may write into a folder, and what it starts with.

path = claim_folder(Path("runs/m40"), facts, resume=False)
write_labels(path, data.train)
state = read_state(path)            # None where nothing was written yet
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from undertow.data.samples import Samples
from undertow.errors import RunProblem
from undertow.files import PART, write_text
from undertow.training.facts import RunFacts
from undertow.training.foreign import read_plain
from undertow.training.record import write_table


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
        facts = replace(facts, made=begun.made)
        for torn in path.rglob(f".*{PART}"):
            torn.unlink(missing_ok=True)
    elif path.is_dir() and any(path.iterdir()):
        raise RunProblem(f"{path} is not empty and holds no run. Choose another --out.")
    write_text(path / "run.json", facts.to_json())
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


def write_labels(path: Path, samples: Samples) -> None:
    """Write labels.parquet: the sample's number, the label it was trained with and, if known, the true one."""
    columns: dict[str, list[int]] = {"index": samples.index.tolist(), "given": samples.y.tolist()}
    if samples.true is not None:
        columns["true"] = samples.true.tolist()
    names = list(columns)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    write_table(path / "labels.parquet", rows)


def read_state(path: Path) -> dict[str, Any] | None:
    """What a killed run left for its successor."""
    file = path / "state.pt"
    if not file.exists():
        return None
    try:
        return read_plain(file)
    except RunProblem as error:
        raise RunProblem(f"{error} Delete it to train this run anew.") from error
