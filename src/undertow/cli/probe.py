"""`undertow probe`: what every layer knew at every checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from undertow.cli.flags import FLAGS
from undertow.cli.given_run import Theirs, files_of, load_given, open_given
from undertow.cli.progress import ProgressBar
from undertow.cli.screen import console, percent, print_json, table, thousands
from undertow.errors import RunProblem
from undertow.files import why_forbidden
from undertow.latent.settings import GridConfig
from undertow.outputs import check_outputs
from undertow.spreadsheets import write_csv

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {
    "given": "Test accuracy at the last checkpoint, probes fitted with the labels of training",
    "true": "... fitted with the true labels",
    "shuffled": "... fitted with shuffled labels (control: one shuffle scatters around chance, {chance})",
}


def probe(
    run: Path,
    *,
    config: Annotated[GridConfig, FLAGS] = GridConfig(),  # noqa: B008  (frozen)
    theirs: Annotated[Theirs, FLAGS] = Theirs(),  # noqa: B008
    json: bool = False,
    csv: Path | None = None,
) -> None:
    """Ask every layer at every checkpoint what it knows; rows go to the run's probes.parquet.

    Args:
        run: The run's folder, or any folder of checkpoints with --model and --data.
        config: What to ask.
        theirs: What other programs' checkpoints do not say.
        json: Print one JSON object per row.
        csv: Write the rows to this file too.
    """
    from undertow.latent.grid import probe_grid

    opened = open_given(run, theirs)
    check_outputs("probe", [("--csv", csv)], used=files_of(opened, theirs))
    place = _place_of_rows(opened.path, csv, json=json)
    given = load_given(opened, theirs, config.scaling)
    if given is not None and given.note and not json:
        console().print(f"Note: {given.note}", markup=False)
    found = probe_grid(opened, given, config=config, progress=ProgressBar(quiet=json))
    if csv:
        write_csv(csv, found)
    rows: list[dict[str, Any]] = found.to_dict("records")  # pyright: ignore[reportAssignmentType]
    if json:
        for row in rows:
            print_json(row)
        return
    names = given.classes if given else (opened.facts.data or {}).get("classes", ())
    last = _last_scores(rows)
    _tell(last, max(2, len(names)))
    kept = f"{thousands(len(rows))} rows in {place}"
    console().print(f"{best_sentence(last)}\n{kept}", markup=False)


def _place_of_rows(run: Path, csv: Path | None, *, json: bool) -> Path | None:
    """The file that will hold the rows; refused where nobody would see them, before anything is measured."""
    why = why_forbidden(run)
    if why and csv is None and not json:
        raise RunProblem(
            f"probe: cannot write into {run}: {why}. Choose a folder that you may write to. --csv names a file in it."
        )
    return csv if why else run / "probes.parquet"


def _tell(last: list[dict[str, Any]], classes: int) -> None:
    """A table for each kind of labels, and why layers are missing."""
    screen = console()
    for fit, title in TITLES.items():
        if any(row["fit"] == fit and row["probe"] != "model" for row in last):
            shown = title.format(chance=percent(1 / classes, 0))
            screen.print(_scores_table([row for row in last if row["fit"] == fit], shown), "")
    for layer, note in dict.fromkeys((row["layer"], row["note"]) for row in last if not row["n"]):
        screen.print(f"{layer}: {note}.", markup=False)


def best_sentence(last: list[dict[str, Any]]) -> str:
    """Which layer and probe know most at the last checkpoint, beside the model itself."""
    own = next((row for row in last if row["probe"] == "model" and row["n"]), None)
    others = [row for row in last if row["probe"] != "model" and row["fit"] == "given" and row["n"]]
    said = f"The model itself scores {_with_interval(own)}" if own else "The model's outputs are not classes"
    if not others:
        return f"{said}."
    best = max(others, key=lambda row: row["value"])
    where = f"{best['probe']} at {best['layer']}"
    return f"{said}; of {thousands(len(others))} probes, {where} scores best: {_with_interval(best)}."


def _last_scores(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Test accuracies of the last checkpoint."""
    last = max(row["checkpoint"] for row in rows)
    return [
        row
        for row in rows
        if row["checkpoint"] == last and (row["measure"], row["split"]) == ("accuracy", "test")
    ]


def _scores_table(rows: list[dict[str, Any]], title: str) -> Table:
    probes = list(dict.fromkeys(row["probe"] for row in rows if row["probe"] != "model"))
    layers = list(dict.fromkeys(row["layer"] for row in rows if row["probe"] != "model"))
    values = {(row["layer"], row["probe"]): row["value"] for row in rows}
    body = [[layer, *(percent(values.get((layer, name))) for name in probes)] for layer in layers]
    return table(title, ["layer", *probes], body, right=probes)


def _with_interval(row: dict[str, Any]) -> str:
    return f"{percent(row['value'])} ({100 * row['low']:.1f} to {100 * row['high']:.1f})"
