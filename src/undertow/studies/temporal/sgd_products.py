"""Steps that are never taken: what a step does to a linear layer's output, from products of activations.

    layers = linear_layers(net, moving)           # those that hold all moving parameters, or none
    by_products(source, moving, layers, probes, features, rows)        # (B, M, D), or None

A batch moves a weight by -lr * sum over its samples of slope x input, so a layer's output for a probe h moves by
-lr * sum of slope * (input . h). Inputs and slopes are those at the checkpoint, the same for every batch: one
pass there and back over all samples that occur, and then products the size of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from undertow.features.stopping import hooked
from undertow.studies.temporal.sgd_model import Loss, SteppedModel, StepSource


def linear_layers(net: SteppedModel, moving: Mapping[str, Tensor]) -> dict[str, nn.Linear]:
    """The linear layers that hold all moving parameters, by name; empty if others hold some."""
    linear = {name: layer for name, layer in net.layers.items() if type(layer) is nn.Linear}
    owners = {name.rpartition(".")[0] for name in moving}
    return {name: linear[name] for name in owners} if owners <= set(linear) else {}


def by_products(
    source: StepSource,
    moving: Mapping[str, Tensor],
    layers: Mapping[str, nn.Linear],
    probes: Tensor,
    features: Tensor,
    rows: Tensor,
) -> Tensor | None:
    """(B, M, D) from activations and their gradients; None where a sample's gradient depends on its batch."""
    used, place = rows.to(features.device).unique(return_inverse=True)  # place: (B, batch_size) into used
    recorded = _record(source, moving, layers, used, place)
    if recorded is None:
        return None
    steps = {name: _step(recorded[name], place, source.lr, name, moving) for name in layers}
    with torch.no_grad(), hooked(layers, lambda name, args, output: steps[name](args[0], output)):
        many = probes.expand(len(rows), *probes.shape).flatten(0, 1)  # (B * M, ...)
        moved = source.net.features(many, source.net.tensors)
    return moved.unflatten(0, (len(rows), -1)) - features


class _Recorded(NamedTuple):
    """Of one linear layer, for the samples used."""

    inputs: Tensor  # (U, L, in); L is 1 unless the layer runs over positions
    slopes: Tensor  # (U, L, out), gradient of the batch's loss by the layer's output


def _record(
    source: StepSource,
    moving: Mapping[str, Tensor],
    layers: Mapping[str, nn.Linear],
    used: Tensor,
    place: Tensor,
) -> dict[str, _Recorded] | None:
    """One pass there and back over the samples that occur in some batch."""
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in layers}
    inputs, labels = source.batch(used)
    with hooked(layers, lambda name, args, output: seen[name].append((args[0].detach(), output))):
        outputs = source.net.outputs(inputs, {**source.net.tensors, **moving})
    if any(len(calls) != 1 or len(calls[0][0]) != len(used) for calls in seen.values()):
        return None
    slopes = _output_slopes(source.loss, outputs.detach(), labels, place)
    if slopes is None:
        return None
    backward = torch.autograd.grad(outputs, [seen[name][0][1] for name in layers], slopes)
    return {
        name: _Recorded(*(part.reshape(len(used), -1, part.shape[-1]) for part in (seen[name][0][0], back)))
        for name, back in zip(layers, backward, strict=True)
    }


def _output_slopes(loss: Loss, outputs: Tensor, labels: Tensor, place: Tensor) -> Tensor | None:
    """(U, K) gradient of a batch's loss by each sample's outputs; None if it depends on the batch."""
    gathered = outputs[place].requires_grad_()  # (B, batch_size, K)
    values = [loss(part, target) for part, target in zip(gathered, labels[place], strict=True)]
    (slopes,) = torch.autograd.grad(torch.stack(values).sum(), gathered)
    own = torch.zeros_like(outputs)
    own[place] = slopes
    same = torch.allclose(own[place], slopes, rtol=64 * torch.finfo(slopes.dtype).eps, atol=0)
    return own if same else None


def _step(
    recorded: _Recorded, place: Tensor, lr: float, name: str, moving: Mapping[str, Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Turns a layer's output for B x M inputs into that after each batch's step."""
    weight, bias = f"{name}.weight" in moving, f"{name}.bias" in moving
    slopes = _rows_of_batches(recorded.slopes, place)  # (B, batch_size * L, out)

    def correct(entered: Tensor, output: Tensor) -> Tensor:
        given = entered.reshape(len(place), -1, entered.shape[-1])  # (B, M * L, in)
        if weight:
            # A bias is the weight of an input that is always 1.
            shares = _overlaps(given, recorded.inputs, place) + float(bias)
        else:
            shares = slopes.new_ones(len(place), given.shape[1], slopes.shape[1])
        return torch.baddbmm(output.reshape(*given.shape[:2], -1), shares, slopes, alpha=-lr).reshape(
            output.shape
        )

    return correct


def _overlaps(given: Tensor, inputs: Tensor, place: Tensor) -> Tensor:
    """(B, M * L, batch_size * L) products of what comes in with the inputs of each batch's samples."""
    if given.shape[1] <= place.shape[1] and bool((given == given[0]).all()):
        # Nothing has moved before this layer: products with every sample once, not with every batch's.
        products = (inputs @ given[0].mT).contiguous()  # (U, L, M * L)
        return _rows_of_batches(products, place).mT
    return given @ _rows_of_batches(inputs, place).mT


def _rows_of_batches(rows: Tensor, place: Tensor) -> Tensor:
    """Rows (U, L, D) of the samples put together as (B, batch_size * L, D)."""
    # index_select copies whole rows and is several times as fast as rows[place].
    return rows.index_select(0, place.flatten()).reshape(len(place), -1, rows.shape[-1])
