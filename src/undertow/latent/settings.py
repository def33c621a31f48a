"""What a probe grid measures, as one frozen value that needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from undertow.errors import BadValue, unknown
from undertow.session.settings import SessionConfig

PROBE_NAMES = ("masc", "velpic", "logistic", "mean", "knn", "lda", "qda")
FITS = ("given", "true", "shuffled")


@dataclass(frozen=True, kw_only=True)
class GridConfig(SessionConfig):
    """What the grid measures and how."""

    verb: ClassVar[str] = "probe"
    lists: ClassVar[tuple[str, ...]] = ("layers", "probes", "fits")
    examples: ClassVar[dict[str, str]] = {
        **SessionConfig.examples, "probes": f"Known: {', '.join(PROBE_NAMES)}."
    }  # fmt: skip

    layers: tuple[str, ...] = ("auto",)
    """Names or patterns of layers; auto takes the model's own choice."""
    probes: tuple[str, ...] = ("masc", "velpic", "logistic")
    """masc, velpic, logistic, mean, knn, lda, qda."""
    fits: tuple[str, ...] = FITS
    """Labels to fit with: given, true (where known), shuffled (control)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probes(self.probes, self.fits)
        if not self.layers:
            raise BadValue("layers", "at least one layer name", "none")


def check_probes(probes: Sequence[object], fits: Sequence[str]) -> None:
    """Refuse names of probes and labels that there are not."""
    if not probes or not fits:
        raise BadValue("probes", "at least one probe and one set of labels", "none")
    for name in probes:
        if not isinstance(name, str):
            raise BadValue("probes", f"names among {', '.join(PROBE_NAMES)}", name)
        if name not in PROBE_NAMES:
            raise unknown("probe", name, PROBE_NAMES)
    for name in fits:
        if name not in FITS:
            raise unknown("set of labels to fit with", name, FITS)
