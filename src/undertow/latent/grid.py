"""What every layer knew at every checkpoint: layer x checkpoint x probe, with controls and intervals.

    table = probe_grid(run)                                        # undertow's own runs know their data
    table = probe_grid(run, train=(x, y), test=(x2, y2), probes=["masc", "velpic"], layers=["layer*"])
    table = probe_grid(run, train=({"input_ids": ids, "attention_mask": mask}, y), test=...)      # model(**entries)
    table = probe_grid(session)                                    # shares its passes with other verbs
    table.query("probe == 'velpic' and fit == 'given' and split == 'test'")

Each probe is fitted on the training features of a layer with the labels the model was trained on (`given`),
with the true ones where they are known (`true`), and with shuffled ones (`shuffled`, a control that should
scatter around chance: which classes one shuffle favours is luck, more than the interval shows). It answers
for the test split, and for the training split against given and true labels. The model's own accuracy
stands beside them (layer "output", probe "model"). A checkpoint at 0 is the random-initialisation control;
where a run kept none, a fresh model of the factory stands in as -1.

One pass per checkpoint and split while features fit into the memory. What is done is not done again, a killed grid
goes on. The table is written once, at the end, as probes.parquet.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.errors import BadValue, RunProblem
from undertow.files import is_forbidden
from undertow.latent.probe_plan import ProbePlan
from undertow.latent.probes_gauge import ProbesAt, ProbesGauge, label_sets
from undertow.latent.settings import GridConfig
from undertow.rows import OUTPUT, Row, frame
from undertow.session.answers import AnswersAt, AnswersGauge
from undertow.session.progress import Progress
from undertow.session.samples import TEST, TRAIN
from undertow.session.session import FRESH, Session, session_of
from undertow.session.views import views_of
from undertow.stored.tables import write_table
from undertow.training.run import Opened

if TYPE_CHECKING:
    import pandas as pd

TABLE = "probes.parquet"


@dataclass(frozen=True, eq=False)
class ProbeGrid:
    """Cells by checkpoint and layer, and the model's own answers."""

    cells: dict[int, dict[str, ProbesAt]]
    answers: dict[int, AnswersAt]
    test_labels: str

    def rows(self) -> Iterator[Row]:
        """As tidy rows, the model's own first at each checkpoint."""
        for at, layers in self.cells.items():
            yield from self._own(at)
            yield from self.probe_rows(at, layers)

    def probe_rows(self, at: int, layers: dict[str, ProbesAt]) -> Iterator[Row]:
        """The rows of the probes at one checkpoint."""
        for layer, found in layers.items():
            for cell in found.cells:
                yield from cell.rows(at, layer, self.test_labels)

    def _own(self, at: int) -> Iterator[Row]:
        if at not in self.answers:
            reason = "the model's outputs are not one number per class"
            where: dict[str, Any] = {
                "split": "test",
                "labels": self.test_labels,
                "probe": "model",
                "fit": "given",
            }
            yield Row("latent", "accuracy", at, OUTPUT, None, note=reason, **where)
            return
        for one in self.answers[at].rows(at):
            if one.measure == "accuracy":
                yield replace(one, lens="latent", probe="model", fit="given")


def grid_gauges(
    session: Session, layers: Sequence[str], probes: Sequence[str], fits: Sequence[str]
) -> list[ProbesGauge]:
    """One gauge for each layer."""
    for name in (TRAIN, TEST):
        split = session.samples.train if name == TRAIN else session.samples.test
        if split is None or split.labels is None:
            raise BadValue(
                "probes", "a training and a test split with labels",
                f"no {name} {'samples' if split is None else 'labels'}",
                f"Give {name}=(x, y); a dict has its labels under label or labels.",
            )  # fmt: skip
    labels = label_sets(session, fits)
    return [ProbesGauge(layer, probes, labels) for layer in views_of(session, layers)]


def read_grid(session: Session, gauges: Sequence[ProbesGauge], numbers: Sequence[int]) -> ProbeGrid:
    """What the gauges found, by checkpoint; cells in the order of the probes and labels asked for."""
    answers = AnswersGauge(session.samples)
    cells: dict[int, dict[str, ProbesAt]] = {}
    own: dict[int, AnswersAt] = {}
    for at in numbers:
        found = {one.layer: (one, session.value(one, at)) for one in gauges}
        cells[at] = {layer: one.asked(kept) for layer, (one, kept) in found.items() if kept is not None}
        said = session.value(answers, at)
        if said is not None and _reads_classes(session):
            own[at] = said
    return ProbeGrid(cells, own, session.samples.test_labels)


def _reads_classes(session: Session) -> bool:
    """Whether outputs mean classes: one for each, or one scalar that undertow trained so."""
    trained = session.run.config
    if trained is not None and trained.target == "scalar":
        return True
    return session.outputs >= len(session.samples.classes)


def probe_grid(
    run: Opened | Session,
    train: Any = None,
    test: Any = None,
    *,
    config: GridConfig | None = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Probe every layer at every checkpoint; returns one row per number.

    Args:
        run: an opened run, or a session.
        train: the training split, Samples, (x, y) or a Dataset; the run's own data when not given. A DataSet
            stands for both splits. Models that take several inputs by name get x as a dict of tensors of one
            length, or a Dataset of dicts with the labels under label or labels (Hugging Face's, too).
        test: the test split, likewise; its labels count as true.
        config: what to measure; or give its fields as `settings`.
        out: the folder for probes.parquet and what is kept; the run's own when not given, if it may be written to.
        progress: is told how the work goes; True shows a bar.
        settings: fields of `GridConfig`.
    """
    chosen = GridConfig.chosen(config, settings)
    session = session_of(run, train, test, chosen, out=out, progress=progress)
    session.check_fit()
    gauges = grid_gauges(session, chosen.layers, chosen.probes, chosen.fits)
    numbers = _with_fresh(session)
    session.progress.plan(str(ProbePlan.of(session, gauges, numbers)), len(numbers))
    try:
        session.visit(
            [AnswersGauge(session.samples), *gauges], numbers,
            lambda at: session.progress.step(session.run.at_words(at), 1 / len(numbers)),
        )  # fmt: skip
    finally:
        session.progress.close()
    for one in gauges:
        if one.name in session.refused:
            raise session.refused[one.name]
    table = frame(read_grid(session, gauges, [at for at in numbers if at not in session.broken]).rows())
    _write(table, session)
    return table


def _write(table: pd.DataFrame, session: Session) -> None:
    """Write the table; into a run that may only be read nothing is written, as nobody asked for it."""
    try:
        write_table(session.out / TABLE, table, session.run.facts.id)
    except RunProblem as error:
        if session.out != session.run.path or not is_forbidden(error):
            raise
        if not session.cache.values:  # else that was said already
            warnings.warn(f"{TABLE} is not written: {session.out} cannot be written to.", stacklevel=3)


def _with_fresh(session: Session) -> list[int]:
    """The fresh model goes first where all checkpoints are wanted and 0 is missing."""
    run = session.run
    missing = session.config.checkpoints == "all" and run.factory is not None and 0 not in run.epochs
    return [*([FRESH] if missing else []), *session.checkpoints]
