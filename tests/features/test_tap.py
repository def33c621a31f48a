"""Taps: the right activations, and a model that is left exactly as it was."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict

import pytest
import torch
from torch import nn

from undertow.errors import BadData, BadValue, UnknownName
from undertow.features.layers import resolve_layers, unwrap
from undertow.features.tap import Tap, main_tensor


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rand(*shape):
    return torch.randn(*shape, generator=generator())


def seeded(build):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


class Convnet(nn.Module):
    """Batch norm, dropout and in-place activations, as in most convolutional networks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(3 * 16, 2)

    def forward(self, x):
        return self.head(self.drop(self.relu(self.norm(self.conv(x)))).flatten(1))


def fingerprint(model):
    """Everything a tap could leave behind."""
    state = {key: value.clone() for key, value in model.state_dict().items()}
    modes = {name: module.training for name, module in model.named_modules()}
    hooks = {
        name: (len(module._forward_hooks), len(module._forward_pre_hooks), len(module._backward_hooks))
        for name, module in model.named_modules()
    }
    gradients = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    return state, modes, hooks, gradients


def assert_untouched(model, before):
    state, modes, hooks, gradients = fingerprint(model)
    assert all(torch.equal(state[key], before[0][key]) for key in before[0])
    assert (modes, hooks, gradients) == before[1:]


# ---- what is captured ------------------------------------------------------------------------


def test_activations_are_those_of_a_plain_forward_pass():
    model, x = seeded(Convnet), rand(6, 1, 4, 4)
    with Tap(model, ["input", "conv", "norm", "relu", "head"]) as tap:
        output, features = tap(x)
    model.eval()
    with torch.no_grad():
        conv = model.conv(x)
        norm = model.norm(conv)
        relu = norm.relu()
        head = model.head(relu.flatten(1))
    assert torch.equal(output, head)
    assert list(features) == ["input", "conv", "norm", "relu", "head"]
    for name, expected in zip(features, (x, conv, norm, relu, head), strict=True):
        torch.testing.assert_close(features[name], expected.flatten(1))


def test_an_inplace_relu_does_not_reach_the_layer_before_it():
    """Fails if the activation is kept without a copy: batch norm's would be clipped at 0."""
    model, x = seeded(Convnet), rand(6, 1, 4, 4)
    with Tap(model, ["norm", "relu"]) as tap:
        _, features = tap(x)
    assert (features["norm"] < 0).any()
    assert torch.equal(features["norm"].clamp(min=0), features["relu"])


def test_an_input_changed_in_place_is_captured_before():
    model, x = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)), rand(5, 3)
    kept = x.clone()
    with Tap(model, "input") as tap:
        _, features = tap(x)
    assert torch.equal(features["input"], kept)


@pytest.mark.parametrize(
    ("conv", "reduced"),
    [
        ("flatten", lambda maps: maps.flatten(1)),
        ("mean", lambda maps: maps.mean((2, 3))),
        ("max", lambda maps: maps.amax((2, 3))),
    ],
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_maps(conv, reduced, layout):
    model, x = seeded(Convnet).to(memory_format=layout), rand(6, 1, 4, 4)
    with Tap(model, "conv", conv=conv) as tap:
        _, features = tap(x)
    torch.testing.assert_close(features["conv"], reduced(model.conv(x)).detach())


def test_three_dimensional_maps_are_maps():
    model, x = seeded(lambda: nn.Sequential(nn.Conv3d(1, 2, 1))), rand(4, 1, 2, 3, 3)
    with Tap(model, "0", conv="mean") as tap:
        _, features = tap(x)
    torch.testing.assert_close(features["0"], model(x).mean((2, 3, 4)).detach())


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask=None):
        return self.head(self.embed(input_ids).mean(1))


IDS = torch.tensor([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8], [0, 0, 9, 10, 11]])
MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])  # padded right, not, left


