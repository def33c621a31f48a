"""`undertow probe`: what every layer knew at every checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from undertow.cli.feeding import load_given
from undertow.cli.opening import open_given
from undertow.cli.screen import console, percent, print_json, table, thousands
from undertow.files import aside

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
    layers: str = "auto",
    probes: str = "masc,velpic,logistic",
    checkpoints: str = "all",
    fits: str = "given,true,shuffled",
    samples: int | None = None,
    memory: str = "2GB",
    batch_size: int = 512,
    conv: str = "flatten",
    tokens: str = "mean",
    seed: int = 0,
    device: str | None = None,
    model: str | None = None,
    data: str | None = None,
    scaling: str | None = None,
    json: bool = False,
    csv: Path | None = None,
) -> None:
    """Ask every layer at every checkpoint what it knows; rows go to the run's probes.parquet.

    Args:
        run: the run's folder, or any folder of checkpoints with --model and --data.
        layers: names or patterns joined by commas; auto takes the model's own choice, input the pixels.
        probes: masc, velpic, logistic, mean, knn, lda, qda.
        checkpoints: all, last, every:5 or a list such as 0,10,60.
        fits: labels to fit with: given, true (where known), shuffled (a control).
        samples: fit and score on at most so many samples of each split.
        memory: how much memory features may take; wide layers go to disk beyond it.
        batch_size: samples per forward pass.
        conv: convolutional maps: flatten, mean or max.
        tokens: token outputs: mean, first, last or flatten.
        seed: of the drawn samples and the shuffled labels.
        device: cpu, cuda, ...; where the model is when not given.
        model: package.module:function that gives an untrained model, for checkpoints that are not undertow's.
        data: the data of such checkpoints: a name or a path.
        scaling: how such a model was fed: none (as the data is), unit, half, cifar, imagenet; without it floats are fed
            as they are and bytes as pixels from 0 to 1.
        json: one JSON object per row.
        csv: write the rows to this file too.
    """
    from undertow.latent.grid import probe_grid
    from undertow.latent.grid_config import GridConfig

    config = GridConfig(
        layers=_split(layers), probes=_split(probes), fits=_split(fits), checkpoints=checkpoints, samples=samples,
        memory=memory, batch_size=batch_size, conv=conv, tokens=tokens, seed=seed, device=device,  # pyright: ignore
    )  # fmt: skip
    opened = open_given(run, model=model, data=data, needs=True)
    given = load_given(opened, data, scaling)
    if given is not None and given.note and not json:
        console().print(f"Note: {given.note}", markup=False)
    found = probe_grid(opened, given, config=config, watch=Watch(quiet=json))
    if csv:
        with aside(csv) as part:
            found.to_csv(part, index=False)
    rows: list[dict[str, Any]] = found.to_dict("records")  # pyright: ignore[reportAssignmentType]
    if json:
        for row in rows:
            print_json(row)
        return
    screen = console()
    last = _last_scores(rows)
    facts = given.classes if given else (opened.facts.data or {}).get("classes", ())
    classes = max(2, len(facts))
    for fit, title in TITLES.items():
        if any(row["fit"] == fit and row["probe"] != "model" for row in last):
            shown = title.format(chance=percent(1 / classes, 0))
            screen.print(_scores_table([row for row in last if row["fit"] == fit], shown), "")
    for layer, note in dict.fromkeys((row["layer"], row["note"]) for row in last if not row["n"]):
        screen.print(f"{layer}: {note}.", markup=False)
    screen.print(
        f"{best_sentence(last)}\n{thousands(len(rows))} rows, kept in {opened.path / 'probes.parquet'}",
        markup=False,
    )


def best_sentence(last: list[dict[str, Any]]) -> str:
    """Which layer and probe know most at the last checkpoint, beside the model itself."""
    own = next((row for row in last if row["probe"] == "model" and row["n"]), None)
    others = [row for row in last if row["probe"] != "model" and row["fit"] == "given" and row["n"]]
    said = f"The model itself scores {_with_interval(own)}" if own else "The model's outputs are no classes"
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


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


class Watch:
    """Prints the plan and, on a terminal, a bar."""

    def __init__(self, *, quiet: bool) -> None:
        self._screen = None if quiet else console()
        self._bar: Progress | None = None

    def plan(self, words: Sequence[str], cells: int, done: int) -> None:
        """Say what will be done before it starts."""
        if self._screen is None:
            return
        there = f", {thousands(done)} of them there already" if done else ""
        self._screen.print(
            f"{thousands(cells)} probes to fit{there}.", *(f"\n  {word}" for word in words), markup=False
        )
        if self._screen.is_terminal:
            self._bar = Progress(
                TextColumn("checkpoint {task.fields[at]}"), BarColumn(bar_width=28), TimeRemainingColumn(compact=True),
                console=self._screen, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("probe", total=cells - done, at="")
            self._bar.start()

    def checkpoint(self, at: int, cells: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, advance=cells, at=at)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
