"""ResNet-18 in both ways: as the authors probed it, and in evaluation mode.

find_study("latent/resnet18-modes")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.plots import line, panels
from undertow.studies.claims import FITTED, CaseVerdict, Claim, ClaimVerdict, each_seed
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.latent.corrupted_networks import case_name, cases
from undertow.studies.latent.probe_claims import HIGH, Check
from undertow.studies.latent.probe_curves import degree_of, layers
from undertow.studies.recipe import ScaleChange, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEGREES = (0.2, 0.6)
FAR = 0.1
"""Ahead by so much counts as far ahead."""
WORDS = {"eval": "evaluation mode", "image": "each image by itself"}


def _at_end(
    found: Findings, case: str, mode: str, probe: str, layer: str = "output", at: str = "last"
) -> float:
    return found.mean(case, "accuracy", checkpoint=at, mode=mode, probe=probe, layer=layer)


def _masc_far_ahead(mode: str, at: str = "last") -> Check:
    """MASC beats VeLPIC by more than FAR in the stem (the paper's L0) and in layer1 (L1) of every seed's network."""

    def judge(found: Findings, case: str, layer: str) -> CaseVerdict:
        masc, velpic = (_at_end(found, case, mode, probe, layer, at) for probe in ("masc", "velpic"))
        words = f"MASC {number(masc)}, VeLPIC {number(velpic)}"
        return CaseVerdict(f"{case}, {layer}", masc - velpic > FAR, words)

    def check(found: Findings) -> ClaimVerdict:
        places = [(case, layer) for case in found.cases for layer in layers(found, case)[:2]]
        return ClaimVerdict.of_cases(judge(found, *place) for place in places)

    return each_seed(check, "every")


def _edit_is_no_help(mode: str) -> Check:
    """At low degrees the edited model is no better than the model as it is used, in evaluation mode."""

    def judge(found: Findings, case: str) -> CaseVerdict:
        model, edited = _at_end(found, case, "eval", "model"), _at_end(found, case, mode, "edited")
        own = "" if mode == "eval" else f" (in this mode {number(_at_end(found, case, mode, 'model'))})"
        return CaseVerdict(case, edited <= model, f"model {number(model)}{own}, edited {number(edited)}")

    def check(found: Findings) -> ClaimVerdict:
        return ClaimVerdict.of_cases(judge(found, case) for case in found.cases if degree_of(case) < HIGH)

    return each_seed(check, "every")


def _curve(found: Findings, case: str, mode: str, probe: str, layer: str = "output") -> SeedCurve:
    return found.curve(case, "accuracy", x="checkpoint", mode=mode, probe=probe, layer=layer)


def _figure(found: Findings) -> Figure:
    shown = [(case, mode) for case in found.cases for mode in WORDS]
    figure, axes = panels(2, len(found.cases), title=found.study.title, size=(4.2, 2.9))
    for panel, (case, mode) in zip(axes, shown, strict=True):
        line(panel, _curve(found, case, mode, "model"), "model", 6, linewidth=2.2, linestyle="-")
        line(panel, _curve(found, case, mode, "edited"), "edited", 3)
        for index, layer in enumerate(layers(found, case)[:2]):
            line(panel, _curve(found, case, mode, "masc", layer), f"MASC, {layer}", index, linestyle="-")
            line(panel, _curve(found, case, mode, "velpic", layer), f"VeLPIC, {layer}", index, linestyle=":")
        panel.set(title=f"{case}, {WORDS[mode]}", xlabel="epoch", ylim=(0, 1.02))
    axes[0].legend(fontsize=6, ncols=2)
    return figure


resnet18_modes = Study(
    name="latent/resnet18-modes",
    title="What batch norm's mode does to the probes of ResNet-18",
    source="paper 001, ResNet-18 of figures 10 to 16, and ours",
    cases=cases(("ResNet18-CIFAR10",), DEGREES),
    measure="undertow.studies.latent.batch_norm_measures:both_modes",
    changes={
        "smoke": ScaleChange(
            # Three scales: 8x8 digits would be one pixel in a fourth, where an image has no variance of its own.
            train={"data": "digits", "model": "resnet8:width=2", "train_size": 200, "test_size": 100, "epochs": 2},
            minutes=0.2,
        ),
        "laptop": ScaleChange(
            train={
                "train_size": 8000, "test_size": 1000, "lr": 1e-2, "epochs": 30, "stop_at": 0.99,
                "checkpoints": "0,6",
            },
            only=(case_name("ResNet18-CIFAR10", DEGREES[0]),),
            because="8,000 images and a larger rate, so that they are memorised within an hour; with 2,000 the order "
            "of the probes at epoch 0 turns round",
            minutes=19,
        ),
    },
    claims=(
        Claim(
            "MASC is far ahead of VeLPIC in L0 and L1 (each image by itself, as the authors probed)",
            _masc_far_ahead("image"), FITTED, "section 6.1, figure 3",
        ),
        Claim(
            "so it is before training (each image by itself, as the authors probed)",
            _masc_far_ahead("image", "first"), None, "section 4, figures 1 and 3",
        ),
        Claim(
            "in evaluation mode MASC still is far ahead there", _masc_far_ahead("eval"), FITTED, ours=True,
        ),
        Claim(
            "in evaluation mode it is so before training", _masc_far_ahead("eval", "first"), ours=True,
        ),
        Claim(
            "the edit makes the model worse, at low degrees (each image by itself, as the authors probed)",
            _edit_is_no_help("image"), FITTED, "section 8, figure 7",
        ),
        Claim(
            "in evaluation mode the edit does not help either", _edit_is_no_help("eval"), FITTED, ours=True,
        ),
    ),
    figure=_figure,
    notes=(
        "L0 is the stem's output after its max pool, L1 that of layer1; far ahead is by more than ten points. The "
        "edited model is set against the model as it is used, in evaluation mode.",
        "The authors took one image at a time in training mode. Here running statistics stay as they were.",
    ),
)  # fmt: skip

STUDIES = (resnet18_modes,)
