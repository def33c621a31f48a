"""The swap profile in words, in points of accuracy.

    swap_words(swap, "epoch")
    # 20.2 of the 26.4 lost points come with layer2 and layer3. We replaced the layers of epoch 8 by those of ...

The cuts part the network, and a part is called by the layer that it ends with; what comes after the last cut is called
so. The rules are those of undertow.temporal.swap: a part is named where turning it late costs clearly, a fifth of the
whole loss or more.
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow.auditing.composites_lens import Swap
from undertow.auditing.finding import listed
from undertow.shares import percent
from undertow.temporal.swap import AFTER_LAST, SwapProfile
from undertow.words import layer_name


def part_words(profile: SwapProfile, names: Sequence[str], between: str = "and") -> str:
    """Parts by name: layer2 and what comes after layer3."""
    last = layer_name(profile.cuts[-1].cut)
    return listed(
        [f"what comes after {last}" if name == AFTER_LAST else layer_name(name) for name in names], between
    )


def swap_words(swap: Swap, unit: str) -> str:
    """What the profile says."""
    own, first, last = swap.profile, f"{unit} {swap.early}", f"{unit} {swap.late}"
    of = "" if own.count >= swap.total else f" (on {own.count:,} of the {swap.total:,} test samples)"
    scores = f"{percent(own.late.value)} after {percent(own.early.value)}{of}"
    lost = f"{100 * own.drop.value:.1f} lost points{of}"
    match own.finding:
        case "nothing lost":
            return f"{last.capitalize()} is better than {first}: {scores}."
        case "not clearly worse":
            return f"{last.capitalize()} is not clearly worse than {first}: {scores}."
        case "misfit":
            where = listed([layer_name(cut) for cut in own.misfits])
            return (
                f"At {where}, layers of {first} and {last} no longer fit together. Take an early checkpoint nearer to "
                "the late one."
            )
        case "spread out":
            return f"The {lost} are spread out: no part clearly takes a fifth of them."
        case "ways disagree":
            other = part_words(own, own.above) if own.above else "no part"
            below = part_words(own, own.below)
            return f"From the input on, the {lost} go with {below}; from the output on, with {other}."
        case "entered":
            return _entered(own, first, last, lost)


def _entered(own: SwapProfile, first: str, last: str, lost: str) -> str:
    said = [
        f"{100 * own.cost:.1f} of the {lost} come with {part_words(own, own.below)}.",
        f"We replaced the layers of {first} by those of {last} one by one, from the input on.",
    ]
    if own.below == own.above:
        said.append("From the output on, the same layers cost accuracy.")
    else:
        said.append(f"From the output on, {part_words(own, own.above)} cost accuracy.")
    if own.free:
        said.append(f"Less than a fifth comes with {part_words(own, own.free, 'or')} either way.")
    return " ".join(said)
