"""Names of layers: the papers' own, the sizes behind them, and a choice for other people's networks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from undertow.errors import BadValue
from undertow.models import Layer, Network, build_model, default_layers, head_of, layers_of

CIFAR, MNIST, TINY, STL = (3, 32, 32), (1, 28, 28), (3, 64, 64), (3, 96, 96)

SMALL = {
    "mlp:32-16": MNIST,
    "mlp:32-16,dropout=0.2": MNIST,
    "mlp2d": MNIST,
    "lenet:width=2,units=9": MNIST,
    "cnn:width=2,units=6,dropout=0.2": MNIST,
    "alexnet:width=2,dropout=0.5": TINY,
    "svhn-cnn:width=2": CIFAR,
    "stl10-cnn:width=2": STL,
    "resnet8:width=2": CIFAR,
    "resnet20:width=2": CIFAR,
    "resnet18:width=2,pool,dropout=0.2": CIFAR,
    "resnet18:width=2,preact": CIFAR,
    "vgg16:width=2": CIFAR,
    "vgg16bn:width=2": CIFAR,
    "transformer:width=8,heads=2": (4,),
    "vit:width=12,depth=2": CIFAR,
    "vit:width=12,depth=2,pool=mean": CIFAR,
}


def small(spec: str) -> Network:
    return build_model(
        spec, SMALL[spec], 5, seed=0, vocabulary=9 if spec.startswith("trans") else None
    ).eval()


def batch(spec: str, seed: int) -> Tensor:
    dice = torch.Generator().manual_seed(seed)
    if spec.startswith("trans"):
        return torch.randint(0, 9, (4, 4), generator=dice)
    return torch.rand(4, *SMALL[spec], generator=dice)


def output_of(model: nn.Module, name: str, x: Tensor) -> Tensor:
    kept: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(lambda _m, _i, out: kept.append(out))
    model(x)
    handle.remove()
    assert len(kept) == 1, f"{name} ran {len(kept)} times"
    return kept[0].detach()


@pytest.mark.parametrize("spec", SMALL)
def test_everything_flows_through_each_cut_and_probed_layer(spec: str):
    """Catches a skip around a cut: the rest of the network must need nothing but the cut's output."""
    model, x, unrelated = small(spec), batch(spec, 0), batch(spec, 1)
    logits = model(x)
    assert not torch.equal(model(unrelated), logits)
    for name in {*model.cuts, *model.probe_layers} - {"input"}:
        features = output_of(model, name, x)
        handle = model.get_submodule(name).register_forward_hook(lambda _m, _i, _o, kept=features: kept)
        replaced = model(unrelated)
        handle.remove()
        assert torch.equal(replaced, logits), name


def test_that_check_notices_a_skip():
    """Inside a residual block the shortcut passes by."""
    model, x, unrelated = small("resnet8:width=2"), batch("resnet8:width=2", 0), batch("resnet8:width=2", 1)
    features = output_of(model, "layer1.0.conv2", x)
    handle = model.layer1[0].conv2.register_forward_hook(lambda _m, _i, _o: features)
    assert not torch.equal(model(unrelated), model(x))
    handle.remove()


@pytest.mark.parametrize("spec", SMALL)
def test_names_run_from_shallow_to_deep_and_end_at_the_head_s_input(spec: str):
    model, x = small(spec), batch(spec, 0)
    order = ["input", *dict(model.named_children())]
    for names in (model.probe_layers, model.cuts):
        assert list(names) == sorted(names, key=order.index)
        assert len(set(names)) == len(names) > 0
    seen: list[Tensor] = []
    handle = model.head.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0]))
    last = output_of(model, model.probe_layers[-1], x)
    handle.remove()
    assert torch.equal(last.flatten(1), seen[0])
    assert head_of(model) == "head"


@pytest.mark.parametrize(
    "spec", ["mlp:32-16", "cnn:width=2,units=6,dropout=0.2", "vgg16:width=2", "resnet20:width=2"]
)
def test_probed_layers_are_taken_after_the_relu(spec: str):
    """Catches a probe on pre-activations, which have negative values."""
    model, x = small(spec), batch(spec, 0)
    for name in set(model.probe_layers) - {"input"}:
        assert float(output_of(model, name, x).min()) >= 0, name


