"""Composites of two checkpoints: to the bit where they are one model, and against merged state dicts."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from undertow.errors import BadValue, RunProblem
from undertow.features.stopping import evaluating
from undertow.models import build_model
from undertow.temporal import batchnorm
from undertow.temporal.compose_merge import compose
from undertow.temporal.compose_split import Deep, capture
from undertow.temporal.cuts import find_cut

NETS = {
    "mlp:16-16": ((1, 8, 8), "layer1"),
    "resnet20:width=4": ((3, 16, 16), "layer2"),
    "vgg16bn:width=2": ((3, 32, 32), "block2"),
    "vit:depth=2,width=12": ((3, 8, 8), "block1"),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def state(spec: str, shape: tuple[int, ...], seed: int) -> dict[str, Tensor]:
    """A state dict with other weights and other batch-norm statistics for every seed."""
    model, noise = build_model(spec, shape, 10, seed=seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.add_(torch.rand(value.shape, generator=noise) * (0.5 if "running" in name else 0.05))
    return model.state_dict()


@pytest.fixture(params=NETS)
def net(request):
    """A model in evaluation mode, two state dicts, inputs and a cut."""
    shape, cut = NETS[request.param]
    model = build_model(request.param, shape, 10, seed=9).eval()
    return model, state(request.param, shape, 1), state(request.param, shape, 2), draw(16, *shape), cut


def loaded(model: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    made = deepcopy(model)
    made.load_state_dict(weights)
    return made


def test_a_checkpoint_with_itself_is_the_model_to_the_bit(net):
    model, early, _, x, cut = net
    whole = loaded(model, early)
    assert torch.equal(compose(model, early, early, cut)(x), whole(x))
    found = find_cut(whole, cut, x)
    features = capture(whole, x, [cut])[0][cut]
    assert torch.equal(Deep(whole, found)(features, x), whole(x))


@pytest.mark.parametrize("with_samples", [False, True])
def test_composites_are_merged_state_dicts(net, with_samples):
    """An independent merge by the names of blocks; fails if statistics do not go with their layers."""
    model, early, late, x, cut = net
    before = deepcopy(model.state_dict())
    made = compose(model, shallow=early, deep=late, cut=cut, x=x if with_samples else None)
    blocks = [name for name, _ in model.named_children()]
    shallow = blocks[: blocks.index(cut) + 1]
    expected = {name: (early if name.split(".")[0] in shallow else late)[name] for name in early}
    assert all(torch.equal(value, expected[name]) for name, value in made.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not torch.equal(made(x), loaded(model, late)(x))
    assert not torch.equal(made(x), loaded(model, early)(x))


def test_deep_parts_of_another_checkpoint_answer_like_the_merged_network(net):
    """The two-part way (shallow outputs once, then any deep part) against whole composites, to the bit."""
    model, early, late, x, cut = net
    front, back = loaded(model, early), loaded(model, late)
    found = find_cut(model, cut, x)
    features = capture(front, x, [cut])[0][cut]
    assert torch.equal(Deep(back, found)(features, x[:1]), compose(model, early, late, cut)(x))


class Wrapper(nn.Module):
    """Hides the chain, so that hooks are needed."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_hooks_give_the_same_bits_as_slices(net):
    model, early, late, x, cut = net
    front, back = Wrapper(loaded(model, early)), Wrapper(loaded(model, late))
    found = find_cut(front, f"inner.{cut}", x)
    assert not found.chain
    features = capture(front, x, [found.name])[0][found.name]
    expected = compose(model, early, late, cut)(x)
    assert torch.equal(Deep(back, found)(features, draw(1, *x.shape[1:], seed=5)), expected)
    wrapped = {f"inner.{name}": value for name, value in early.items()}
    made = compose(
        back, wrapped, {f"inner.{name}": value for name, value in late.items()}, f"inner.{cut}", x=x
    )
    assert torch.equal(made(x), expected)


def test_one_sample_runs_before_the_cut(net):
    """The deep part asks for no more of the shallow one than it needs."""
    model, _, _, x, cut = net
    outer, seen = Wrapper(model), []
    found, chain = find_cut(outer, f"inner.{cut}", x), find_cut(model, cut, x)
    features = capture(outer, x, [found.name])[0][found.name]
    next(model.children()).register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    Deep(outer, found)(features, x)
    assert seen == [1]
    assert not found.in_place, "nothing is copied that nobody changes"
    Deep(model, chain)(features, x)
    assert (chain.chain, seen) == (True, [1]), "in a plain chain nothing runs before it"


