"""`undertow labels`: training labels that look wrong, with proposals."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from undertow.cli.flags import FLAGS, BadUsage
from undertow.cli.given_run import Theirs, load_given, open_given
from undertow.cli.progress import ProgressBar
from undertow.cli.screen import console, counted, percent, print_json, table, thousands
from undertow.errors import BadValue
from undertow.labels.settings import CleanWay, LabelConfig
from undertow.words import layer_name

if TYPE_CHECKING:
    from rich.console import Console

    from undertow.labels.choice import Choice
    from undertow.labels.findings import LabelErrors
    from undertow.training.run import Run


def labels(
    run: Path,
    *,
    top: int = 20,
    out: Path | None = None,
    clean: CleanWay | None = None,
    cleaned: Path | None = None,
    above: float | None = None,
    pred_probs: Path | None = None,
    choose: bool = False,
    config: Annotated[LabelConfig, FLAGS] = LabelConfig(),  # noqa: B008  (frozen)
    theirs: Annotated[Theirs, FLAGS] = Theirs(),  # noqa: B008
    json: bool = False,
) -> None:
    """Find training labels that look wrong, by what the layers say about their samples.

    The run's folder keeps the most suspicious ones, for the gallery of its report.

    Args:
        run: The run's folder, or any folder of checkpoints with --model and --data.
        top: How many suspects to list.
        out: Write one row per training sample to this .parquet or .csv file.
        clean: relabel gives suspects the proposed label, drop leaves them out; needs --cleaned.
        cleaned: The .parquet file for `undertow train --labels`.
        above: With --clean, suspect labels with a higher score than this, instead of the flagged ones.
        pred_probs: Write class probabilities (samples, classes) to this .npy file, as cleanlab reads them.
        choose: Say too which checkpoint to use, and which layer to put a new head on.
        config: How to search.
        theirs: What other programs' checkpoints do not say.
        json: Print one JSON object.
    """
    _check(top, clean, cleaned, pred_probs)
    from undertow.labels.choice import choose_checkpoint
    from undertow.labels.search import label_errors, search_config
    from undertow.labels.suspects import cleaned_labels, write_suspects, write_table
    from undertow.session.session import Session

    opened = open_given(run, theirs)
    samples = load_given(opened, theirs.data, config.scaling) or opened.data()
    screen = console()
    if samples.note and not json:
        screen.print(f"Note: {samples.note}", markup=False)
    session = Session(opened, samples, config=search_config(config), progress=ProgressBar(quiet=json))
    found = label_errors(session, config=config)
    written = write_suspects(found, samples.train.x, opened.path)
    if out is not None:
        write_table(found, out)
    if cleaned is not None:
        cleaned_labels(found, opened, clean or "relabel", above=above).write(cleaned)
    if pred_probs is not None:
        _write_array(found, pred_probs)
    written += [path for path in (out, cleaned, pred_probs) if path is not None]
    choice = choose_checkpoint(session, errors=found, config=config) if choose else None
    if json:
        print_json({**facts_of(found, choice, top), "written": list(map(str, written))})
    else:
        _tell(screen, found, choice, top, opened, written)


def _check(top: int, clean: CleanWay | None, cleaned: Path | None, pred_probs: Path | None) -> None:
    """What is wrong is said before anything is computed."""
    if top < 0:
        raise BadValue("labels --top", "0 or more", top)
    if clean is not None and cleaned is None:
        raise BadUsage("labels: --clean needs a file to write to. Add --cleaned cleaned.parquet.")
    for flag, path, ending in (("--cleaned", cleaned, ".parquet"), ("--pred-probs", pred_probs, ".npy")):
        if path is not None and path.suffix != ending:
            raise BadValue(f"labels {flag}", f"a {ending} file", str(path))


def _write_array(found: LabelErrors, path: Path) -> None:
    import numpy as np

    from undertow.files import aside

    with aside(path) as part, part.open("wb") as stream:
        np.save(stream, found.pred_probs)


def facts_of(found: LabelErrors, choice: Choice | None, top: int) -> dict[str, Any]:
    """What was found, in plain values."""
    rate = found.rate
    return {
        "samples": len(found.given), "rate": rate.value, "rate_low": rate.low, "rate_high": rate.high,
        "rate_reason": rate.reason, "flagged": int(found.flagged.sum()), "noise_matrix": found.noise_matrix.tolist(),
        "suspects": found.suspects(top).to_dict("records"), "notes": list(found.notes),
        "checkpoint": choice and choice.epoch,
        "graft": choice and dict(zip(("checkpoint", "layer"), choice.graft, strict=True)),
    }  # fmt: skip


def _tell(
    screen: Console, found: LabelErrors, choice: Choice | None, top: int, run: Run, written: list[Path]
) -> None:
    screen.print(str(found), markup=False)
    if top:
        known = ["true"] * (found.true is not None)
        named, shares = ["given", "proposed", *known], ["score", "confidence"]
        rows = [
            [row["sample"], *(found.class_name(row[name]) for name in named), *(percent(row[name]) for name in shares)]
            for row in found.suspects(top).to_dict("records")
        ]  # fmt: skip
        heads = ["sample", *named, "wrong", "confidence"]
        screen.print(table("", heads, rows, right=["sample", "wrong", "confidence"]))
    if found.true is not None:
        screen.print(_known_words(found), markup=False)
    if choice is not None:
        screen.print(_choice_words(choice, run.unit, run.path), markup=False, soft_wrap=True)
    screen.print(f"Written: {', '.join(map(str, written))}", markup=False)


def _choice_words(choice: Choice, unit: str, run: Path) -> str:
    epoch, layer = choice.graft
    promise = percent(choice.errors.knowledge[choice.graft])
    return (
        f"{unit.capitalize()} {choice.epoch} is the checkpoint to use, as far as noisy labels can tell. "
        f"A new head on {layer_name(layer)} of {unit} {epoch} promises {promise}: "
        f"`undertow repair {quote(str(run))} --checkpoint {epoch} --layer {quote(layer)} --out fixed.safetensors`."
    )


def _known_words(found: LabelErrors) -> str:
    """Where the true labels are known: how good the suspicion is."""
    wrong = found.given != found.true
    suspected = found.flagged
    hits = int((wrong & suspected).sum())
    return (
        f"True labels are known here: {counted(int(wrong.sum()), 'label')} wrong, {thousands(int(suspected.sum()))} "
        f"suspected, {thousands(hits)} of them rightly."
    )
