"""What an audit says, by rules that are written down here and in docs/verdict.md.

    findings = judge(Evidence(rows, context))        # one for each topic, in this order

training    is there a trained model at all? no: NaN (broken); one answer for all samples (collapsed); or under-trained:
            not clearly above chance, test accuracy clearly higher than at three quarters of the way, or a head that
            fits the training labels clearly worse, by 10 points, than VeLPIC does on the last probed layer
memorising  yes: of the training labels known to be wrong it repeats clearly more than 20 % beyond chance; or, where no
            wrong label is known, test accuracy fell clearly (a point or more) from its best while training accuracy
            rose. no: clearly fewer; or no clear fall and training accuracy less than 10 points above test accuracy
knowledge   yes: the best probe of a layer beats the model clearly at the last checkpoint. no: by less than 2 points
repair      yes: a new head raises held-out accuracy clearly. no: neither place gains anything
richness    no (lazy): D_LR surely above 0.4, or more than 95 % of the initial kernel is left. yes (rich): surely
            below 0.2
window      yes: at the last checkpoint deep layers understand shallow ones (consistency above 0.8) over half of the
            training at every cut. no: surely not
place       yes: the swap profile names the parts that memorisation entered in. no: nothing was lost
noise       yes: surely more than 2 % of the training labels are wrong. no: surely less than 5 %
checkpoint  the best test accuracy; the last one where it is not clearly worse

"Clearly" is: the 95 % interval lies on one side, widened for the number of checkpoints, or of layers and probes, that
the best was picked from (see shares.py). In all other cases the answer is "cannot tell".
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from undertow.audit.evidence import Evidence
from undertow.audit.rows import Row, find
from undertow.audit.shares import Sure, difference, percent, points, within

Answer = Literal["yes", "no", "cannot tell"]

REPEATED = 0.2
LATE = 0.75
POINT = 0.01
SMALL_GAP = 0.1
UNFIT = 0.1
PRACTICAL = 0.02
RICH, LAZY, UNCHANGED = 0.2, 0.4, 0.95
NOISY, CLEAN = 0.02, 0.05

RULES: dict[str, str] = dict(
    re.findall(r"^([a-z]+) {2,}(.*(?:\n {12}.*)*)", __doc__ or "", flags=re.MULTILINE)
)
"""The docstring's rules by topic."""


@dataclass(frozen=True)
class Finding:
    """One sentence of a verdict, with the numbers and the rule that it comes from."""

    topic: str
    sentence: str
    answer: Answer
    numbers: dict[str, float | str | None] = field(default_factory=dict[str, float | str | None])

    @property
    def rule(self) -> str:
        """The rule in words."""
        return " ".join(RULES[self.topic].split())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "rule": self.rule}


def judge(seen: Evidence) -> list[Finding]:
    """The findings of all topics; of a run without a sound checkpoint only that it is broken."""
    if not seen.numbers:
        return [_training(seen)]
    rules = (
        _training, _memorising, _knowledge, _repair, _richness, _window, _place, _noise, _checkpoint
    )  # fmt: skip
    return [rule(seen) for rule in rules]


# ---------------------------------------------------------------------- training


def _training(seen: Evidence) -> Finding:
    if seen.broken:
        return _broken(seen)
    answered = seen.only("model", "answered", checkpoint=seen.last)
    if answered is not None and answered["value"] == 1:
        text = f"Collapsed: at {_at(seen, seen.last)} the model gives one answer to all {answered['n']} test samples."
        return Finding("training", text, "no", {"answered": 1})
    now = seen.accuracy(seen.last)
    if now is None:
        text = "Whether it has learned anything cannot be told without labels."
        return Finding("training", text, "cannot tell")
    chance = 1 / seen.context.classes
    numbers: dict[str, float | str | None] = {"accuracy": now.value, "chance": chance}
    if now.low <= chance:
        text = f"Under-trained: its test accuracy of {_share(now)} is not clearly better than chance."
        return Finding("training", text, "no", numbers)
    return _unfit(seen, numbers) or _rising(seen, now, numbers)


def _broken(seen: Evidence) -> Finding:
    first = seen.broken[0]
    why = next(
        one["note"] for one in seen.rows if one["checkpoint"] == first and one["note"].startswith("broken")
    )
    rest = f" What follows is about {_at(seen, seen.last)}." if seen.numbers else " Nothing else can be said."
    text = f"Broken: at {_at(seen, first)} and {len(seen.broken) - 1} later checkpoints the model gives no numbers"
    if len(seen.broken) == 1:
        text = f"Broken: at {_at(seen, first)} the model gives no numbers"
    text = f"{text} ({why.partition(': ')[2]}).{rest}"
    return Finding("training", text, "no", {"first_broken": first, "broken": len(seen.broken)})


