"""Where networks can be cut: what is accepted, what is refused and why."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from undertow.errors import BadData, BadValue, UnknownName
from undertow.models import build_model
from undertow.temporal.cuts import explain_cuts, find_cut, find_cuts, valid_cuts


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


CATALOGUE = {
    "mlp:16-16": (1, 8, 8),
    "mlp2d": (1, 8, 8),
    "cnn:width=2,units=8": (1, 8, 8),
    "resnet8": (3, 16, 16),
    "resnet18:width=2": (3, 16, 16),
    "resnet18:width=2,preact": (3, 16, 16),
    "vgg16bn:width=2": (3, 32, 32),
    "svhn-cnn:width=2": (3, 32, 32),
    "vit:depth=2,width=12": (3, 8, 8),
}


@pytest.mark.parametrize("spec", CATALOGUE)
def test_the_catalogues_own_cuts_are_valid(spec):
    model = build_model(spec, CATALOGUE[spec], 10, seed=0).train()
    found = valid_cuts(model, draw(8, *CATALOGUE[spec]))
    assert set(model.cuts) <= set(found)
    assert "head" not in found
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_residual_blocks_are_borders_and_their_insides_are_not():
    """Fails if a skip connection is overlooked: hooks alone broadcast one sample silently there."""
    reasons = explain_cuts(build_model("resnet8", (3, 16, 16), 10, seed=0), draw(8, 3, 16, 16))
    assert [name for name, reason in reasons.items() if not reason] == [
        "stem.conv", "stem", "layer1", "layer2", "layer3",
    ]  # fmt: skip
    assert "goes round it" in reasons["layer2.0.conv1"]
    assert "goes round it" in reasons["layer2.0.shortcut"]
    assert reasons["layer2.0.relu2"] == "it makes the same composites as layer2"
    assert reasons["avg_pool"] == "it makes the same composites as layer3"
    assert reasons["head"] == "nothing with weights runs after it"


def test_a_refused_cut_names_its_reason_and_its_neighbours():
    model = build_model("resnet20", (3, 16, 16), 10, seed=0)
    with pytest.raises(
        BadValue, match=r"'layer2.1.conv1'. Here another value goes round it .*layer2.0 and layer2.1"
    ):
        find_cut(model, "layer2.1.conv1", draw(8, 3, 16, 16))
    with pytest.raises(UnknownName, match="Did you mean"):
        find_cut(model, "layr2", draw(8, 3, 16, 16))
    with pytest.raises(BadValue, match=r"one module's name.*layer1, layer2, layer3"):
        find_cut(model, "layer*", draw(8, 3, 16, 16))
    with pytest.raises(BadData, match="at least two samples"):
        find_cut(model, "layer2", draw(1, 3, 16, 16))


class Forms(nn.Module):
    """One body after another between two linear layers; each is a way in which a cut can fail."""

    def __init__(self, body: Callable[[Forms, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.unused, self.relu = nn.Linear(6, 6), nn.ReLU()
        self.scale = nn.Parameter(torch.ones(6))
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


def form(body: Callable[[Forms, Tensor], Tensor]) -> nn.Module:
    return seeded(lambda: Forms(body))


def reads_input_again(net: Forms, x: Tensor) -> Tensor:
    return net.last(net.middle(net.first(x)) + x)


def runs_twice(net: Forms, x: Tensor) -> Tensor:
    return net.last(net.middle(net.middle(net.first(x))))


def weight_on_both_sides(net: Forms, x: Tensor) -> Tensor:
    return net.last(net.middle(net.first(x) * net.scale) * net.scale)


def centres_its_batch(net: Forms, x: Tensor) -> Tensor:
    h = net.first(x)
    return net.last(net.middle(h - h.mean(0)))


def shares_a_relu(net: Forms, x: Tensor) -> Tensor:
    return net.last(net.relu(net.middle(net.relu(net.first(x)))))


def counts_its_input(net: Forms, x: Tensor) -> Tensor:
    return net.last(net.middle(net.first(x)).view(x.shape[0], -1))


def leaks_a_number(net: Forms, x: Tensor) -> Tensor:
    positive = float(x[0, 0] > 0)
    return net.last(net.middle(net.first(x))) * positive


@pytest.mark.parametrize(
    ("body", "cut", "reason"),
    [
        (reads_input_again, "first", "another value goes round it"),
        (runs_twice, "middle", "it runs 2 times"),
        (runs_twice, "unused", "it never runs"),
        (weight_on_both_sides, "middle", "scale is used before and after it"),
        (centres_its_batch, "first", "depends on the others in its batch"),
        # No operation after the cut shows this one: only the trial on real samples does.
        (leaks_a_number, "first", "does not give the same answer from its output alone"),
    ],
)
def test_a_reason_for_every_kind_of_bad_cut(body, cut, reason):
    x = draw(8, 6).abs() * torch.tensor([1.0] * 4 + [-1.0] * 4)[:, None]  # what runs before has other signs
    assert reason in explain_cuts(form(body), x)[cut]


def test_a_module_without_weights_may_serve_both_sides():
    """Fails if every shared module is refused: a ReLU has nothing that could differ."""
    assert valid_cuts(form(shares_a_relu), draw(8, 6)) == ("first", "middle")


def test_a_network_that_counts_its_samples_after_the_cut_is_still_cut():
    """Fails if the number of samples before the cut is always one."""
    cut = find_cut(form(counts_its_input), "first", draw(8, 6))
    assert cut.whole_prefix
    assert not find_cut(form(shares_a_relu), "first", draw(8, 6)).whole_prefix


def test_shallow_weights_follow_the_run_and_not_the_definition():
    """Fails if the order of registration decides, or weights outside layers are lost."""

    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.norm, self.first = nn.Linear(6, 3), nn.BatchNorm1d(6), nn.Linear(6, 6)
            self.early, self.late = nn.Parameter(torch.ones(6)), nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.norm(self.first(x * self.early))) * self.late

    cut = find_cut(seeded(Backwards), "norm", draw(8, 6))
    assert cut.shallow == {
        "early", "first.weight", "first.bias", "norm.weight", "norm.bias", "norm.running_mean",
        "norm.running_var", "norm.num_batches_tracked",
    }  # fmt: skip


def test_two_inputs_of_which_one_bypasses_the_cut():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.last(self.first(a) * b)

    model = seeded(Two)
    reason = "another value goes round it (a skip connection, or an input that is used again)"
    assert explain_cuts(model, (draw(8, 6), draw(8, 6, seed=1)))["first"] == reason
    # The same if the second input is alike for all samples, where trying it out shows nothing.
    assert explain_cuts(model, {"a": draw(8, 6), "b": torch.ones(8, 6)})["first"] == reason


def test_changes_in_place_after_the_cut_are_noticed():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
    assert find_cut(model, "0", draw(8, 6)).in_place
    assert not find_cut(build_model("mlp:8-8", (6,), 3, seed=0), "layer1", draw(8, 6)).in_place


def test_auto_takes_the_models_own_cuts_in_running_order():
    model, x = build_model("vgg16bn:width=2", (3, 32, 32), 10, seed=0), draw(8, 3, 32, 32)
    assert tuple(cut.name for cut in find_cuts(model, "auto", x)) == model.cuts
    assert [cut.name for cut in find_cuts(model, ["fc1", "block1"], x)] == ["block1", "fc1"]
    plain = seeded(
        lambda: nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    )
    assert len(find_cuts(plain, "auto", draw(8, 6))) == 2


def test_a_network_without_any_cut_says_so():
    model = form(reads_input_again)
    assert valid_cuts(model, draw(8, 6)) == ()
    with pytest.raises(BadValue, match="The network has no valid cut"):
        find_cut(model, "first", draw(8, 6))
    with pytest.raises(BadValue, match="can be parted somewhere"):
        find_cuts(model, "auto", draw(8, 6))