class Counted(nn.Module):
    """Its deep part asks how many samples came in, which a prefix of one sample would tell wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu().reshape(len(x), 8))


def test_a_deep_part_that_counts_samples_gets_all_before_the_cut():
    model, x = Counted().eval(), draw(12, 6)
    found = find_cut(model, "first", x)
    features = capture(model, x, ["first"])[0]["first"]
    assert torch.equal(Deep(model, found)(features, draw(12, 6, seed=3)), model(x))


def test_one_pass_gives_several_cuts_and_stops_after_the_last():
    model, x = build_model("mlp:16-16-16", (1, 8, 8), 10, seed=0).eval(), draw(4, 1, 8, 8)
    ran = []
    model.layer3.register_forward_hook(lambda *_: ran.append("layer3"))
    model.layer1.register_forward_hook(lambda *_: ran.append("layer1"))
    features, whole = capture(model, x, ["layer1", "layer2"])
    assert (list(features), whole, ran) == (["layer1", "layer2"], None, ["layer1"])
    assert torch.equal(features["layer2"], model[:3](x))
    _, whole = capture(model, x, ["layer1"], go_on=True)
    assert torch.equal(whole, model(x))


def test_features_survive_a_network_that_changes_them_in_place():
    """Fails if a stored output is handed to an in-place ReLU, or captured without a copy."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)
        )
    x = draw(8, 6)
    cut, expected = find_cut(model, "0", x), model(x)
    assert cut.in_place
    with evaluating(model):
        features = capture(model, x, ["0", "2"])[0]
    assert (features["0"] < 0).any()
    deep = Deep(model, cut)
    assert torch.equal(deep(features["0"], x), expected)
    assert torch.equal(deep(features["0"], x), expected)


def test_what_compose_refuses():
    model, x = build_model("vit:depth=1,width=12", (3, 8, 8), 10, seed=0), draw(8, 3, 8, 8)
    weights = model.state_dict()
    with pytest.raises(BadValue, match=r"samples x to see what runs before 'block1.mlp'"):
        compose(model, weights, weights, "block1.mlp")
    with pytest.raises(BadValue, match="nearest valid cuts are embed and block1"):
        compose(model, weights, weights, "block1.mlp", x=x)
    with pytest.raises(RunProblem, match=r"compose\(shallow=...\).*no embed.positions"):
        compose(
            model, {name: weights[name] for name in weights if name != "embed.positions"}, weights, "embed"
        )
    with pytest.raises(RunProblem, match=r"compose\(deep=...\).*instead of"):
        compose(model, weights, weights | {"head.weight": torch.zeros(3, 12)}, "embed")
    shared = nn.Linear(6, 6)
    twice = nn.Sequential(shared, nn.ReLU(), nn.Linear(6, 6), shared)
    with pytest.raises(BadValue, match=r"0.weight is used before and after it"):
        compose(twice, twice.state_dict(), twice.state_dict(), "1")


def test_wrapped_models_and_state_dicts():
    """DataParallel and torch.compile: names inside count, prefixes of their state dicts do not."""
    model, x = build_model("mlp:16-16", (1, 8, 8), 10, seed=9).eval(), draw(4, 1, 8, 8)
    early, late = state("mlp:16-16", (1, 8, 8), 1), state("mlp:16-16", (1, 8, 8), 2)
    expected = compose(model, early, late, "layer1")(x)
    prefixed = {f"module.{name}": value for name, value in early.items()}
    assert torch.equal(compose(nn.DataParallel(model), prefixed, late, "layer1")(x), expected)
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compose(compiled, early, late, "layer1", x=x)(x), expected)


def test_recalibrated_statistics_are_those_of_the_composites_features():
    """Against float64 means and variances taken by hand; the model and the shallow norms stay as they were."""
    spec, shape = "svhn-cnn:width=2,dropout=0.5", (3, 32, 32)
    model = build_model(spec, shape, 10, seed=0).eval()
    net = compose(model, state(spec, shape, 1), state(spec, shape, 2), "block2")
    for norm in (part for part in net.modules() if isinstance(part, batchnorm.KINDS)):
        norm.num_batches_tracked.fill_(40)  # as after training: fails if these batches count too
    x, before = draw(12, *shape), deepcopy(net.state_dict())
    fixed = batchnorm.recalibrated(net, x, cut="block2")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    changed = {name for name, value in fixed.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all(name.startswith(("block3.norm", "block4.norm")) for name in changed)
    assert not any(module.training for module in fixed.modules())
    entering = net.block3.conv1(net.block2(net.block1(x))).double()
    mean, variance = entering.mean((0, 2, 3)), entering.var((0, 2, 3), unbiased=True)
    torch.testing.assert_close(fixed.block3.norm1.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(fixed.block3.norm1.running_var.double(), variance, rtol=1e-5, atol=0)


def test_recalibration_batches_are_of_one_size_and_never_single():
    for count, size in ((2, 1), (7, 3), (513, 256), (1024, 256), (3, 256)):
        sizes = [rows.stop - rows.start for rows in batchnorm.even_batches(count, size)]
        assert sum(sizes) == count
        assert min(sizes) >= 2
        assert max(sizes) - min(sizes) <= 1
    with pytest.raises(BadValue, match="at least two samples"):
        batchnorm.even_batches(1, 256)
