"""Beyond paper 001: what it names as open, with the same networks where it can be.

find_study("latent/masc-variances"); find_study("latent/early-transfer"); find_study("latent/vit")
find_study("latent/memorised-inputs")

None of these claims is the paper's. It asks whether other subspaces read more (its limitations), whether early layers
can be transferred (section 8 and its discussion), and names transformers and corrupted inputs as not looked at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from undertow.plots import line, panels
from undertow.studies.claims import FITTED, CaseVerdict, Claim, ClaimVerdict, each_seed
from undertow.studies.findings import Findings, SeedCurve, number
from undertow.studies.latent.corrupted_networks import DEGREES, JUDGED, NETS, case_name, cases, scaled
from undertow.studies.latent.probe_claims import above_chance, over_cases, peak_and_fall, stands_above
from undertow.studies.latent.probe_curves import (
    TEST,
    best_layer,
    by_case,
    corrupted,
    degree_of,
    dynamics_figure,
    end,
    first_nets,
    hidden,
    model_end,
)
from undertow.studies.latent.probe_dynamics import MEASURE
from undertow.studies.recipe import Case, ScaleChange, Study
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEASURES = "undertow.studies.latent.probe_measures"

# --------------------------------------------------------------------------------------------- other subspaces

USUAL = 0.99
"""The share of the variance that the paper's subspaces hold."""


def _by_share(found: Findings, case: str, layer: str) -> SeedCurve:
    return found.curve(case, "accuracy", x="variance", probe="masc", layer=layer, checkpoint="last", **TEST)


def _best_by_share(found: Findings, case: str) -> dict[float, float]:
    """The best hidden layer's accuracy for each share of the variance."""
    curves = [_by_share(found, case, layer) for layer in hidden(found, case)]
    return {float(share): max(float(own.mean[at]) for own in curves) for at, share in enumerate(curves[0].x)}


def _smaller_subspaces(found: Findings, case: str) -> tuple[bool, str]:
    """Some smaller share is read better than the paper's, by more than a point."""
    best = _best_by_share(found, case)
    top = max(best, key=lambda share: best[share])
    words = f"{number(best[USUAL])} at {USUAL}, {number(best[top])} at {top:g}"
    return top < USUAL and best[top] > best[USUAL] + 0.01, words


def _variances_figure(found: Findings) -> Figure:
    def panel(axes: Axes, case: str) -> None:
        for index, layer in enumerate(hidden(found, case)):
            line(axes, _by_share(found, case, layer), layer, index)
        axes.axhline(model_end(found, case), color="#888888", linewidth=0.8)
        axes.set(ylim=(0, 1.02))

    figure = by_case(found, panel, first_nets(found))
    for axes in figure.axes:
        axes.set(xlabel="share of the variance")
    return figure


masc_variances = Study(
    name="latent/masc-variances",
    title="MASC with smaller and larger subspaces",
    source="ours, after the limitations of paper 001 (section 10)",
    cases=cases(NETS),
    measure=f"{MEASURES}:masc_variances",
    changes=scaled(smoke=0.2, laptop=1.2),
    claims=(
        Claim(
            "in most memorised networks subspaces that hold less than 99 % of the variance read the best layer better",
            over_cases(_smaller_subspaces), FITTED, ours=True,
        ),
    ),
    figure=_variances_figure,
    notes=("At the end of training; the grey line is the model.",),
)  # fmt: skip

# --------------------------------------------------------------------------------------------- early transfer


def _early_beats(found: Findings, case: str) -> tuple[bool, str]:
    """The best graft on a layer before the last beats the model and the edit of its last layer."""
    *early, last = hidden(found, case)
    grafts = {
        f"{probe} on {layer}": end(found, case, probe, layer)
        for probe in ("velpic", "masc")
        for layer in early
    }
    best = max(grafts, key=lambda name: grafts[name])
    edit, model = end(found, case, "velpic", last), model_end(found, case)
    words = f"model {number(model)}, edit of the last layer {number(edit)}, {best} {number(grafts[best])}"
    return grafts[best] > max(model, edit), words


def _masc_transfers(found: Findings, case: str) -> tuple[bool, str]:
    """A graft with MASC's quadratic head beats the model."""
    layer, best = best_layer(found, case, "masc")
    return best > model_end(
        found, case
    ), f"model {number(model_end(found, case))}, MASC on {layer} {number(best)}"


