"""The sections of the page in the order of use: what happened, what to do about it, why.

Where a run has nothing to show in one, its `why` is said, with the run's own folder in place of {run}.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Section:
    """A part of the page, and what is said where its rows are missing."""

    id: str
    short: str
    title: str
    lead: str
    why: str = ""
    charts: bool = True
    optional: bool = False  # left out where nothing fills it
    labels: bool = False  # whether it takes labels, so that the audit's situation may be why it is empty

    def missing(self, run: Path) -> str:
        """Why the section is empty, with commands that run as they are."""
        return self.why.replace("{run}", shlex.quote(str(run)))


SECTIONS = (
    Section(
        "accuracy", "Accuracy", "Accuracy over training",
        "How often the model is right, and what its layers knew at the same time.",
        "No accuracy was recorded, neither by the training loop nor by an audit with labels.", labels=True,
    ),
    Section(
        "verdict", "Verdict", "The verdict", "",
        "There is no verdict: this run has not been audited yet. `undertow audit {run}` audits it.", charts=False,
    ),
    Section(
        "labels", "Suspects", "Suspected labels",
        "Training samples whose features contradict the given label, the most suspicious of each class first. "
        "“Wrong” ranks the labels: it is a belief, not a share of errors among such labels. "
        "Where the true label is known, ✓ or ✗ says whether the proposal is right.",
        "No labels were searched, or the samples are not pictures. `undertow labels {run}` searches and fills "
        "this section.",
    ),
    Section(
        "repair", "Repair", "What a new head gives back",
        "A probe of one of the model's own layers replaces its head; nothing else is trained.",
        "No repair was tried. It needs labels and a layer to make a head from.", labels=True,
    ),
    Section(
        "layers", "Layers", "What each layer knows",
        "A probe is fitted on the features of training samples and tested on others.",
        "No layer was probed. An audit with labels does that.", labels=True,
    ),
    Section(
        "time", "Across time", "Across time",
        "Layers of different checkpoints, joined: do deep layers still understand what shallow layers said earlier?",
        "Layers of different checkpoints were not joined. That needs several checkpoints and a place to cut.",
    ),
    Section(
        "richness", "Rich or lazy", "Rich or lazy",
        "Did training learn new features (rich), or only fit a head to the first ones (lazy)?",
        "This audit did not measure richness.",
    ),
    Section(
        "spectrum", "Spectrum", "Which features carry the answer",
        "The directions of the features, strongest first: what the first k express, how much of them is used, "
        "how strong they are.",
        "This audit did not measure spectra.",
    ),
    Section(
        "own", "Own lenses", "Own lenses", "What your own lenses measured, by layer.",
        "No lens of your own looked at this run.", optional=True,
    ),
    Section("facts", "Facts", "Run facts", "", "There is no run.json in this folder.", charts=False),
)  # fmt: skip

WORDS = (
    ("Probe", "a small classifier on one layer's features; its accuracy says what that layer knows."),
    ("MASC", "a probe: each class gets the few directions that its features span; the smallest angle wins."),
    ("VeLPIC", "a probe: each class gets one direction; the largest inner product wins. It can serve as a head."),
    ("D_LR", "how far the features are from the fewest that the answers need: 0 rich (learned), 1 lazy (unchanged)."),
)  # fmt: skip
"""The words of ours that the page uses, and what each means in a line."""