def test_the_plane_has_no_relu():
    features = output_of(
        small("mlp2d"), "layer2", torch.randn(64, *MNIST, generator=torch.Generator().manual_seed(0))
    )
    assert features.shape == (64, 2)
    assert float(features.min()) < 0


@pytest.mark.parametrize(
    ("spec", "shape", "sizes"),
    [
        ("mlp", MNIST, {"layer1": 128, "layer2": 512, "layer3": 2048, "layer4": 2048}),
        ("lenet", MNIST, {"flatten": 3136, "fc1": 1024}),
        ("cnn", MNIST, {"flatten": 576, "fc1": 250, "fc2": 250, "fc3": 250}),
        ("cnn", CIFAR, {"flatten": 1024, "fc1": 250, "fc2": 250, "fc3": 250}),
        ("alexnet", TINY, {"flatten": 256, "fc1": 4096, "fc2": 4096}),
        (
            "resnet18:pool",
            CIFAR,
            {"stem": 16384, "layer1": 16384, "layer2": 8192, "layer3": 4096, "layer4": 2048, "avg_pool": 512},
        ),
        ("resnet18", CIFAR, {"layer1": 65536, "layer2": 32768, "layer3": 16384, "avg_pool": 512}),
        (
            "vgg16",
            CIFAR,
            {"block1": 16384, "block2": 8192, "block3": 4096, "block4": 2048, "block5": 512, "fc2": 4096},
        ),
        ("resnet20", CIFAR, {"layer1": 16384, "layer2": 8192, "layer3": 4096, "avg_pool": 64}),
        ("svhn-cnn", CIFAR, {"flatten": 256}),
        ("stl10-cnn", STL, {"flatten": 256}),
    ],
)
def test_probed_sizes_are_the_papers(spec: str, shape: tuple[int, ...], sizes: dict[str, int]):
    model = build_model(spec, shape, 10, seed=0)
    shapes = {layer.name: layer.shape for layer in layers_of(model, torch.zeros(1, *shape))}
    assert sizes.keys() <= set(model.probe_layers)
    assert {name: math.prod(shapes[name] or ()) for name in sizes} == sizes


def test_paper_cuts():
    assert build_model("resnet20", CIFAR, 10, seed=0).cuts == ("layer1", "layer2", "layer3")
    assert build_model("svhn-cnn", CIFAR, 10, seed=0).cuts == ("block1", "block2", "block3")
    assert build_model("mlp:256-256,dropout=0.2", MNIST, 10, seed=0).cuts == ("layer1", "layer2")
    assert build_model("mlp", MNIST, 10, seed=0).probe_layers == (
        "input",
        *(f"layer{at}" for at in (1, 2, 3, 4)),
    )


# layers_of


def test_layers_of_lists_every_module_with_its_size():
    model = build_model("mlp:3", (2,), 5, seed=0)
    assert layers_of(model, torch.zeros(7, 2)) == (
        Layer("flatten", "Flatten", 0, (2,)),
        Layer("layer1", "Sequential", 9, (3,)),
        Layer("layer1.linear", "Linear", 9, (3,)),
        Layer("layer1.relu", "ReLU", 0, (3,)),
        Layer("head", "Linear", 20, (5,)),
    )
    assert {layer.shape for layer in layers_of(model)} == {None}


def test_layers_of_leaves_the_model_as_it_was():
    """Catches batch statistics that move, modes that are lost, hooks that stay, and dice that are thrown."""
    model = build_model("svhn-cnn:width=2", CIFAR, 5, seed=0).train()
    model.block2.eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    dice = torch.get_rng_state()
    layers_of(model, torch.rand(2, *CIFAR, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), dice)


def test_layers_of_restores_the_model_when_the_example_does_not_fit():
    model = build_model("mlp:3", (2,), 5, seed=0).train()
    with pytest.raises(RuntimeError):
        layers_of(model, torch.zeros(7, 4))
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