@pytest.mark.parametrize("tokens", ["mean", "first", "last", "flatten"])
def test_tokens_without_a_mask(tokens):
    model = seeded(Tokens)
    with Tap(model, "embed", tokens=tokens) as tap:
        _, features = tap({"input_ids": IDS})
    full = model.embed(IDS).detach()
    expected = {"mean": full.mean(1), "first": full[:, 0], "last": full[:, -1], "flatten": full.flatten(1)}
    torch.testing.assert_close(features["embed"], expected[tokens])


def test_masked_tokens_do_not_count():
    """Fails if padding is averaged in, or if `last` takes the padding of a row padded on the right."""
    model = seeded(Tokens)
    full = model.embed(IDS).detach()
    with Tap(model, "embed", tokens="mean") as tap:
        _, mean = tap({"input_ids": IDS, "attention_mask": MASK})
    with Tap(model, "embed", tokens="last") as tap:
        _, last = tap({"input_ids": IDS, "attention_mask": MASK})
    expected = torch.stack([full[0, :3].mean(0), full[1].mean(0), full[2, 2:].mean(0)])
    torch.testing.assert_close(mean["embed"], expected)
    assert torch.equal(last["embed"], torch.stack([full[0, 2], full[1, 4], full[2, 4]]))


def test_a_row_without_tokens_is_refused():
    """Fails where 0 / 0 gives NaN."""
    with Tap(seeded(Tokens), "embed") as tap, pytest.raises(BadData, match="none in row 1"):
        tap({"input_ids": IDS, "attention_mask": MASK * torch.tensor([[1], [0], [1]])})


def test_a_mask_of_another_length_is_left_aside_and_noted():
    model = seeded(Tokens)
    with Tap(model, "embed") as tap, pytest.warns(UserWarning, match="5 tokens, the mask 4"):
        _, features = tap({"input_ids": IDS, "attention_mask": MASK[:, :4]})
    torch.testing.assert_close(features["embed"], model.embed(IDS).mean(1).detach())
    assert len(tap.notes) == 1


class Answers(nn.Module):
    """Gives whatever it was told to."""

    def __init__(self, form) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.outer = Form(form)

    def forward(self, x):
        self.outer(self.inner(x))
        return x


class Form(nn.Module):
    def __init__(self, form) -> None:
        super().__init__()
        self.form = form

    def forward(self, x):
        return self.form(x)


@pytest.mark.parametrize(
    ("form", "factor"),
    [
        (lambda x: (2 * x, 3 * x), 2),
        (lambda x: [None, 3 * x], 3),
        (lambda x: ((None, 4 * x), x), 4),
        (lambda x: {"loss": None, "logits": 5 * x}, 5),
        (lambda x: OrderedDict(hidden=x, last_hidden_state=6 * x), 6),
        (lambda x: {"first": 7 * x, "second": x}, 7),
    ],
    ids=["tuple", "list", "nested", "logits", "last_hidden_state", "first of a dict"],
)
def test_outputs_that_are_not_tensors(form, factor):
    model, x = Answers(form), rand(3, 2)
    with Tap(model, "outer") as tap:
        _, features = tap(x)
    assert torch.equal(features["outer"], factor * x)


def test_an_output_without_any_tensor_is_refused_by_name():
    with Tap(Answers(lambda x: "words"), "outer") as tap, pytest.raises(BadData, match=r"'outer'.*got str"):
        tap(rand(3, 2))
    with pytest.raises(BadData, match="NoneType"):
        main_tensor(None)


def test_recurrent_layers_with_samples_second():
    """Fails if time steps are taken for samples; here there are as many of them, so shapes tell nothing."""
    model = seeded(lambda: nn.Sequential(OrderedDict(rnn=nn.LSTM(3, 4))))
    x = rand(5, 5, 3)  # (L, N, D)
    with Tap(model, "rnn", tokens="last") as tap:
        _, features = tap(x)
    torch.testing.assert_close(features["rnn"], model.rnn(x)[0][-1].detach())


