"""The table of commands; nothing heavy is imported here."""

from __future__ import annotations

from cyclopts import App, Parameter

from undertow._version import __version__

app = App(
    name="undertow",
    help="Find out what a training run really learned: layers, features, labels, repairs.",
    version=__version__,
    version_flags=("--version", "-V"),
    suppress_keyboard_interrupt=False,  # main says what is left of the work
    default_parameter=Parameter(negative_iterable=()),  # no --empty-fail-if beside --fail-if
    help_format="plaintext",  # the markdown renderer alone would cost a tenth of a second
    help_epilogue="Every command takes --debug (show tracebacks). "
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a gate of audit --fail-if.",
)

data = App(name="data", help="Data sets: list, show, fetch, corrupt.")

study = App(name="study", help="The papers' experiments: list, show, run, report.")

COMMANDS = {
    "demo": (
        "undertow.cli.demo:demo",
        "Train a small memorising model on embedded data, audit it and write its report.",
    ),
    "train": ("undertow.cli.train:train", "Train a model and keep its checkpoints."),
    "probe": ("undertow.cli.probe:probe", "Ask every layer at every checkpoint what it knows."),
    "audit": (
        "undertow.cli.audit:audit",
        "Audit a run: what it memorised, what its layers know, what can be repaired.",
    ),
    "repair": (
        "undertow.cli.repair:repair",
        "Give a run's model a head that is a probe of its features, if it helps.",
    ),
    "labels": ("undertow.cli.labels:labels", "Find training labels that look wrong, with proposals."),
    "report": (
        "undertow.cli.report:report",
        "Write a run's report, or several runs' side by side, as one HTML file.",
    ),
    "figure": ("undertow.cli.report:figure", "Draw a figure of a run for a paper."),
    "serve": ("undertow.cli.report:serve", "Show the runs of a folder in a browser on this machine."),
    "runs": ("undertow.cli.runs:runs", "List the runs in a folder."),
    "show": ("undertow.cli.runs:show", "Show what a run is and how it went."),
    "layers": ("undertow.cli.layers:layers", "List the layers of a model or a run."),
    "cuts": ("undertow.cli.cuts:cuts", "List where a model or a run can be cut into two parts."),
}
DATA_COMMANDS = {
    "list": ("undertow.cli.data:list_sets", "List the data sets known by name."),
    "show": ("undertow.cli.data:show", "Show what is in a data set."),
    "fetch": ("undertow.cli.data:fetch", "Download data sets into the cache."),
    "corruptions": ("undertow.cli.data:corruptions", "Draw a contact sheet of the 15 image corruptions."),
}
STUDY_COMMANDS = {
    "list": ("undertow.cli.study:list_studies", "List the studies with their cost and data."),
    "show": ("undertow.cli.study:show", "Show what a study trains, measures and claims."),
    "run": ("undertow.cli.study:run", "Run studies and set them against their papers."),
    "report": ("undertow.cli.study:report", "Write what studies found as one HTML file."),
}

for name, (place, summary) in COMMANDS.items():
    app.command(place, name=name, help=summary)
for name, (place, summary) in DATA_COMMANDS.items():
    data.command(place, name=name, help=summary)
for name, (place, summary) in STUDY_COMMANDS.items():
    study.command(place, name=name, help=summary)
app.command(data)
app.command(study)
