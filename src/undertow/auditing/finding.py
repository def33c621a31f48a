"""One sentence of a verdict, and the rule that it follows; docs/verdict.md has the same rules.

"Clearly" is: the 95 % interval lies on one side, widened for the number of checkpoints, or of layers and probes, that
the best was picked from (see shares.py). In all other cases the answer is "cannot tell".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from undertow.auditing.evidence import Evidence
from undertow.shares import Sure, percent, within
from undertow.words import MEANINGS, Meaning, moment_words

Answer = Literal["yes", "no", "cannot tell"]
Numbers = dict[str, float | str | None]

SHORT: dict[Answer, str] = {"yes": "yes", "no": "no", "cannot tell": "?"}
RULES: dict[str, str] = {
    "training": (
        "Is there a trained model at all? No: NaN (broken); one answer for all samples whose labels have two classes "
        "or more (collapsed); or under-trained: not clearly above chance, test accuracy clearly higher than at three "
        "quarters of the way, or a head that "
        "fits the training labels clearly worse, by 10 points, than VeLPIC does on the last probed layer."
    ),
    "memorising": (
        "Yes: of the training labels known to be wrong it repeats clearly more than 20 % beyond chance; or, where no "
        "wrong label is known, test accuracy fell clearly (a point or more) from its best while training accuracy "
        "rose, or it repeats clearly more than 20 % of the labels that look wrong beyond chance and beyond those that "
        "may be right. No: clearly fewer; or, over several checkpoints, no clear fall, training accuracy less than 10 "
        "points above test accuracy, and neither labels, knowledge nor repair speak against it."
    ),
    "knowledge": (
        "Yes: the best probe of a layer beats the model clearly at the last checkpoint. No: by less than 2 points."
    ),
    "repair": "Yes: a new head raises held-out accuracy clearly. No: neither place gains anything.",
    "richness": (
        "No (lazy): D_LR surely above 0.4, or more than 95 % of the initial kernel is left. Yes (rich): surely below "
        "0.2."
    ),
    "window": (
        "Yes: at the last checkpoint deep layers understand shallow ones (consistency above 0.8) over half of the "
        "training at every cut. No: surely not."
    ),
    "place": (
        "Yes: it memorises, and the swap profile names the parts where accuracy was lost. No: nothing was lost, or it "
        "does not memorise."
    ),
    "noise": "Yes: surely more than 2 % of the training labels are wrong. No: surely less than 5 %.",
    "checkpoint": (
        "The kept checkpoint with the best test accuracy; the last one where it is not clearly worse. Of one there is "
        "nothing to choose."
    ),
}
"""The rules by topic."""


@dataclass(frozen=True)
class Finding:
    """One sentence of a verdict, with the numbers and the rule that it comes from."""

    topic: str
    sentence: str
    answer: Answer
    numbers: Numbers = field(default_factory=dict[str, float | str | None])
    short: str = ""
    """The answer in a word or two, where yes and no answer no question: rich, layer2, epoch 8."""

    def __post_init__(self) -> None:
        if not self.short:
            object.__setattr__(self, "short", SHORT[self.answer])

    @property
    def rule(self) -> str:
        """The rule in words."""
        return RULES[self.topic]

    @property
    def meaning(self) -> Meaning:
        """Whether this is good news, bad news, or neither is known."""
        return MEANINGS.get(self.topic, {}).get(self.answer, "unknown")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "meaning": self.meaning, "rule": self.rule}


# ---------------------------------------------------------------------- words


def at_words(seen: Evidence, number: int) -> str:
    """Epoch 20."""
    return moment_words(seen.context.unit, number)


def share_words(share: Sure) -> str:
    """69.2 % (64.8 to 72.9)."""
    return f"{percent(share.value)} {within(share)}"


def listed(names: Sequence[str], between: str = "and") -> str:
    """a, b and c."""
    return f" {between} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
