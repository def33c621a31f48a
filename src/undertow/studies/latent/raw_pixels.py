"""Probes on raw pixels: what needs no network, and so repeats the authors' numbers on any machine.

find_study("latent/raw-pixels")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.plots import COLOURS, panels
from undertow.studies.claims import Claim, ClaimVerdict
from undertow.studies.findings import Findings, number
from undertow.studies.latent.corrupted_networks import JUDGED, case_name
from undertow.studies.recipe import Case, Published, ScaleChange, Study
from undertow.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEGREES = (0.0, *JUDGED)
_MNIST, _FASHION = "MNIST", "Fashion-MNIST"
_MASC = (0.8234, 0.8321, 0.8255, 0.8027, 0.7108)
_VELPIC = (0.8163, 0.8135, 0.8081, 0.7936, 0.7722)
_CHANGED = (0.0, 0.17963, 0.35893, 0.53838, 0.72127)
TWO_SAMPLES = 2.01e-4
"""Two of 10,000 test samples: what rounding may turn."""
_LABELS = 5e-6
"""Less than one of 60,000 labels."""


def _pixels(data: str, degree: float) -> TrainConfig:
    """An untrained network's run: its samples, with labels as the authors drew them."""
    noise = f"uniform:{degree:g},rng=authors,seed=42" if degree else "0"
    return TrainConfig(model="mlp:8", data=data, scaling="half", noise=noise, epochs=0, checkpoints="0")


def _published(name: str, measure: str, value: float, within: float, **where: str) -> Published:
    return Published(name, measure, value, within, "authors' logs on raw pixels", where)


def _more_wrong_than_read(found: Findings) -> ClaimVerdict:
    """Both probes lose less accuracy than labels were changed."""

    def judge(case: str) -> tuple[bool, str]:
        changed = found.mean(case, "changed_labels")
        clean = case_name(case.rpartition(" ")[0], 0)
        lost = {
            probe: found.mean(clean, "accuracy", probe=probe) - found.mean(case, "accuracy", probe=probe)
            for probe in ("masc", "velpic")
        }
        words = ", ".join(f"{probe} loses {number(one)}" for probe, one in lost.items())
        return max(lost.values()) < changed, f"{case}: {words}, {number(changed)} of the labels are wrong"

    noisy = [case for case in found.cases if case.startswith(_MNIST) and found.mean(case, "changed_labels")]
    return ClaimVerdict.of_each(noisy, judge)


def _figure(found: Findings) -> Figure:
    figure, axes = panels(1, title=found.study.title, size=(4.2, 3.0))
    for index, (probe, words) in enumerate((("masc", "MASC"), ("velpic", "VeLPIC"))):
        seen = [found.mean(case_name(_MNIST, degree), "accuracy", probe=probe) for degree in DEGREES]
        told = _MASC if probe == "masc" else _VELPIC
        axes[0].plot(DEGREES, told, color=COLOURS[index], linewidth=1.2, label=f"{words}, authors")
        axes[0].plot(DEGREES, seen, "o", color=COLOURS[index], markersize=4, label=f"{words}, ours")
    axes[0].set(xlabel="degree of corruption", ylabel="test accuracy", title=_MNIST)
    axes[0].legend(loc="best")
    return figure


raw_pixels = Study(
    name="latent/raw-pixels",
    title="On raw pixels both probes give the authors' numbers",
    source="paper 001, layer 0 of figures 1, 2, 10 and 11, from the authors' logs",
    cases=(
        *(Case(case_name(_MNIST, degree), _pixels("mnist", degree)) for degree in DEGREES),
        Case(case_name(_FASHION, 0.4), _pixels("fashion_mnist", 0.4)),
    ),
    measure="undertow.studies.latent.probe_measures:raw_pixels",
    published=(
        *(
            _published(case_name(_MNIST, degree), "accuracy", value, TWO_SAMPLES, probe=probe)
            for probe, values in (("masc", _MASC), ("velpic", _VELPIC))
            for degree, value in zip(DEGREES, values, strict=True)
        ),
        *(
            _published(case_name(_MNIST, degree), "changed_labels", value, _LABELS)
            for degree, value in zip(DEGREES, _CHANGED, strict=True)
        ),
        _published(case_name(_FASHION, 0.4), "accuracy", 0.6875, TWO_SAMPLES, probe="masc"),
    ),
    claims=(
        Claim(
            "both probes of raw pixels lose less than labels are changed", _more_wrong_than_read, ours=True
        ),
    ),
    figure=_figure,
    changes={
        "smoke": ScaleChange(
            train={"data": "digits", "scaling": None, "noise": "0.4"},
            cases={case_name(_MNIST, 0): {"noise": "0"}},
            because="digits of 8x8 pixels",
            minutes=0.1,
        ),
        "laptop": ScaleChange(because="nothing is changed: no network is trained", minutes=0.5),
    },
    notes=("VeLPIC's sign is that of the mean projection of all pictures, as in the authors' code.",),
    seeds=1,
)

STUDIES = (raw_pixels,)
