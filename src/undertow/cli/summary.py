"""What a run was and how it went, in a few lines of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from undertow.cli.screen import counted, percent, thousands

if TYPE_CHECKING:
    from undertow.training.config import TrainConfig
    from undertow.training.run_folder import RunFolder


def heading(config: TrainConfig) -> str:
    """One line that says what is about to be trained."""
    noise = "" if config.noise == "0" else f", label noise {escape(config.noise)}"
    noise += "" if config.labels is None else f", labels of {escape(config.labels)}"
    how = f"{counted(config.epochs, 'epoch')} of {config.optimiser}, lr {config.lr:g}"
    return f"[bold]{escape(config.model)}[/] on [bold]{escape(config.data)}[/]{noise}: {how}"


def ending(run: RunFolder) -> str:
    """How the run ended, where its test accuracy was best, and what it memorised."""
    rows: list[dict[str, Any]] = run.metrics.to_dict("records")  # pyright: ignore[reportAssignmentType]
    last = rows[-1]
    tested = [row for row in rows if row["test_accuracy"] == row["test_accuracy"]]
    best = max(tested, key=lambda row: row["test_accuracy"])
    top = f"{percent(best['test_accuracy'])} at epoch {int(best['epoch'])}"
    lines = [
        f"Ended after {escape(run.facts.ended)}: training accuracy {percent(last.get('train_fit'))}, "
        f"test accuracy {percent(last['test_accuracy'])}.",
        f"The best test accuracy was {top}.{_kept(run, tested, best)}",
    ]
    repeated = last.get("train_wrong_fit")
    if repeated is not None and repeated == repeated:
        lines.append(
            f"It repeats {percent(repeated)} of the wrong training labels: {_judged(repeated, best, last)}"
        )
    note = (run.facts.data or {}).get("note")
    lines += [f"Note: {escape(note)}"] if note else []
    lines.append(f"{counted(len(run.checkpoints), 'checkpoint')} in [bold]{escape(str(run.path))}[/]")
    return "\n".join(lines)


def _kept(run: RunFolder, rows: list[dict[str, Any]], best: dict[str, Any]) -> str:
    """The best epoch that was kept, where that is another one."""
    kept = [row for row in rows if int(row["epoch"]) in run.epochs]
    if run.unit != "epoch" or not kept or int(best["epoch"]) in run.epochs:
        return ""
    top = max(kept, key=lambda row: row["test_accuracy"])
    return f" Of the epochs that were kept, {int(top['epoch'])} is best: {percent(top['test_accuracy'])}."


def _judged(repeated: float, best: dict[str, Any], last: dict[str, Any]) -> str:
    lost = best["test_accuracy"] - last["test_accuracy"]
    if repeated > 0.5 and lost > 0.02:
        return f"it memorised them, and lost {100 * lost:.1f} points of test accuracy since its best epoch."
    if repeated > 0.5:
        return "it memorised them, at little cost on the test set."
    return "it has not memorised them."


def sizes(data: dict[str, Any]) -> str:
    """Train and test sizes of a run's data."""
    train, test, classes = data.get("train", 0), data.get("test", 0), data.get("classes", ())
    return f"{thousands(train)} train, {thousands(test)} test, {len(classes)} classes"
