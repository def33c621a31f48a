"""What every verb shares, as one frozen value that needs no torch.

    SessionConfig(checkpoints="every:5", samples=2000, memory="1GB")
    class AuditConfig(SessionConfig): ...                    # a verb's own settings beside them
    AuditConfig.of(layers="layer2", checkpoints=[0, 10])     # as people give them

`labels` says what the held-out labels are: clean, noisy (drawn with the same mistakes as those of training), or none
(whatever labels the data has are not looked at).

Annotations here are types, not text: commands read them through the settings of each verb, in other modules.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, Self, cast, get_args

from undertow.crew.engine import Engine
from undertow.errors import BadValue, unknown
from undertow.session.field_types import settle
from undertow.sizes import check_whole, parse_size

Labels = Literal["clean", "noisy", "none"]
ConvRule = Literal["flatten", "mean", "max"]
TokenRule = Literal["mean", "first", "last", "flatten"]


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    """Which checkpoints and samples, and how models run."""

    verb: ClassVar[str] = "session"
    lists: ClassVar[tuple[str, ...]] = ()
    """Fields for which a single name stands for a list of one."""
    missing_labels: ClassVar[bool] = False
    """Whether training samples may lack a label, as -1."""
    examples: ClassVar[dict[str, str]] = {
        "checkpoints": "For example all, last, every:5 or [0, 10, 60].", "memory": "For example 2GB.",
    }  # fmt: skip
    """What to write, for fields whose type does not say it."""

    checkpoints: str = "all"
    """all, last, every:5 or a list such as 0,10,60."""
    labels: Labels = "clean"
    """What the held-out labels are: clean, noisy, or none."""
    samples: int | None = None
    """At most so many samples of each split, drawn at random."""
    scaling: str | None = None
    """How samples become inputs: half, unit, cifar, imagenet or none; the run's or the data's own when not given."""
    conv: ConvRule = "flatten"
    """Convolutional maps: flatten, mean or max over places."""
    tokens: TokenRule = "mean"
    """Token outputs: mean, first, last or flatten."""
    memory: str = "2GB"
    """How much memory features and their products may take; the plan says what it is with libraries and model."""
    batch_size: int = 512
    """Samples per forward pass."""
    seed: int = 0
    """Seed of all that is drawn: samples, shuffled labels, folds, bootstrap."""
    device: str | None = None
    """Where the model runs; where its weights are when not given."""
    engine: str = "local"
    """local (this process) or ray (a cluster; without --address one of this machine)."""
    address: str | None = None
    """Of Ray's cluster: auto, HOST:PORT or ray://HOST:PORT."""
    cpus: float | None = None
    """Of one worker on Ray; also its maths threads. 1 if not given."""
    gpus: float | None = None
    """Of one worker on Ray."""

    def __post_init__(self) -> None:
        settle(self)
        if self.labels not in get_args(Labels):
            raise BadValue("labels", "clean, noisy or none", self.labels)
        if self.samples is not None:
            check_whole("samples", self.samples, 1)
        check_whole("batch_size", self.batch_size, 1)
        check_whole("seed", self.seed, 0)
        parse_size(self.memory)
        _ = self.means

    @property
    def means(self) -> Engine:
        """The engine that does the work."""
        return Engine(self.engine, address=self.address, cpus=self.cpus, gpus=self.gpus)

    @classmethod
    def of(cls, **given: Any) -> Self:
        """From settings as people give them: a single name for a list of one, checkpoints as numbers."""
        known = {own.name for own in fields(cls)}
        for name in given:
            if name not in known:
                raise unknown(f"{cls.verb} setting", name, known)
        for name in cls.lists:
            if name in given and _is_listing(given[name]):
                given[name] = tuple(given[name])
        if _is_listing(numbers := given.get("checkpoints", "")):
            given["checkpoints"] = ",".join(map(str, cast("Iterable[object]", numbers)))
        return cls(**given)

    @classmethod
    def chosen(cls, config: object, settings: dict[str, Any]) -> Self:
        """The configuration given, or one of these settings."""
        if config is None:
            return cls.of(**settings)
        if not isinstance(config, cls):
            hint = "Or give its fields by name."
            raise BadValue(
                f"{cls.verb}(config=...)", f"an object of {cls.__name__}", type(config).__name__, hint
            )
        return config

    def shared(self) -> dict[str, Any]:
        """The fields that all verbs have."""
        return {own.name: getattr(self, own.name) for own in fields(SessionConfig)}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def _is_listing(given: Any) -> bool:
    """Whether this holds several values: lists, ranges, sets, arrays; no text."""
    return (
        isinstance(given, Iterable) and not isinstance(given, str | bytes) and getattr(given, "ndim", 1) == 1
    )
