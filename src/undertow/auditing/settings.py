"""What an audit looks at, as one frozen value that needs no torch.

    AuditConfig()                                            # all lenses, all checkpoints, the model's own layers
    AuditConfig(quick=True)                                  # a few checkpoints, some samples
    AuditConfig(labels="noisy", layers=("layer2",), lenses=("latent", "repair"))

`labels` says what the held-out labels are: clean, noisy (drawn with the same mistakes as those of training), or none
(whatever labels the data has are not looked at). What is audited by then is told in `situation`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from undertow.errors import BadValue, unknown
from undertow.sizes import parse_size

Labels = Literal["clean", "noisy", "none"]
LENSES = ("latent", "richness", "temporal", "repair")
SITUATIONS: dict[Labels, str] = {
    "clean": "clean test labels",
    "noisy": "noisy labels only",
    "none": "no labels",
}

QUICK_CHECKPOINTS = 8
QUICK_SAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """What is audited and how."""

    layers: tuple[str, ...] = ("auto",)
    """Names or patterns of layers to probe and cut at; auto takes the model's own choice."""
    checkpoints: str = "all"
    """all, last, every:5 or a list such as 0,10,60."""
    lenses: tuple[str, ...] = LENSES
    """latent, richness, temporal, repair; the model's own accuracy is always looked at."""
    labels: Labels = "clean"
    """What the held-out labels are: clean, noisy, or none."""
    quick: bool = False
    """At most 8 checkpoints and 1,000 samples of each split."""
    samples: int | None = None
    """At most so many samples of each split, drawn at random."""
    probes: tuple[str, ...] = ("masc", "velpic", "logistic")
    """Probes of the latent lens: masc, velpic, logistic, mean, knn, lda, qda."""
    fits: tuple[str, ...] = ("given", "true", "shuffled")
    """Labels to fit probes with: given, true (where known), shuffled (a control)."""
    matrix_checkpoints: int = 30
    """At most so many checkpoints are put together in composites: they are as many as its square."""
    matrix_samples: int = 1000
    """At most so many test samples answer to composites."""
    memory: str = "2GB"
    """How much memory features and their products may take."""
    batch_size: int = 512
    """Samples per forward pass."""
    seed: int = 0
    """Seed of all that is drawn: samples, shuffled labels, bootstrap."""
    device: str | None = None
    """Where the model runs; where its weights are when not given."""

    def __post_init__(self) -> None:
        for name in self.lenses:
            if name not in LENSES:
                raise unknown("lens", name, LENSES)
        if self.labels not in get_args(Labels):
            raise BadValue("labels", "clean, noisy or none", self.labels)
        for name in ("samples", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadValue(name, "a number from 1 on", value)
        if self.matrix_checkpoints < 2 or self.matrix_samples < 2:
            raise BadValue("matrix_checkpoints and matrix_samples", "2 or more", "less")
        if self.seed < 0:
            raise BadValue("seed", "a number from 0 on", self.seed)
        parse_size(self.memory)

    @classmethod
    def of(cls, **given: Any) -> AuditConfig:
        """From settings as people give them: a single name for a list of one, checkpoints as numbers."""
        known = {own.name for own in fields(cls)}
        for name in given:
            if name not in known:
                raise unknown("audit setting", name, known)
        for name in ("layers", "lenses", "probes", "fits"):
            if name in given:
                given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
        numbers = given.get("checkpoints", "all")
        if not isinstance(numbers, str):
            given["checkpoints"] = ",".join(map(str, [numbers] if isinstance(numbers, int) else numbers))
        return cls(**given)

    @property
    def most_checkpoints(self) -> int | None:
        """How many checkpoints are looked at at most."""
        return QUICK_CHECKPOINTS if self.quick else None

    @property
    def most_samples(self) -> int | None:
        """How many samples of a split are looked at at most."""
        if not self.quick:
            return self.samples
        return min(QUICK_SAMPLES, self.samples or QUICK_SAMPLES)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)
