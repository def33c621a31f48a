"""One sentence of a verdict, and the rule that it follows; docs/verdict.md has the same rules.

training    is there a trained model at all? no: NaN (broken); one answer for all samples (collapsed); or under-trained:
            not clearly above chance, test accuracy clearly higher than at three quarters of the way, or a head that
            fits the training labels clearly worse, by 10 points, than VeLPIC does on the last probed layer
memorising  yes: of the training labels known to be wrong it repeats clearly more than 20 % beyond chance; or, where no
            wrong label is known, test accuracy fell clearly (a point or more) from its best while training accuracy
            rose. no: clearly fewer; or no clear fall and training accuracy less than 10 points above test accuracy
knowledge   yes: the best probe of a layer beats the model clearly at the last checkpoint. no: by less than 2 points
repair      yes: a new head raises held-out accuracy clearly. no: neither place gains anything
richness    no (lazy): D_LR surely above 0.4, or more than 95 % of the initial kernel is left. yes (rich): surely
            below 0.2
window      yes: at the last checkpoint deep layers understand shallow ones (consistency above 0.8) over half of the
            training at every cut. no: surely not
place       yes: it memorises, and the swap profile names the parts where accuracy was lost. no: nothing was lost, or
            it does not memorise
noise       yes: surely more than 2 % of the training labels are wrong. no: surely less than 5 %
checkpoint  the kept checkpoint with the best test accuracy; the last one where it is not clearly worse

"Clearly" is: the 95 % interval lies on one side, widened for the number of checkpoints, or of layers and probes, that
the best was picked from (see shares.py). In all other cases the answer is "cannot tell".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from undertow.auditing.evidence import Evidence
from undertow.auditing.shares import Sure, percent, within

Answer = Literal["yes", "no", "cannot tell"]
Numbers = dict[str, float | str | None]

SHORT: dict[Answer, str] = {"yes": "yes", "no": "no", "cannot tell": "?"}
PROBES = {
    "masc": "MASC", "velpic": "VeLPIC", "logistic": "logistic regression", "mean": "nearest mean", "knn": "k-NN",
    "lda": "LDA", "qda": "QDA",
}  # fmt: skip
"""How people write a probe's name."""

RULES: dict[str, str] = dict(
    re.findall(r"^([a-z]+) {2,}(.*(?:\n {12}.*)*)", __doc__ or "", flags=re.MULTILINE)
)
"""The docstring's rules by topic."""


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
        return " ".join(RULES[self.topic].split())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "rule": self.rule}


# ---------------------------------------------------------------------- words


def at_words(seen: Evidence, number: int) -> str:
    """Epoch 20."""
    return f"{seen.context.unit} {number}"


def share_words(share: Sure) -> str:
    """69.2 % (64.8 to 72.9)."""
    return f"{percent(share.value)} {within(share)}"


def layer_words(name: str) -> str:
    """A layer's name, after the word layer where it is a bare number."""
    return f"layer {name}" if name[:1].isdigit() else name


def listed(names: Sequence[str], between: str = "and") -> str:
    """a, b and c."""
    return f" {between} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
