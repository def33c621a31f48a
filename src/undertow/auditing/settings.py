"""What an audit looks at, as one frozen value that needs no torch.

AuditConfig()                                            # all lenses, all checkpoints, the model's own layers
AuditConfig(quick=True)                                  # a few checkpoints, some samples
AuditConfig.of(labels="noisy", layers="layer2", lenses=["latent", "repair"])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from undertow.errors import BadValue, unknown
from undertow.session.settings import Labels, SessionConfig
from undertow.sizes import check_whole

LENSES = ("latent", "richness", "temporal", "repair", "labels")
SITUATIONS: dict[Labels, str] = {
    "clean": "test labels taken as true",
    "noisy": "noisy labels only",
    "none": "no labels",
}
QUICK_CHECKPOINTS = 8
QUICK_SAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class AuditConfig(SessionConfig):
    """What is audited and how."""

    verb: ClassVar[str] = "audit"
    lists: ClassVar[tuple[str, ...]] = ("layers", "lenses", "probes", "fits")
    examples: ClassVar[dict[str, str]] = {
        **SessionConfig.examples, "lenses": f"Known: {', '.join(LENSES)}."
    }  # fmt: skip

    layers: tuple[str, ...] = ("auto",)
    """Names or patterns of layers to probe and cut at; auto takes the model's own choice."""
    lenses: tuple[str | Callable[..., Any], ...] = LENSES
    """latent, richness, temporal, repair, labels (where true ones are unknown), or package.module:function."""
    full: bool = False
    """All checkpoints and samples; else as many as fit into about two minutes, which is said before."""
    quick: bool = False
    """At most 8 checkpoints and 1,000 samples of each split."""
    probes: tuple[str, ...] = ("masc", "velpic", "logistic")
    """Probes of the latent lens: masc, velpic, logistic, mean, knn, lda, qda."""
    fits: tuple[str, ...] = ("given", "true", "shuffled")
    """Labels to fit probes with: given, true (where known), shuffled (a control)."""
    matrix_checkpoints: int = 30
    """At most so many checkpoints are put together in composites: they are as many as its square."""
    matrix_samples: int = 1000
    """At most so many test samples answer to composites."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.full and self.quick:
            raise BadValue("audit", "one of full and quick", "both")
        if not self.lenses:
            raise BadValue("lenses", f"at least one of {', '.join(LENSES)}", "none")
        for name in self.lenses:
            if isinstance(name, str) and name not in LENSES and ":" not in name:
                raise unknown("lens", name, LENSES)
        check_whole("matrix_checkpoints", self.matrix_checkpoints, 2)
        check_whole("matrix_samples", self.matrix_samples, 2)

    def thinned(self) -> AuditConfig:
        """With the limits of a quick audit, if it is one."""
        return (
            replace(self, samples=min(QUICK_SAMPLES, self.samples or QUICK_SAMPLES)) if self.quick else self
        )

    @property
    def most_checkpoints(self) -> int | None:
        """How many checkpoints are looked at at most."""
        return QUICK_CHECKPOINTS if self.quick else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**super().to_dict(), "lenses": [name_of(one) for one in self.lenses]}


def name_of(lens: str | Callable[..., Any]) -> str:
    """How a lens is called in notes and in audit.json."""
    if isinstance(lens, str):
        return lens
    return str(getattr(lens, "name", None) or getattr(lens, "__name__", type(lens).__name__))
