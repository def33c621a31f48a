"""The rules about memorising: whether it does, since when, and where it entered.

memorising(seen)        # Yes, between epoch 20 and 25: it repeats 99.8 % of the 458 wrong training labels.
began(seen, numbers)    # between epoch 20 and 25
place(seen)             # Memorisation entered in layer2 and layer3: ...
"""

from __future__ import annotations

from undertow.auditing.composites_lens import Swap
from undertow.auditing.evidence import Evidence
from undertow.auditing.finding import Answer, Finding, Numbers, at_words, share_words
from undertow.auditing.swaps import part_words, swap_words
from undertow.shares import Share, Sure, percent, points, within
from undertow.temporal.swap import AFTER_LAST
from undertow.words import layer_name

REPEATED = 0.2
POINT = 0.01
SMALL_GAP = 0.1
NOISY = 0.02


def memorising(seen: Evidence) -> Finding:
    """From labels known to be wrong, else from the fall of test accuracy."""
    repeated = seen.memorised(seen.last)
    if repeated is not None:
        return _repeating(seen, repeated)
    if seen.context.wrong_labels is not None and seen.context.wrong_labels[0] == 0:
        return Finding("memorising", "No training label is wrong, so there is none to memorise.", "no")
    suspected = _suspected(seen)
    if suspected is not None and suspected.answer == "yes":
        return suspected
    drop, gap = seen.drop(), seen.generalisation_gap()
    if drop is None or seen.best is None:
        text = f"We cannot tell whether it memorises: {seen.why_no_accuracy()}."
        return suspected or Finding("memorising", text, "cannot tell")
    numbers: Numbers = {"drop": drop.value, "gap": None if gap is None else gap.value}
    if drop.low > 0 and drop.value >= POINT:
        return _fallen(seen, seen.best, drop, numbers)
    if len(seen.numbers) == 1:
        return suspected or _of_one(gap, numbers)
    against = _against(seen)
    if gap is not None and gap.high < SMALL_GAP and drop.low <= 0 and not against:
        text = f"No sign of it: test accuracy did not clearly fall. Training accuracy is {_beside(gap)}."
        return Finding("memorising", text, "no", numbers)
    fell = "did not clearly fall" if drop.low <= 0 else "fell by less than a point"
    text = f"Cannot tell: test accuracy {fell}: {points(drop.value)} {within(drop)}."
    but = against or (f"training accuracy is {_beside(gap)}" if gap is not None else "")
    text += f" But {but}." if but else ""
    return Finding("memorising", text, "cannot tell", numbers)


def _of_one(gap: Sure | None, numbers: Numbers) -> Finding:
    text = "Cannot tell: one checkpoint cannot show whether test accuracy fell."
    text += f" Training accuracy is {_beside(gap)}." if gap else ""
    return Finding("memorising", text, "cannot tell", numbers)


def _suspected(seen: Evidence) -> Finding | None:
    """From the labels that look wrong, where surely some are: whether the model repeats them."""
    found = seen.wrong
    if found is None or found.repeated is None or found.rate.low <= NOISY:
        return None
    share, level = found.repeated.sure(), REPEATED + found.right + _chance_to_repeat(seen)
    numbers: Numbers = {"repeated": share.value, "level": level, "suspected": found.suspected}
    said = f"it repeats {share_words(share)} of the {found.suspected:,} training labels that look wrong"
    if share.low > level:
        return Finding("memorising", f"Yes: {said}.", "yes", numbers)
    if share.high < level:
        return None
    return Finding("memorising", f"Cannot tell: {said}.", "cannot tell", numbers)


def _against(seen: Evidence) -> str:
    """What speaks against a model that memorised nothing; nothing where all agree."""
    if _suspected(seen) is not None and seen.wrong is not None and seen.wrong.repeated is not None:
        return f"it repeats {percent(seen.wrong.repeated.value)} of the training labels that look wrong"
    gains = [one for _, one in seen.repaired().values() if (one.low or 0.0) > POINT]
    if gains:
        return f"a new head gives {points(max(one.gain or 0.0 for one in gains))}"
    gap = seen.latent_gap()
    if gap is not None and gap.gap.low > POINT:
        return f"{layer_name(gap.layer)} knows {points(gap.gap.value)} more than the model says"
    return ""


def _beside(gap: Sure) -> str:
    """How far training accuracy is from test accuracy: below it where labels are noisy and were not memorised."""
    if gap.value < 0:
        return f"{points(-gap.value)} lower"
    return f"{points(gap.value)} {within(gap)} higher"


