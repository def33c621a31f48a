"""What a process takes of the machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

STEPS = """
import resource, sys
from undertow.crew.limits import keep_freed_memory
import torch
told = keep_freed_memory() if sys.argv[1] == "keep" else None

def step():
    for size in (1, 3, 9, 40):
        torch.ones(size * 250_000)

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> tuple[str, int]:
    """Pages that the system had to give out during twenty steps that need the same tensors."""
    ran = subprocess.run([sys.executable, "-c", STEPS, how], capture_output=True, text=True, check=True)
    told, count = ran.stdout.split()
    return told, int(count)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_is_kept_for_the_next_step():
    """Fails if a step asks the system again for what the one before gave back: 13,000 pages of 4 kB."""
    told, kept = faults("keep")
    _, given_back = faults("give back")
    assert told == "True"
    assert given_back > 50_000
    assert kept < given_back / 20
