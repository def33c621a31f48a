"""What an audit says, by the rules that stand in finding.py and in docs/verdict.md.

findings = judge(Evidence(context, answers, ...))        # one for each topic: training, memorising, knowledge, ...
"""

from __future__ import annotations

from undertow.auditing.composites_lens import UNDERSTOOD
from undertow.auditing.evidence import Evidence
from undertow.auditing.finding import RULES, Answer, Finding, Numbers, at_words, share_words
from undertow.auditing.memorising import NOISY, POINT, memorising, place
from undertow.repairing.gate import Judgement
from undertow.shares import Sure, difference, percent, points, within
from undertow.words import PROBES, layer_name

__all__ = ["RULES", "Answer", "Finding", "judge"]

LATE = 0.75
UNFIT = 0.1
PRACTICAL = 0.02
RICH, LAZY, UNCHANGED = 0.2, 0.4, 0.95
CLEAN = 0.05


def judge(seen: Evidence) -> list[Finding]:
    """The findings of all topics; of a run without a sound checkpoint only that it is broken."""
    if not seen.numbers:
        return [_training(seen)]
    rules = (
        _training, memorising, _knowledge, _repair, _richness, _window, place, _noise, _checkpoint
    )  # fmt: skip
    return [rule(seen) for rule in rules]


# ---------------------------------------------------------------------- training


def _training(seen: Evidence) -> Finding:
    if seen.broken:
        return _broken(seen)
    now = seen.accuracy(seen.last)
    if now is None or seen.context.test_classes < 2:
        return _unjudged(seen, now)
    own = seen.answers.at[seen.last]
    if own.answered == 1:
        where = at_words(seen, seen.last)
        text = f"Collapsed: at {where} the model gives one answer to all {own.count:,} test samples."
        return Finding("training", text, "no", {"answered": 1})
    chance = 1 / seen.context.classes
    numbers: Numbers = {"accuracy": now.value, "chance": chance}
    if now.low <= chance:
        text = f"Under-trained: its test accuracy of {share_words(now)} is not clearly better than chance."
        return Finding("training", text, "no", numbers)
    return _unfit(seen, numbers) or _rising(seen, now, numbers)


def _unjudged(seen: Evidence, now: Sure | None) -> Finding:
    """Held-out samples without labels, or of one class: one answer to all of them may be right."""
    own = seen.answers.at[seen.last]
    why = seen.why_no_accuracy() if now is None else "all test labels are of one class"
    text = f"We cannot tell whether it has learned anything: {why}."
    if own.answered == 1:
        text += f" It gives one answer to all {own.count:,} test samples."
    numbers: Numbers = {} if now is None else {"accuracy": now.value}
    return Finding("training", text, "cannot tell", numbers)


def _broken(seen: Evidence) -> Finding:
    first = seen.broken[0]
    rest = (
        f" What follows is about {at_words(seen, seen.last)}."
        if seen.numbers
        else " We can say nothing else."
    )
    text = f"{broken_words(seen)}{rest}"
    return Finding("training", text, "no", {"first_broken": first, "broken": len(seen.broken)})


def broken_words(seen: Evidence) -> str:
    """Since when the model gives no numbers, and why."""
    first, later = seen.broken[0], len(seen.broken) - 1
    too = f" and {later} later checkpoint{'s' * (later > 1)}" if later else ""
    why = seen.answers.broken[first]
    return f"Broken: at {at_words(seen, first)}{too} the model gives no numbers ({why})."


def _unfit(seen: Evidence, numbers: Numbers) -> Finding | None:
    """A head that has not yet learned what its own features offer; None for any other."""
    fit, probed = seen.accuracy(seen.last, "train"), seen.last_layer_fit()
    if fit is None or probed is None:
        return None
    behind = difference(probed, fit)
    if behind.low <= 0 or behind.value < UNFIT:
        return None
    text = (
        f"Under-trained: its head fits {percent(fit.value)} of the training labels, while VeLPIC fits "
        f"{percent(probed.value)} from the last layer. Train on, or use VeLPIC as the head."
    )
    return Finding("training", text, "no", {**numbers, "behind": behind.value})


