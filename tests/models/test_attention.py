"""Attention networks: what a token may see, and the blocks against their formulas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undertow.models import build_model
from undertow.models.attention import Attention, Block


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(autouse=True)
def same_weights() -> Iterator[None]:
    """Modules made here without `build_model` draw the same weights whatever ran before."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def decoder(length: int = 6) -> nn.Module:
    return build_model("transformer:width=16,heads=2,depth=3", (length,), 7, seed=0, vocabulary=11).double()


def test_a_token_never_sees_a_later_one():
    """Catches a missing or shifted mask: changing token k must leave all before it to the bit."""
    model = decoder()
    tokens = torch.randint(0, 10, (5, 6), generator=torch.Generator().manual_seed(0))
    stream = model[:4](tokens)  # embed and three blocks
    for place in range(6):
        other = tokens.clone()
        other[:, place] = 10
        moved = (model[:4](other) != stream).any(-1)  # (5, 6)
        assert not moved[:, :place].any()
        assert moved[:, place:].all()


def test_without_the_mask_every_token_sees_all():
    """The guard above can fail: the vision transformer's blocks let later tokens through."""
    block = Block(16, 2, causal=False, add_to_normed=False).double()
    x = rand(1, 6, 16)
    other = x.clone()
    other[:, 5] = rand(16, seed=1)
    assert (block(x) != block(other)).any(-1).all()


def test_the_answer_is_read_at_the_last_token():
    model = decoder()
    tokens = torch.randint(0, 11, (5, 6), generator=torch.Generator().manual_seed(1))
    whole = F.linear(model.norm(model[:4](tokens)), model.head.weight)  # all places
    torch.testing.assert_close(model(tokens), whole[:, -1], rtol=1e-12, atol=1e-12)
    assert model(tokens).shape == (5, 7)
    assert model.head.bias is None


def test_places_matter():
    """Catches forgotten position vectors: one token must look different at each place, by that place's vector."""
    embed = decoder(length=3).embed
    vectors = embed(torch.tensor([[4, 4, 4]]))[0]
    torch.testing.assert_close(vectors, embed.tokens.weight[4] + embed.positions, rtol=1e-12, atol=0)
    assert float(torch.pdist(vectors.detach()).min()) > 1


@pytest.mark.parametrize("causal", [True, False])
def test_attention_agrees_with_pytorch_s_module(causal: bool):
    """Catches heads that are cut along the wrong axis and a wrong scale."""
    ours = Attention(12, 3, causal).double()
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    theirs.in_proj_weight.data = ours.mix.weight.data
    theirs.in_proj_bias.data = ours.mix.bias.data.copy_(rand(36))
    theirs.out_proj.weight.data = ours.out.weight.data
    theirs.out_proj.bias.data = ours.out.bias.data.copy_(rand(12))
    x = rand(4, 5, 12)
    mask = torch.ones(5, 5).triu(1).bool() if causal else None
    expected, _ = theirs(x, x, x, attn_mask=mask, need_weights=False)
    torch.testing.assert_close(ours(x), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("add_to_normed", [True, False])
def test_block_by_its_formula(add_to_normed: bool):
    """Catches a residual on the wrong stream: the grokking code adds to the normalised one."""
    block = Block(8, 2, causal=True, add_to_normed=add_to_normed).double()
    x = 3 * rand(2, 4, 8) + 5
    normed = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    middle = (normed if add_to_normed else x) + block.attention(normed)
    second = (middle - middle.mean(-1, keepdim=True)) / (
        middle.var(-1, correction=0, keepdim=True) + 1e-5
    ).sqrt()
    inner = F.gelu(second @ block.mlp.up.weight.T + block.mlp.up.bias)
    expected = middle + inner @ block.mlp.down.weight.T + block.mlp.down.bias
    torch.testing.assert_close(block(x), expected, rtol=1e-10, atol=1e-12)


def test_patches_are_cut_in_reading_order():
    """Catches a transposed patch grid, which learned places would hide in training."""
    model = build_model("vit:patch=2,width=8,heads=2,depth=1,pool=mean", (1, 4, 6), 3, seed=0).double()
    x = rand(2, 1, 4, 6)
    weight, bias = model.embed.patches.weight.flatten(1), model.embed.patches.bias
    tokens = [
        x[:, :, row : row + 2, column : column + 2].flatten(1) @ weight.T + bias
        for row in (0, 2)
        for column in (0, 2, 4)
    ]
    expected = torch.stack(tokens, dim=1) + model.embed.positions
    torch.testing.assert_close(model.embed(x), expected, rtol=1e-12, atol=1e-14)


def test_the_head_reads_the_class_token_or_the_mean():
    x = rand(2, 3, 8, 8)
    cls, mean = (
        build_model(f"vit:width=12,depth=2,pool={pool}", (3, 8, 8), 5, seed=0).double()
        for pool in ("cls", "mean")
    )
    assert cls[:4](x).shape == (2, 5, 12)  # class token and 4 patches
    assert mean[:4](x).shape == (2, 4, 12)
    torch.testing.assert_close(cls(x), cls.head(cls[:4](x)[:, 0]), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(mean(x), mean.head(mean[:4](x).mean(1)), rtol=1e-12, atol=1e-14)
