"""What a repair is asked to do, as one frozen value that needs no torch.

RepairConfig(layer="best", probe="masc", least=0.01)     # settings, checked before any work
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from undertow.errors import BadValue, unknown
from undertow.session.settings import SessionConfig

INPUT = "input"
BEST = "best"
HEADS = ("velpic", "masc", "logistic")
"""Probes that can be a head."""


@dataclass(frozen=True, kw_only=True)
class RepairConfig(SessionConfig):
    """What is repaired, how, and what evidence is asked for."""

    verb: ClassVar[str] = "repair"

    layer: str | None = None
    """None for the model's own head; a layer to graft a head on; "best" for the layer with the best evidence."""
    probe: str = "velpic"
    """velpic, masc or logistic."""
    gate: bool = True
    """Whether held-out evidence decides; if not, the repair is made in any case."""
    test_noise: float | None = 0.0
    """The share of held-out labels drawn at random; 0 if they are clean, None if nobody knows."""
    least: float = 0.0
    """The gain of accuracy that the lower end of the interval must exceed."""
    confidence: float = 0.95
    """Of that interval."""
    calibrate: bool = True
    """Whether the new head's scores are put on a scale that the softmax can use; no answer changes by it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.probe not in HEADS:
            raise unknown("probe that can be a head", self.probe, HEADS)
        if self.layer == INPUT:
            raise BadValue(
                "repair(layer=...)", "a layer of the model", INPUT, "A head on pixels repairs no model."
            )
        if self.test_noise is not None and not 0 <= self.test_noise <= 1:
            raise BadValue("test_noise", "a share from 0 to 1, or None if unknown", self.test_noise)
        if not -1 <= self.least <= 1:
            raise BadValue("least", "a gain of accuracy from -1 to 1", self.least, "For 2 points write 0.02.")
        if not 0 < self.confidence < 1:
            raise BadValue("confidence", "a share between 0 and 1", self.confidence, "For 95 % write 0.95.")
