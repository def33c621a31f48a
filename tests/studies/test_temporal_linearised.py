"""Lemma 1, the linearised network against an explicit Jacobian, and the convex model that does forget."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from undertow.errors import BadData, BadValue
from undertow.studies.temporal.linearised import LinearisedRun, softmax_curvature, train_linearised


def setting():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(12, 3, dtype=torch.float64)
    return model, x, torch.arange(12) % 3


def test_all_composites_are_those_of_an_explicit_jacobian():
    """Gradient descent by hand on f0 + J d, with J made in full."""
    model, x, y = setting()
    names = [name for name, _ in model.named_parameters()]
    parts = dict(model.named_parameters())
    sizes = [parts[name].numel() for name in names]
    start = torch.cat([parts[name].detach().flatten() for name in names])

    def answer(flat):
        shaped = [p.reshape(parts[n].shape) for n, p in zip(names, flat.split(sizes), strict=True)]
        return functional_call(model, dict(zip(names, shaped, strict=True)), (x,))

    jacobian = torch.autograd.functional.jacobian(answer, start)  # (N, C, P)
    base, moved, kept = answer(start).detach(), torch.zeros_like(start), []
    for step in range(31):
        if step % 10 == 0:
            kept.append(moved.clone())
        flat = moved.clone().requires_grad_()
        cross_entropy(base + jacobian @ flat, y).backward()
        moved = moved - 0.3 * flat.grad
    shallow = torch.arange(len(start)) < sizes[0] + sizes[1]
    by_hand = torch.stack(
        [
            torch.stack([cross_entropy(base + jacobian @ torch.where(shallow, s, t), y) for t in kept])
            for s in kept
        ]
    )
    run = train_linearised(
        model, x, y, shallow={"0.weight", "0.bias"}, steps=30, lr=0.3, keep=range(0, 31, 10)
    )
    torch.testing.assert_close(run.losses, by_hand, rtol=1e-10, atol=0)
    assert run.pairs == 6
    assert len(run.broken()) == int((by_hand.triu(1) > by_hand.diagonal()[:, None] * (1 + 1e-9)).sum())


def test_lemma_1_least_curvature_is_that_of_autograd_and_never_below_0():
    outputs = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 4
    least = min(
        float(
            torch.linalg.eigvalsh(
                torch.autograd.functional.hessian(lambda z, k=k: -z.log_softmax(0)[k], row)
            ).min()
        )
        for row in outputs
        for k in range(4)
    )
    assert softmax_curvature(outputs) == pytest.approx(least, abs=1e-12)
    assert softmax_curvature(outputs) > -1e-12
    assert (
        softmax_curvature(torch.tensor([[800.0, 0.0, 0.0]])) > -1e-12
    )  # one class certain: nothing overflows


def test_a_convex_model_forgets_all_the_same():
    """The paper's inequality fails for a model that is linear in its parameters.

    Two weights read the same signal, one of them (deep) ten times as loud and with some noise of its own. It learns
    first and turns back when the quiet, noiseless one has caught up. Its later value does worse without that one.
    """
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 2
    signal = (2.0 * y - 1).double()
    noise = torch.randn(40, generator=generator, dtype=torch.float64)
    quiet, loud = signal, 10 * (signal + 1.2 * noise)
    weights, shallow, deep, steps = torch.zeros(2, dtype=torch.float64), [], [], []
    for step in range(20_001):
        a, b = weights
        if step in (20, 2000, 20_000):
            steps.append(step)
            shallow.append(torch.stack([-a * quiet, a * quiet], 1))
            deep.append(torch.stack([-b * loud, b * loud], 1))
        margin = 2 * (a * quiet + b * loud) * signal
        slope = -2 * torch.sigmoid(-margin) * signal / 40
        weights = weights - 0.02 * torch.stack([(slope * quiet).sum(), (slope * loud).sum()])
    run = LinearisedRun(
        tuple(steps), torch.zeros(40, 2, dtype=torch.float64), torch.stack(shallow), torch.stack(deep), y
    )
    own = run.losses.diagonal()
    assert bool((own.diff() < 0).all()), "the loss falls along the whole path"
    assert run.broken(), "and yet a later deep part does worse on earlier features"


def test_nonsense_is_refused():
    model, x, y = setting()
    with pytest.raises(BadData, match="smaller lr"):
        train_linearised(model, x, y, shallow={"0.weight"}, steps=20, lr=1e4, keep=(0, 1, 20))
    with pytest.raises(BadData, match=r"got 9\.weight"):
        train_linearised(model, x, y, shallow={"9.weight"}, steps=2, lr=0.1, keep=(0, 2))
    with pytest.raises(BadValue, match="two kept steps"):
        train_linearised(model, x, y, shallow={"0.weight"}, steps=2, lr=0.1, keep=(2,))
