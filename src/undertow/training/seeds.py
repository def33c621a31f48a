"""Random streams that depend only on a seed and a purpose, never on what ran before.

    generator = stream(seed=3, purpose="order", epoch=7)     # a torch.Generator
    with global_stream(3, "dropout", 7, device):             # for layers that only know the global generator
        train_one_epoch()

Epoch 7 draws the same numbers whether or not epochs 1 to 6 ran in this process: that is what makes a
killed run go on to the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager

import torch


def number(seed: int, purpose: str, epoch: int = 0) -> int:
    """A 63-bit seed, unrelated for unrelated arguments."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{epoch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stream(seed: int, purpose: str, epoch: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for one purpose in one epoch."""
    return torch.Generator(device).manual_seed(number(seed, purpose, epoch))


@contextmanager
def global_stream(seed: int, purpose: str, epoch: int, device: torch.device) -> Generator[None]:
    """Seed the global generators inside the block and give back their state after it."""
    on_gpu = device.type == "cuda"
    chosen = number(seed, purpose, epoch)
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        # torch.manual_seed would also seed GPUs that nobody restores.
        torch.default_generator.manual_seed(chosen)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(chosen)
        yield
