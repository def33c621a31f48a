"""`undertow labels`: labels that look wrong, with proposals; of a run, or of features and labels in files."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from undertow.cli.flags import FLAGS, BadUsage
from undertow.cli.given_run import Theirs, files_of, load_given, open_given
from undertow.cli.label_outputs import Outputs
from undertow.cli.progress import ProgressBar
from undertow.cli.screen import belief, console, counted, print_json, table, thousands
from undertow.errors import NotThere
from undertow.labels.exports import NOTHING, Exports, named_table
from undertow.labels.given_files import GivenFiles, Shown, read_label_file
from undertow.labels.settings import LabelConfig
from undertow.session.settings import Labels

if TYPE_CHECKING:
    from rich.console import Console

    from undertow.cli.chosen import Recommended
    from undertow.labels.cost import SearchCost
    from undertow.labels.findings import LabelErrors
    from undertow.labels.given import GivenLabels
    from undertow.training.labels_file import LabelsFile
    from undertow.training.run import Run

WITHOUT_RUN = ("folds", "seed", "memory")
"""Settings that mean something without a run."""
LONGEST = 60
"""Letters of a text on the screen."""


@dataclass(frozen=True, kw_only=True)
class SearchFlags(LabelConfig):
    """How to search; --labels is the file of labels here."""

    labels: Annotated[Labels, Parameter(name="--held-out")] = "clean"
    """With --choose, what the held-out labels are: clean, noisy, or none."""


def labels(
    run: Path | None = None,
    *,
    files: Annotated[GivenFiles, FLAGS] = GivenFiles(),  # noqa: B008  (frozen)
    outputs: Annotated[Outputs, FLAGS] = Outputs(),  # noqa: B008
    exports: Annotated[Exports, FLAGS] = Exports(),  # noqa: B008
    apply: Path | None = None,
    choose: bool = False,
    plan: bool = False,
    config: Annotated[SearchFlags, FLAGS] = SearchFlags(),  # noqa: B008
    theirs: Annotated[Theirs, FLAGS] = Theirs(),  # noqa: B008
    json: bool = False,
) -> None:
    """Find labels that look wrong: of a run, or of --features FILE --labels FILE without one.

    A run's folder keeps the most suspicious ones, for the gallery of its report.

    Args:
        run: The run's folder, or any folder of checkpoints with --model and --data; with --apply also a file of labels.
        files: What to search without a run.
        outputs: What to write.
        exports: Files for other programs.
        apply: Reviewed labels (.csv, .parquet, or Label Studio's export .json) to put in place and write to --cleaned.
        choose: Say too which checkpoint to use, and which layer to put a new head on.
        plan: Say how long it will take and how much memory and disk, and stop.
        config: How to search.
        theirs: What other programs' checkpoints do not say.
        json: Print one JSON object.
    """
    reviewed = [apply] if apply is not None else []
    outputs.check(exports, [*files.paths, *reviewed, *([run] if run and run.is_file() else [])])
    if apply is not None:
        _apply(apply, run, files, outputs, exports, theirs, json)
        return
    _check_source(run, files, outputs, choose, config)
    if plan:
        cost = _cost_of_files(files, config) if run is None else _cost_of_run(run, theirs, config)
        print_json(cost.facts()) if json else console().print(str(cost), markup=False)
        return
    searched = (
        _search_files(files, config, json)
        if run is None
        else _search_run(run, files, theirs, config, outputs, exports, json, choose=choose)
    )
    found, opened, shown = searched.found, searched.run, searched.shown
    written = _written(searched, outputs, exports, str(files.labels))
    if json:
        print_json(
            {**facts_of(found, searched.choice, outputs.top, shown), "written": list(map(str, written))}
        )
    else:
        _tell(console(), searched, outputs.top, opened, written)


@dataclass(frozen=True, eq=False)
class Searched:
    """What was found, and of what."""

    found: LabelErrors
    run: Run | None = None
    shown: Shown = NOTHING
    x: Any = None
    choice: Recommended | None = None


def _check_source(
    run: Path | None, files: GivenFiles, outputs: Outputs, choose: bool, config: SearchFlags
) -> None:
    if run is not None:
        if files.any:
            raise BadUsage(
                "labels: wanted a run, or --features and --labels, got both. Leave one of them out."
            )
        return
    if not files.any:
        raise BadUsage(
            "labels: RUN is missing. Give the run's folder, or --features emb.npy --labels y.csv without one."
        )
    if files.labels is None or not (files.features or files.probabilities):
        lacking = "--labels y.csv" if files.labels is None else "--features emb.npy or --probabilities p.npy"
        raise BadUsage(f"labels: labels are searched with what is known of their samples. Add {lacking}.")
    default = SearchFlags()
    idle = [
        own.name
        for own in fields(config)
        if own.name not in WITHOUT_RUN and getattr(config, own.name) != getattr(default, own.name)
    ] + ["choose"] * choose
    if idle:
        raise BadUsage(f"labels: --{idle[0].replace('_', '-')} needs a run. Leave it out.")


def _cost_of_files(files: GivenFiles, config: SearchFlags) -> SearchCost:
    from undertow.labels.given import read_features, read_labels, read_probabilities
    from undertow.labels.search import cost_of

    views, likely = read_features(files.read_features()), read_probabilities(files.read_probabilities())
    count = len(views[0].rows if views else likely[0])
    given = read_labels(files.read_labels(count), max((one.shape[1] for one in likely), default=0))
    return cost_of(views, likely, given, config)


def _cost_of_run(run: Path, theirs: Theirs, config: SearchFlags) -> SearchCost:
    from undertow.labels.search import LabelSearch, search_config
    from undertow.session.session import Session

    opened = open_given(run, theirs)
    samples = load_given(opened, theirs, config.scaling) or opened.data()
    return LabelSearch(Session(opened, samples, config=search_config(config)), config).cost()


def _search_files(files: GivenFiles, config: SearchFlags, quiet: bool) -> Searched:
    from undertow.labels.search import label_errors

    features, likely = files.read_features(), files.read_probabilities()
    count = len(next(iter(features.values())) if features else likely[0] if likely else ())
    given = files.read_labels(count)
    shown = files.read_shown(len(given))
    progress = ProgressBar(quiet=quiet)
    found = label_errors(features=features, labels=given, pred_probs=likely, config=config, progress=progress)
    return Searched(replace(found, own_notes=(*files.notes, *found.own_notes)), shown=shown)


def _search_run(
    run: Path, files: GivenFiles, theirs: Theirs, config: SearchFlags, outputs: Outputs, exports: Exports, quiet: bool,
    *, choose: bool,
) -> Searched:  # fmt: skip
    from undertow.cli.chosen import recommend
    from undertow.labels.choice import choose_checkpoint
    from undertow.labels.search import label_errors, search_config
    from undertow.labels.thumbnails import are_pictures
    from undertow.session.session import Session

    opened = open_given(run, theirs)
    outputs.check(exports, [*files.paths, *files_of(opened, theirs)])
    samples = load_given(opened, theirs, config.scaling) or opened.data()
    if samples.note and not quiet:
        console().print(f"Note: {samples.note}", markup=False)
    shown = files.read_shown(len(samples.train))
    if shown.files is None and shown.pixels is None and are_pictures(samples.train.x):
        shown = replace(shown, pixels=samples.train.x)
    with outputs.kept_in(opened.path) as folder:
        session = Session(opened, samples, config=search_config(config), out=folder)
        found = label_errors(session, config=config, progress=ProgressBar(quiet=quiet))
        if not choose:
            return Searched(found, opened, shown, samples.train.x)
        choice = choose_checkpoint(session, errors=found, config=config)
        return Searched(found, opened, shown, samples.train.x, recommend(choice, opened, samples, run))


def _written(searched: Searched, outputs: Outputs, exports: Exports, source: str) -> list[Path]:
    """Write everything that was asked for."""
    from undertow.labels.suspects import write_facts, write_suspects

    found, run, shown = searched.found, searched.run, searched.shown
    written: list[Path] = []
    owner = "" if run is None else run.facts.id
    if outputs.report is not None:
        from undertow.report.page import write_report

        # Samples with neither picture nor text are listed by their number.
        listed = shown if shown.any or run else replace(shown, texts=("",) * len(found.given))
        written += write_suspects(found, searched.x, outputs.report, shown=listed, owner=owner)
        written += [write_facts(found, source if run is None else str(run.path), outputs.report)]
        written += [write_report([outputs.report], outputs.report / "report.html")]
    elif run is not None and outputs.keeps_in(run.path):
        written += write_suspects(found, searched.x, run.path, shown=shown, owner=owner)
    return [*written, *outputs.write(found, run, shown), *exports.write(found, shown)]


def _apply(
    apply: Path, run: Path | None, files: GivenFiles, outputs: Outputs, exports: Exports, theirs: Theirs, json: bool
) -> None:  # fmt: skip
    """Put reviewed labels in their places; nothing is searched."""
    source = run or files.labels
    if source is None or outputs.cleaned is None:
        wanted = "a run's folder or a file of labels" if source is None else "--cleaned cleaned.parquet"
        raise BadUsage(f"labels: --apply needs {wanted}. Add it.")
    idle = [name for name in ("clean", "out", "report", "pred_probs") if getattr(outputs, name) is not None]
    if idle or exports.any:
        flag = idle[0].replace("_", "-") if idle else "to-..."
        raise BadUsage(f"labels: --apply searches nothing, so there is nothing for --{flag}. Leave it out.")
    from undertow.labels.reviewed import apply_review, check_samples, read_review

    answers = read_review(apply)
    given, opened = _given_labels(source, theirs)
    if opened is not None:
        outputs.check(exports, [apply, *files_of(opened, theirs)])
    check_samples(apply, lambda: _mark_of(source, opened))
    done = apply_review(given, answers, str(apply))
    _labels_file(done.labels, opened).write(outputs.cleaned, () if opened else given.names)
    if json:
        kinds = ("changed", "confirmed", "left_open", "unknown")
        facts = {name: list(getattr(done, name)) for name in kinds}
        counts = {"not_reviewed": done.not_reviewed, "without_label": done.without_label}
        print_json({**facts, **counts, "written": [str(outputs.cleaned)]})
        return
    console().print(f"Labels: {done}\nWritten: {outputs.cleaned}", markup=False)


def _given_labels(source: Path, theirs: Theirs) -> tuple[GivenLabels, Run | None]:
    """The labels that were reviewed: of a run, or of a file."""
    from undertow.labels.given import GivenLabels, read_labels

    if not source.exists():
        raise NotThere(
            f"labels --apply: there is no run's folder or file of labels {source}. Check its path."
        )
    if not source.is_dir():
        return read_labels(read_label_file(source)), None
    opened = open_given(source, theirs)
    data = load_given(opened, theirs, None) or opened.data()
    return GivenLabels(data.train.y, tuple(data.classes)), opened


def _mark_of(source: Path, run: Run | None) -> str | None:
    """Which inputs the labels belong to, where that is known."""
    from undertow.training.labels_file import mark_of_file

    if run is None:
        return mark_of_file(source) if source.suffix == ".parquet" else None
    if run.config is not None and run.config.labels is not None:
        raise BadUsage(
            f"labels --apply: {run.path} was trained on a part of its samples, which that file numbers as their source "
            "does. Apply a table that `undertow labels` wrote with --out."
        )
    import torch

    none = torch.empty(0, dtype=torch.int64)
    return run.labels_file(none, none).inputs


def _labels_file(found: Any, run: Run | None) -> LabelsFile:
    """Labels to train on, without those that are missing."""
    from undertow.training.labels_file import LabelsFile

    rows = (found >= 0).nonzero()[:, 0]
    return LabelsFile.of(rows, found[rows]) if run is None else run.labels_file(rows, found[rows])


def facts_of(
    found: LabelErrors, choice: Recommended | None, top: int, shown: Shown = NOTHING
) -> dict[str, Any]:
    """What was found, in plain values."""
    rate = found.rate
    return {
        "samples": len(found.given), "rate": rate.value, "rate_low": rate.low, "rate_high": rate.high,
        "rate_reason": rate.reason, "flagged": int(found.flagged.sum()), "noise_matrix": found.noise_matrix.tolist(),
        "suspects": named_table(found, shown, found.suspects(top)).to_dict("records"), "notes": list(found.notes),
        **({"checkpoint": None, "graft": None} if choice is None else choice.facts()),
    }  # fmt: skip


def _tell(screen: Console, searched: Searched, top: int, run: Run | None, written: list[Path]) -> None:
    found, choice = searched.found, searched.choice
    screen.print(str(found), markup=False)
    if top:
        _list(screen, found, top, searched.shown)
    if found.true is not None:
        screen.print(_known_words(found), markup=False)
    if choice is not None:
        screen.print(choice.words(), markup=False, soft_wrap=True)
    if written:
        screen.print(f"Written: {', '.join(map(str, written))}", markup=False)


def _list(screen: Console, found: LabelErrors, top: int, shown: Shown) -> None:
    """The suspects as a table."""
    known = ["true"] * (found.true is not None)
    named, shares = ["given", "proposed", *known], ["score", "confidence"]
    texts = ["text"] * (shown.texts is not None)
    rows = [
        [
            row["sample"], *(found.class_name(row[name]) for name in named), *(belief(row[name]) for name in shares),
            *(_short(row[name]) for name in texts),
        ]
        for row in named_table(found, shown, found.suspects(top)).to_dict("records")
    ]  # fmt: skip
    heads = ["sample", *named, "wrong", "confidence", *texts]
    screen.print(table("", heads, rows, right=["sample", "wrong", "confidence"]))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _known_words(found: LabelErrors) -> str:
    """Where the true labels are known: how good the suspicion is."""
    wrong = found.given != found.true
    suspected = found.flagged
    hits = int((wrong & suspected).sum())
    return (
        f"True labels are known here: {counted(int(wrong.sum()), 'label')} wrong, {thousands(int(suspected.sum()))} "
        f"suspected, {thousands(hits)} of them rightly."
    )
