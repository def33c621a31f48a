"""The model's own answers at every checkpoint; always looked at.

found = AnswersLens()(session)
found.at[20].accuracy("test", "true"), found.broken       # Share(...), {35: "NaN or infinity in head.weight"}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from undertow.rows import OUTPUT, Row
from undertow.session.answers import AnswersAt, AnswersGauge
from undertow.session.session import Session


@dataclass(frozen=True)
class AnswersResult:
    """Answers by checkpoint, and why some checkpoints give none."""

    at: dict[int, AnswersAt]
    broken: dict[int, str]

    def rows(self) -> Iterator[Row]:
        """In the order of the checkpoints."""
        for number in sorted({*self.at, *self.broken}):
            if number in self.broken:
                note = f"broken: {self.broken[number]}"
                yield Row("model", "accuracy", number, OUTPUT, None, split="test", note=note)
            else:
                yield from self.at[number].rows(number)


class AnswersLens:
    """Reads what the model says."""

    name = "model"

    def gauges(self, session: Session) -> Sequence[AnswersGauge]:
        """Answers to both splits."""
        return [AnswersGauge(session.samples)]

    def __call__(self, session: Session) -> AnswersResult:
        """Answers by checkpoint."""
        gauges = self.gauges(session)
        session.visit(gauges)
        broken = {at: session.broken[at] for at in session.checkpoints if at in session.broken}
        return AnswersResult(session.values(gauges[0]), broken)
