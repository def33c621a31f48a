"""Equations 1 to 3 against explicit Jacobians and Hessians, and where they must be exact."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from undertow.errors import BadData, BadValue
from undertow.studies.temporal.sgd_steps import sgd_noise
from undertow.studies.temporal.step_equation import step_equation


def setting(activation=nn.Tanh):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 4), activation(), nn.Linear(4, 3), activation(), nn.Linear(3, 2)
    ).double()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 2, (40,), generator=generator)
    rows = torch.stack([torch.randperm(40, generator=generator)[:5] for _ in range(6)])
    return model, x, y, rows


def by_hand(model, x, y, rows, probe, cut, lr):
    """All of J and H for one input: parameters flattened, C the covariance of gradients."""
    names = [name for name, _ in model.named_parameters() if int(name.split(".")[0]) <= cut]
    shapes = [dict(model.named_parameters())[name].shape for name in names]
    sizes = [shape.numel() for shape in shapes]
    start = torch.cat([dict(model.named_parameters())[name].detach().flatten() for name in names])

    def features(flat):
        parts = [p.reshape(s) for p, s in zip(flat.split(sizes), shapes, strict=True)]
        return functional_call(model[: cut + 1], dict(zip(names, parts, strict=True)), (probe[None],))[0]

    gradients = []
    for batch in rows:
        model.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        gradients.append(torch.cat([dict(model.named_parameters())[n].grad.flatten() for n in names]))
    gradients = torch.stack(gradients)
    jacobian = torch.autograd.functional.jacobian(features, start)
    hessians = [
        torch.autograd.functional.hessian(lambda flat, k=k: features(flat)[k], start)
        for k in range(len(jacobian))
    ]
    covariance = gradients.T.cov()
    mean = gradients.mean(0)
    bend = torch.stack([0.5 * lr**2 * torch.trace(h @ covariance) for h in hessians])
    return -lr * jacobian @ mean, bend, -lr * (gradients - mean) @ jacobian.T


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_parts_are_those_of_whole_jacobians_and_hessians(cut):
    model, x, y, rows = setting()
    found = step_equation(model, x, y, x[:2], cut=str(cut), batches=rows, lr=0.3)
    for place in range(2):
        slope, bend, random = by_hand(model, x, y, rows, x[place], cut, 0.3)
        torch.testing.assert_close(found.slope[place], slope, rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(found.bend[place], bend, rtol=1e-9, atol=1e-14)
        torch.testing.assert_close(found.random[:, place], random, rtol=1e-10, atol=1e-14)
    steps = sgd_noise(model, x, y, x[:2], cut=str(cut), batches=rows, lr=0.3)
    torch.testing.assert_close(found.measured, steps.delta, rtol=1e-8, atol=1e-13)


def test_errors_are_those_of_covariances_made_in_full():
    model, x, y, rows = setting()
    found = step_equation(model, x, y, x[:1], cut="3", batches=rows, lr=2.0)
    seen, said = found.measured[:, 0].T.cov(), found.random[:, 0].T.cov()
    assert found.covariance_error == pytest.approx(float((seen - said).norm() / seen.norm()), rel=1e-9)
    mean = found.measured.mean(0)
    total = float(torch.trace(seen)) + float(mean.square().sum())
    assert found.random_share == pytest.approx(float(torch.trace(seen)) / total, rel=1e-9)


def test_a_linear_first_layer_has_no_ito_term_and_no_error():
    """The paper's own first layer: the equation is exact for any step."""
    model, x, y, rows = setting()
    found = step_equation(model, x, y, x[:3], cut="0", batches=rows, lr=5.0)
    assert found.bend_share < 1e-12
    assert found.mean_error < 1e-12
    assert found.covariance_error < 1e-7  # a root of rounding


def test_what_is_left_out_is_of_second_order():
    """A tenth of the step leaves a hundredth of what first order leaves out, a tenth relative to the step."""
    model, x, y, rows = setting()
    errors = [
        step_equation(model, x, y, x[:3], cut="3", batches=rows, lr=lr).first_order_error
        for lr in (0.1, 0.01)
    ]
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.1)


def test_itos_term_is_what_the_noise_adds_where_the_gradient_is_nothing():
    """At mean gradient 0 the mean step is Ito's term alone, up to third order."""
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Tanh(), nn.Linear(1, 1, bias=False)).double()
    x = torch.ones(2, 1, dtype=torch.float64)

    def pull(outputs, side):  # the two samples pull with opposite gradients
        return (outputs[:, 0] * side).sum()

    rows = torch.tensor([[0], [1]])
    y = torch.tensor([1.0, -1.0], dtype=torch.float64)
    found = step_equation(net, x, y, x[:1], cut="1", batches=rows, lr=1e-3, loss=pull)
    assert float(found.slope.abs().max()) < 1e-18
    # Two draws: their variance (divisor 1) is twice their mean square.
    torch.testing.assert_close(found.measured.mean(0) * 2, found.bend, rtol=1e-3, atol=0)


def test_the_model_is_left_as_it_was_and_nonsense_is_refused():
    model, x, y, rows = setting()
    model.train()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    step_equation(model, x, y, x[:1], cut="1", batches=rows)
    assert model.training
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    with pytest.raises(BadValue, match="two mini-batches"):
        step_equation(model, x, y, x[:1], cut="1", batches=1, batch_size=4)
    with pytest.raises(BadValue, match="lr"):
        step_equation(model, x, y, x[:1], cut="1", batches=rows, lr=0.0)
    with pytest.raises(BadData, match="gradient is 0"):
        step_equation(model, x, y, x[:1], cut="1", batches=rows, loss=lambda outputs, _: 0 * outputs.sum())
