"""Networks made of attention blocks: a causal decoder on tokens and a small vision transformer.

    transformer(Ends("transformer", (4,), 97, vocabulary=99), depth=2, width=128, heads=4)
    vit(Ends("vit", (3, 32, 32), 10), patch=4, depth=6, width=192, heads=3, pool="cls", dropout=0.0)

Blocks of the decoder: embed, block1, ..., last, norm, head; of the other: embed, block1, ..., norm,
pool, head. Between blocks flow (N, T, width) tokens; what enters the head is (N, width).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undertow.errors import BadValue
from undertow.models.init import zero_bias
from undertow.models.network import Ends, Network, block


class Attention(nn.Module):
    """Multi-head self-attention; with `causal` a token sees only itself and those before it."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.mix = nn.Linear(width, 3 * width)  # queries, keys and values
        self.out = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.mix.weight)
        zero_bias(self.mix)
        zero_bias(self.out)

    def forward(self, x: Tensor) -> Tensor:
        """From (N, T, D) to (N, T, D)."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.mix(x).chunk(3, dim=-1)
        )  # (N, heads, T, D / heads)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then a two-layer GELU network, each added to the stream of tokens.

    With `add_to_normed` the attention is added to the *normalised* stream, which drops the sum that
    came in: so does the public code behind the grokking experiment, unlike the usual pre-norm block.
    """

    def __init__(
        self, width: int, heads: int, *, causal: bool, add_to_normed: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.add_to_normed = add_to_normed
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = block(up=nn.Linear(width, 4 * width), gelu=nn.GELU(), down=nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """From (N, T, D) to (N, T, D)."""
        normed = self.norm1(x)
        x = (normed if self.add_to_normed else x) + self.dropout(self.attention(normed))
        return x + self.dropout(self.mlp(self.norm2(x)))


class TokenEmbedding(nn.Module):
    """Tokens and their places as vectors, added."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width))

    def forward(self, x: Tensor) -> Tensor:
        """From (N, T) to (N, T, D)."""
        return self.tokens(x) + self.positions[: x.shape[1]]


class PatchEmbedding(nn.Module):
    """Patches of an image as tokens, with learned places and, if asked for, a class token in front."""

    def __init__(self, channels: int, patches: int, patch: int, width: int, class_token: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width)) if class_token else None
        self.positions = nn.Parameter(torch.zeros(patches + class_token, width))

    def forward(self, x: Tensor) -> Tensor:
        """From (N, C, H, W) to (N, T, D)."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        if self.class_token is not None:
            tokens = torch.cat((self.class_token.expand(len(tokens), -1, -1), tokens), dim=1)
        return tokens + self.positions


class TakeToken(nn.Module):
    """The token at one place."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        """From (N, T, D) to (N, D)."""
        return x[:, self.place]


class MeanToken(nn.Module):
    """The mean over the tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """From (N, T, D) to (N, D)."""
        return x.mean(dim=1)


def transformer(ends: Ends, depth: int, width: int, heads: int) -> Network:
    """A causal decoder that answers at the last token; the head has no bias."""
    length, vocabulary = ends.tokens()
    _check_heads(ends.model, width, heads)
    middle = {
        f"block{at}": Block(width, heads, causal=True, add_to_normed=True) for at in range(1, depth + 1)
    }
    blocks = {
        "embed": TokenEmbedding(vocabulary, length, width),
        **middle,
        # Each token is normalised by itself, so taking the last one first changes nothing but work.
        "last": TakeToken(-1),
        "norm": nn.LayerNorm(width),
        "head": nn.Linear(width, ends.outputs, bias=False),
    }
    return Network(blocks, (*middle, "norm"), ("embed", *middle))


def vit(ends: Ends, patch: int, depth: int, width: int, heads: int, pool: str, dropout: float) -> Network:
    """Patches through pre-norm blocks; the head reads the class token or the mean."""
    channels, height, breadth = ends.image()
    _check_heads(ends.model, width, heads)
    if height % patch or breadth % patch:
        raise BadValue(
            f"{ends.model}: patch",
            f"a side that divides {height}x{breadth} images",
            patch,
            _divisors(height, breadth),
        )
    middle = {
        f"block{at}": Block(width, heads, causal=False, add_to_normed=False, dropout=dropout)
        for at in range(1, depth + 1)
    }
    patches = (height // patch) * (breadth // patch)
    blocks = {
        "embed": PatchEmbedding(channels, patches, patch, width, pool == "cls"),
        **middle,
        "norm": nn.LayerNorm(width),
        "pool": TakeToken(0) if pool == "cls" else MeanToken(),
        "head": nn.Linear(width, ends.outputs),
    }
    net = Network(blocks, ("embed", *middle, "pool"), ("embed", *middle))
    _draw_small(net)
    return net


def _draw_small(net: Network) -> None:
    """Weights, places and class token from N(0, 0.02^2) cut at two deviations, biases 0: usual for ViT."""
    for name, parameter in net.named_parameters():
        if parameter.ndim >= 2:
            nn.init.trunc_normal_(parameter, std=0.02, a=-0.04, b=0.04)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def _check_heads(model: str, width: int, heads: int) -> None:
    if width % heads:
        raise BadValue(f"{model}: heads", f"a number that divides the width {width}", heads, _divisors(width))


def _divisors(*sizes: int) -> str:
    fit = [side for side in range(1, min(sizes) + 1) if not any(size % side for size in sizes)]
    return f"These do: {', '.join(map(str, fit))}."