def _unfit(seen: Evidence, numbers: dict[str, float | str | None]) -> Finding | None:
    """A head that has not yet learned what its own features offer; None for any other."""
    fit, probed = seen.accuracy(seen.last, "train"), seen.last_layer_fit()
    if fit is None or probed is None:
        return None
    behind = difference(probed, fit)
    if behind.low <= 0 or behind.value < UNFIT:
        return None
    text = (
        f"Under-trained: its head fits {percent(fit.value)} of the training labels, where VeLPIC fits "
        f"{percent(probed.value)} from the last layer's features. Train on, or take VeLPIC for a head."
    )
    return Finding("training", text, "no", {**numbers, "behind": behind.value})


def _rising(seen: Evidence, now: Sure, numbers: dict[str, float | str | None]) -> Finding:
    until = seen.numbers[0] + LATE * (seen.last - seen.numbers[0])
    before = [at for at in seen.numbers if at <= until and at != seen.last]
    then = seen.accuracy(before[-1]) if before else None
    if then is None:
        text = (
            f"It scores {_share(now)} on test samples; whether that still rises one checkpoint cannot tell."
        )
        return Finding("training", text, "cannot tell", numbers)
    gain = difference(now, then)
    numbers["gain"] = gain.value
    if gain.low > 0 and gain.value >= POINT:
        text = (
            f"Under-trained: test accuracy still rises, from {percent(then.value)} at {_at(seen, before[-1])} to "
            f"{_share(now)} at {_at(seen, seen.last)}. Train on."
        )
        return Finding("training", text, "no", numbers)
    text = (
        f"Trained: {_share(now)} on test samples at {_at(seen, seen.last)}, and it no longer clearly rises."
    )
    return Finding("training", text, "yes", numbers)


# ---------------------------------------------------------------------- memorising


def _memorising(seen: Evidence) -> Finding:
    repeated = seen.memorised(seen.last)
    if repeated is not None:
        return _repeating(seen, repeated)
    if seen.context.wrong_labels is not None and seen.context.wrong_labels[0] == 0:
        return Finding("memorising", "No training label is wrong, so none was learned by heart.", "no")
    drop, gap = seen.drop(), seen.generalisation_gap()
    if drop is None or seen.best is None:
        return Finding("memorising", "Memorising cannot be told without labels.", "cannot tell")
    numbers: dict[str, float | str | None] = {"drop": drop.value, "gap": None if gap is None else gap.value}
    first, now = seen.accuracy(seen.best, "train"), seen.accuracy(seen.last, "train")
    rose = first is None or now is None or now.value > first.value
    if drop.low > 0 and drop.value >= POINT and rose:
        text = (
            f"Yes, since about {_at(seen, seen.best)}: test accuracy fell by {points(drop.value)} {within(drop)} while "
            f"the fit of the training labels {'rose to ' + percent(now.value) if now else 'went on'}."
        )
        return Finding("memorising", text, "yes", {**numbers, "since": seen.best})
    if gap is not None and gap.high < SMALL_GAP and drop.low <= 0:
        text = (
            f"No sign of it: test accuracy did not clearly fall, and training accuracy is only "
            f"{points(gap.value)} {within(gap)} above it."
        )
        return Finding("memorising", text, "no", numbers)
    text = f"Cannot tell: test accuracy did not clearly fall ({points(drop.value)} {within(drop)})"
    text += f", but training accuracy is {points(gap.value)} above it." if gap is not None else "."
    return Finding("memorising", text, "cannot tell", numbers)


def _repeating(seen: Evidence, repeated: Sure) -> Finding:
    """From the labels that are known to be wrong."""
    level = REPEATED + _chance_to_repeat(seen)
    row = seen.only("model", "memorised", checkpoint=seen.last)
    count = 0 if row is None else row["n"]
    numbers: dict[str, float | str | None] = {"memorised": repeated.value, "level": level, "wrong": count}
    said = f"it repeats {_share(repeated)} of the {count} wrong training labels"
    if repeated.low > level:
        since = _since(seen, level)
        drop = seen.drop()
        fell = ""
        if drop is not None and drop.low > 0:
            fell = f"; test accuracy fell by {points(drop.value)} from its best"
        text = f"Yes, since {_at(seen, since)}: {said}{fell}."
        return Finding("memorising", text, "yes", {**numbers, "since": since})
    if repeated.high < level:
        return Finding("memorising", f"No: {said}, as mistakes by chance would.", "no", numbers)
    return Finding("memorising", f"Cannot tell: {said}.", "cannot tell", numbers)


