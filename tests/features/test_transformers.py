"""Taps on Hugging Face models built from tiny configurations: no download, no weights."""

from __future__ import annotations

import pytest
import torch

from undertow.features.stream import stream_features
from undertow.features.tap import Tap

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
IDS = torch.tensor([[5, 6, 7, 0], [8, 9, 10, 11]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
TEXT = {"input_ids": IDS, "attention_mask": MASK}


def built(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


def bert():
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=16, num_labels=3, **SMALL)
    return built(lambda: transformers.BertForSequenceClassification(config))


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2, num_labels=3
    )
    config.pad_token_id = 0
    return built(lambda: transformers.GPT2ForSequenceClassification(config))


def vit():
    config = transformers.ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=3, **SMALL)
    return built(lambda: transformers.ViTForImageClassification(config))


def plain(model, inputs):
    model.eval()
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True)


def test_bert_blocks_are_the_hidden_states_averaged_over_real_tokens():
    """Fails if a block's tuple is misread, if padding counts, or if dropout is on."""
    model = bert().train()
    with Tap(model, ["bert.encoder.layer.*", "bert.pooler"]) as tap:
        output, features = tap(TEXT)
    assert model.training
    expected = plain(model, TEXT)
    torch.testing.assert_close(output.logits, expected.logits)
    for i in range(2):
        hidden = expected.hidden_states[i + 1]
        mean = torch.stack([hidden[0, :3].mean(0), hidden[1].mean(0)])
        torch.testing.assert_close(features[f"bert.encoder.layer.{i}"], mean)
    assert features["bert.pooler"].shape == (2, 16)


def test_bert_encoder_answers_with_a_model_output():
    """The encoder gives a ModelOutput: its last_hidden_state is meant, `first` is the class token."""
    model = bert()
    with Tap(model, "bert.encoder", tokens="first") as tap:
        _, features = tap(TEXT)
    torch.testing.assert_close(features["bert.encoder"], plain(model, TEXT).hidden_states[-1][:, 0])


def test_gpt2_last_token_is_the_last_real_one():
    """Fails if the padding after a short text is taken; its block is the last before the final norm."""
    model = gpt2()
    with Tap(model, ["transformer.h.0", "transformer.ln_f"], tokens="last") as tap:
        _, features = tap(TEXT)
    hidden = plain(model, TEXT).hidden_states
    torch.testing.assert_close(features["transformer.h.0"], torch.stack([hidden[1][0, 2], hidden[1][1, 3]]))
    torch.testing.assert_close(
        features["transformer.ln_f"], torch.stack([hidden[-1][0, 2], hidden[-1][1, 3]])
    )


def test_vit_layers_and_input():
    model, pixels = vit(), torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with Tap(model, ["input", "vit.layers.*"], tokens="first") as tap:
        _, features = tap({"pixel_values": pixels})
    hidden = plain(model, {"pixel_values": pixels}).hidden_states
    torch.testing.assert_close(features["vit.layers.0"], hidden[1][:, 0])
    torch.testing.assert_close(features["input"], pixels.flatten(1))


@pytest.mark.parametrize(("make", "inputs"), [(bert, TEXT), (gpt2, TEXT)], ids=["bert", "gpt2"])
def test_auto_finds_blocks(make, inputs):
    many = {key: value.repeat(5, 1) for key, value in inputs.items()}
    batches = list(stream_features(make(), many, "auto", batch_size=4))
    assert len(batches[0].features) >= 2
    for name in batches[0].features:
        assert sum(len(batch.features[name]) for batch in batches) == 10
    assert batches[0].outputs.shape == (4, 3)


def test_streams_slice_every_part_of_a_dict():
    model = bert()
    many = {key: value.repeat(5, 1) for key, value in TEXT.items()} | {"return_dict": True}
    parts = list(stream_features(model, many, "bert.pooler", batch_size=4))
    assert [part.rows for part in parts] == [slice(0, 4), slice(4, 8), slice(8, 10)]
    whole = plain(model, TEXT).logits
    torch.testing.assert_close(torch.cat([part.outputs for part in parts]), whole.repeat(5, 1))
