"""When memorisation begins, as far as the looks up to now can tell; the audit's rules, applied while training.

    words = alarm(looks, unit="epoch")       # "" while there is no sign of it

Where wrong training labels are known: the model repeats clearly more than 20 % of them beyond chance. Else: held-out
accuracy fell clearly, by a point or more, from its best, while the fit of the training labels rose. "Clearly" allows
for as many looks as the best was picked from.
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow.auditing.memorising import POINT, REPEATED
from undertow.integrations.look import Look
from undertow.shares import Share, difference, percent, points, within


def alarm(looks: Sequence[Look], unit: str, classes: int) -> str:
    """A sentence if memorisation has begun by the last look; nothing otherwise."""
    now, judged = looks[-1], [look for look in looks if look.test is not None]
    best = max(judged, key=_test_value, default=None)
    if now.wrong is not None:
        return _repeats(
            now.at, now.wrong, unit, 0.0 if best is None else (1 - _test_value(best)) / max(1, classes - 1)
        )
    if best is None or now.test is None or best.test is None or best.fit is None or now.fit is None:
        return ""
    fall = difference(best.test.sure(len(judged)), now.test.sure())
    if fall.low <= 0 or fall.value < POINT or now.fit.value <= best.fit.value:
        return ""
    return (
        f"Memorisation began after {unit} {best.at}: held-out accuracy fell by {points(fall.value)} {within(fall)}, "
        f"while the fit of the training labels rose from {percent(best.fit.value)} to {percent(now.fit.value)}."
    )


def _repeats(at: int, wrong: Share, unit: str, chance: float) -> str:
    share = wrong.sure()
    if share.low <= REPEATED + chance:
        return ""
    return (
        f"Memorisation began by {unit} {at}: the model repeats {percent(share.value)} {within(share)} of the "
        f"{wrong.count:,} training labels that are known to be wrong."
    )


def _test_value(look: Look) -> float:
    return look.test.value if look.test is not None else 0.0
