"""Building by text: sizes known from elsewhere, the same weights for the same seed, clear refusals."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from undertow.errors import BadData, BadValue, UnknownName
from undertow.models import build_model

CIFAR, MNIST, TINY, STL = (3, 32, 32), (1, 28, 28), (3, 64, 64), (3, 96, 96)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def conv(inner: int, outer: int, side: int = 3) -> int:
    return inner * outer * side**2 + outer


def path(*channels: int) -> int:
    """3x3 convolutions with biases, one after the other."""
    return sum(conv(inner, outer) for inner, outer in pairwise(channels))


def dense(*sizes: int) -> int:
    return sum((inner + 1) * outer for inner, outer in pairwise(sizes))


CNN_CONVS = path(16, 16, 32, 32, 64, 64)  # but for the first
VGG_CONVS = 14_714_688  # thirteen convolutions with biases: the features of any VGG-16
ALEX_CONVS = 2_469_696  # 61,100,840 of the 1,000-class AlexNet less its three linear layers of 58,631,144


def attention_block(width: int) -> int:
    """Two norms, queries/keys/values and output, an MLP four times as wide."""
    return 4 * width + dense(width, 3 * width) + dense(width, width) + dense(width, 4 * width, width)


@pytest.mark.parametrize(
    ("spec", "shape", "classes", "expected"),
    [
        ("mlp", MNIST, 10, dense(784, 128, 512, 2048, 2048, 10)),
        ("mlp:1024-1024-1024,init=lecun", MNIST, 10, 2_913_290),
        ("mlp:256-256,dropout=0.2", MNIST, 10, 269_322),
        ("mlp:1000-1000-1000", (1,), 1, dense(1, 1000, 1000, 1000, 1)),
        ("mlp2d", MNIST, 10, dense(784, 100, 2, 10)),
        ("lenet", MNIST, 10, 32 * 26 + 64 * (32 * 25 + 1) + dense(3136, 1024, 10)),
        # Head without bias: 250 weights per class.
        ("cnn", MNIST, 10, CNN_CONVS + conv(1, 16) + dense(576, 250, 250, 250) + 2_500),
        ("cnn", CIFAR, 10, CNN_CONVS + conv(3, 16) + dense(1024, 250, 250, 250) + 2_500),
        ("cnn:units=1024", MNIST, 10, CNN_CONVS + conv(1, 16) + dense(576, 1024, 1024, 1024) + 10_240),
        ("alexnet", TINY, 200, ALEX_CONVS + dense(256, 4096, 4096, 200)),
        ("svhn-cnn", CIFAR, 10, path(3, 32, 32, 64, 64, 128, 128, 256) + dense(256, 10)),
        ("stl10-cnn", STL, 10, path(3, 32, 64, 128, 128, 256, 256) + dense(256, 10)),
        # The often quoted 272,474 is the count with 1x1 convolutions in the shortcuts (option B).
        ("resnet20", CIFAR, 10, 272_474 - (16 * 32 + 32 * 64) - 2 * (32 + 64)),
        ("resnet8", CIFAR, 10, 75_290),
        ("resnet18", CIFAR, 10, 11_173_962),
        ("resnet18:pool", CIFAR, 10, 11_173_962),
        ("resnet18", CIFAR, 100, 11_220_132),
        ("resnet18:preact", CIFAR, 10, 11_171_146),
        ("resnet18:preact,closed", CIFAR, 10, 11_171_146 + 2 * 512),
        ("vgg16", CIFAR, 10, VGG_CONVS + dense(512, 4096, 4096, 10)),
        ("vgg16bn", CIFAR, 100, VGG_CONVS + 8_448 + dense(512, 4096, 4096, 100)),
        (
            "vit",
            CIFAR,
            10,
            conv(3, 192, 4) + 65 * 192 + 192 + 6 * attention_block(192) + 2 * 192 + dense(192, 10),
        ),
        (
            "vit:pool=mean",
            CIFAR,
            10,
            conv(3, 192, 4) + 64 * 192 + 6 * attention_block(192) + 2 * 192 + dense(192, 10),
        ),
    ],
)
def test_parameter_counts(spec: str, shape: tuple[int, ...], classes: int, expected: int):
    assert count(build_model(spec, shape, classes, seed=0)) == expected


def test_transformer_parameter_count():
    """Tokens and places, two blocks, the last norm, a head without bias."""
    model = build_model("transformer", (4,), 97, seed=0, vocabulary=99)
    assert count(model) == (99 + 4) * 128 + 2 * attention_block(128) + 2 * 128 + 97 * 128 == 422_400


SMALL = {
    "mlp:32-16": MNIST,
    "mlp:8,dropout=0.3,init=he": (40,),
    "mlp2d:width=12": MNIST,
    "lenet:width=2,units=9": MNIST,
    "lenet:width=3,units=5": (3, 16, 21),
    "cnn:width=2,units=6,dropout=0.2": MNIST,
    "cnn:width=2,units=6": (1, 8, 8),
    "alexnet:width=2,dropout=0.5": TINY,
    "alexnet:width=2": (3, 99, 130),
    "svhn-cnn:width=2": CIFAR,
    "svhn-cnn:width=2,dropout=0": (1, 50, 64),
    "stl10-cnn:width=2": STL,
    "stl10-cnn:width=2,dropout=0.1": (3, 130, 96),
    "resnet8:width=3": CIFAR,
    "resnet20:width=2": MNIST,
    "resnet18:width=2,pool,dropout=0.2": CIFAR,
    "resnet18:width=2,preact": (1, 9, 7),
    "vgg16:width=2": CIFAR,
    "vgg16bn:width=2": (3, 64, 96),
    "vit:width=12,depth=2": CIFAR,
    "vit:width=12,depth=2,pool=mean,patch=7,dropout=0.1": MNIST,
}
"""A small one of every kind, at the paper's image size and at odd ones."""


