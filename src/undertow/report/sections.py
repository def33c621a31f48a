"""The sections of the page, in order, and what is said where a run has nothing to show in one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """A part of the page, and what is said where its rows are missing."""

    id: str
    short: str
    title: str
    lead: str
    why: str = ""
    charts: bool = True
    labels: bool = False  # whether it takes labels, so that the audit's situation may be why it is empty


SECTIONS = (
    Section(
        "verdict", "Verdict", "The verdict", "",
        "There is no verdict: this run has not been audited yet. `undertow audit RUN` does it.", charts=False,
    ),
    Section(
        "accuracy", "Accuracy", "Accuracy over training",
        "What the model answers, and what could be read from its layers at the same time.",
        "No accuracies were recorded: neither the training loop nor an audit with labels wrote any.", labels=True,
    ),
    Section(
        "layers", "Layers", "What each layer knows",
        "Probes are fitted on the training samples' features and judged on others.",
        "No layer was probed: that takes an audit with labels.", labels=True,
    ),
    Section(
        "repair", "Repair", "What can be given back",
        "The model's head is replaced by a probe of one of its own layers; nothing else is trained.",
        "No repair was tried: that takes labels and a layer to make a head from.", labels=True,
    ),
    Section(
        "richness", "Rich or lazy", "Rich or lazy",
        "Did training change the features, or only fit a head on those that were there?",
        "Richness was not measured in this audit.",
    ),
    Section(
        "spectrum", "Spectrum", "Which features carry the answer",
        "The features' directions in order of strength: what the first k of them express, what is used of them, "
        "how strong they are.",
        "Spectra were not measured in this audit.",
    ),
    Section(
        "time", "Across time", "Across time",
        "Layers from different checkpoints put together: do deep layers still understand what shallow ones said "
        "earlier?",
        "Layers of different checkpoints were not put together: that takes several checkpoints and a place to cut.",
    ),
    Section(
        "labels", "Suspects", "Suspected labels",
        "Training samples whose given label the features contradict, the most suspicious first. “Wrong” is how likely "
        "the given label is an error; where the true label is known, ✓ or ✗ says whether the proposal meets it.",
        "No labels were searched for errors, or the samples are no pictures. `undertow labels RUN` searches and fills "
        "this section.",
    ),
    Section("facts", "Facts", "Run facts", "", "There is no run.json in this folder.", charts=False),
)  # fmt: skip

TEMPORAL = ("composites", "window", "drift", "densities", "swap", "trajectories")
# What decides whether a run has something to show in a section.
PRESENT: dict[str, Callable[[dict[str, Any]], bool]] = {
    "accuracy": lambda own: bool(own["overview"]),
    "layers": lambda own: own["latent"] is not None,
    "repair": lambda own: bool(own["repair"]),
    "richness": lambda own: bool(own["richness"]),
    "spectrum": lambda own: bool(own["spectra"]),
    "time": lambda own: any(own[name] for name in TEMPORAL),
    "labels": lambda own: bool(own["suspects"]),
}  # fmt: skip

WORDS = (
    ("Probe", "a small classifier fitted on one layer's features: its accuracy is what that layer knows."),
    ("MASC", "a probe: each class gets the few directions that hold its features; the smallest angle wins."),
    ("VeLPIC", "a probe: each class gets one direction, the largest inner product wins; so it can serve as a head."),
    ("D_LR", "how far the features are from the fewest that the answers need: 0 rich (learned), 1 lazy (unchanged)."),
)  # fmt: skip
"""The words of ours that the page uses, and what each means in a line."""