@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_transformer_layers(batch_first):
    """Fails if torch's fused path skips the submodules, or if samples are not found where they are."""
    layer = seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=batch_first))
    model = seeded(lambda: nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    x = rand(5, 5, 8)
    with Tap(model, ["layers.0", "layers.1", "layers.*.linear1"]) as tap:
        output, features = tap(x)
    expected = output.mean(1 if batch_first else 0)
    torch.testing.assert_close(features["layers.1"], expected)
    assert features["layers.0.linear1"].shape == ((5, 16))


def test_a_first_dimension_that_is_not_the_batch_is_refused():
    """Fails where windows or steps are taken for samples in silence."""
    expected = r"'outer'.*first dimension of 3, got shape \(6, 1\)"
    with Tap(Answers(lambda x: x.reshape(6, 1)), "outer") as tap, pytest.raises(BadData, match=expected):
        tap(rand(3, 2))
    with Tap(Answers(torch.sum), "outer") as tap, pytest.raises(BadData, match=r"got shape \(\)"):
        tap(rand(3, 2))


def test_one_number_per_sample_becomes_a_column():
    with Tap(Answers(lambda x: x[:, 0]), "outer") as tap:
        assert tap(rand(3, 2))[1]["outer"].shape == (3, 1)


# ---- calls -----------------------------------------------------------------------------------


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.aux = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(self.fc(x).relu())


def test_a_layer_called_twice_gives_its_last_call_and_says_so_once():
    model, x = seeded(Twice), rand(4, 3)
    with Tap(model, "fc") as tap:
        with pytest.warns(UserWarning, match=r"'fc' runs 2 times in one pass: the last counts"):
            output, features = tap(x)
        assert torch.equal(features["fc"], output)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tap(x)
    assert len(tap.notes) == 1


def test_a_call_may_be_chosen():
    model, x = seeded(Twice), rand(4, 3)
    with Tap(model, "fc", call=0) as tap:
        _, features = tap(x)
    assert torch.equal(features["fc"], model.fc(x).detach())
    assert tap.notes == ()
    with (
        Tap(model, "fc", call=2) as tap,
        pytest.raises(BadValue, match=r"'fc'.*ran 2 times, so has no call 2"),
    ):
        tap(x)


def test_a_layer_that_never_runs_is_named():
    with Tap(seeded(Twice), "aux") as tap, pytest.raises(BadValue, match=r"'aux'.*never ran in this pass"):
        tap(rand(4, 3))


# ---- the model is left as it was -------------------------------------------------------------


def test_modes_hooks_and_state_are_as_before():
    """Fails if eval() is undone by train(): a frozen part would start to train."""
    model = seeded(Convnet).train()
    model.norm.eval()
    model.conv.weight.requires_grad_(False)
    model.head.register_forward_hook(lambda *_: None)
    before = fingerprint(model)
    with Tap(model, ["conv", "norm", "head"]) as tap:
        assert not any(module.training for module in model.modules())
        tap(rand(6, 1, 4, 4))
    assert_untouched(model, before)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("channels", [1, 5], ids=["in the block", "in the forward pass"])
def test_the_model_is_restored_after_an_exception(channels):
    model = seeded(Convnet).train()
    before = fingerprint(model)
    with pytest.raises(RuntimeError), Tap(model, ["conv", "relu"]) as tap:  # noqa: PT012
        tap(rand(6, channels, 4, 4))
        raise RuntimeError
    assert_untouched(model, before)
    with Tap(model, "conv") as tap:
        assert tap(rand(2, 1, 4, 4))[1]["conv"].shape == (2, 48)


def test_overridden_train_methods_are_not_called():
    """Fails for model.eval(): some modules merge weights or refuse there."""

    class Touchy(nn.Linear):
        def train(self, mode=True):
            raise AssertionError("train() was called")

    model = nn.Sequential(Touchy(3, 2))
    with Tap(model, "0") as tap:
        tap(rand(4, 3))
    assert model[0].training


def test_features_carry_no_graph_and_share_no_memory():
    model, x = seeded(Convnet), rand(6, 1, 4, 4)
    with Tap(model, ["input", "conv"]) as tap:
        output, features = tap(x)
        again = tap(x + 1)[1]
    assert not output.requires_grad
    assert not features["conv"].requires_grad
    assert torch.equal(features["input"], x.flatten(1))
    assert not torch.equal(features["conv"], again["conv"])


def test_taps_nest_and_reopen():
    model, x = seeded(Convnet).train(), rand(6, 1, 4, 4)
    outer = Tap(model, "conv")
    with outer:
        with Tap(model, "relu") as inner:
            inner(x)
            model(x[:2])  # not a call of the taps: other samples must not get into their features
        assert not model.training
        first = outer(x)[1]["conv"]
    assert model.training
    with outer:
        assert torch.equal(outer(x)[1]["conv"], first)
        with pytest.raises(BadValue, match="open already"), outer:
            pass
    assert model.training
    with pytest.raises(BadValue, match="inside its block"):
        outer(x)


def test_train_mode_batch_norm_would_differ():
    """The test above can fail: in train mode batch norm normalises by the batch."""
    model, x = seeded(Convnet).train(), rand(6, 1, 4, 4)
    with Tap(model, "norm") as tap:
        features = tap(x)[1]["norm"]
    assert not torch.allclose(features, copy.deepcopy(model).norm(model.conv(x)).flatten(1))


# ---- wrapped models --------------------------------------------------------------------------


def lightning_look_alike():
    class LightningLookAlike(nn.Module):
        """A module with steps and hooks of its own and a property called `device`, as Lightning's."""

        def __init__(self) -> None:
            super().__init__()
            self.net = Convnet()
            self.trainer = None

        @property
        def device(self):
            return torch.device("cpu")

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, batch_idx):
            return self(batch[0]).sum()

    return LightningLookAlike()


