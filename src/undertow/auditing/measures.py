"""The numbers that a verdict rests on, by name: what audit.json lists and `--fail-if` knows.

    conditions = [parse_condition("latent_gap > 0.1"), parse_condition("accuracy_low < 0.9")]
    failed = [one for one in conditions if one.holds(result.measures)]

A condition is NAME OPERATOR NUMBER. Names that have an interval also come as NAME_low and NAME_high: a gate on
`latent_gap_low > 0.1` fails only where the gap is surely above.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from undertow.errors import BadData, BadValue, unknown

MEASURES: Mapping[str, str] = {
    "accuracy": "test accuracy at the last checkpoint",
    "accuracy_best": "best test accuracy of all checkpoints",
    "accuracy_drop": "accuracy_best minus accuracy",
    "best_checkpoint": "the checkpoint of accuracy_best",
    "train_accuracy": "accuracy on the training labels at the last checkpoint",
    "generalisation_gap": "train_accuracy minus accuracy",
    "memorised": "share of the wrong training labels that the last model repeats",
    "noise": "share of wrong training labels, measured or estimated",
    "latent_accuracy": "test accuracy of the best probe at the last checkpoint",
    "latent_gap": "latent_accuracy minus accuracy",
    "head_gain": "test accuracy gained by writing VeLPIC into the head",
    "graft_gain": "test accuracy gained by a head on the best layer",
    "d_lr": "richness at the last checkpoint: 0 rich, towards 1 lazy",
    "initial_kernel_alignment": "how much of the initial feature kernel is left at the last checkpoint",
    "effective_dimension": "of the features that enter the head at the last checkpoint",
    "nc1": "spread within the classes over spread between them at the last checkpoint",
    "window": "how far back deep layers understand shallow ones at the last checkpoint, at the worst cut",
    "consistency": "agreement of composites with the last model over the second half, at the worst cut",
    "drift": "relative change of the parameters from the first to the last checkpoint",
    "answered": "how many classes the last model answers",
    "broken": "how many checkpoints hold NaN or infinity",
}
ENDS = ("_low", "_high")
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_FORM = re.compile(r"\s*([A-Za-z_]\w*)\s*(>=|<=|==|!=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Condition:
    """NAME OPERATOR NUMBER."""

    name: str
    sign: str
    number: float

    def holds(self, measures: Mapping[str, float]) -> bool:
        """Whether it is true of these measures.

        Raises:
            BadData: this audit has no such number: a gate that cannot look must not pass.
        """
        if self.name not in measures:
            raise BadData(
                f"--fail-if {self.name}: wanted a number to compare, but this audit has none "
                f"(known here: {', '.join(sorted(measures))}). Leave the condition out."
            )
        return OPERATORS[self.sign](measures[self.name], self.number)

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.number:g}"


def parse_condition(text: str, *, own: bool = False) -> Condition:
    """Read a condition; unknown names are answered with near ones, unless anyone's `own` lens may give them."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadValue(
            "--fail-if",
            f"NAME OPERATOR NUMBER with one of {' '.join(OPERATORS)}",
            text,
            'For example "latent_gap > 0.1".',
        )
    name, sign, number = found.groups()
    if not own and re.sub("|".join(f"{end}$" for end in ENDS), "", name) not in MEASURES:
        raise unknown("measure", name, MEASURES)
    return Condition(name, sign, float(number))
