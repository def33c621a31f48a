"""What one pass over the samples gives of a checkpoint: answers of the model and features of its layers.

    sight = Sight(session, at=20, needs=[{"train": ["layer1"], "test": ["layer1", ENTERING]}])
    for held in sight.rounds():                     # one, unless features exceed the memory
        sight.outputs("test"), sight.features("test", "layer1"), sight.head
    sight.stream("train", ["layer9"])               # batch by batch: for a layer that can never be held

The features of all layers wanted are held together where a third of the memory allows it: one pass over each split.
Where it does not, layers are taken in rounds of one pass each; a layer that fits no round is left to be streamed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.features.head import Head
from undertow.features.layers import INPUT
from undertow.features.stream import Batch
from undertow.features.tap import ConvRule
from undertow.session.gauge import Needs
from undertow.session.reader import ENTERING, Reader
from undertow.session.splits import take
from undertow.sizes import parse_size

if TYPE_CHECKING:
    from undertow.session.session import Session

TRIAL = 8
FINITE = "its outputs are NaN or infinite"


class Broken(Exception):
    """A model that gives no numbers."""


class Sight:
    """One checkpoint, seen once."""

    def __init__(self, session: Session, at: int, needs: Sequence[Needs]) -> None:
        """Load the model and plan its rounds.

        Raises:
            Broken: its weights or outputs are not finite.
        """
        self.session, self.at = session, at
        self.model = session.model(at)
        bad = first_bad_tensor(self.model)
        if bad is not None:
            raise Broken(f"NaN or infinity in {bad}")
        self.head: Head | None
        self.reader, self.head, self.why_no_head = self._with_head()
        self._wanted = {split: _merged(one.get(split) for one in needs) for split in _splits(needs)}
        self._outputs: dict[str, Tensor] = {}
        self._held: dict[tuple[str, str], Tensor] = {}

    def outputs(self, split: str) -> Tensor:
        """(N, C) on the CPU: what the model answers."""
        if split not in self._outputs:
            self._take({split: ()})
        return self._outputs[split]

    def features(self, split: str, layer: str) -> Tensor:
        """(N, D): features that are held in this round; those of a layer that fits none come by a pass of their own."""
        if layer == ENTERING and self.head is None:
            raise BadData(self.why_no_head)
        if (split, layer) in self._held:
            return self._held[split, layer]
        return torch.cat([batch.features[layer] for batch in self.stream(split, [layer])])

    def holds(self, needs: Needs) -> bool:
        """Whether all features that are needed are there in this round; of a model without a head, as far as can be."""
        return all(
            (split, layer) in self._held or (layer == ENTERING and self.head is None)
            for split, layers in needs.items()
            for layer in layers
        )

    def never_holds(self, needs: Needs) -> bool:
        """Whether a layer that is needed fits no round."""
        return any(layer in self._too_wide for layers in needs.values() for layer in layers)

    @property
    def _too_wide(self) -> set[str]:
        return set(self._sizes()) - {layer for one in self._plan() for layer in one}

    def rounds(self) -> Generator[None]:
        """Hold the features of one round after the other."""
        for layers in self._plan():
            self._held = {}
            self._take(
                {split: [name for name in layers if name in wanted] for split, wanted in self._wanted.items()}
            )
            yield
        self._held = {}

    def stream(
        self, split: str, layers: Sequence[str], conv: ConvRule | None = None, within: slice | None = None
    ) -> Generator[Batch]:
        """Another pass over a split, or over some of its samples, batch by batch."""
        reader = self.reader if conv is None else replace(self.reader, conv=conv)
        x = self.session.samples.split(split).x
        for batch in reader.stream(x, layers or [INPUT], within):
            if within is None:
                self.session.count_passed(self.at, split, len(batch.outputs))
            yield batch

    def _with_head(self) -> tuple[Reader, Head | None, str]:
        plain = self.session.reader(self.model)
        some = self.session.samples.test or self.session.samples.train
        assert some is not None  # a session has samples
        few = plain.inputs(take(some.x, torch.arange(min(TRIAL, len(some)))))
        try:
            found = plain.with_head(few)
        except BadValue as reason:
            return plain, None, str(reason)
        except BadData as reason:
            raise Broken(FINITE) from reason
        return found, found.head, ""

    def _plan(self) -> list[tuple[str, ...]]:
        """Layers that are held together, round by round; there is one round at least, for the answers."""
        room = parse_size(self.session.config.memory) // 3
        return pack(self._sizes(), room) or [()]

    def _sizes(self) -> dict[str, int]:
        """Bytes of each wanted layer, over all splits that want it."""
        counts = {split: len(self.session.samples.split(split)) for split in self._wanted}
        layers = _merged(self._wanted.values())
        if self.head is None:
            layers = [name for name in layers if name != ENTERING]
        widths = self.session.widths([name for name in layers if name != ENTERING])
        if self.head is not None:
            widths = {**widths, ENTERING: self.head.dim}
        return {
            name: sum(n for split, n in counts.items() if name in self._wanted[split]) * widths[name] * 4
            for name in layers
        }

    def _take(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """One pass over each split, in which everything is kept that is wanted."""
        for split, layers in wanted.items():
            if not layers and split in self._outputs:
                continue
            count, said = len(self.session.samples.split(split)), dict[str, Tensor]()
            with _broken_by_data(self.head):
                for batch in self.stream(split, layers):
                    _place(said, "", batch.outputs.reshape(len(batch.outputs), -1).cpu(), batch.rows, count)
                    for name in layers:
                        _place(said, name, batch.features[name], batch.rows, count)
            self._outputs[split] = said.pop("")
            if not bool(torch.isfinite(self._outputs[split]).all()):
                raise Broken(FINITE)
            self._held |= {(split, name): rows for name, rows in said.items()}


def _place(held: dict[str, Tensor], name: str, part: Tensor, rows: slice, count: int) -> None:
    if name not in held:
        held[name] = part.new_empty(count, *part.shape[1:])
    held[name][rows] = part


@contextmanager
def _broken_by_data(head: Head | None) -> Generator[None]:
    """Answers that are not the head's are those of a model that broke down."""
    try:
        yield
    except BadData as reason:
        if head is None:
            raise
        raise Broken(str(reason)) from reason


def pack(sizes: Mapping[str, int], room: int) -> list[tuple[str, ...]]:
    """Names in groups of `room` at most, each in the first that has place for it; what fits none is left out."""
    groups: list[list[str]] = []
    for name, size in sizes.items():
        if size <= room:
            free = (group for group in groups if sum(sizes[other] for other in group) + size <= room)
            group = next(free, None)
            if group is None:
                groups.append(group := [])
            group.append(name)
    return [tuple(group) for group in groups]


def _splits(needs: Iterable[Needs]) -> list[str]:
    return list(dict.fromkeys(split for one in needs for split in one))


def _merged(parts: Iterable[Sequence[str] | None]) -> list[str]:
    """All names, each once; what enters the head first, since several measures need it."""
    names = dict.fromkeys(name for part in parts for name in part or ())
    return sorted(names, key=lambda name: name != ENTERING)


def first_bad_tensor(model: torch.nn.Module) -> str | None:
    """The name of the first parameter or buffer with NaN or infinity; None for a sound model."""
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            return name
    return None
