"""Measuring side by side: the same rounds for every contender, medians, one table."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch


def median_seconds(
    contenders: dict[str, Callable[[], object]],
    rounds: int = 5,
    *,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: bool = True,
) -> dict[str, float]:
    """Median seconds of each contender; they take turns, so that a busy moment hits all alike.

    Args:
        contenders: what is measured, by name.
        rounds: how often.
        clock: `time.process_time` counts the processor's seconds, which waiting for a busy core does not change.
        warm_up: run each once before; minutes of work need none.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values() if warm_up else ():
        run()
    for _ in range(rounds):
        for name, run in contenders.items():
            began = clock()
            run()
            times[name].append(clock() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}


def machine() -> str:
    return f"{platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads"


def report(rows: list[dict[str, object]], path: Path | None = None) -> None:
    """Print rows as a table; as JSON too if `path` is given."""
    columns = list(rows[0])
    widths = [
        max(len(str(row[name])) for row in [dict(zip(columns, columns, strict=True)), *rows])
        for name in columns
    ]
    print(machine())
    for row in [dict(zip(columns, columns, strict=True)), *rows]:
        print("  ".join(str(row[name]).ljust(width) for name, width in zip(columns, widths, strict=True)))
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2))