@pytest.mark.parametrize(("spec", "shape"), SMALL.items(), ids=list(SMALL))
@pytest.mark.parametrize("classes", [1, 7])
def test_every_model_answers_and_learns_at_every_parameter(spec: str, shape: tuple[int, ...], classes: int):
    """Catches a flatten size that does not fit, and a module that is built but never used."""
    model = build_model(spec, shape, classes, seed=0)
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(1))
    with torch.random.fork_rng():
        outputs = model(x)
    assert outputs.shape == (4, classes)
    outputs.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(("spec", "shape"), SMALL.items(), ids=list(SMALL))
def test_the_seed_alone_decides_the_weights(spec: str, shape: tuple[int, ...]):
    """Catches a draw outside the seeded block, and a draw that ignores the seed."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = build_model(spec, shape, 3, seed=11).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = build_model(spec, shape, 3, seed=11).state_dict()
    other = build_model(spec, shape, 3, seed=12).state_dict()
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_a_failed_build_leaves_the_generator_alone():
    before = torch.get_rng_state()
    with pytest.raises(BadData):
        build_model("alexnet", MNIST, 10, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_default_device_does_not_reach_the_weights():
    """Catches weights that are drawn on another device, where one seed means other numbers."""
    with torch.device("meta"):
        model = build_model("mlp:8", (4,), 2, seed=0)
    plain = build_model("mlp:8", (4,), 2, seed=0)
    assert torch.equal(model.head.weight, plain.head.weight)


@pytest.mark.parametrize(("spec", "shape"), SMALL.items(), ids=list(SMALL))
def test_nothing_works_in_place(spec: str, shape: tuple[int, ...]):
    """Catches an activation that would overwrite an output stored by a hook."""
    assert not any(
        getattr(module, "inplace", False) for module in build_model(spec, shape, 3, seed=0).modules()
    )


def test_copies_and_parts_are_networks_of_their_own():
    model = build_model("mlp:8-4", (5,), 2, seed=0)
    twin = copy.deepcopy(model)
    assert twin.probe_layers == ("input", "layer1", "layer2")
    x = torch.rand(3, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(twin[2:](twin[:2](x)), model(x))


def dropouts(spec: str, shape: tuple[int, ...]) -> dict[str, float]:
    modules = build_model(spec, shape, 10, seed=0).named_modules()
    return {name: module.p for name, module in modules if isinstance(module, nn.Dropout)}


def test_dropout_sits_where_the_papers_put_it():
    assert dropouts("mlp:8-8,dropout=0.2", MNIST) == {"layer1.dropout": 0.2, "layer2.dropout": 0.2}
    assert dropouts("cnn:dropout=0.2", MNIST) == {f"fc{at}.dropout": 0.2 for at in (1, 2, 3)}
    assert dropouts("resnet18:width=2,dropout=0.2", CIFAR) == {"avg_pool.dropout": 0.2}
    assert set(dropouts("svhn-cnn:width=2", CIFAR).values()) == {0.3}
    assert len(dropouts("svhn-cnn:width=2", CIFAR)) == 7  # after each convolution
    assert dropouts("vgg16:width=2", CIFAR) == {"fc1.dropout": 0.5, "fc2.dropout": 0.5}
    assert dropouts("alexnet:width=2,dropout=0.5", TINY) == {"fc1.dropout": 0.5, "fc2.dropout": 0.5}
    for plain in ("mlp", "cnn", "resnet18:width=2"):
        assert dropouts(plain, CIFAR) == {}
    assert dropouts("alexnet:width=2", TINY) == {}


def test_dropout_acts_in_training_only():
    model = build_model("mlp:64,dropout=0.5", (8,), 3, seed=0)
    x = torch.rand(16, 8, generator=torch.Generator().manual_seed(0))
    model.eval()
    assert torch.equal(model(x), model(x))
    model.train()
    with torch.random.fork_rng():
        assert not torch.equal(model(x), model(x))


def test_batch_norm_without_affine_has_statistics_but_no_parameters():
    for spec, shape, norms in (("svhn-cnn:width=4", CIFAR, 7), ("stl10-cnn:width=4", STL, 6)):
        found = [
            each
            for each in build_model(spec, shape, 10, seed=0).modules()
            if isinstance(each, nn.BatchNorm2d)
        ]
        assert len(found) == norms
        assert all(
            norm.weight is None and norm.bias is None and norm.running_mean is not None for norm in found
        )


def test_vgg_takes_small_images_with_a_border():
    """Fails if the border is not zeros on each side, or the fully connected layers count the old size."""
    small = build_model("vgg16bn:width=2,pad=2", MNIST, 10, seed=0).eval()
    large = build_model("vgg16bn:width=2", (1, 32, 32), 10, seed=0).eval()
    images = torch.rand(3, *MNIST, generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    assert torch.equal(small(images), large(padded))
    with pytest.raises(BadData, match="at least 30x30"):
        build_model("vgg16:pad=1", MNIST, 10, seed=0)


def test_vgg_differs_by_its_batch_norm_only():
    plain, normed = (build_model(f"{name}:width=2", CIFAR, 10, seed=0) for name in ("vgg16", "vgg16bn"))
    norms = {name for name, module in normed.named_modules() if isinstance(module, nn.BatchNorm2d)}
    assert len(norms) == 13
    assert dict(normed.named_modules()).keys() - norms == dict(plain.named_modules()).keys()


@pytest.mark.parametrize(
    ("spec", "shape", "vocabulary", "answer"),
    [
        (
            "alexnet",
            MNIST,
            None,
            "alexnet: wanted images (C, H, W) of at least 63x63, got images of shape (1, 28, 28).",
        ),
        ("vgg16", MNIST, None, "vgg16: wanted images (C, H, W) of at least 32x32"),
        ("cnn", (1, 7, 32), None, "cnn: wanted images (C, H, W) of at least 8x8"),
        ("lenet", (1, 3, 28), None, "at least 4x4"),
        ("svhn-cnn", (3, 32, 31), None, "at least 32x32"),
        ("stl10-cnn", CIFAR, None, "at least 96x96"),
        (
            "resnet18",
            (40,),
            None,
            "resnet18: wanted images (C, H, W) of at least 1x1, got vectors of shape (40,).",
        ),
        ("vit", (4,), 9, "vit: wanted images (C, H, W) of at least 1x1, got tokens of shape (4,)."),
        ("mlp", (4,), 9, "mlp: wanted images (C, H, W) or vectors (D,), got tokens of shape (4,)."),
        ("transformer", CIFAR, None, "transformer: wanted rows of tokens (L,) with a vocabulary, got images"),
        ("transformer", (4,), None, "got vectors of shape (4,). Use vit for images and mlp for vectors."),
    ],
)
def test_data_that_does_not_fit_is_refused(
    spec: str, shape: tuple[int, ...], vocabulary: int | None, answer: str
):
    with pytest.raises(BadData) as error:
        build_model(spec, shape, 10, seed=0, vocabulary=vocabulary)
    assert answer in str(error.value)


@pytest.mark.parametrize(
    ("spec", "shape", "answer"),
    [
        (
            "vit:patch=5",
            CIFAR,
            "vit: patch: wanted a side that divides 32x32 images, got 5. These do: 1, 2, 4, 8, 16, 32.",
        ),
        (
            "vit:heads=5",
            CIFAR,
            "vit: heads: wanted a number that divides the width 192, got 5. These do: 1, 2, 3,",
        ),
    ],
)
def test_options_that_do_not_fit_each_other_are_refused(spec: str, shape: tuple[int, ...], answer: str):
    with pytest.raises(BadValue) as error:
        build_model(spec, shape, 10, seed=0)
    assert answer in str(error.value)


def test_bad_sizes_and_seeds_are_refused():
    with pytest.raises(BadValue, match=r"mlp: wanted sizes of at least 1, got 'shape \(0,\), 2 outputs"):
        build_model("mlp", (0,), 2, seed=0)
    with pytest.raises(BadValue, match="at least 1"):
        build_model("mlp", (), 2, seed=0)
    with pytest.raises(BadValue, match="0 outputs"):
        build_model("mlp", (3,), 0, seed=0)
    with pytest.raises(BadValue, match="mlp: seed: wanted a whole number from 0"):
        build_model("mlp", (3,), 2, seed=-1)
    with pytest.raises(UnknownName, match="Did you mean 'resnet18'"):
        build_model("resnet118", CIFAR, 10, seed=0)


# How weights start


@pytest.mark.parametrize(("init", "gain"), [("he", 2.0), ("lecun", 1.0)])
def test_weights_are_normal_with_the_variance_asked_for(init: str, gain: float):
    """Catches fan-out for fan-in, a uniform draw, and biases left random."""
    model = build_model(f"mlp:500-300-400,init={init}", (200,), 50, seed=0)
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert [layer.in_features for layer in linear] == [200, 500, 300, 400]
    for layer in linear:
        z = (layer.weight.detach().double() * (layer.in_features / gain) ** 0.5).flatten().numpy()
        error = 5 / np.sqrt(z.size)  # five deviations of each estimate
        assert abs(z.mean()) < error
        assert abs(z.var() - 1) < error * np.sqrt(2)
        assert abs((z**4).mean() - 3) < error * np.sqrt(96)  # 1.8 if uniform
        assert not layer.bias.any()


def test_default_weights_are_pytorch_s_own():
    model = build_model("mlp:6", (4,), 3, seed=9)
    with torch.random.fork_rng():
        torch.manual_seed(9)
        first, head = nn.Linear(4, 6), nn.Linear(6, 3)
    assert torch.equal(model.layer1.linear.weight, first.weight)
    assert torch.equal(model.head.bias, head.bias)


def test_norm_of_the_richness_paper_s_mlp():
    """The paper reports 3.1e3 before training: three layers of 1024 and a head of 10, N(0, 1/fan_in)."""
    model = build_model("mlp:1024-1024-1024,init=lecun", MNIST, 10, seed=0)
    norm = sum(float(parameter.detach().double().square().sum()) for parameter in model.parameters())
    assert norm == pytest.approx(1024 + 1024 + 1024 + 10, rel=0.005)
    assert f"{norm:.1e}" == "3.1e+03"


def test_residual_networks_for_cifar_start_as_he_draws_them():
    model = build_model("resnet20:width=64", CIFAR, 10, seed=0)
    weight = model.layer3[1].conv1.weight.detach().double()  # (256, 256, 3, 3)
    assert float(weight.var()) == pytest.approx(2 / (256 * 9), rel=5 * (2 / weight.numel()) ** 0.5)
    assert not model.head.bias.any()


def test_the_signal_survives_vgg_without_batch_norm():
    """Catches PyTorch's default weights for layers, with which images can hardly be told apart any more."""
    model = build_model("vgg16:width=16", CIFAR, 10, seed=0)
    faded = copy.deepcopy(model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for module in faded.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()
    x = torch.randn(64, *CIFAR, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        spread, lost = (float(net[:5](x).std(dim=0).mean()) for net in (model, faded))
    assert spread > 0.01
    assert lost < 1e-3 * spread
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("width", [64, 16, 4])
def test_a_narrow_vgg_starts_as_loudly_as_a_wide_one(width: int):
    """N(0, 0.01^2) at full width, as PyTorch's own; with it at any width a narrow network's signal fades."""
    weight = build_model(f"vgg16:width={width}", CIFAR, 10, seed=0).fc2.linear.weight.detach().double()
    assert float(weight.var() * weight.shape[1]) == pytest.approx(0.01**2 * 4096, rel=0.05)


def test_vision_transformer_starts_small():
    model = build_model("vit", CIFAR, 10, seed=0)
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2:
            assert 0 < float(parameter.detach().abs().max()) <= 0.04, name
        elif name.endswith("bias"):
            assert not parameter.any(), name
