"""Residual blocks against their formulas, written out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undertow.models import build_model
from undertow.models.resnet import PaddedShortcut

CIFAR = (3, 32, 32)


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(("channels", "new"), [(4, 4), (3, 3), (1, 1)])
def test_option_a_shortcut_element_by_element(channels: int, new: int):
    """Catches an average for a subsample, a shifted grid, and channels that are moved or dropped."""
    x = rand(2, channels, 8, 6)
    out = PaddedShortcut(new, stride=2)(x)
    assert out.shape == (2, channels + new, 4, 3)
    front = new // 2
    for channel in range(channels + new):
        for row in range(4):
            for column in range(3):
                inside = 0 <= channel - front < channels
                wanted = x[:, channel - front, 2 * row, 2 * column] if inside else torch.zeros(2).double()
                assert torch.equal(out[:, channel, row, column], wanted)


def norm(x: Tensor, layer: nn.BatchNorm2d) -> Tensor:
    """Batch norm in evaluation mode, by its formula."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    wide = (None, slice(None), None, None)
    out = (x - layer.running_mean[wide]) / (layer.running_var[wide] + layer.eps).sqrt()
    return out * layer.weight[wide] + layer.bias[wide]


def shaken(spec: str) -> nn.Module:
    """A small network in float64 whose batch norms are not the identity."""
    model = build_model(spec, CIFAR, 5, seed=0).double().eval()
    dice = torch.Generator().manual_seed(3)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.weight.data, layer.bias.data, layer.running_mean, layer.running_var):
                assert tensor is not None
                tensor.copy_(torch.rand(tensor.shape, generator=dice) + 0.5)
    return model


def test_resnet8_by_its_formula():
    """Catches a ReLU before the sum, a stride in the wrong convolution, a lost shortcut."""
    model = shaken("resnet8:width=4")
    x = rand(2, *CIFAR)
    h = F.relu(norm(F.conv2d(x, model.stem.conv.weight, padding=1), model.stem.norm))
    for name, stride in (("layer1", 1), ("layer2", 2), ("layer3", 2)):
        part = model.get_submodule(name)[0]
        inner = F.relu(norm(F.conv2d(h, part.conv1.weight, stride=stride, padding=1), part.norm1))
        inner = norm(F.conv2d(inner, part.conv2.weight, padding=1), part.norm2)
        beside = h
        if stride == 2:
            zeros = torch.zeros(2, h.shape[1] // 2, h.shape[2] // 2, h.shape[3] // 2).double()
            beside = torch.cat((zeros, h[:, :, ::2, ::2], zeros), dim=1)
        h = F.relu(inner + beside)
    logits = h.mean((2, 3)) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(x), logits, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("preact", "closed"), [(False, False), (True, False), (True, True)])
def test_resnet18_by_its_formula(preact: bool, closed: bool):
    """Catches a projection on the wrong input, and a missing or added norm in the pre-activated variants."""
    model = shaken("resnet18:width=2,pool" + ",preact" * preact + ",closed" * closed)
    x = rand(2, *CIFAR)
    h = F.conv2d(x, model.stem.conv.weight, padding=1)
    h = h if preact else F.relu(norm(h, model.stem.norm))
    h = F.max_pool2d(h, 3, stride=2, padding=1)
    for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
        for part in layer:
            h = pre_activated(part, h) if preact else post_activated(part, h)
    h = F.relu(norm(h, model.avg_pool.norm)) if closed else h
    logits = h.mean((2, 3)) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(x), logits, rtol=1e-10, atol=1e-12)


def post_activated(part: nn.Module, h: Tensor) -> Tensor:
    stride = part.conv1.weight.shape[0] // h.shape[1]  # channels double where the image halves
    inner = F.relu(norm(F.conv2d(h, part.conv1.weight, stride=stride, padding=1), part.norm1))
    inner = norm(F.conv2d(inner, part.conv2.weight, padding=1), part.norm2)
    if stride == 2:
        h = norm(F.conv2d(h, part.shortcut.conv.weight, stride=2), part.shortcut.norm)
    return F.relu(inner + h)


def pre_activated(part: nn.Module, h: Tensor) -> Tensor:
    stride = part.conv1.weight.shape[0] // h.shape[1]  # channels double where the image halves
    active = F.relu(norm(h, part.norm1))
    inner = F.conv2d(active, part.conv1.weight, stride=stride, padding=1)
    inner = F.conv2d(F.relu(norm(inner, part.norm2)), part.conv2.weight, padding=1)
    return inner + (F.conv2d(active, part.projection.weight, stride=2) if stride == 2 else h)


def test_parameter_free_shortcuts_have_no_parameters():
    model = build_model("resnet20", CIFAR, 10, seed=0)
    assert not [name for name, _ in model.named_parameters() if "shortcut" in name]
    assert sum(isinstance(module, PaddedShortcut) for module in model.modules()) == 2
