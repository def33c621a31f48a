"""Rounding to pixels, and random numbers that belong to an image."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from undertow.data.corruptions.draws import Draws, mix
from undertow.data.corruptions.pixels import from_pixels, to_pixels


def test_pixels_survive_the_way_there_and_back() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_pixels(from_pixels(every)), every)
    assert to_pixels(torch.tensor([-0.1, 0.5, 1.2]).double()).tolist() == [0, 128, 255]


def test_halves_round_up_in_spite_of_rounding_errors() -> None:
    halves = (torch.arange(255).double() + 0.5) / 255
    for error in (-1e-13, 0.0, 1e-13):
        assert torch.equal(to_pixels(halves + error), torch.arange(1, 256, dtype=torch.uint8))


def test_the_mixing_is_splitmix64() -> None:
    """The first numbers of the well-known generator seeded with 1234567."""
    step = 0x9E3779B97F4A7C15
    states = [(1234567 + step * k) % 2**64 for k in (1, 2, 3)]
    bits = torch.tensor([state - 2**64 if state >= 2**63 else state for state in states])
    mixed = [int(value) % 2**64 for value in mix(bits)]
    assert mixed == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_draws_belong_to_the_image() -> None:
    many, one = Draws(7, "fog", torch.arange(100)), Draws(7, "fog", torch.tensor([42]))
    torch.testing.assert_close(many.uniform(3, 2)[42], one.uniform(3, 2)[0], rtol=0, atol=0)
    torch.testing.assert_close(many.normal(5)[42], one.normal(5)[0], rtol=0, atol=0)
    for other in (Draws(8, "fog", torch.tensor([42])), Draws(7, "frog", torch.tensor([42]))):
        assert not torch.equal(other.uniform(4), Draws(7, "fog", torch.tensor([42])).uniform(4))


def test_a_stream_goes_on_from_call_to_call() -> None:
    """Fails if every call starts again: flakes and their direction would be made of the same numbers."""
    whole, parts = Draws(0, "x", torch.arange(9)).uniform(10), Draws(0, "x", torch.arange(9))
    assert torch.equal(torch.cat([parts.uniform(4), parts.uniform(2, 3).flatten(1)], 1), whole)


def test_draws_are_uniform_normal_and_independent() -> None:
    draws = Draws(0, "x", torch.arange(2000))
    u = draws.uniform(50)
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 1e-4
    assert stats.kstest(draws.normal(50).flatten().numpy(), "norm").pvalue > 1e-4
    between_images = np.corrcoef(u[:-1].flatten(), u[1:].flatten())[0, 1]
    between_draws = np.corrcoef(u[:, :-1].flatten(), u[:, 1:].flatten())[0, 1]
    assert abs(between_images) < 4 / u.numel() ** 0.5
    assert abs(between_draws) < 4 / u.numel() ** 0.5
    assert len(u.unique()) == u.numel()  # no two streams overlap
    assert 0 < float(u.min()) < float(u.max()) < 1
