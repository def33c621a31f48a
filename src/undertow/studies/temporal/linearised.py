"""Does a linearised network forget? Appendix D's argument, tried on the linearisation itself.

    run = train_linearised(model, x, y, shallow={"0.weight"}, steps=400, lr=0.5, keep=range(0, 401, 40))
    run.losses                        # (K, K) of composite(s, t), rows s; the diagonal is the model's own
    run.broken()                      # pairs s < t with more loss than the model at s
    softmax_curvature(outputs)        # least eigenvalue of the Hessian of -log softmax: lemma 1 says 0 or more

The linearised network is f(theta_0) + J (theta - theta_0). It is additive in shallow and deep parameters, so that
composite(s, t) = f(theta_0) + J_shallow d_s + J_deep d_t: two products for each kept step give all pairs exactly.
J is never made; products with it are derivatives along a direction, and back.

The paper concludes from convexity (lemma 1, which is right) that composite(s, t) has never more loss than the model at
s. That does not follow. Loss falls along the path of all parameters; where a deep parameter turns back because a
shallow one took over its part, its later value without that shallow one is worse. A test has such a model. So a larger
loss is evidence against a linearised network only in so far as linearised networks of the same kind do not show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp
from torch.nn import functional

from undertow.errors import BadData, BadValue
from undertow.features.stopping import evaluating
from undertow.features.tap import main_tensor

Parameters = dict[str, Tensor]

ROUNDING = 1e-9
"""More loss than this, relative, is more than rounding."""


@dataclass(frozen=True, eq=False)
class LinearisedRun:
    """A linearised network at K kept steps of gradient descent, on the samples that it was trained on."""

    steps: tuple[int, ...]  # K
    start: Tensor  # (N, C) f(theta_0)
    shallow: Tensor  # (K, N, C) J d over the shallow parameters
    deep: Tensor  # (K, N, C) over the deep ones
    labels: Tensor  # (N,)

    @property
    def losses(self) -> Tensor:
        """(K, K) mean cross-entropy of composite(s, t), rows s, columns t."""
        return torch.stack([torch.stack([self._loss(s, t) for t in self.deep]) for s in self.shallow])

    @property
    def accuracy(self) -> float:
        """Share of training samples that the last kept network gets right."""
        outputs = self.start + self.shallow[-1] + self.deep[-1]
        return float((outputs.argmax(1) == self.labels).double().mean())

    def broken(self) -> list[tuple[int, int, float]]:
        """Pairs s < t whose composite has more loss than the model at s, with how much more."""
        losses = self.losses
        own = losses.diagonal()
        return [
            (self.steps[s], self.steps[t], float(losses[s, t] - own[s]))
            for s in range(len(self.steps))
            for t in range(s + 1, len(self.steps))
            if float(losses[s, t] - own[s]) > ROUNDING * float(own[s])
        ]

    @property
    def pairs(self) -> int:
        """All pairs s < t."""
        return len(self.steps) * (len(self.steps) - 1) // 2

    def _loss(self, shallow: Tensor, deep: Tensor) -> Tensor:
        return functional.cross_entropy(self.start + shallow + deep, self.labels)


def train_linearised(
    model: nn.Module, x: Tensor, y: Tensor, *, shallow: Set[str], steps: int, keep: Iterable[int],
    lr: float | None = None,
) -> LinearisedRun:  # fmt: skip
    """Full-batch gradient descent on cross-entropy of the model linearised where it stands.

    Args:
        model: at theta_0; left as it was. Batch norm uses its running statistics, dropout is off.
        x: inputs (N, ...).
        y: class numbers (N,).
        shallow: names of the shallow parameters; all others are deep.
        steps: of gradient descent.
        keep: the steps after which the network is kept; 0 is the beginning.
        lr: its rate; a loss that rises is refused, for then nothing is descended. By default the inverse of the
            largest curvature that the loss can have, with which it cannot rise.
    """
    kept = sorted(set(keep))
    if steps < 1 or (lr is not None and not lr > 0) or len(kept) < 2 or not 0 <= kept[0] <= kept[-1] <= steps:
        raise BadValue(
            "train_linearised", "steps and a rate above 0, two kept steps or more", (steps, lr, kept)
        )
    net = _Linear.of(model, x)
    if not shallow < set(net.at):
        raise BadData(
            "train_linearised: wanted some, not all, of the model's parameters as shallow ones, got "
            f"{', '.join(sorted(shallow - set(net.at))) or 'all of them'}."
        )
    rate = net.steady_rate() if lr is None else lr
    moved = {name: torch.zeros_like(one) for name, one in net.at.items()}
    parts: list[tuple[Tensor, Tensor]] = []
    with evaluating(model):
        for step in range(steps + 1):
            if step in kept:
                parts.append((net.along(moved, shallow), net.along(moved, set(moved) - shallow)))
            slopes = net.back(_residual(net.start + net.along(moved, set(moved)), y))
            moved = {name: moved[name] - rate * slopes[name] for name in moved}
    run = LinearisedRun(
        tuple(kept), net.start, *(torch.stack(side) for side in zip(*parts, strict=True)), labels=y
    )
    _check_descent(run)
    return run


def softmax_curvature(outputs: Tensor) -> float:
    """The least eigenvalue over rows (N, C) of the Hessian of -log softmax, diag(s) - s s', for any class."""
    share = outputs.double().softmax(1)
    hessians = torch.diag_embed(share) - share[:, :, None] * share[:, None, :]
    return float(torch.linalg.eigvalsh(hessians).min())