def _early_figure(found: Findings) -> Figure:
    own = corrupted(found)
    figure, axes = panels(min(4, len(own)), -(-len(own) // 4), title=found.study.title, size=(2.9, 2.4))
    for panel, case in zip(axes, own, strict=False):
        names = hidden(found, case)
        for index, probe in enumerate(("velpic", "masc")):
            panel.plot(range(len(names)), [end(found, case, probe, layer) for layer in names], label=f"{probe} graft",
                       color=f"C{index}", marker="o")  # fmt: skip
        panel.axhline(model_end(found, case), color="#888888", linewidth=0.8, label="model")
        panel.set(title=case, ylim=(0, 1.02), xticks=range(len(names)))
        panel.set_xticklabels(names, fontsize=6)
    axes[0].legend(fontsize=6)
    return figure


early_transfer = Study(
    name="latent/early-transfer",
    title="Early layers can be transferred too: the network up to there, with the probe as its head",
    source="ours, after the open question of paper 001 (sections 8 and 10)",
    cases=cases(NETS),
    measure=f"{MEASURES}:early_transfer",
    changes=scaled(smoke=0.2, laptop=0.5),
    claims=(
        Claim(
            "in most memorised networks a graft on a layer before the last beats the model and the last layer's edit",
            over_cases(_early_beats), FITTED, ours=True,
        ),
        Claim("MASC can be transferred: its graft beats the model", over_cases(_masc_transfers), FITTED, ours=True),
    ),
    figure=_early_figure,
    notes=(
        "A graft leaves out the layers behind it; with VeLPIC its head is linear, with MASC quadratic. The best layer "
        "is chosen on the test set here: an upper bound of what a choice without clean labels gives.",
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------------------------- transformer

_VIT = TrainConfig(
    model="vit:patch=7,depth=4,width=64,heads=4", data="mnist", optimiser="adam", lr=1e-3, batch_size=128, epochs=200,
    stop_at=0.99, test_at="checkpoints",
)  # fmt: skip

vit = Study(
    name="latent/vit",
    title="A small vision transformer memorises wrong labels; its layers still know",
    source="ours, after the limitations of paper 001 (section 10)",
    cases=tuple(Case(case_name("ViT-MNIST", degree), replace(_VIT, noise=f"{degree:g}")) for degree in DEGREES),
    measure=MEASURE,
    options={"probes": ("masc", "velpic")},
    changes={
        "smoke": ScaleChange(
            train={"data": "digits", "model": "vit:patch=2,depth=2,width=16,heads=2", "train_size": 200,
                   "test_size": 100, "epochs": 2},
            only=(case_name("ViT-MNIST", 0.4),), minutes=0.2,
        ),
        "laptop": ScaleChange(
            train={"train_size": 1000, "test_size": 1000, "batch_size": 32, "epochs": 100,
                   "checkpoints": "0,1,2,4,8,12,20,40,60,80"},
            only=tuple(case_name("ViT-MNIST", degree) for degree in JUDGED),
            because="1,000 pictures; without the degrees 0 and 1, which no claim reads", minutes=2.3,
        ),
    },
    claims=(
        Claim("the model's test accuracy peaks early and falls", over_cases(peak_and_fall, "every"), FITTED, ours=True),
        Claim(
            "MASC's best layer ends above the model", over_cases(stands_above("masc"), "every"), FITTED, ours=True,
            cause="the ViT's: of 64 units subspaces read .59 where one vector a class reads .66 (a degree of .2)",
        ),
        Claim(
            "VeLPIC's best layer ends above the model", over_cases(stands_above("velpic"), "every"), FITTED, ours=True
        ),
        Claim("MASC beats chance at epoch 0, the model does not", over_cases(above_chance("masc"), "every"), ours=True),
    ),
    figure=dynamics_figure("masc"),
    notes=("Tokens become one row by their mean.",),
)  # fmt: skip

# -------------------------------------------------------------------------------------------- memorised inputs

KINDS = ("shuffled", "noise")


def _input_case(kind: str, degree: float) -> str:
    return f"MLP-MNIST, {kind} pictures {degree:g}"


def _costs_model(found: Findings) -> ClaimVerdict:
    """With unreadable pictures among its samples the model ends lower than without."""
    clean = _input_case("shuffled", 0.0)
    judged = [
        CaseVerdict(case, model_end(found, case) < model_end(found, clean), number(model_end(found, case)))
        for case in found.cases
        if degree_of(case) > 0
    ]
    return ClaimVerdict.of_cases(judged, "most", f"without {number(model_end(found, clean))}; ")


def _inputs_figure(found: Findings) -> Figure:
    figure, axes = panels(len(KINDS), title=found.study.title, size=(3.6, 2.8))
    for panel, kind in zip(axes, KINDS, strict=True):
        own = [case for case in found.cases if kind in case]
        x = [degree_of(case) for case in own]
        panel.plot(x, [model_end(found, case) for case in own], color="C6", marker="o", label="model")
        for index, probe in enumerate(("masc", "velpic")):
            panel.plot(x, [best_layer(found, case, probe)[1] for case in own], color=f"C{index}", marker="o",
                       label=f"{probe}, best layer")  # fmt: skip
        panel.set(title=f"{kind} pictures", xlabel="share of pictures", ylim=(0, 1.02))
    axes[0].legend(fontsize=7)
    return figure


memorised_inputs = Study(
    name="latent/memorised-inputs",
    title="Unreadable pictures memorised with their right labels",
    source="ours, after the limitations of paper 001 (section 10)",
    cases=tuple(
        Case(_input_case(kind, degree), None, options={"kind": kind, "degree": degree})
        for kind in KINDS
        for degree in (0.0, 0.4, 0.8, 0.9)
    ),
    measure="undertow.studies.latent.input_measures:memorised_inputs",
    options={"train_size": 2000, "test_size": 1000, "epochs": 100},
    changes={
        "smoke": ScaleChange(
            options={"train_size": 200, "test_size": 100, "epochs": 2, "data": "digits"},
            only=tuple(_input_case("shuffled", degree) for degree in (0.0, 0.8)), minutes=0.1,
        ),
        "laptop": ScaleChange(because="nothing is changed: there is no larger setting of it", minutes=2.5),
    },
    claims=(
        Claim(
            "unreadable pictures that are memorised cost the model accuracy", each_seed(_costs_model), FITTED, ours=True
        ),
        Claim("MASC's best layer ends above the model", over_cases(stands_above("masc")), FITTED, ours=True),
        Claim("VeLPIC's best layer ends above the model", over_cases(stands_above("velpic")), FITTED, ours=True),
    ),
    figure=_inputs_figure,
    notes=(
        "Shuffled: each such picture has its own order of pixels. Noise: normal numbers with the pictures' mean and "
        "variance. Labels are right, so only the pictures have to be memorised.",
    ),
)  # fmt: skip

STUDIES = (masc_variances, early_transfer, vit, memorised_inputs)