def _fallen(seen: Evidence, best: int, drop: Sure, numbers: Numbers) -> Finding:
    """Test accuracy fell clearly: by memorising only where the fit of the training labels rose meanwhile."""
    first, now = seen.accuracy(best, "train"), seen.accuracy(seen.last, "train")
    fell = f"test accuracy fell by {points(drop.value)} {within(drop)}"
    if first is not None and now is not None and now.value <= first.value:
        text = (
            f"Cannot tell: {fell}, but training accuracy did not rise meanwhile: {percent(first.value)} at "
            f"{at_words(seen, best)}, {percent(now.value)} at {at_words(seen, seen.last)}."
        )
        return Finding("memorising", text, "cannot tell", numbers)
    went = f"rose to {percent(now.value)}" if now else "went on"
    found: Numbers = {**numbers, "since": best}
    text = f"Yes, {began(seen, found)}: {fell}, while training accuracy {went}."
    return Finding("memorising", text, "yes", found)


def _repeating(seen: Evidence, repeated: Share) -> Finding:
    """From the labels that are known to be wrong."""
    share, level = repeated.sure(), REPEATED + _chance_to_repeat(seen)
    numbers: Numbers = {"memorised": share.value, "level": level, "wrong": repeated.count}
    said = f"it repeats {share_words(share)} of the {repeated.count:,} wrong training labels"
    if share.low > level:
        numbers |= _since(seen, level)
        drop = seen.drop()
        fell = ""
        if drop is not None and drop.low > 0:
            fell = f" Test accuracy fell by {points(drop.value)} from the best kept checkpoint."
        return Finding("memorising", f"Yes{_when(seen, numbers)}: {said}.{fell}", "yes", numbers)
    if share.high < level:
        return Finding("memorising", f"No: {said}, no more than by chance.", "no", numbers)
    return Finding("memorising", f"Cannot tell: {said}.", "cannot tell", numbers)


def _chance_to_repeat(seen: Evidence) -> float:
    """How often a model that only makes mistakes repeats a wrong label: its best error over the other classes."""
    best = None if seen.best is None else seen.accuracy(seen.best)
    return 0.0 if best is None else (1 - best.value) / max(1, seen.context.classes - 1)


def _since(seen: Evidence, level: float) -> Numbers:
    """The first checkpoint from which on the share stays clearly above the level, and the one before it."""
    since, before = seen.last, None
    for at in reversed(seen.numbers):
        share = seen.memorised(at)
        if share is None or share.sure().low <= level:
            before = at
            break
        since = at
    return {"since": since, "before": before}


def _when(seen: Evidence, numbers: Numbers) -> str:
    words = began(seen, numbers)
    return f", {words}" if words else ""


def began(seen: Evidence, numbers: Numbers) -> str:
    """When it began, as far as checkpoints tell: what lies between two of them nobody saw. One tells nothing."""
    if len(seen.numbers) == 1 or "since" not in numbers:
        return ""
    since = f"{seen.context.unit} {numbers['since']}"
    if "before" not in numbers:
        return f"after {since}"
    before = numbers["before"]
    if before is None:
        return f"from {since} on"
    return f"between {seen.context.unit} {before} and {numbers['since']}"


# ---------------------------------------------------------------------- where it entered


def place(seen: Evidence) -> Finding:
    """What the swap profile says, as far as there is memorising at all."""
    swap = None if seen.composites is None else seen.composites.swap
    if swap is None:
        if len(seen.numbers) == 1:
            text = "We cannot tell from one checkpoint where memorisation sits."
            return Finding("place", text, "cannot tell")
        if seen.best is not None and seen.best == seen.last:
            text = "Nothing to place: the last checkpoint is the best."
            return Finding("place", text, "no", short="none")
        return Finding("place", "We cannot tell here where memorisation sits.", "cannot tell")
    numbers: Numbers = {
        "early": swap.profile.early.value, "early_checkpoint": swap.early, "late_checkpoint": swap.late
    }  # fmt: skip
    words = swap_words(swap, seen.context.unit)
    match swap.profile.finding:
        case "entered":
            return _placed(memorising(seen).answer, swap, words, numbers)
        case "nothing lost":
            return Finding("place", f"Nothing to place. {words}", "no", numbers, "none")
        case _:
            return Finding("place", f"Cannot tell. {words}", "cannot tell", numbers)


def _placed(memorises: Answer, swap: Swap, words: str, numbers: Numbers) -> Finding:
    """Accuracy was lost in known parts: by memorisation only where the rule for that says so."""
    profile = swap.profile
    names = part_words(profile, profile.entered)
    numbers = {**numbers, "parts": names}
    if memorises == "yes":
        return Finding("place", f"Memorisation entered in {names}. {words}", "yes", numbers, _short(swap))
    if memorises == "no":
        text = f"There is no memorisation to place, but accuracy was lost in {names}. {words}"
        return Finding("place", text, "no", numbers, "none")
    text = f"Accuracy was lost in {names}; we cannot tell whether by memorising. {words}"
    return Finding("place", text, "cannot tell", numbers)


def _short(swap: Swap) -> str:
    last = layer_name(swap.profile.cuts[-1].cut)
    names = swap.profile.entered
    return ", ".join(f"after {last}" if name == AFTER_LAST else layer_name(name) for name in names)