@dataclass(frozen=True, eq=False)
class _Linear:
    """Products with the Jacobian of a model's outputs at its parameters."""

    function: Callable[[Parameters], Tensor]
    at: Parameters
    start: Tensor

    @classmethod
    def of(cls, model: nn.Module, x: Tensor) -> _Linear:
        at = {name: one.detach().double() for name, one in model.named_parameters()}
        rest = {name: one.double() if one.is_floating_point() else one for name, one in model.named_buffers()}
        inputs = x.double()

        def function(parameters: Parameters) -> Tensor:
            return main_tensor(functional_call(model, {**rest, **parameters}, (inputs,)))

        with evaluating(model), torch.no_grad():
            return cls(function, at, function(at))

    def along(self, direction: Parameters, names: Set[str]) -> Tensor:
        """J d over the parameters of these names; all others stand still."""
        whole = {name: one if name in names else torch.zeros_like(one) for name, one in direction.items()}
        with torch.no_grad():
            return jvp(self.function, (self.at,), (whole,))[1]

    def back(self, outputs: Tensor) -> Parameters:
        """J' r."""
        return vjp(self.function, self.at)[1](outputs)[0]

    def steady_rate(self, rounds: int = 12) -> float:
        """1 / the largest curvature: that of -log softmax is at most 1/2, times the largest eigenvalue of J J' / N."""
        generator = torch.Generator().manual_seed(0)
        vector = torch.randn(self.start.shape, generator=generator, dtype=torch.float64).to(self.start.device)
        size = 1.0
        for _ in range(rounds):
            vector = self.along(self.back(vector / vector.norm()), set(self.at))
            size = float(vector.norm())
        # Powers come from below: a tenth to spare.
        return 2 * len(self.start) / (1.1 * size)


def _residual(outputs: Tensor, labels: Tensor) -> Tensor:
    """Gradient of the mean cross-entropy by the outputs."""
    return (outputs.softmax(1) - functional.one_hot(labels, outputs.shape[1])) / len(outputs)


def _check_descent(run: LinearisedRun) -> None:
    own = run.losses.diagonal()
    if not bool(torch.isfinite(own).all()) or bool((own.diff() > ROUNDING * own[:-1]).any()):
        raise BadData(
            f"train_linearised: wanted a loss that falls, got {float(own[0]):.3g} to {float(own[-1]):.3g}. "
            "Take a smaller lr."
        )
