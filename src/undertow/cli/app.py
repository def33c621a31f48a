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
    "seal": ("undertow.cli.seal:seal", "Take a run's files as they are, where they were changed on purpose."),
    "sbom": ("undertow.cli.sbom:sbom", "List the packages under undertow with their licences (CycloneDX)."),
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

EXAMPLES = {
    "demo": ("undertow demo --out demo",),
    "train": (
        "undertow train mlp --data mnist --noise 0.4 --epochs 60 --out runs/m40",
        "undertow train resnet18:width=16 --data cifar10 --out runs/c10",
    ),
    "probe": ("undertow probe runs/m40", "undertow probe runs/m40 --layers layer2 --probes velpic"),
    "audit": ("undertow audit runs/m40", 'undertow audit runs/m40 --quick --fail-if "latent_gap > 0.1"'),
    "repair": ("undertow repair runs/m40 --layer best --out fixed.safetensors",),
    "labels": ("undertow labels runs/m40 --top 50", "undertow labels --features emb.npy --labels y.csv"),
    "report": ("undertow report runs/m40 --open", "undertow report runs/m40 runs/m00 --out compare.html"),
    "figure": ("undertow figure runs/m40 heat-map --format pdf",),
    "serve": ("undertow serve runs/ --open",),
    "runs": ("undertow runs runs/", "undertow runs runs/ --json"),
    "show": ("undertow show runs/m40",),
    "seal": ("undertow seal runs/m40",),
    "sbom": ("undertow sbom", "undertow sbom --out sbom.json"),
    "layers": ("undertow layers resnet18:width=16", "undertow layers runs/m40"),
    "cuts": ("undertow cuts runs/m40",),
    "data list": ("undertow data list",),
    "data show": ("undertow data show digits",),
    "data fetch": ("undertow data fetch mnist",),
    "data corruptions": ("undertow data corruptions",),
    "study list": ("undertow study list",),
    "study show": ("undertow study show richness/target-scale",),
    "study run": ("undertow study run richness/target-scale --scale smoke",),
    "study report": ("undertow study report studies",),
}
"""Command lines that work as they are, under each command's --help."""


def _add(to: App, commands: dict[str, tuple[str, str]], group: str = "") -> None:
    for name, (place, summary) in commands.items():
        lines = "\n".join(f"  {line}" for line in EXAMPLES[f"{group}{name}"])
        to.command(place, name=name, help=summary, help_epilogue=f"Examples:\n\n{lines}")


_add(app, COMMANDS)
_add(data, DATA_COMMANDS, "data ")
_add(study, STUDY_COMMANDS, "study ")
app.command(data)
app.command(study)
app.register_install_completion_command()