def _chance_to_repeat(seen: Evidence) -> float:
    """How often a model that only makes mistakes repeats a wrong label: its best error over the other classes."""
    best = None if seen.best is None else seen.accuracy(seen.best)
    return 0.0 if best is None else (1 - best.value) / max(1, seen.context.classes - 1)


def _since(seen: Evidence, level: float) -> int:
    """The first checkpoint from which on the share stays clearly above the level."""
    since = seen.last
    for at in reversed(seen.numbers):
        share = seen.memorised(at)
        if share is None or share.low <= level:
            break
        since = at
    return since


# ---------------------------------------------------------------------- knowledge and repair


def _knowledge(seen: Evidence) -> Finding:
    found = seen.latent_gap()
    if found is None:
        return Finding("knowledge", "What layers know cannot be told without probes.", "cannot tell")
    numbers: dict[str, float | str | None] = {
        "gap": found.gap.value, "low": found.gap.low, "high": found.gap.high, "layer": found.layer,
        "probe": found.probe, "tries": found.tries,
    }  # fmt: skip
    reads = f"{found.probe} reads {percent(found.probed.value)} at {found.layer}"
    if found.gap.low > 0:
        text = (
            f"{found.layer} still knows more than the model says: {reads}, {points(found.gap.value)} "
            f"{within(found.gap)} above the model's {percent(found.model.value)}."
        )
        return Finding("knowledge", text, "yes", numbers)
    if found.gap.value < PRACTICAL:
        text = f"No layer knows more than the model's {percent(found.model.value)} (at best {reads})."
        return Finding("knowledge", text, "no", numbers)
    text = f"Cannot tell whether a layer knows more: {reads}, {points(found.gap.value)} {within(found.gap)} above."
    return Finding("knowledge", text, "cannot tell", numbers)


def _repair(seen: Evidence) -> Finding:
    found = seen.repairs()
    if not found:
        return Finding("repair", "What a new head would give cannot be told here.", "cannot tell")
    numbers: dict[str, float | str | None] = {}
    for kind, one in found.items():
        numbers |= {kind: one["value"], f"{kind}_low": one["low"], f"{kind}_high": one["high"]}
    told = " and ".join(_gain(kind, one) for kind, one in found.items())
    if any(one["low"] > 0 for one in found.values()):
        text = f"{told[0].upper()}{told[1:]} on held-out samples."
        return Finding("repair", text, "yes", {**numbers, "layer": _better(found)})
    if all(one["value"] <= 0 for one in found.values()):
        return Finding("repair", f"Nothing to gain: {told}.", "no", numbers)
    return Finding("repair", f"Cannot tell whether it helps: {told}.", "cannot tell", numbers)


def _gain(kind: str, one: Row) -> str:
    what = "writing VeLPIC into the head" if kind == "head" else f"a new head on {one['layer']}"
    edges = f"({100 * one['low']:+.1f} to {100 * one['high']:+.1f})"
    return f"{what} gives {100 * one['value']:+.1f} points {edges}"


def _better(found: dict[str, Row]) -> str:
    return max(found.values(), key=lambda one: one["value"])["layer"]


# ---------------------------------------------------------------------- richness and time


def _richness(seen: Evidence) -> Finding:
    rows = [
        one
        for one in seen.rows
        if one["measure"] == "d_lr" and one["lens"] == "richness" and one["checkpoint"] == seen.last
    ]
    if not rows or rows[0]["value"] is None:
        why = f": {rows[0]['note']}" if rows else ", as richness was not measured."
        return Finding("richness", f"Rich or lazy cannot be told{why}", "cannot tell")
    one = rows[0]
    kept = seen.only("richness", "s_init", checkpoint=seen.last)
    numbers: dict[str, float | str | None] = {
        "d_lr": one["value"], "low": one["low"], "high": one["high"],
        "s_init": None if kept is None else kept["value"],
    }  # fmt: skip
    said = f"D_LR is {one['value']:.2f}"
    if one["low"] is None:
        text = f"Cannot tell whether it is rich or lazy: {said}, without an interval ({one['note']})"
        return Finding("richness", text, "cannot tell", numbers)
    said += f" ({one['low']:.2f} to {one['high']:.2f})"
    if kept is not None:
        said += f", and {percent(kept['value'])} of the initial kernel is left"
    if one["high"] < RICH and not (kept and kept["value"] > UNCHANGED):
        return Finding("richness", f"Rich: {said}; it learned features.", "yes", numbers)
    if one["low"] > LAZY or (kept and kept["value"] > UNCHANGED):
        return Finding(
            "richness", f"Lazy: {said}; it fits a readout on features it hardly chose.", "no", numbers
        )
    return Finding("richness", f"Between rich and lazy: {said}.", "cannot tell", numbers)


