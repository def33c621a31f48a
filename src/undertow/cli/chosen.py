"""What `undertow labels --choose` recommends: a checkpoint, and a new head only where `undertow repair` would take it.

told = recommend(choice, opened, data, run)      # asks the gate of repair, as its command would
told.words(), told.facts()
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from undertow.cli.screen import percent
from undertow.errors import BadData, BadValue
from undertow.session.reader import ENTERING
from undertow.words import layer_name, moment_words

if TYPE_CHECKING:
    from undertow.data.samples import DataSet
    from undertow.labels.choice import Choice
    from undertow.repairing import Repair
    from undertow.training.run import Run


@dataclass(frozen=True, eq=False)
class Recommended:
    """A checkpoint, and what became of the head that promises most."""

    choice: Choice
    unit: str
    run: Path
    plain: float | None = None
    """The share of held-out samples that the chosen checkpoint gets right as it is."""
    tried: Repair | None = None
    why_not: str = ""

    @property
    def taken(self) -> bool:
        """Whether the new head is worth it: repair takes it, and the chosen checkpoint alone is no better."""
        if self.tried is None or not self.tried.accepted:
            return False
        return self.plain is None or (self.tried.after or 0.0) > self.plain

    @property
    def command(self) -> str:
        """Makes the new head."""
        epoch, layer = self.choice.graft
        which = "" if self.unit == "model" else f" --checkpoint {epoch}"
        where = "" if layer == ENTERING else f" --layer {quote(layer)}"
        return f"undertow repair {quote(str(self.run))}{which}{where} --out fixed.safetensors"

    def words(self) -> str:
        """For the screen."""
        own = moment_words(self.unit, self.choice.epoch)
        use = f"{own.capitalize()} is the checkpoint to use, as far as noisy labels can tell."
        if self.unit == "model":
            use = "There is one checkpoint only."
        return f"{use} {self._head_words(own)}"

    def _head_words(self, own: str) -> str:
        epoch, layer = self.choice.graft
        promise = percent(self.choice.promises[self.choice.graft])
        head = "A new head" if layer == ENTERING else f"A new head on {layer_name(layer)}"
        head = f"{head} of {moment_words(self.unit, epoch)} promises {promise}"
        if self.tried is None or not self.tried.accepted:
            reason = self.why_not if self.tried is None else self.tried.reason
            return f"{head}, but the test samples do not support it: {reason.rstrip('.')}."
        reached = f"{percent(self.tried.after or 0.0)} of the test samples"
        if not self.taken:
            return f"{head} and gets {reached} right, no more than {own} as it is ({percent(self.plain or 0.0)})."
        return f"{head} and gets {reached} right: `{self.command}`."

    def facts(self) -> dict[str, Any]:
        """In plain values; no graft where it is not worth it."""
        graft = dict(zip(("checkpoint", "layer"), self.choice.graft, strict=True))
        return {"checkpoint": self.choice.epoch, "graft": graft if self.taken else None}


def recommend(choice: Choice, opened: Run, data: DataSet, run: Path) -> Recommended:
    """Ask the gate of `undertow repair` about the head that promises most, and compare it with the checkpoint alone."""
    from undertow.repairing.repair_model import repair

    epoch, layer = choice.graft
    plain = _plain(opened, data, choice.epoch)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="repair: cannot tell")  # told in words
        try:
            tried = repair(opened, data, checkpoint=epoch, layer=None if layer == ENTERING else layer)
        except (BadData, BadValue) as reason:
            return Recommended(choice, opened.unit, run, plain, why_not=str(reason))
    return Recommended(choice, opened.unit, run, plain, tried)


def _plain(opened: Run, data: DataSet, at: int) -> float | None:
    """The share of test samples that a checkpoint gets right."""
    from undertow.session.answers import AnswersGauge
    from undertow.session.samples import TEST
    from undertow.session.session import Session

    session = Session(opened, data, checkpoints=(at,))
    gauge = AnswersGauge(session.samples)
    session.visit([gauge])
    found = session.value(gauge, at)
    share = None if found is None else found.accuracy(TEST, "true")
    return None if share is None else share.value
