"""Scaling, crop and flip: exact bits, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from undertow.data.inputs import SCALINGS, Scaling, crop_flip, crop_flip_at, to_inputs
from undertow.errors import BadData, BadValue, UnknownName


def pictures(count: int = 50, channels: int = 3, size: int = 9) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, size, size + 2), generator=source, dtype=torch.uint8)


@pytest.mark.parametrize("name", ["half", "unit", "cifar", "imagenet"])
@pytest.mark.parametrize("floats", [False, True], ids=["uint8", "float"])
def test_scaling_follows_its_formula(name: str, floats: bool) -> None:
    """Against float64 numpy. Float images lie in [0, 1] already: fails if they are divided by 255 too."""
    x = pictures().float() / 255 if floats else pictures()
    scaling = SCALINGS[name]
    assert isinstance(scaling, Scaling)
    mean, std = (np.array(part).reshape(-1, 1, 1) for part in (scaling.mean, scaling.std))
    exact = (x.double().numpy() / (1 if floats else 255) - mean) / std
    inputs = to_inputs(x, name)
    assert inputs.dtype == torch.float32
    np.testing.assert_allclose(inputs, exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_a_whole_set_and_its_batches_get_the_same_bits(name: str, dtype: torch.dtype) -> None:
    x = pictures(501).to(dtype) / (1 if dtype == torch.uint8 else 255)
    x = x.to(dtype)
    before = x.clone()
    whole = to_inputs(x, name)
    parts = torch.cat([to_inputs(part, name) for part in x.split(7)])
    assert torch.equal(whole, parts)
    assert torch.equal(x, before)  # fails if a float32 input is scaled in place


def test_half_maps_black_and_white_to_minus_one_and_one() -> None:
    assert to_inputs(torch.tensor([[0, 255]], dtype=torch.uint8), "half").tolist() == [[-1, 1]]


def test_none_keeps_the_numbers() -> None:
    assert to_inputs(torch.tensor([[0, 7, 255]], dtype=torch.uint8), "none").tolist() == [[0, 7, 255]]
    vectors = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(to_inputs(vectors, "none"), vectors)


@pytest.mark.parametrize("name", SCALINGS)
def test_tokens_pass_unchanged(name: str) -> None:
    tokens = torch.arange(12).reshape(3, 4)
    assert to_inputs(tokens, name) is tokens


@pytest.mark.parametrize(
    "x", [pictures(channels=1), pictures(channels=4), torch.rand(5, 3)], ids=["1", "4", "flat"]
)
def test_three_channel_scaling_wants_three_channels(x: Tensor) -> None:
    """Fails if (1, H, W) is silently broadcast to three channels, or a vector's last axis taken for them."""
    with pytest.raises(BadValue, match=r"scaling 'cifar': wanted images with 3 channels.*'half' or 'unit'"):
        to_inputs(x, "cifar")


def test_unknown_scalings_and_types_are_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'imagenet'"):
        to_inputs(pictures(), "imagnet")
    with pytest.raises(UnknownName, match="no scaling 'hlaf'"):
        to_inputs(torch.zeros(3, 4, dtype=torch.int64), "hlaf")
    with pytest.raises(BadData, match="int32"):
        to_inputs(torch.zeros(3, 4, dtype=torch.int32), "half")


def crop_flip_one(image: Tensor, down: int, right: int, mirror: bool, pad: int) -> Tensor:
    height, width = image.shape[1:]
    result = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            r, c = row + down - pad, column + right - pad
            if 0 <= r < height and 0 <= c < width:
                result[:, row, width - 1 - column if mirror else column] = image[:, r, c]
    return result


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("pad", [0, 1, 4])
def test_crop_and_flip_equal_a_loop_over_samples(dtype: torch.dtype, pad: int) -> None:
    """Every offset at every edge; fails if rows and columns are exchanged or the mirror comes before the crop."""
    x = pictures(2 * (2 * pad + 1) ** 2).to(dtype)
    steps = torch.arange(len(x))
    mirror, down, right = steps % 2 == 1, steps // 2 % (2 * pad + 1), steps // 2 // (2 * pad + 1)
    fast = crop_flip_at(x, down, right, mirror, pad)
    slow = [crop_flip_one(x[i], int(down[i]), int(right[i]), bool(mirror[i]), pad) for i in range(len(x))]
    assert fast.dtype == dtype
    assert torch.equal(fast, torch.stack(slow))


def test_offsets_and_mirrors_are_uniform_and_independent() -> None:
    """A single bright pixel shows what was drawn; fails if the last offset is never drawn."""
    x = torch.zeros(20_000, 1, 11, 11, dtype=torch.uint8)
    x[:, 0, 5, 3] = 1
    found = crop_flip(x, torch.Generator().manual_seed(0), pad=2).nonzero()  # (N, 4)
    assert len(found) == len(x)
    counts = np.histogram2d(found[:, 2], found[:, 3], bins=[np.arange(12), np.arange(12)])[0]
    # Columns 1 to 5 unmirrored, 5 to 9 mirrored: column 5 gets both.
    expected = np.zeros((11, 11))
    expected[3:8, 1:6] += len(x) / 50
    expected[3:8, 5:10] += len(x) / 50
    assert counts[expected == 0].sum() == 0
    deviation = (counts - expected)[expected > 0] / np.sqrt(expected[expected > 0])
    assert np.abs(deviation).max() < 4.5


def test_crop_and_flip_follow_their_generator_alone() -> None:
    x, state = pictures(), torch.get_rng_state()
    first, again, other = (crop_flip(x, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


def test_only_images_can_be_cropped() -> None:
    with pytest.raises(BadData, match="wanted images"):
        crop_flip(torch.rand(5, 4), torch.Generator())
