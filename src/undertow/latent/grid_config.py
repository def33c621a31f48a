"""What a probe grid measures, and who watches it.

GridConfig(probes=("masc", "velpic"), checkpoints="0,10,60", memory="2GB")
GridConfig(**listed({"layers": "layer2", "checkpoints": [0, 10]}))       # single names and lists of numbers
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from undertow.data.samples import DataSet
from undertow.errors import BadValue, unknown
from undertow.features.tap import ConvRule, TokenRule
from undertow.latent.layer import PROBES
from undertow.sizes import parse_size

FITS = ("given", "true", "shuffled")


@dataclass(frozen=True, kw_only=True)
class GridConfig:
    """What the grid measures and how."""

    layers: tuple[str, ...] = ("auto",)
    """Names or patterns of layers; auto takes the model's own choice."""
    probes: tuple[str, ...] = ("masc", "velpic", "logistic")
    """masc, velpic, logistic, mean, knn, lda, qda."""
    fits: tuple[str, ...] = FITS
    """Labels to fit with: given, true (where known), shuffled (control)."""
    checkpoints: str = "all"
    """all, last, every:5 or a list such as 0,10,60."""
    samples: int | None = None
    """Fit and score on at most so many samples of each split, drawn at random."""
    memory: str = "2GB"
    """How much memory features and their products may take."""
    batch_size: int = 512
    """Samples per forward pass."""
    conv: ConvRule = "flatten"
    """Convolutional maps: flatten, mean or max over places."""
    tokens: TokenRule = "mean"
    """Token outputs: mean, first, last or flatten."""
    seed: int = 0
    """Seed of the drawn samples and of the shuffled labels."""
    device: str | None = None
    """Where the model runs; where its weights are when not given."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise BadValue("seed", "a number from 0 on", self.seed)
        for name in self.probes:
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise BadValue("probes", f"names among {', '.join(PROBES)}", name)
            if name not in PROBES:
                raise unknown("probe", name, PROBES)
        for name in self.fits:
            if name not in FITS:
                raise unknown("set of labels to fit with", name, FITS)
        if not self.probes or not self.fits or not self.layers:
            raise BadValue("probe grid", "at least one layer, one probe and one set of labels", "none")
        if self.samples is not None and self.samples < 1:
            raise BadValue("samples", "a number from 1 on", self.samples)
        parse_size(self.memory)

    def setup(self, data: DataSet, weights: str) -> str:
        """A hash of whatever would change a number: not the layers, probes, fits or checkpoints asked for."""
        parts = [data.fingerprint, data.scaling, self.samples, self.conv, self.tokens, self.seed, weights]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


class GridWatcher(Protocol):
    """Whoever wants to see how the grid goes."""

    def plan(self, words: Sequence[str], cells: int, done: int) -> None:
        """What will be done: the memory plan, how many probes, how many of them are there already."""
        ...

    def checkpoint(self, at: int, cells: int) -> None:
        """A checkpoint is finished."""
        ...

    def close(self) -> None:
        """All is done, or something went wrong."""
        ...


class Silent:
    """Says nothing."""

    def plan(self, words: Sequence[str], cells: int, done: int) -> None:
        """Nothing."""

    def checkpoint(self, at: int, cells: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def listed(settings: dict[str, Any]) -> dict[str, Any]:
    """A single name stands for a list of one."""
    plural = ("layers", "probes", "fits")
    listed = {
        name: tuple([value] if isinstance(value, str) else value) if name in plural else value
        for name, value in settings.items()
    }
    numbers = listed.get("checkpoints", "all")
    if not isinstance(numbers, str):
        listed["checkpoints"] = ",".join(map(str, [numbers] if isinstance(numbers, int) else numbers))
    return listed
