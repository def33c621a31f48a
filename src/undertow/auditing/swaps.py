"""The swap profile in words, in points of accuracy.

    swap_words(profile, "epoch", 8, 60, total=500)
    # Entered in layer2 and layer3: when the layers of epoch 8 are replaced by those of epoch 60 one after the other,
    # from the input on, 20.2 of the 26.4 lost points go with these; ...

The cuts part the network, and a part is called by the layer that it ends with; what comes after the last cut is called
so. The rules are those of undertow.temporal.swap: a part is named where turning it late costs clearly, a fifth of the
whole loss or more.
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow.auditing.finding import layer_words, listed
from undertow.auditing.memorising import ENTERED
from undertow.auditing.shares import percent
from undertow.temporal.intervals import Interval
from undertow.temporal.swap import SHARE, SwapProfile

MISFIT = "fit together"
"""In the profile's own reading: composites that are worse than both models."""


def swap_words(profile: SwapProfile, unit: str, early: int, late: int, total: int) -> str:
    """What the profile says; `total` is how many test samples there are, of which it saw some."""
    first, last = f"{unit} {early}", f"{unit} {late}"
    of = "" if profile.count >= total else f" (on {profile.count:,} of the {total:,} test samples)"
    drop = profile.drop
    if drop.low <= 0:
        seen = f"{percent(profile.late.value)} after {percent(profile.early.value)}{of}"
        if drop.high < 0:
            return f"Nothing to place: {last} is better than {first}, {seen}."
        return f"Cannot tell: {last} is not clearly worse than {first}, {seen}."
    if MISFIT in profile.reading:
        return profile.reading
    lost = f"{100 * drop.value:.1f} lost points{of}"
    below, above = (_clear(profile, side) for side in ("from_below", "from_above"))
    replaced = f"when the layers of {first} are replaced by those of {last} one after the other"
    if profile.entered:
        return _entered(profile, f"{replaced}, from the input on,", lost, below, above)
    if not below:
        return (
            f"Cannot tell: {replaced}, the {lost} are spread out, and no part clearly takes a fifth of them."
        )
    other = f"with {_named(profile, above)}" if above else "clearly with no part"
    return (
        f"Cannot tell: {replaced}, the {lost} go with {_named(profile, below)} from the input on, but {other} from the "
        "output on."
    )


def _entered(profile: SwapProfile, replaced: str, lost: str, below: list[int], above: list[int]) -> str:
    cost = sum(profile.parts[place].from_below.value for place in below)
    ways = "from the output on, it is the same layers that clearly cost accuracy"
    if below != above:
        ways = (
            f"from the output on, it is {_named(profile, above)} that clearly cost accuracy, so the harm of a late "
            "layer depends on the others"
        )
    bound = SHARE * profile.drop.value
    free = [
        place
        for place, part in enumerate(profile.parts)
        if part.from_below.high < bound and part.from_above.high < bound
    ]
    rest = f"; less than a fifth goes with {_named(profile, free, 'or')} either way" if free else ""
    return (
        f"{ENTERED}{_named(profile, below)}: {replaced} {100 * cost:.1f} of the {lost} go with "
        f"{'these' if len(below) > 1 else 'this one'}; {ways}{rest}."
    )


def _clear(profile: SwapProfile, side: str) -> list[int]:
    """The parts that cost clearly, a fifth of the whole or more."""
    costs: list[Interval] = [getattr(part, side) for part in profile.parts]
    bound = SHARE * profile.drop.value
    return [place for place, one in enumerate(costs) if one.low > 0 and one.value >= bound]


def _named(profile: SwapProfile, places: Sequence[int], between: str = "and") -> str:
    cuts = [layer_words(one.cut) for one in profile.cuts]
    names = [*cuts, f"what comes after {cuts[-1]}"]
    return listed([names[place] for place in places], between)
