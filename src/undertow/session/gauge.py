"""Something that is measured at one checkpoint, from the one pass that all share.

    class Sparsity(Gauge[SparsityAt]):
        kind = SparsityAt                                   # a frozen dataclass of plain values and arrays

        def __init__(self, layer):
            self.layer, self.name = layer, f"sparsity {layer}"

        def needs(self):
            return {"test": (self.layer,)}                  # which layers of which split are to be there

        def measure(self, sight, kept):
            rows = sight.features("test", self.layer)       # (N, D)
            return SparsityAt(float((rows == 0).double().mean()))

    session.visit([Sparsity("layer2")]); session.value(Sparsity("layer2"), 20)

Values are kept on disk under a hash of the weights, the samples and `key`: nothing is measured twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from undertow.session.adding import Round
    from undertow.session.session import Session
    from undertow.session.sight import Sight

T = TypeVar("T")
Needs = Mapping[str, Sequence[str]]
"""Split -> layers; a split with no layers gives the model's answers only."""


SMALL = 2000
"""Bytes of a value that holds no arrays of samples."""


class Gauge(ABC, Generic[T]):
    """One thing to measure at a checkpoint."""

    name: str
    kind: type[T]
    depends_on_weights: bool = True
    """False for what no training changes, such as the input: measured once for all checkpoints."""

    stays_in_memory: bool = True
    """False for values that are large: they are read from disk when they are asked for."""

    from_disk: bool = False
    """True for what reads features that cannot be held from a file of its own: it asks no memory for them."""

    def needs(self) -> Needs:
        """The layers whose features must be there; none: answers on test samples."""
        return {"test": ()}

    def key(self, session: Session) -> Sequence[Any]:
        """Plain values besides weights and samples that would change the value."""
        return ()

    def wanted_at(self, at: int) -> bool:
        """Whether it is to be measured at this checkpoint."""
        return True

    def complete(self, kept: T) -> bool:
        """Whether a kept value holds all that is asked for."""
        return True

    def disk(self, session: Session) -> int:
        """About how many bytes its value at a checkpoint takes in the cache; most are small."""
        return SMALL

    def begin(self, sight: Sight) -> Round | None:
        """The first round, for samples that stream by; None where the value does not add up (see adding.py)."""
        return None

    @abstractmethod
    def measure(self, sight: Sight, kept: T | None) -> T:
        """Measure; `kept` is what is there already but not complete."""