def _rising(seen: Evidence, now: Sure, numbers: Numbers) -> Finding:
    until = seen.numbers[0] + LATE * (seen.last - seen.numbers[0])
    before = [at for at in seen.numbers if at <= until and at != seen.last]
    then = seen.accuracy(before[-1]) if before else None
    if then is None:
        text = f"It scores {share_words(now)} on test samples. One checkpoint cannot show whether that still rises."
        return Finding("training", text, "cannot tell", numbers)
    gain = difference(now, then)
    numbers["gain"] = gain.value
    if gain.low > 0 and gain.value >= POINT:
        text = (
            f"Under-trained: test accuracy still rises, from {percent(then.value)} at {at_words(seen, before[-1])} to "
            f"{share_words(now)} at {at_words(seen, seen.last)}. Train on."
        )
        return Finding("training", text, "no", numbers)
    where = at_words(seen, seen.last)
    text = f"Trained: {share_words(now)} on test samples at {where}. That no longer clearly rises."
    return Finding("training", text, "yes", numbers)


# ---------------------------------------------------------------------- knowledge and repair


def _knowledge(seen: Evidence) -> Finding:
    found = seen.latent_gap()
    if found is None:
        return Finding("knowledge", "We cannot tell what layers know: nothing was probed.", "cannot tell")
    numbers: Numbers = {
        "gap": found.gap.value, "low": found.gap.low, "high": found.gap.high, "layer": found.layer,
        "probe": found.probe, "tries": found.tries,
    }  # fmt: skip
    layer = layer_name(found.layer)
    reads = f"{PROBES.get(found.probe, found.probe)} reads {percent(found.probed.value)} at {layer}"
    if found.gap.low > 0:
        text = (
            f"{layer} still knows more than the model says. {reads}, {points(found.gap.value)} "
            f"{within(found.gap)} above the model's {percent(found.model.value)}."
        )
        return Finding("knowledge", text, "yes", numbers)
    if found.gap.value < PRACTICAL:
        text = f"No layer knows more than the model's {percent(found.model.value)} (at best {reads})."
        return Finding("knowledge", text, "no", numbers)
    text = f"Cannot tell whether a layer knows more: {reads}, {points(found.gap.value)} {within(found.gap)} above."
    return Finding("knowledge", text, "cannot tell", numbers)


def _repair(seen: Evidence) -> Finding:
    found = seen.repaired()
    if not found:
        return Finding("repair", "We cannot tell here what a new head would give.", "cannot tell")
    numbers: Numbers = {}
    for kind, (_, one) in found.items():
        numbers |= {kind: one.gain, f"{kind}_low": one.low, f"{kind}_high": one.high}
    told = " and ".join(_gain(kind, layer, one) for kind, (layer, one) in found.items())
    taken = seen.worthwhile_repairs()
    if taken:
        better, _ = max(taken.values(), key=lambda one: one[1].gain or 0.0)
        text = f"{told[0].upper()}{told[1:]} on held-out samples.{_without_repair(seen)}"
        return Finding("repair", text, "yes", {**numbers, "layer": better})
    if all((one.gain or 0.0) <= 0 for _, one in found.values()):
        return Finding("repair", f"Nothing to gain: {told}.", "no", numbers)
    return Finding("repair", f"Cannot tell whether it helps: {told}.", "cannot tell", numbers)


def _without_repair(seen: Evidence) -> str:
    """A sentence more where an earlier checkpoint, as it is, does better than the best repair of the last."""
    best = seen.ahead_of_repair()
    top = None if best is None else seen.accuracy(best)
    if best is None or top is None:
        return ""
    where = at_words(seen, best)
    return f" {where[0].upper()}{where[1:]} as it is does better: {percent(top.value)}."


def _gain(kind: str, layer: str, one: Judgement) -> str:
    what = "writing VeLPIC into the head" if kind == "head" else f"a new head on {layer_name(layer)}"
    ends = f"({100 * (one.low or 0.0):+.1f} to {100 * (one.high or 0.0):+.1f})"
    return f"{what} gives {100 * (one.gain or 0.0):+.1f} points {ends}"


# ---------------------------------------------------------------------- richness and time


def _richness(seen: Evidence) -> Finding:
    found = seen.rich()
    if found is None:
        return Finding("richness", "We cannot tell rich from lazy: richness was not measured.", "cannot tell")
    one = None if found.found is None else found.found.d_lr
    if one is None or one.value is None:
        why = found.reason if one is None else one.reason
        return Finding("richness", f"We cannot tell rich from lazy: {why}", "cannot tell")
    kept = seen.rich_number("initial_kernel_alignment")
    left = None if kept is None else kept.value
    numbers: Numbers = {
        "d_lr": one.value, "low": one.low, "high": one.high, "initial_kernel_alignment": left
    }  # fmt: skip
    said = f"D_LR is {one.value:.2f}"
    if one.low is None or one.high is None:
        text = f"Cannot tell whether it is rich or lazy: {said}, without an interval ({one.reason})."
        return Finding("richness", text, "cannot tell", numbers)
    said += f" ({one.low:.2f} to {one.high:.2f})"
    if left is not None:
        said += f", and {percent(left)} of the initial kernel is left"
    unchanged = left is not None and left > UNCHANGED
    if one.high < RICH and not unchanged:
        return Finding("richness", f"Rich: {said}. It learned features.", "yes", numbers, "rich")
    if one.low > LAZY or unchanged:
        return Finding("richness", f"Lazy: {said}. Its features hardly changed.", "no", numbers, "lazy")
    return Finding("richness", f"Between rich and lazy: {said}.", "cannot tell", numbers)


