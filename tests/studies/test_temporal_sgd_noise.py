"""One-step SGD noise against copies of the model that really take the step."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from undertow.errors import BadData, BadValue, UnknownName
from undertow.features import Tap
from undertow.models import build_model
from undertow.studies.temporal.sgd_steps import draw_batches, sgd_noise


def samples(*shape, count=40, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=g), torch.randint(classes, (count,), generator=g)


def by_copies(model, x, y, probe, cut, rows, lr, loss=functional.cross_entropy):
    """deepcopy, step, forward: in float64, features by a tap that knows nothing of the code under test."""

    def features(net):
        with Tap(net, cut, conv="flatten", tokens="flatten") as tap:
            return tap(probe.double() if probe.is_floating_point() else probe)[1][cut]

    base = copy.deepcopy(model).double().eval()
    before, deltas = features(base), []
    for row in rows:
        net = copy.deepcopy(base)
        optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=lr)
        inputs = x[row].double() if x.is_floating_point() else x[row]
        loss(net(inputs), y[row]).backward()
        optimiser.step()
        deltas.append(features(net) - before)
    return torch.stack(deltas)


def assert_same(found, wanted, tolerance=1e-9):
    assert found.shape == wanted.shape
    assert float((found - wanted).norm()) <= tolerance * float(wanted.norm())
    assert float(wanted.norm()) > 0


class Tokens(nn.Module):
    """Linear layers that run over positions."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 5), nn.Linear(5, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.second(self.first(x).tanh()).relu().mean(1))


class Tied(nn.Module):
    """One weight in two linear layers: moving it once is not enough."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.head(self.b(self.a(x).relu()).relu())


def chain(*parts):
    net, g = nn.Sequential(*parts), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=g))
    return net


MODELS = {
    "mlp": (lambda: build_model("mlp:16-12-8", (1, 4, 4), 4, seed=0), (1, 4, 4), "layer2", "products"),
    "first layer": (lambda: build_model("mlp:16-12-8", (1, 4, 4), 4, seed=0), (1, 4, 4), "layer1", "products"),
    "inside a block": (lambda: build_model("mlp:16-12", (1, 4, 4), 4, seed=0), (1, 4, 4), "layer2.linear", "products"),
    "head": (lambda: build_model("mlp:16-12", (1, 4, 4), 4, seed=0), (1, 4, 4), "head", "products"),
    "no bias": (lambda: chain(nn.Linear(6, 7, bias=False), nn.Tanh(), nn.Linear(7, 4)), (6,), "0", "products"),
    "positions": (lambda: chain(Tokens()), (5, 3), "0.second", "products"),
    "in place": (lambda: chain(nn.Linear(6, 7), nn.ReLU(inplace=True), nn.Linear(7, 4)), (6,), "1", "steps"),
    "tied": (lambda: chain(Tied()), (6,), "0.b", "steps"),
    "norm": (lambda: chain(nn.Linear(6, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, 4)), (6,), "2", "steps"),
    "batch norm": (
        lambda: chain(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)),
        (1, 4, 4), "2", "steps",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_steps_are_those_of_copied_models(name):
    """Catches a missing bias, a wrong sign, tied weights moved once, in-place activations, a wrong route."""
    build, shape, cut, route = MODELS[name]
    model = build()
    x, y = samples(*shape)
    probe = samples(*shape, count=3, seed=1)[0]
    rows = draw_batches(len(x), 12, 8)
    noise = sgd_noise(model, x, y, probe, cut=cut, batches=rows, lr=0.3)
    assert noise.route == route
    assert_same(noise.delta, by_copies(model, x, y, probe, cut, rows, 0.3))


@pytest.mark.parametrize("spec", ["cnn", "mlp:8-8,dropout=0.5"])
def test_dropout_is_off_and_modes_come_back(spec):
    """In training mode dropout would draw numbers, and two calls would differ."""
    model = build_model(spec, (1, 8, 8), 4, seed=0).train()
    model[0].training = False  # a mode of its own must come back as well
    modes = [module.training for module in model.modules()]
    before = {name: part.clone() for name, part in model.state_dict().items()}
    x, y = samples(1, 8, 8)
    first, second = (
        sgd_noise(model, x, y, x[:2], cut=model.cuts[0], batches=4, batch_size=8).delta for _ in range(2)
    )
    assert torch.equal(first, second)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert all(
        p.grad is None and not module._forward_hooks
        for module in model.modules()
        for p in module.parameters()
    )


@pytest.mark.parametrize("frozen", ["layer1.linear.weight", "layer1.linear.bias"])
def test_frozen_parameters_stay(frozen):
    model = build_model("mlp:16-12", (1, 4, 4), 4, seed=0)
    model.get_parameter(frozen).requires_grad_(False)
    x, y = samples(1, 4, 4)
    rows = draw_batches(len(x), 5, 8)
    noise = sgd_noise(model, x, y, x[:2], cut="layer2", batches=rows)
    assert noise.route == "products"
    assert_same(noise.delta, by_copies(model, x, y, x[:2], "layer2", rows, 0.1))


def test_a_loss_that_mixes_samples_takes_plain_steps():
    """Weights normalised per batch make a sample's gradient depend on its batch: products would be wrong."""
    weights = torch.tensor([1.0, 5.0, 0.2, 2.0], dtype=torch.float64)

    def loss(outputs, labels):
        return functional.cross_entropy(outputs, labels, weight=weights)

    model = build_model("mlp:16", (1, 4, 4), 4, seed=0)
    x, y = samples(1, 4, 4)
    rows = draw_batches(len(x), 20, 16)  # samples occur in several batches
    noise = sgd_noise(model, x, y, x[:2], cut="layer1", batches=rows, loss=loss)
    assert noise.route == "steps"
    assert_same(noise.delta, by_copies(model, x, y, x[:2], "layer1", rows, 0.1, loss))


