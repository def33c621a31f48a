"""A model run over samples: answers and features batch by batch, with what enters its head.

    reader = Reader(model, head, scaling="half")
    reader.answers(train.x)                              # (N, C) on the CPU: what leaves the head
    for batch in reader.stream(x, ["layer1", ENTERING]):
        batch.outputs, batch.features[ENTERING]

`ENTERING` stands for what enters the head: no module of the model needs to give it out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from undertow.data.inputs import to_inputs
from undertow.data.streamed import SampleStream
from undertow.errors import BadData
from undertow.features.compatibility import check_fit
from undertow.features.head import Call, Head, find_head, rows_of_answer, watch_layer
from undertow.features.layers import INPUT
from undertow.features.stream import Batch, stream_features
from undertow.features.tap import ConvRule, Inputs, TokenRule

ENTERING = "what enters the head"


@dataclass(frozen=True)
class Reader:
    """How a model is run over samples."""

    model: nn.Module
    head: Head | None = None
    scaling: str | None = None
    batch_size: int = 512
    conv: ConvRule = "flatten"
    tokens: TokenRule = "mean"

    def inputs(self, x: Inputs) -> Inputs:
        """`x` as the model takes it."""
        return to_inputs(x, self.scaling) if self.scaling and isinstance(x, Tensor) else x

    def with_head(self, few: Inputs) -> Reader:
        """The same, which knows the model's head; `few` samples as the model takes them show it.

        Raises:
            BadValue: it has none that gives its answers.
            BadData: its outputs are not finite.
        """
        return replace(self, head=find_head(self.model, few))

    def check_fit(self, x: Inputs, where: str) -> None:
        """Refuse samples that the model cannot take, before anything is computed."""
        prepare = self.inputs if isinstance(x, Tensor | SampleStream) else None
        check_fit(self.model, x, where, prepare=prepare)  # pyright: ignore[reportArgumentType]

    def stream(self, x: Inputs, layers: Sequence[str], within: slice | None = None) -> Generator[Batch]:
        """Answers and features, batch by batch; `ENTERING` is a layer too."""
        others = [name for name in layers if name != ENTERING] or [INPUT]
        watched = nullcontext([]) if self.head is None else watch_layer(self.model, self.head.name)
        with watched as calls:
            for batch in stream_features(
                self.model, x, others, batch_size=self.batch_size, conv=self.conv, tokens=self.tokens,
                prepare=self.inputs if isinstance(x, Tensor | SampleStream) else None,  # pyright: ignore[reportArgumentType]
                within=within,
            ):  # fmt: skip
                yield _in_single(self._with_head(batch, calls, layers))
                calls.clear()

    def _with_head(self, batch: Batch, calls: list[tuple[Tensor, Tensor]], layers: Sequence[str]) -> Batch:
        if self.head is None:
            return batch
        rows = rows_of_answer(Call(self.head.name, *calls[-1]), batch.outputs)
        if rows is None:
            raise BadData(
                f"layer {self.head.name!r}: wanted the model's answers to be those of this layer for every sample, "
                "got others. Check the samples for NaN, or graft a head on a named layer."
            )
        known = {**batch.features, ENTERING: rows[0]}
        return Batch(batch.rows, rows[1], {name: known[name] for name in layers})

    def answers(self, x: Inputs) -> Tensor:
        """Scores of the classes (N, C) on the CPU."""
        return torch.cat([batch.outputs.cpu() for batch in self.stream(x, [INPUT])])


def _in_single(batch: Batch) -> Batch:
    """A batch in float32 where the model computes in less (numpy knows no bfloat16); float64 stays."""
    features = {name: _single(part) for name, part in batch.features.items()}
    return Batch(batch.rows, _single(batch.outputs), features)


def _single(part: Tensor) -> Tensor:
    return part.to(torch.promote_types(part.dtype, torch.float32))