WRAPPERS = {
    "compiled": lambda: torch.compile(Convnet(), backend="eager"),
    "data parallel": lambda: nn.DataParallel(Convnet()),
    "compiled data parallel": lambda: torch.compile(nn.DataParallel(Convnet()), backend="eager"),
}


@pytest.mark.parametrize("kind", WRAPPERS)
def test_wrapped_models_answer_to_their_own_names(kind):
    wrapped, x = seeded(WRAPPERS[kind]), rand(6, 1, 4, 4)
    before = fingerprint(wrapped)
    for name in ("conv", "module.conv", "_orig_mod.conv"):
        with Tap(wrapped, name) as tap:
            output, features = tap(x)
        torch.testing.assert_close(features["conv"], unwrap(wrapped).conv(x).flatten(1).detach())
    assert output.shape == (6, 2)
    assert_untouched(wrapped, before)


@pytest.mark.parametrize("ran_before", [True, False])
def test_a_compiled_part_is_seen_and_not_compiled_anew(ran_before):
    """Fails if compiled code runs without the hook, or if the hook makes torch compile once more."""
    compiled = []

    def backend(graph, example):
        compiled.append(graph)
        return graph

    def build():
        return nn.Sequential(OrderedDict(body=nn.Sequential(nn.Linear(3, 4), nn.ReLU())))

    model, x = seeded(build), rand(5, 3)
    model.body = torch.compile(model.body, backend=backend)
    if ran_before:
        model(x)
    with Tap(model, ["body", "body.0"]) as tap:
        output, features = tap(x)
    assert len(compiled) == ran_before
    assert torch.equal(features["body"], output)
    assert (features["body.0"] < 0).any()


def test_a_model_compiled_in_place_is_seen():
    model, x = seeded(Convnet), rand(6, 1, 4, 4)
    model.compile(backend="eager")
    model(x)
    with Tap(model, "norm") as tap:
        assert (tap(x)[1]["norm"] < 0).any()


def test_a_lightning_module_is_a_module():
    model = seeded(lightning_look_alike)
    with Tap(model, "net.*") as tap:
        assert set(tap(rand(2, 1, 4, 4))[1]) == {
            f"net.{name}" for name in ("conv", "norm", "relu", "drop", "head")
        }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_inputs_follow_the_model_to_its_device():
    model = seeded(Convnet).cuda()
    with Tap(model, "conv") as tap:
        assert tap(rand(6, 1, 4, 4))[1]["conv"].is_cuda


