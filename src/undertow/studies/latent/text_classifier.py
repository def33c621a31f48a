"""Beyond paper 001: a text classifier that memorises wrong labels.

find_study("latent/text")

The paper's networks see pictures. Here a small transformer reads questions and answers what each asks for.
"""

from __future__ import annotations

from undertow.studies.claims import FITTED, Claim
from undertow.studies.findings import Findings, number
from undertow.studies.latent.corrupted_networks import JUDGED, case_name
from undertow.studies.latent.probe_claims import over_cases, peak_and_fall, stands_above
from undertow.studies.latent.probe_curves import best_layer, dynamics_figure
from undertow.studies.recipe import Case, ScaleChange, Study

NET = "transformer-TREC"
DEGREES = JUDGED


def _above_guessing(found: Findings, case: str) -> tuple[bool, str]:
    """Untrained, the best layer is read better than the commonest class would score: classes are uneven here."""
    layer, start = best_layer(found, case, "masc", "first")
    guessed = found.mean(case, "commonest_class")
    return start > guessed, f"{layer} {number(start)}, commonest class {number(guessed)}"


text = Study(
    name="latent/text",
    title="A text classifier memorises wrong labels; its layers still know",
    source="ours, after the limitations of paper 001 (section 10)",
    cases=tuple(Case(case_name(NET, degree), None, options={"degree": degree}) for degree in DEGREES),
    measure="undertow.studies.latent.text_measures:memorised_text",
    options={
        "source": "trec", "train_size": 4000, "test_size": 500, "length": 16, "epochs": 100,
        "model": "transformer:depth=2,width=64,heads=4",
    },
    changes={
        "smoke": ScaleChange(
            options={
                "source": "made", "train_size": 200, "test_size": 100, "epochs": 2,
                "model": "transformer:depth=1,width=16,heads=2",
            },
            only=tuple(case_name(NET, degree) for degree in (0.2, 0.4)),
            because="sentences of a small grammar, which need no data from outside", minutes=0.1,
        ),
        "laptop": ScaleChange(because="nothing is changed: there is no larger setting of it", minutes=4),
    },
    claims=(
        Claim("the model's test accuracy peaks early and falls", over_cases(peak_and_fall, "every"), FITTED, ours=True),
        Claim(
            "MASC's best layer ends above the model", over_cases(stands_above("masc"), "every"), FITTED, ours=True,
            cause="subspaces': of these questions they read .44 where one vector a class reads .64",
        ),
        Claim(
            "VeLPIC's best layer ends above the model", over_cases(stands_above("velpic"), "every"), FITTED, ours=True
        ),
        Claim(
            "before training MASC reads more than the commonest class", over_cases(_above_guessing, "every"), ours=True,
        ),
    ),
    figure=dynamics_figure("masc"),
    notes=(
        "TREC's questions, in six uneven classes; words that occur once count as one. Tokens become one row by their "
        "mean.",
    ),
)  # fmt: skip

STUDIES = (text,)
