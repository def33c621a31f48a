"""How wrong labels are looked for, as one frozen value that needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from undertow.errors import BadValue
from undertow.session.settings import SessionConfig

AUTO = "auto"
CleanWay = Literal["relabel", "drop"]
CLEAN_WAYS: tuple[CleanWay, ...] = ("relabel", "drop")


@dataclass(frozen=True, kw_only=True)
class LabelConfig(SessionConfig):
    """How wrong labels are looked for."""

    verb: ClassVar[str] = "labels"
    lists: ClassVar[tuple[str, ...]] = ("layers",)
    missing_labels: ClassVar[bool] = True

    layers: tuple[str, ...] = (AUTO,)
    """Layers that vote: names, patterns or auto; the inputs vote in any case."""
    checkpoints: str = AUTO
    """auto (up to eight trained ones, evenly in the logarithm of the epoch), all, last, every:5 or 1,2,5."""
    folds: int = 5
    """No sample votes on its own label: it is judged by what the other folds say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folds < 2:
            raise BadValue("label_errors(folds=...)", "2 or more", self.folds)