def test_inputs_are_moved_to_the_models_device():
    """The same on any machine: `meta` stands in for another device."""
    model = nn.Linear(3, 2, device="meta")
    with Tap(nn.Sequential(model), "0") as tap:
        assert tap(rand(4, 3))[1]["0"].device.type == "meta"


def test_autocast_features_come_as_computed():
    model, x = seeded(Convnet), rand(2, 1, 4, 4)
    with Tap(model, ["conv", "input"]) as tap, torch.autocast("cpu", dtype=torch.bfloat16):
        _, features = tap(x)
    assert features["conv"].dtype == torch.bfloat16
    assert features["input"].dtype == torch.float32


def test_positional_inputs():
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, a, b, scale=1.0):
            return self.fc(a + b) * scale

    model, x = seeded(Sum), rand(4, 3)
    with Tap(model, ["input", "fc"]) as tap:
        output, features = tap((x, x, 2.0))
    torch.testing.assert_close(features["fc"], model.fc(2 * x).detach())
    torch.testing.assert_close(output, 2 * features["fc"])
    assert torch.equal(features["input"], x)


# ---- names -----------------------------------------------------------------------------------


def blocks():
    def block():
        return nn.Sequential(
            OrderedDict(attn=nn.Linear(2, 2), mlp=nn.Sequential(OrderedDict(mlp=nn.Linear(2, 2))))
        )

    return nn.Sequential(OrderedDict(stem=nn.Linear(2, 2), blocks=nn.Sequential(block(), block())))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("stem", ("stem",)),
        ("blocks.*.mlp", ("blocks.0.mlp", "blocks.1.mlp")),
        ("blocks.*", ("blocks.0", "blocks.1")),
        ("**.attn", ("blocks.0.attn", "blocks.1.attn")),
        ("blocks.[1].**.mlp", ("blocks.1.mlp", "blocks.1.mlp.mlp")),
        (["blocks.1", "input", "stem", "blocks.*"], ("blocks.1", "input", "stem", "blocks.0")),
        (("s?em",), ("stem",)),
    ],
    ids=str,
)
def test_names_and_patterns(asked, found):
    assert resolve_layers(blocks(), asked) == found


@pytest.mark.parametrize(
    ("asked", "near"), [("stme", "'stem'"), ("blocks.0.atn", "'blocks.0.attn'"), ("block.*.mlp", "'blocks")]
)
def test_unknown_names_are_answered_with_near_ones(asked, near):
    with pytest.raises(UnknownName, match=f"There is no layer.*Did you mean .*{near}"):
        resolve_layers(blocks(), asked)


def test_auto_takes_what_the_model_declares():
    model = blocks()
    model.probe_layers = ("input", "blocks.1")
    assert resolve_layers(model, "auto") == ("input", "blocks.1")
    assert resolve_layers(torch.compile(model, backend="eager"), ["auto", "stem"]) == (
        "input",
        "blocks.1",
        "stem",
    )


def test_auto_has_defaults_for_other_models():
    model = seeded(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    )
    with Tap(model, "auto") as tap:
        _, features = tap(rand(4, 3))
    assert features
    assert all(rows.shape[0] == 4 for rows in features.values())


def test_auto_leaves_out_what_is_the_input_still():
    """Fails if a Flatten before all weights counts as a layer: a head grafted on it would be no repair."""
    deep = [nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)]
    assert resolve_layers(nn.Sequential(*deep), "auto") == ("2", "4")
    assert resolve_layers(nn.Sequential(nn.Identity(), *deep), "auto") == ("3", "5")
    assert resolve_layers(nn.Sequential(*deep), "0") == ("0",), "who asks for it gets it"
    assert resolve_layers(nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), "auto") == ("input",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"conv": "sum"}, "wanted flatten or mean or max, got 'sum'"),
        ({"tokens": "middle"}, "wanted mean or first or last or flatten"),
        ({"call": -1}, "a call's number from 0, got -1"),
        ({"call": True}, "got True"),
        ({"layers": []}, "at least one layer name"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_when_the_tap_is_made(settings, message):
    with pytest.raises(BadValue, match=message):
        Tap(blocks(), **{"layers": "stem", **settings})