def test_blocks_of_batches_give_the_same(monkeypatch):
    model = build_model("mlp:16-12", (1, 4, 4), 4, seed=0)
    x, y = samples(1, 4, 4)
    whole = sgd_noise(model, x, y, x[:2], cut="layer2", batches=10, batch_size=8)
    monkeypatch.setattr("undertow.studies.temporal.sgd_steps.BLOCK", 1)
    parts = sgd_noise(model, x, y, x[:2], cut="layer2", batches=10, batch_size=8)
    assert parts.route == whole.route == "products"
    assert_same(parts.delta, whole.delta)


def test_many_probes_and_repeated_samples():
    """More probes than samples in a batch take another order of products; a sample may stand twice in a batch."""
    model = build_model("mlp:16-12", (1, 4, 4), 4, seed=0)
    x, y = samples(1, 4, 4)
    probe = samples(1, 4, 4, count=30, seed=2)[0]
    rows = torch.tensor([[0, 0, 1], [2, 3, 3]])
    noise = sgd_noise(model, x, y, probe, cut="layer2", batches=rows)
    assert noise.route == "products"
    assert_same(noise.delta, by_copies(model, x, y, probe, "layer2", rows, 0.1))


def test_float64_is_used_for_a_float32_model():
    """float32 differences of features are off by 1e-3 of a small step."""
    model = build_model("mlp:16-12", (1, 4, 4), 4, seed=0)
    x, y = samples(1, 4, 4)
    rows = draw_batches(len(x), 4, 8)
    exact = by_copies(model, x, y, x[:2], "layer2", rows, 1e-6)
    assert_same(sgd_noise(model, x, y, x[:2], cut="layer2", batches=rows, lr=1e-6).delta, exact, 1e-7)
    coarse = sgd_noise(model, x, y, x[:2], cut="layer2", batches=rows, lr=1e-6, dtype=torch.float32).delta
    assert float((coarse - exact).norm()) > 1e-4 * float(exact.norm())


def test_pixels_are_prepared():
    model = build_model("mlp:16", (1, 4, 4), 4, seed=0)
    pixels = torch.randint(256, (30, 1, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    y = samples(1, count=30)[1]

    def scale(part):
        return part.double() / 255

    one = sgd_noise(model, pixels, y, pixels[:2], cut="layer1", batches=3, batch_size=5, prepare=scale)
    two = sgd_noise(model, scale(pixels), y, scale(pixels[:2]), cut="layer1", batches=3, batch_size=5)
    assert torch.equal(one.delta, two.delta)


def test_mini_batches_are_drawn_without_repeats():
    rows = draw_batches(50, 20, 10, torch.Generator().manual_seed(3))
    assert rows.shape == (20, 10)
    assert all(len(row.unique()) == 10 for row in rows)
    assert len({tuple(row.sort().values.tolist()) for row in rows}) == 20
    assert torch.equal(rows, draw_batches(50, 20, 10, torch.Generator().manual_seed(3)))


def test_bad_input_is_answered():
    model = build_model("mlp:16", (1, 4, 4), 4, seed=0)
    x, y = samples(1, 4, 4)
    with pytest.raises(UnknownName, match="Did you mean 'layer1'"):
        sgd_noise(model, x, y, x[:1], cut="layr1", batch_size=8)
    with pytest.raises(BadValue, match="after trainable parameters"):
        sgd_noise(model, x, y, x[:1], cut="flatten", batch_size=8)
    with pytest.raises(BadValue, match="1 to 40, the number of samples"):
        sgd_noise(model, x, y, x[:1], cut="layer1", batch_size=64)
    with pytest.raises(BadData, match="40 samples, 39 labels"):
        sgd_noise(model, x, y[1:], x[:1], cut="layer1", batch_size=8)
    with pytest.raises(BadValue, match="lr"):
        sgd_noise(model, x, y, x[:1], cut="layer1", batch_size=8, lr=0)
    with pytest.raises(BadData, match="rows from 0 to 39"):
        sgd_noise(model, x, y, x[:1], cut="layer1", batches=torch.tensor([[40]]))
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))
    with pytest.raises(BadData, match="diverged"):
        sgd_noise(model, x, y, x[:1], cut="layer1", batch_size=8, batches=2)
