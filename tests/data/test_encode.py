"""Labels in pixels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from undertow.data.encode import encode_labels
from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, UnknownName

SHAPES = {"grey": (1, 5, 4), "colour": (3, 5, 4), "vector": (20,)}


def some_samples(shape: tuple[int, ...], dtype: torch.dtype, count: int = 40, classes: int = 7) -> Samples:
    source = torch.Generator().manual_seed(0)
    x = torch.randint(1, 255, (count, *shape), generator=source, dtype=torch.uint8)
    return Samples.of(x if dtype == torch.uint8 else x.to(dtype) / 255, torch.arange(count) % classes)


def read_label(x: Tensor, classes: int) -> Tensor:
    return x.flatten(1)[:, :classes].argmax(1)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_the_label_stands_in_the_first_values_and_nothing_else_changes(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    samples = some_samples(shape, dtype)
    before = samples.x.clone()
    coded = encode_labels(samples, 7)
    top = 255 if dtype == torch.uint8 else 1
    expected = before.clone()
    for i, image in enumerate(expected):
        place = image[0].view(-1) if len(shape) == 3 else image
        place[:7] = 0
        place[int(samples.y[i])] = top
    assert coded.x.dtype == dtype
    assert torch.equal(coded.x, expected)
    assert torch.equal(samples.x, before)
    assert torch.equal(coded.y, samples.y)


def test_the_label_runs_on_in_the_second_row() -> None:
    """Seven classes in rows of four: fails if only the top row is used."""
    coded = encode_labels(some_samples((1, 5, 4), torch.uint8), 7)
    assert coded.x[5, 0, 1, 1] == 255


def test_transposed_memory_is_written_in_reading_order() -> None:
    """Fails if the first values are those in memory, as of images that came channels last."""
    samples = some_samples((3, 5, 4), torch.uint8)
    lasting = Samples.of(samples.x.contiguous(memory_format=torch.channels_last), samples.y)
    assert torch.equal(encode_labels(lasting, 7).x, encode_labels(samples, 7).x)


def test_the_true_label_is_shown_even_if_a_wrong_one_is_given() -> None:
    samples = some_samples((1, 5, 4), torch.uint8)
    noisy = samples.relabelled((samples.y + 1) % 7)
    assert torch.equal(read_label(encode_labels(noisy, 7).x, 7), samples.y)


def test_random_labels_say_nothing() -> None:
    """Uniform over all classes whatever the label, and drawn from the generator alone."""
    samples, state = some_samples((1, 5, 4), torch.uint8, count=14_000), torch.get_rng_state()
    coded = [encode_labels(samples, 7, "random", torch.Generator().manual_seed(seed)).x for seed in (0, 0, 1)]
    shown = read_label(coded[0], 7)
    assert torch.equal(coded[0], coded[1])
    assert not torch.equal(coded[0], coded[2])
    assert torch.equal(state, torch.get_rng_state())
    agree = float((shown == samples.y).double().mean())
    assert abs(agree - 1 / 7) < 4 * (6 / 49 / 14_000) ** 0.5
    counts = shown.bincount(minlength=7).double()
    assert float(((counts - 2000) ** 2 / 2000).sum()) < 27  # chi-square, 6 degrees: p > 1e-4


def test_what_cannot_be_encoded_is_refused() -> None:
    samples = some_samples((1, 5, 4), torch.uint8)
    with pytest.raises(BadData, match="21 classes, got samples with 20"):
        encode_labels(samples, 21)
    with pytest.raises(BadData, match="tokens"):
        encode_labels(Samples.of(torch.zeros(3, 9, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)), 2)
    with pytest.raises(BadValue, match="a generator for random labels"):
        encode_labels(samples, 7, "random")
    with pytest.raises(UnknownName, match="Did you mean 'random'"):
        encode_labels(samples, 7, "randm")  # type: ignore[arg-type]
