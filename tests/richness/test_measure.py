"""The last layer found, and a whole network measured in one pass."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from undertow.errors import BadData, BadValue, UnknownName
from undertow.features.head import last_layer, watch_layer
from undertow.models.build import build_model
from undertow.richness import (
    d_lr,
    d_lr_interval,
    effective_dimension,
    measure_richness,
    neural_collapse,
    squared_parameter_norm,
)
from undertow.richness.head_richness import COLLAPSE, MEASURES


class Net(nn.Module):
    """Batch norm and dropout, so that the mode matters; something follows the head if asked for."""

    def __init__(self, after: nn.Module | None = None):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 3)
        self.after = after or nn.Identity()

    def forward(self, x):
        return self.after(self.head(input=self.body(x)))


def sample(n=70):
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, 5, generator=g), torch.arange(n) % 3


def net(after=None):
    torch.manual_seed(0)
    return Net(after)


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_last_layer_of_ours_and_of_wrapped_models():
    model = net()
    assert last_layer(model) == "head"
    assert last_layer(nn.DataParallel(model)) == "head"
    assert last_layer(nn.Linear(2, 2)) == ""
    assert last_layer(build_model("resnet18", (3, 32, 32), 10, seed=0)) == "head"
    with pytest.raises(BadValue, match="a network with a linear layer"):
        last_layer(nn.ReLU())


def test_one_pass_gives_what_the_plain_functions_give():
    """Fails in training mode (batch norm, dropout), or if features are taken after the head."""
    model, (x, y) = net(), sample()
    state, wanted_mode = copy.deepcopy(model.state_dict()), model.training
    found = measure_richness(model, x, y, batch_size=32)
    assert model.training is wanted_mode
    assert hooks(model) == 0
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())

    with torch.no_grad():
        features, outputs = model.eval().body(x), model(x)
    wanted = d_lr_interval(features, outputs)
    ends = [found.d_lr.value, found.d_lr.low, found.d_lr.high]
    assert ends == pytest.approx([wanted.value, wanted.low, wanted.high], rel=1e-6)
    assert found.effective_dimension.value == pytest.approx(effective_dimension(features), rel=1e-6)
    rest = effective_dimension(features, True)
    assert found.effective_dimension_rest.value == pytest.approx(rest, rel=1e-6)
    collapse = neural_collapse(features, y, model.head.weight, predictions=outputs)
    for name in COLLAPSE:
        assert getattr(found, name).value == pytest.approx(getattr(collapse, name), rel=1e-6), name
    assert found.squared_parameter_norm.value == squared_parameter_norm(model)
    assert (found.layer, found.linear_view, found.rank, found.count, found.dim) == ("head", False, 3, 70, 8)
    assert found.notes == ()


@pytest.mark.parametrize("memory", ["1kB", "3kB", "10GB"])
def test_moments_are_gathered_where_features_do_not_fit(memory):
    """From the first batch, in between, or never: the same numbers. Fails if rows or labels are lost on the way."""
    model, (x, y) = net(), sample()
    whole, found = measure_richness(model, x, y), measure_richness(model, x, y, batch_size=16, memory=memory)
    needs_samples = ["nc4"] if memory != "10GB" else []
    for name in MEASURES:
        ours, wanted = getattr(found, name), getattr(whole, name)
        assert (ours.value is None) == (wanted.value is None or name in needs_samples), name
        if ours.value is not None:
            assert ours.value == pytest.approx(wanted.value, rel=1e-6), name
        assert ours.value is not None or ours.reason, name
    assert (found.count, found.dim, found.rank, found.notes) == (70, 8, 3, ())
    assert (found.d_lr.low is None) == (memory != "10GB")
    assert found.d_lr.reason == ("" if memory == "10GB" else "no interval: it needs the samples")
    assert measure_richness(model, x, batch_size=16, memory="1kB").nc1.reason == "no labels were given"
    with pytest.raises(BadData, match=r"wanted 70 labels, .* got 60"):
        measure_richness(model, x, y[:60], batch_size=16, memory=memory)


def test_another_layer_is_marked_as_a_linear_view():
    model, (x, y) = net(), sample()
    found = measure_richness(model, x, y, layer="body.0", prepare=lambda batch: 2 * batch)
    with torch.no_grad():
        model.eval()
        wanted = d_lr(model.body[0](2 * x), model(2 * x))
    assert found.d_lr.value == pytest.approx(wanted, rel=0, abs=1e-6)
    assert found.linear_view
    assert "a linear view only" in found.notes[0]
    assert found.nc1.value is not None
    assert found.nc3.value is None
    assert "it needs weights" in found.nc3.reason
    assert measure_richness(model, x, layer="head").linear_view is False
    with pytest.raises(UnknownName, match="Did you mean 'head'"):
        measure_richness(model, x, layer="haed")
    with pytest.raises(BadValue, match="wanted one layer"):
        measure_richness(model, x, layer="body.*")


def test_what_follows_the_head_is_told_and_left_out():
    """Fails if softmax outputs are taken for the learned functions, or an in-place change is seen."""
    x, y = sample()
    plain = measure_richness(net(), x, y)
    for after in (nn.Softmax(1), nn.ReLU(inplace=True)):
        found = measure_richness(net(after), x, y)
        assert found.d_lr == plain.d_lr
        assert found.d_lr.value is not None
        assert found.notes == (
            "the network goes on after layer 'head': what leaves that layer counts as its outputs",
        )


def test_a_measure_without_a_value_says_why():
    model, (x, y) = net(), sample()
    nn.init.zeros_(model.head.weight)
    found = measure_richness(model, x, torch.zeros_like(y))
    assert found.d_lr.value is None
    assert "got constant ones: no function was learned" in found.d_lr.reason
    assert found.effective_dimension.value is not None
    for name in COLLAPSE:
        assert getattr(found, name).value is None
        assert "two classes or more" in getattr(found, name).reason
    few = measure_richness(net(), x[:6])
    assert few.notes == ("only 6 samples for 8 features: take more than 8",)
    assert "at least 40 samples for 20 groups, got 6" in few.d_lr.reason
    assert few.nc1.reason == "no labels were given"
    with pytest.raises(
        BadData, match="wanted 70 labels, one for each row that enters the layer and is no padding, got 60"
    ):
        measure_richness(model, x, y[:60])
    with pytest.raises(BadData, match="layer 'head': wanted finite"):
        measure_richness(model, x * torch.nan)


class Tokens(nn.Module):
    """Each token is answered, or with `pool` the mean token; the mask is looked at by the caller only."""

    def __init__(self, pool=False):
        super().__init__()
        self.pool = pool
        self.embed = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, ids, attention_mask=None):
        tokens = self.embed(ids) ** 2
        return self.head(tokens.mean(1) if self.pool else tokens)


def test_tokens_are_samples():
    torch.manual_seed(0)
    model, ids = Tokens(), torch.randint(11, (9, 5), generator=torch.Generator().manual_seed(1))
    found = measure_richness(model, ids, batch_size=4)
    with torch.no_grad():
        features = (model.embed(ids) ** 2).reshape(-1, 6)
        wanted = d_lr(features, model.head(features), precise=True)
    assert found.d_lr.value == pytest.approx(wanted, rel=0, abs=1e-10)
    assert found.count == 45


def masked_tokens():
    g = torch.Generator().manual_seed(1)
    ids = torch.randint(11, (9, 5), generator=g)
    mask = (torch.arange(5) < torch.randint(1, 6, (9, 1), generator=g)).long()
    mask[4:8] = 0  # a whole batch of padding
    return ids, mask, torch.randint(3, (9, 5), generator=g)


def test_padding_is_no_sample():
    """Fails if masked tokens count, or labels are matched with the wrong tokens."""
    torch.manual_seed(0)
    model, (ids, mask, labels) = Tokens(), masked_tokens()
    kept = mask != 0
    found = measure_richness(model, {"ids": ids, "attention_mask": mask}, labels[kept], batch_size=4)
    with torch.no_grad():
        squares = model.embed(ids) ** 2
        # In the batches of the measurement: a float32 product may round a row by its place.
        outputs = torch.cat([model.head(part) for part in squares.split(4)])[kept]
        features = squares[kept]
    assert found.d_lr.value == pytest.approx(d_lr(features, outputs, precise=True), rel=0, abs=1e-10)
    assert found.nc1.value == pytest.approx(neural_collapse(features, labels[kept]).nc1, rel=1e-6)
    assert found.count == int(kept.sum()) < 45
    with pytest.raises(
        BadData, match=f"wanted {int(kept.sum())} labels, one for each row .* no padding, got 45"
    ):
        measure_richness(model, {"ids": ids, "attention_mask": mask}, labels.flatten())


def test_a_mask_of_other_tokens_is_told_and_one_of_samples_is_no_matter():
    torch.manual_seed(0)
    ids, mask, _ = masked_tokens()
    mask[4:8, 0] = 1
    found = measure_richness(Tokens(), {"ids": ids, "attention_mask": mask[:, :3]})
    assert found.count == 45
    assert found.notes == ("5 tokens enter layer 'head', the attention_mask has 3: all of them count",)
    pooled = measure_richness(Tokens(pool=True), {"ids": ids, "attention_mask": mask})
    assert pooled.count == 9


def test_a_linear_view_leaves_padding_out():
    """Fails if padded tokens are flattened into the features."""
    torch.manual_seed(0)
    model, (ids, mask, _) = Tokens(pool=True), masked_tokens()
    mask[4:8, 0] = 1
    inputs = {"ids": ids, "attention_mask": mask}
    found = measure_richness(model, inputs, layer="embed")
    with torch.no_grad():
        kept = mask[..., None].float()
        features = (model.embed(ids) * kept).sum(1) / kept.sum(1)
        assert found.d_lr.value == pytest.approx(d_lr(features, model(ids), precise=True), rel=0, abs=1e-6)
    assert found.dim == 6
    with pytest.raises(BadValue, match="Measure the last layer"):
        measure_richness(Tokens(), inputs, layer="embed")


def test_watching_ends_with_an_exception():
    model = net()
    with pytest.raises(RuntimeError), watch_layer(model, "head"):
        model(torch.zeros(2, 99))
    assert hooks(model) == 0
