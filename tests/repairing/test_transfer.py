"""Heads found and written, whatever the model calls them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from undertow.errors import BadData, BadValue, UnknownName
from undertow.features import Tap
from undertow.features.head import find_head
from undertow.latent import LogisticProbe, VeLPIC
from undertow.repairing import write_head, write_probe_into_head
from undertow.training import EditAt

from .nets import LogSoftmax, Reversed, TimmLike, images, seeded


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def entering(model: nn.Module, head: str, x: torch.Tensor) -> torch.Tensor:
    """What enters the head, by a hook of our own."""
    seen: list[torch.Tensor] = []
    hook = model.get_submodule(head).register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    model.eval()(x)
    hook.remove()
    return seen[0]


def chain(bias: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3, bias=bias))


@pytest.mark.parametrize(
    ("factory", "head"),
    [
        (lambda: chain(), "3"),
        (lambda: chain(bias=False), "3"),
        (lambda: nn.Sequential(chain(), nn.LogSoftmax(1)), "0.3"),
        (lambda: TimmLike(), "head.fc"),
        (lambda: TimmLike(bias=False), "head.fc"),
        (lambda: LogSoftmax(TimmLike()), "inner.head.fc"),
        (lambda: nn.DataParallel(TimmLike()), "head.fc"),
    ],
)
def test_edited_model_answers_as_the_probe(factory, head):
    """Fails if the wrong layer were written, a bias stayed, or features were taken in training mode."""
    model = seeded(factory).train()
    (x, y), (x2, _) = images(), images(seed=1)
    before = state(model)
    edit = write_probe_into_head(model, (x, y))
    assert edit.name == head
    assert all(module.training for module in model.modules())

    inner = model.module if isinstance(model, nn.DataParallel) else model
    probe = VeLPIC().fit(entering(inner, head, x), y)
    said = model.eval()(x2).argmax(1)
    assert torch.equal(said, probe.predict(entering(inner, head, x2)))
    written = inner.get_submodule(head)
    torch.testing.assert_close(written.weight.detach(), torch.as_tensor(probe.vectors_), rtol=1e-4, atol=1e-5)
    assert written.bias is None or not written.bias.any()

    edit.undo()
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_logistic_brings_its_bias():
    model, (x, y) = seeded(chain), images()
    write_probe_into_head(model, (x, y), probe="logistic")
    probe = LogisticProbe().fit(entering(model, "3", x), y)
    assert torch.equal(model[3].bias.detach(), torch.as_tensor(probe.intercept_))
    with pytest.raises(BadValue, match="a bias to write to"):
        write_probe_into_head(seeded(chain, bias=False), (x, y), probe="logistic")


def test_a_model_that_is_its_own_head():
    model, (x, y) = seeded(nn.Linear, 64, 3), images()
    edit = write_probe_into_head(model, (x.flatten(1), y))
    assert edit.name == ""
    assert torch.equal(model(x.flatten(1)).argmax(1), VeLPIC().fit(x.flatten(1), y).predict(x.flatten(1)))


def test_bert_head_with_masks():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    model = seeded(transformers.BertForSequenceClassification, config)
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 30, (60, 6), generator=random)
    mask = (torch.arange(6) < torch.randint(2, 7, (60, 1), generator=random)).long()
    inputs, labels = {"input_ids": tokens, "attention_mask": mask}, torch.arange(60) % 3
    edit = write_probe_into_head(model, (inputs, labels))
    assert edit.name == "classifier"
    with Tap(model, "bert.pooler") as tap:
        output, features = tap(inputs)
    probe = VeLPIC().fit(features["bert.pooler"], labels)
    assert torch.equal(output.logits.argmax(1), probe.predict(features["bert.pooler"]))


def test_gpt_head_is_read_at_the_token_that_answers():
    """Fails if the features of the mean or the last token were taken instead of the last real one."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=30, n_positions=16, n_embd=16, n_layer=1, n_head=2, num_labels=3, pad_token_id=0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = seeded(transformers.GPT2ForSequenceClassification, config)
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 30, (60, 6), generator=random)
    length = torch.randint(2, 7, (60,), generator=random)
    tokens[torch.arange(6) >= length[:, None]] = 0
    labels = torch.arange(60) % 3
    head = find_head(model, tokens[:8])
    assert (head.name, head.classes, head.per_token) == ("score", 3, True)
    write_probe_into_head(model, (tokens, labels))
    with Tap(model, "transformer", tokens="flatten") as tap:
        output, features = tap(tokens)
    rows = features["transformer"].reshape(60, 6, 16)[torch.arange(60), length - 1]
    assert torch.equal(output.logits.argmax(1), VeLPIC().fit(rows, labels).predict(rows))


def test_tied_and_computed_weights_are_refused():
    model = seeded(chain)
    other = nn.Linear(16, 3)
    other.weight = model[3].weight
    model.append(nn.Identity())
    model[4].twin = other
    with pytest.raises(BadValue, match="shared with Linear"):
        write_head(model, "3", torch.zeros(3, 16))
    model = seeded(chain)
    nn.utils.parametrizations.weight_norm(model[3])
    with pytest.raises(BadValue, match="computed from others"):
        write_head(model, "3", torch.zeros(3, 16))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten()),
            "ends in a linear layer, but there is none",
        ),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 1)), r"one output \(a regression\)"),
        (lambda: Reversed(TimmLike()), "goes on behind 'inner.head.fc'"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Softmin(1)), "goes on behind '1'"),
    ],
)
def test_models_without_such_a_head(model, message):
    with pytest.raises(BadValue, match=message):
        write_probe_into_head(seeded(model), images())


def test_labels_and_features_that_do_not_fit():
    x, y = images()
    with pytest.raises(BadData, match=r"class numbers 0 to 2, as the head has 3 outputs, got 3"):
        write_probe_into_head(seeded(chain), (x, y + 1))
    with pytest.raises(BadData, match=r"got none of 1 \(the first is class 2\)"):
        write_probe_into_head(seeded(chain), (x, y % 2))
    with pytest.raises(BadData, match="90 samples and 89 labels"):
        write_probe_into_head(seeded(chain), (x, y[1:]))
    with pytest.raises(BadData, match="Targets of a regression"):
        write_probe_into_head(seeded(chain), (x, y.float()))
    with pytest.raises(BadData, match="NaN or infinity"):
        write_probe_into_head(seeded(chain), (x * torch.nan, y))
    late = x.clone()
    late[80] = torch.nan
    with pytest.raises(BadData, match="NaN"):
        write_probe_into_head(seeded(chain), (late, y))
    with pytest.raises(UnknownName, match="velpic"):
        write_probe_into_head(seeded(chain), (x, y), probe="velpik")
    with pytest.raises(BadData, match=r"wanted weights \(3, 16\)"):
        write_head(seeded(chain), "3", torch.zeros(4, 16))
    with pytest.raises(BadValue, match="a linear layer, got 'ReLU'"):
        write_head(seeded(chain), "2", torch.zeros(4, 16))


def test_as_an_edit_of_a_training():
    model, (x, y) = seeded(chain), images()
    assert EditAt(3, lambda net: write_probe_into_head(net, (x, y)))(model) == ()
    assert torch.equal(
        model(x).argmax(1), VeLPIC().fit(entering(model, "3", x), y).predict(entering(model, "3", x))
    )