def _window(seen: Evidence) -> Finding:
    found = seen.windows()
    length = seen.last - seen.numbers[0]
    if not found or not length:
        return Finding("window", "How layers fit across time cannot be told here.", "cannot tell")
    worst = min(found.values(), key=lambda one: one["value"])
    told = ", ".join(
        f"{one['value']:.0f}{'+' if one['note'] else ''} back after {cut}" for cut, one in found.items()
    )
    text = f"Deep layers understand features of earlier {seen.context.unit}s ({told}, of {length})."
    numbers: dict[str, float | str | None] = {cut: one["value"] for cut, one in found.items()}
    half = length / 2
    surely = min(one["low"] for one in found.values()) >= half
    hardly = worst["high"] < half
    answer: Answer = "yes" if surely else "no" if hardly else "cannot tell"
    units = f"{length} {seen.context.unit}s"
    if hardly:
        text = f"Deep layers soon lose touch with earlier features ({told}, of {units})."
    elif not surely:
        text = f"Whether deep layers understand features of half the training cannot be told ({told}, of {units})."
    return Finding("window", text, answer, numbers)


def _place(seen: Evidence) -> Finding:
    found = find(seen.rows, "temporal", "swap_early")
    if not found:
        same = seen.best is not None and seen.best == seen.last
        if same:
            return Finding("place", "Nothing to place: the last checkpoint is the best.", "no")
        return Finding("place", "Where memorisation sits cannot be told here.", "cannot tell")
    reading = found[0]["note"]
    answer: Answer = "no" if reading.startswith("Nothing") else "cannot tell"
    if reading.startswith("Memorisation"):
        answer = "yes"
    numbers: dict[str, float | str | None] = {
        "early": found[0]["value"], "early_checkpoint": found[0]["shallow"], "late_checkpoint": seen.last
    }  # fmt: skip
    return Finding("place", reading, answer, numbers)


# ---------------------------------------------------------------------- noise and the checkpoint to use


def _noise(seen: Evidence) -> Finding:
    found = seen.noise()
    if found is None:
        return Finding("noise", "Label noise cannot be told here.", "cannot tell")
    number, how = found
    numbers: dict[str, float | str | None] = {
        "noise": number.value, "low": number.low, "high": number.high, "how": how
    }  # fmt: skip
    if how == "measured":
        wrong, count = seen.context.wrong_labels or (0, 0)
        text = f"{percent(number.value)} of the {count:,} training labels are wrong (measured)."
        return Finding("noise", text, "yes" if wrong else "no", numbers)
    low, high = number.low or 0.0, number.high or 0.0
    if how == "at most":
        text = f"At most about {percent(high)} of the labels are wrong: what the best probe disagrees with."
        return Finding("noise", text, "no" if high < CLEAN else "cannot tell", numbers)
    text = f"About {percent(number.value)} {within(number)} of the training labels are wrong (an estimate from probes)."
    answer: Answer = "yes" if low > NOISY else "no" if high < CLEAN else "cannot tell"
    return Finding("noise", text, answer, numbers)


def _checkpoint(seen: Evidence) -> Finding:
    drop, best = seen.drop(), seen.best
    top, now = (None if best is None else seen.accuracy(best)), seen.accuracy(seen.last)
    if drop is None or best is None or top is None or now is None:
        return Finding("checkpoint", "Which checkpoint is best cannot be told without labels.", "cannot tell")
    numbers: dict[str, float | str | None] = {"best": best, "accuracy": top.value, "last": now.value}
    if drop.low > 0:
        text = f"Use {_at(seen, best)}: {_share(top)} there, {percent(now.value)} at the last."
        return Finding("checkpoint", text, "yes", {**numbers, "use": best})
    text = f"Use {_at(seen, seen.last)}, the last: no other is clearly better than its {_share(now)}."
    return Finding("checkpoint", text, "yes", {**numbers, "use": seen.last})


def _at(seen: Evidence, number: int) -> str:
    return f"{seen.context.unit} {number}"


def _share(share: Sure) -> str:
    return f"{percent(share.value)} {within(share)}"
