"""`undertow labels`: training labels that look wrong, with proposals."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from undertow.auditing.finding import layer_words
from undertow.cli.feeding import load_given
from undertow.cli.opening import open_given
from undertow.cli.screen import console, counted, percent, print_json, table, thousands
from undertow.errors import BadValue, unknown

if TYPE_CHECKING:
    from rich.console import Console

    from undertow.labels.choice import Choice
    from undertow.labels.findings import LabelErrors
    from undertow.training.run import Run

WAYS = ("relabel", "drop")
"""Said twice, here and in `label_findings`: a wrong word is answered before torch is loaded."""


def labels(
    run: Path, *, top: int = 20, out: Path | None = None, clean: str | None = None, cleaned: Path | None = None,
    above: float = 0.5, pred_probs: Path | None = None, choose: bool = False, layers: str = "auto",
    checkpoints: str | None = None, folds: int = 5, noise: str | None = None, seed: int = 0, memory: str = "2GB",
    device: str | None = None, model: str | None = None, data: str | None = None, scaling: str | None = None,
    json: bool = False,
) -> None:  # fmt: skip
    """Find training labels that look wrong, by what the layers say of their samples.

    The most suspicious ones are stored in the run's folder too, for the gallery of its report.

    Args:
        run: the run's folder, or any folder of checkpoints with --model and --data.
        top: how many suspects to list.
        out: write one row per training sample to this .parquet or .csv file.
        clean: relabel (suspects get the proposed label) or drop (they are left out); wants --cleaned.
        cleaned: the .parquet file for `undertow train --labels`.
        above: --clean suspects labels with a higher score.
        pred_probs: write class probabilities (samples, classes) to this .npy file, in cleanlab's shape.
        choose: say which checkpoint to use, too, and which layer to graft a new head on.
        layers: layers that vote: names, patterns, or auto.
        checkpoints: their epochs, such as 1,2,5; up to eight are chosen when not given.
        folds: parts that the samples are split into; none judges its own labels.
        noise: even (every wrong class as likely) or matrix (learned); what the labels say when not given.
        seed: of the folds.
        memory: what features and votes may take; convolutional maps that do not fit are averaged over places.
        device: cpu, cuda, ...; where the model is when not given.
        model: package.module:function that gives an untrained model, for checkpoints that are not undertow's.
        data: the data of such checkpoints: a name or a path.
        scaling: how such a model was fed: none (as the data is), unit, half, cifar, imagenet; without it floats are fed
            as they are and bytes as pixels from 0 to 1.
        json: one JSON object.
    """
    _check(top, clean, cleaned)
    from undertow.data.samples import DataSet
    from undertow.labels.choice import choose_checkpoint
    from undertow.labels.search import LabelConfig, label_errors
    from undertow.labels.suspects import cleaned_labels, write_suspects, write_table

    config = LabelConfig(
        layers=layers, checkpoints=_epochs(checkpoints), folds=folds, seed=seed, memory=memory, device=device,
        noise=noise,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    opened = open_given(run, model=model, data=data, needs=True)
    samples: DataSet = load_given(opened, data, scaling) or opened.data()
    screen = console()
    if samples.note and not json:
        screen.print(f"Note: {samples.note}", markup=False)
    with _watched(screen, quiet=json) as watch:
        found = label_errors(opened, samples, config=config, watch=watch)
    written = write_suspects(found, samples.train.x, opened.path)
    if out is not None:
        write_table(found, out)
        written.append(out)
    if cleaned is not None:
        cleaned_labels(found, opened, clean or "relabel", above=above).write(cleaned)  # pyright: ignore[reportArgumentType]
        written.append(cleaned)
    if pred_probs is not None:
        written.append(_write_array(found, pred_probs))
    choice = choose_checkpoint(opened, samples, errors=found, config=config) if choose else None
    if json:
        print_json(
            {
                **facts_of(found, top),
                "checkpoint": choice and choice.epoch,
                "graft": choice and dict(zip(("checkpoint", "layer"), choice.graft, strict=True)),
                "written": list(map(str, written)),
            }
        )
    else:
        _tell(screen, found, choice, top, opened, written)


def _check(top: int, clean: str | None, cleaned: Path | None) -> None:
    if top < 0:
        raise BadValue("labels --top", "0 or more", top)
    if clean is not None and clean not in WAYS:
        raise unknown("way to clean labels", clean, WAYS)
    if clean is not None and cleaned is None:
        raise BadValue("labels --clean", "a file to write to", "none", "Add --cleaned cleaned.parquet.")
    if cleaned is not None and cleaned.suffix != ".parquet":
        raise BadValue("labels --cleaned", "a .parquet file", str(cleaned))


def _epochs(text: str | None) -> tuple[int, ...] | None:
    if text is None or text == "auto":
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadValue("labels --checkpoints", "epochs such as 1,2,5", text) from None


def _watched(screen: Console, *, quiet: bool) -> Any:
    from contextlib import contextmanager

    from rich.progress import Progress

    @contextmanager
    def watched() -> Any:
        if quiet or not screen.is_terminal:
            yield None
            return
        with Progress(console=screen, transient=True) as bar:
            task = bar.add_task("Asking the layers", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    return watched()


def _write_array(found: LabelErrors, path: Path) -> Path:
    import numpy as np

    from undertow.files import aside

    if path.suffix != ".npy":
        raise BadValue("labels --pred-probs", "a .npy file", str(path))
    with aside(path) as part, part.open("wb") as stream:
        np.save(stream, found.pred_probs)
    return path


def facts_of(found: LabelErrors, top: int) -> dict[str, Any]:
    """What was found, in plain values."""
    return {
        "samples": len(found.given), "noise_rate": found.noise_rate, "noise_low": found.noise_low,
        "noise_high": found.noise_high, "noise": found.noise, "noise_matrix": found.noise_matrix.tolist(),
        "suspects": found.suspects(top).to_dict("records"), "notes": list(found.notes),
    }  # fmt: skip


def _tell(
    screen: Console, found: LabelErrors, choice: Choice | None, top: int, run: Run, written: list[Path]
) -> None:
    screen.print(str(found), markup=False)
    if top:
        rows = [
            [
                str(row["sample"]), found.classes[row["given"]], found.classes[row["proposed"]], percent(row["score"]),
                percent(row["confidence"]), *([found.classes[row["true"]]] if "true" in row else []),
            ]
            for row in found.suspects(top).to_dict("records")
        ]  # fmt: skip
        heads = [
            "sample",
            "given",
            "proposed",
            "wrong",
            "confidence",
            *(["true"] if found.true is not None else []),
        ]
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
        f"Without clean labels, {unit} {choice.epoch} is the checkpoint to use. A new head on {layer_words(layer)} of "
        f"{unit} {epoch} promises {promise}: `undertow repair {quote(str(run))} --checkpoint {epoch} "
        f"--layer {quote(layer)} --out fixed.safetensors`."
    )


def _known_words(found: LabelErrors) -> str:
    """Where the true labels are known: how good the suspicion is."""
    wrong = found.given != found.true
    suspected = found.scores > 0.5
    hits = int((wrong & suspected).sum())
    return (
        f"True labels are known here: {counted(int(wrong.sum()), 'label')} wrong, {thousands(int(suspected.sum()))} "
        f"suspected (score above 50 %), {thousands(hits)} of them rightly."
    )
