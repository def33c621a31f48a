"""What one SGD step does to a layer's features: many mini-batches, one step each, all from one checkpoint.

    noise = sgd_noise(model, x, y, probe_x, cut="layer2", batches=256, batch_size=64, lr=0.1)
    noise.delta                                   # (256, M, D): z(theta - lr * gradient_b) - z(theta)
    covariance_spectrum(noise.delta[:, 0])        # of the first input: do a few directions dominate?
    isotropy_test(noise.delta[:, 0]).p            # is it isotropic?

Plain SGD: no momentum, no weight decay (which would move all steps alike). Dropout is off and batch norm uses
its running statistics, in the gradient too: what varies is the mini-batch and nothing else. Parameters that
need no gradient stay. The model itself is left as it was.

Differences of nearly equal numbers want float64, whatever the model computes in: at a step that moves features
by 5e-5 of their size, float32 was off by 1e-3 of the step.

Two routes lead to the same numbers.
    products  where all parameters below the cut belong to linear layers. All batches start from the same
              weights, so each sample needs one forward and one backward pass, however many batches it is in;
              and W x - lr (gradient x) takes products of activations, so that no weight is ever moved.
              The first step is also taken plainly: if the two differ, or if the loss is not a mean over
              samples, all steps are.
    steps     otherwise: a gradient of the parameters below the cut, then a pass up to the cut, batch by batch.
              (torch.func.vmap over batches was slower than this loop for convolutions.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from undertow.errors import BadData, BadValue
from undertow.studies.temporal.sgd_model import Loss, SteppedModel, StepSource
from undertow.studies.temporal.sgd_products import by_products, linear_layers

BLOCK = 2**30
"""Bytes that the activations of the batches worked on at once may take."""


@dataclass(frozen=True, eq=False)
class SgdNoise:
    """The changes of features by one step on each mini-batch."""

    delta: Tensor  # (B, M, D)
    features: Tensor  # (M, D), before the step
    batches: Tensor  # (B, batch_size), the rows of each mini-batch
    route: Literal["products", "steps"]


def sgd_noise(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    probe_x: Tensor,
    *,
    cut: str,
    batches: int | Tensor = 256,
    batch_size: int = 64,
    lr: float = 0.1,
    loss: Loss = functional.cross_entropy,
    generator: torch.Generator | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> SgdNoise:
    """Changes of the features of `probe_x` at `cut` by one SGD step on each of many mini-batches.

    Args:
        model: any module, at the checkpoint of interest; it computes where its parameters lie.
        x: training samples (N, ...) from which the mini-batches are drawn.
        y: their labels (N,).
        probe_x: inputs (M, ...) whose features are watched.
        cut: a layer's name; its output, flattened, is the features. Where it runs twice, the first counts.
        batches: how many mini-batches are drawn (see `draw_batches`), or their rows (B, batch_size).
        batch_size: samples in a mini-batch.
        lr: the length of the step.
        loss: of outputs and labels of one mini-batch, a scalar.
        generator: draws the mini-batches; seed 0 by default.
        prepare: turns samples into inputs, for example uint8 pixels into floats.
        dtype: in which everything is computed; float64 by default (float32 where the device has none).
    """
    if not lr > 0:
        raise BadValue("sgd_noise, lr", "a number above 0", lr)
    if len(x) != len(y) or not len(probe_x):
        raise BadData(
            f"sgd_noise: wanted a label per sample and at least one probe input, got {len(x)} samples, "
            f"{len(y)} labels and {len(probe_x)} probe inputs."
        )
    rows = batches if isinstance(batches, Tensor) else draw_batches(len(x), batches, batch_size, generator)
    _check_batches(rows, len(x))
    with SteppedModel.of(model, cut, dtype) as net:
        source = StepSource(net, x, y, loss, lr, prepare)
        probes = source.inputs(probe_x)
        with torch.no_grad():
            features = net.features(probes, net.tensors)
        delta, route = _deltas(source, probes, features, rows)
    _check_delta(delta, features)
    return SgdNoise(delta, features, rows, route)


def draw_batches(
    count: int, batches: int, batch_size: int, generator: torch.Generator | None = None
) -> Tensor:  # (batches, batch_size)
    """Rows of independent mini-batches of `count` samples; none holds a sample twice. Seed 0 by default."""
    if batches < 1:
        raise BadValue("batches", "at least one mini-batch", batches)
    if not 1 <= batch_size <= count:
        raise BadValue("batch_size", f"1 to {count}, the number of samples", batch_size)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    place = generator.device
    drawn = [torch.randperm(count, generator=generator, device=place)[:batch_size] for _ in range(batches)]
    return torch.stack(drawn)


def _deltas(
    source: StepSource, probes: Tensor, features: Tensor, rows: Tensor
) -> tuple[Tensor, Literal["products", "steps"]]:
    """(B, M, D) by the quicker route that holds."""
    moving = source.net.moving(probes[:1])
    layers = linear_layers(source.net, moving)
    if layers:
        plain = _by_steps(source, moving, probes, features, rows[:1])
        width = source.x[0].numel() + sum(layer.in_features + layer.out_features for layer in layers.values())
        size = (rows.shape[1] + len(probes)) * width * features.element_size()
        parts: list[Tensor] = []
        for part in rows.split(max(1, BLOCK // size)):
            found = by_products(source, moving, layers, probes, features, part)
            if found is None or (not parts and not _agree(found[:1], plain, features)):
                break
            parts.append(found)
        else:
            return torch.cat(parts), "products"
    return _by_steps(source, moving, probes, features, rows), "steps"


def _by_steps(
    source: StepSource, moving: Mapping[str, Tensor], probes: Tensor, features: Tensor, rows: Tensor
) -> Tensor:
    """(B, M, D) by a gradient and a moved pass for each batch."""
    net, deltas = source.net, features.new_empty(len(rows), *features.shape)
    for number, batch in enumerate(rows):
        inputs, labels = source.batch(batch)
        value = source.loss(net.outputs(inputs, {**net.tensors, **moving}), labels)
        slopes = torch.autograd.grad(value, list(moving.values()))
        with torch.no_grad():
            moved = {
                name: torch.add(parameter, slope, alpha=-source.lr)
                for (name, parameter), slope in zip(moving.items(), slopes, strict=True)
            }
            deltas[number] = net.features(probes, {**net.tensors, **moved}) - features
    return deltas


def _agree(fast: Tensor, plain: Tensor, features: Tensor) -> bool:
    """Whether two routes gave the same step, up to what rounding of the features makes of it."""
    rounding = 1e3 * torch.finfo(plain.dtype).eps * float(features.norm())
    return float((fast - plain).norm()) <= max(rounding, 1e-6 * float(plain.norm()))


def _check_batches(rows: Tensor, count: int) -> None:
    if rows.ndim != 2 or rows.is_floating_point() or 0 in rows.shape:
        raise BadData(f"sgd_noise: wanted rows (B, batch_size), got {rows.dtype} of {tuple(rows.shape)}.")
    if int(rows.min()) < 0 or int(rows.max()) >= count:
        raise BadData(
            f"sgd_noise: wanted rows from 0 to {count - 1}, got {int(rows.min())} to {int(rows.max())}."
        )


def _check_delta(delta: Tensor, features: Tensor) -> None:
    if not bool(torch.isfinite(features).all() and torch.isfinite(delta).all()):
        raise BadData(
            "sgd_noise: got NaN or infinity in the features. The network has diverged, or lr is too large."
        )