class Shared(nn.Module):
    """One module called twice, a tuple output, and a weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(4, 4)
        self.memory = nn.LSTM(4, 6, batch_first=True)
        self.out = nn.Linear(6, 4)
        self.same = nn.Linear(4, 4, bias=False)
        self.same.weight = self.twice.weight

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        hidden, _ = self.memory(self.twice(self.twice(x)))
        return self.same(self.out(hidden)) * scale


def test_layers_of_copes_with_tuples_sharing_and_named_arguments():
    x = torch.zeros(2, 3, 4)
    for example in (x, (x, 2.0), {"x": x, "scale": 2.0}):
        layers = {layer.name: layer for layer in layers_of(Shared(), example)}
        assert layers["twice"].shape == (3, 4)
        assert layers["memory"].shape is None  # (output, state)
        assert layers["out"].shape == (3, 4)
    root = nn.ModuleDict({"whole": Shared()})
    assert layers_of(root)[0].parameters == 20 + (4 * 6 * (4 + 6) + 8 * 6) + 28  # the shared 16 once


# default_layers


def test_our_own_networks_name_their_layers_themselves():
    model = build_model("cnn", MNIST, 10, seed=0)
    assert default_layers(model) == model.probe_layers


def flat_chain() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)
    )


def features_and_classifier() -> nn.Module:
    """The shape of AlexNet and VGG in most libraries."""
    model = nn.Module()
    model.features = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3),
    )
    model.avgpool = nn.AdaptiveAvgPool2d(1)
    model.classifier = nn.Sequential(nn.Dropout(), nn.Linear(4, 9), nn.ReLU(), nn.Dropout(), nn.Linear(9, 2))
    return model


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(9))


def stages() -> nn.Module:
    """The shape of ResNets in most libraries; the lists inside the blocks are longer than the stages."""
    model = nn.Module()
    model.conv1 = nn.Conv2d(3, 4, 3)
    model.layer1 = nn.Sequential(Residual(4), Residual(4))
    model.layer2 = nn.Sequential(Residual(4), Residual(4), Residual(4))
    model.avgpool = nn.AdaptiveAvgPool2d(1)
    model.fc = nn.Linear(4, 2)
    return model


def lists_in_a_list() -> nn.Module:
    """The shape of ConvNeXt: one list that holds the stages, themselves lists."""
    model = nn.Module()
    model.features = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)),
        nn.Sequential(Residual(4), Residual(4)),
        nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)),
        nn.Sequential(Residual(4)),
    )
    model.classifier = nn.Linear(4, 2)
    return model


def children_only() -> nn.Module:
    model = nn.Module()
    model.conv1, model.pool1 = nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)
    model.conv2, model.pool2 = nn.Conv2d(4, 4, 3), nn.MaxPool2d(2)
    model.fc1, model.relu, model.fc2 = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)
    return model


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (flat_chain, ("0", "2", "5")),
        (features_and_classifier, ("features.2", "features.5", "classifier.2")),
        (stages, ("layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer2.2", "avgpool")),
        (lists_in_a_list, ("features.1.0", "features.1.1", "features.3.0")),
        (children_only, ("pool1", "pool2", "relu")),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), ("0",)),
        (lambda: nn.Linear(3, 2), ()),
        (lambda: nn.Sequential(nn.Linear(3, 2)), ()),
    ],
)
def test_default_layers_of_common_shapes(make, names: tuple[str, ...]):
    assert default_layers(make()) == names


def test_a_network_without_a_linear_layer_is_refused():
    with pytest.raises(BadValue, match="Sequential: wanted a network with a linear layer"):
        default_layers(nn.Sequential(nn.Conv2d(3, 4, 3)))


def test_default_layers_of_transformers_networks():
    """Each name must exist and give one tensor, or no probe could be set there."""
    transformers = pytest.importorskip("transformers")
    size = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    vit = transformers.ViTForImageClassification(transformers.ViTConfig(**size, image_size=8, patch_size=4))
    bert = transformers.BertForSequenceClassification(transformers.BertConfig(**size, vocab_size=50))
    x, tokens = torch.zeros(2, 3, 8, 8), torch.zeros(2, 7, dtype=torch.long)
    for model, example, blocks, last in (
        (vit, {"pixel_values": x}, "vit.layers", "vit.layernorm"),
        (bert, {"input_ids": tokens}, "bert.encoder.layer", "bert.pooler"),
    ):
        names = default_layers(model)
        assert names == (*(f"{blocks}.{at}" for at in range(3)), last)
        assert head_of(model) == "classifier"
        shapes = {layer.name: layer.shape for layer in layers_of(model, example)}
        assert all(shapes[name] is not None for name in names)
        assert (shapes[last] or ())[-1] == 16
