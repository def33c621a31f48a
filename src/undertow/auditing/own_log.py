"""What a run's own log says of its accuracy, beside what the audit measured: samples fed otherwise show there.

other_words(run.metrics, "epoch", 11, now)   # "Its log says 72.8 % (valid/acc) at epoch 11, here it is 64.0 %: ..."
"""

from __future__ import annotations

import re
from typing import Any

from undertow.shares import Sure
from undertow.words import moment_words

_HELD_OUT = re.compile(r"(^|[^a-z])(val|valid|validation|eval|test).*(acc|top_?1)", re.IGNORECASE)
FAR = 0.05
"""A smaller difference may come from other samples."""


def other_words(metrics: Any, unit: str, at: int, now: Sure) -> str:
    """What to say where the log's held-out accuracy clearly differs; nothing where it does not, or there is none.

    Args:
        metrics: a pandas table of the log, one row per epoch or step.
        unit: epoch or step.
        at: the checkpoint.
        now: its accuracy here.
    """
    if unit not in metrics:
        return ""
    rows = metrics[metrics[unit] == at]
    for name in (str(one) for one in metrics.columns if _HELD_OUT.search(str(one))):
        told = rows[name].dropna()
        if not len(told):
            continue
        share = float(told.iloc[-1])
        share = share / 100 if share > 1 else share
        if abs(share - now.value) > FAR and not now.low <= share <= now.high:
            return (
                f"Its own log says {100 * share:.1f} % ({name}) at {moment_words(unit, at)}, here it is "
                f"{100 * now.value:.1f} %: are these its held-out samples, and are they fed as in training (scaling)?"
            )
        return ""
    return ""
