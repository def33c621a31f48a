"""Composites of Hugging Face models built from tiny configurations: no download, no weights."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from undertow.temporal.compose_merge import compose
from undertow.temporal.compose_split import Deep, capture
from undertow.temporal.cuts import explain_cuts, find_cut, valid_cuts

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def built(make, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().eval()


def bert(seed=0):
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=16, num_labels=3, **SMALL)
    return built(lambda: transformers.BertForSequenceClassification(config), seed)


def vit(seed=0):
    config = transformers.ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=3, **SMALL)
    return built(lambda: transformers.ViTForImageClassification(config), seed)


def gpt2(seed=0):
    config = transformers.GPT2Config(
        vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=1
    )
    return built(lambda: transformers.GPT2Model(config), seed)


def tokens():
    return torch.randint(1, 30, (8, 6), generator=torch.Generator().manual_seed(0))


CASES = {
    "vit": (vit, {"pixel_values": torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))}, "vit.layers.0"),
    "bert": (bert, {"input_ids": tokens()}, "bert.encoder.layer.0"),
    "gpt2": (gpt2, {"input_ids": tokens(), "use_cache": False}, "h.0"),
}  # fmt: skip


def answer(output):
    return output.logits if "logits" in output else output.last_hidden_state


@pytest.mark.parametrize("kind", CASES)
def test_between_the_blocks_of_a_transformer(kind):
    """Whole composites, composites in two parts and merged state dicts agree to the bit."""
    make, inputs, cut = CASES[kind]
    early, late = make(1), make(2)
    found = find_cut(early, cut, inputs)
    with torch.no_grad():
        made = compose(early, early.state_dict(), late.state_dict(), cut, x=inputs)
        features = capture(early, inputs, [cut])[0][cut]
        assert torch.equal(answer(Deep(late, found)(features, inputs)), answer(made(**inputs)))
        assert torch.equal(answer(Deep(early, found)(features, inputs)), answer(early(**inputs)))
        assert not torch.equal(answer(made(**inputs)), answer(late(**inputs)))
    shallow = {name for name in early.state_dict() if name in found.shallow}
    merged = deepcopy(late)
    merged.load_state_dict({name: early.state_dict()[name] for name in shallow}, strict=False)
    with torch.no_grad():
        assert torch.equal(answer(merged(**inputs)), answer(made(**inputs)))
    assert any("embed" in name or "wte" in name for name in shallow)
    assert not any(name.startswith("classifier") or ".1." in name for name in shallow)


def test_valid_cuts_of_a_vision_transformer():
    found = valid_cuts(vit(), CASES["vit"][1])
    assert {"vit.embeddings", "vit.layers.0", "vit.layers.1", "vit"} <= set(found)
    assert "goes round it" in explain_cuts(vit(), CASES["vit"][1])["vit.layers.0.attention"]


def test_a_padding_mask_goes_round_every_block():
    mask = torch.ones(8, 6, dtype=torch.int64)
    mask[::2, 4:] = 0
    reasons = explain_cuts(bert(), {"input_ids": tokens(), "attention_mask": mask})
    assert "goes round it" in reasons["bert.encoder.layer.0"]