def _window(seen: Evidence) -> Finding:
    found = seen.windows()
    length = seen.last - seen.numbers[0]
    if not found or not length:
        return Finding("window", "We cannot tell here how layers fit across time.", "cannot tell")
    worst = min(found, key=lambda cut: found[cut][0])
    numbers: Numbers = {cut: one[0] for cut, one in found.items()}
    half = length / 2
    surely = min(low for _, low, _, _ in found.values()) >= half
    answer: Answer = "yes" if surely else "no" if found[worst][2] < half else "cannot tell"
    leads: dict[Answer, str] = {
        "yes": "The last deep layers still understand features from half the training ago.",
        "no": f"The last deep layers no longer understand {layer_name(worst)} from half the training ago.",
        "cannot tell": "Cannot tell whether the last deep layers understand features from half the training ago.",
    }
    return Finding("window", f"{leads[answer]} {_reach(seen, found)}", answer, numbers)


def _reach(seen: Evidence, found: dict[str, tuple[float, float, float, bool]]) -> str:
    """How old shallow layers may be, cut by cut."""
    unit = seen.context.unit
    ages = [
        f"{layer_name(cut)} {'back to the first checkpoint' if is_open else f'up to {value:.0f} {unit}s back'}"
        for cut, (value, _, _, is_open) in found.items()
    ]
    return f"More than {100 * UNDERSTOOD:.0f} % of the answers stay the same with {', '.join(ages)}."


# ---------------------------------------------------------------------- noise and the checkpoint to use


def _noise(seen: Evidence) -> Finding:
    found = seen.noise()
    if found is None:
        return Finding("noise", "We cannot tell here how many labels are wrong.", "cannot tell")
    number, how = found
    numbers: Numbers = {
        "noise": number.value, "low": number.low, "high": number.high, "how": how
    }  # fmt: skip
    if how == "measured":
        wrong, count = seen.context.wrong_labels or (0, 0)
        text = f"{percent(number.value)} of the {count:,} training labels are wrong (measured)."
        return Finding("noise", text, "yes" if wrong else "no", numbers)
    low, high = number.low or 0.0, number.high or 0.0
    if how == "possible":
        reason = seen.wrong.rate.reason if seen.wrong is not None else ""
        text = (
            f"We cannot tell: between {percent(low)} and {percent(high)} of the labels are wrong ({reason})."
        )
        return Finding("noise", text, "no" if high < CLEAN else "cannot tell", numbers)
    text = f"About {percent(number.value)} {within(number)} of the training labels are wrong."
    answer: Answer = "yes" if low > NOISY else "no" if high < CLEAN else "cannot tell"
    return Finding("noise", text, answer, numbers)


def _checkpoint(seen: Evidence) -> Finding:
    drop, best = seen.drop(), seen.best
    top, now = (None if best is None else seen.accuracy(best)), seen.accuracy(seen.last)
    if drop is None or best is None or top is None or now is None:
        text = f"We cannot tell which checkpoint is best: {seen.why_no_accuracy()}."
        return Finding("checkpoint", text, "cannot tell")
    numbers: Numbers = {"best": best, "accuracy": top.value, "last": now.value}
    if len(seen.numbers) == 1:
        text = f"There is one checkpoint only, with {share_words(now)}: nothing to choose from."
        return Finding("checkpoint", text, "cannot tell", numbers)
    if drop.low > 0:
        use = at_words(seen, best)
        text = f"Use {use}, the best kept checkpoint: {share_words(top)} there, {percent(now.value)} at the last."
        return Finding("checkpoint", text, "yes", {**numbers, "use": best}, use)
    use = at_words(seen, seen.last)
    text = f"Use {use}, the last: no other kept checkpoint is clearly better than its {share_words(now)}."
    return Finding("checkpoint", text, "yes", {**numbers, "use": seen.last}, use)
