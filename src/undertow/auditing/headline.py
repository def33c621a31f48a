"""A verdict in one sentence.

headline_of(seen, findings)      # "It learns wrong labels by heart, beginning between epoch 10 and 16: ..."
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow.auditing.evidence import Evidence
from undertow.auditing.finding import PROBES, Finding, at_words, layer_words
from undertow.auditing.memorising import began
from undertow.auditing.shares import percent


def headline_of(seen: Evidence, findings: Sequence[Finding]) -> str:
    """What matters most: a broken or half-trained model first, then memorising and what is left to give back."""
    by_topic = {one.topic: one for one in findings}
    training = by_topic["training"]
    if training.answer == "no":
        return training.sentence
    now = seen.accuracy(seen.last)
    if now is None:
        return f"No labels: {_features(by_topic['richness'])}, {_touch(by_topic['window'])}."
    return f"{_learned(seen, by_topic['memorising'], now.value)}{_left(seen, by_topic)}."


def _learned(seen: Evidence, finding: Finding, now: float) -> str:
    if finding.answer == "yes":
        best = None if seen.best is None else seen.accuracy(seen.best)
        peak = ""
        if best is not None and seen.best is not None:
            peak = f" from {percent(best.value)} at its best kept checkpoint, {at_words(seen, seen.best)},"
        when = began(seen, finding.numbers)
        return f"It learns wrong labels by heart, {when}: test accuracy went{peak} to {percent(now)}"
    if finding.answer == "no":
        return f"No sign of memorising: it scores {percent(now)} on test samples"
    return f"Whether it memorises cannot be told: it scores {percent(now)} on test samples"


def _left(seen: Evidence, by_topic: dict[str, Finding]) -> str:
    found = seen.latent_gap()
    if by_topic["knowledge"].answer != "yes" or found is None:
        return "; its layers know no more" if by_topic["knowledge"].answer == "no" else ""
    probe = PROBES.get(found.probe, found.probe)
    text = f"; {layer_words(found.layer)} still reads {percent(found.probed.value)} ({probe})"
    gains = seen.repairs()
    best = max(gains.values(), key=lambda one: one["value"]) if gains else None
    if best is None or by_topic["repair"].answer != "yes":
        return text
    what = "VeLPIC in its head" if best is gains.get("head") else _graft(best["layer"], found.layer)
    return f"{text}, and {what} gives back {100 * best['value']:.1f} points"


def _graft(layer: str, known: str) -> str:
    """A new head's place; why it is not the layer that the best probe was found at."""
    why = "" if layer == known else ", which held-out samples chose for it,"
    return f"a new head on {layer_words(layer)}{why}"


def _features(finding: Finding) -> str:
    words = {"yes": "its features are rich", "no": "its features are lazy"}
    return words.get(finding.answer, "rich or lazy cannot be told")


def _touch(finding: Finding) -> str:
    words = {
        "yes": "its deep layers understand features of long ago",
        "no": "its deep layers soon lose touch with earlier features",
    }
    return words.get(finding.answer, "how far back its deep layers understand features cannot be told")
