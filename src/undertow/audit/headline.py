"""A verdict in one sentence.

headline_of(seen, findings)      # "It learned wrong labels by heart since epoch 16; layer2 still reads 94.2 %, ..."
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow.audit.evidence import Evidence
from undertow.audit.rules import Finding
from undertow.audit.shares import percent


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
        peak = "" if best is None else f" from {percent(best.value)} at {seen.context.unit} {seen.best}"
        since = f"{seen.context.unit} {finding.numbers['since']}"
        return f"It learns wrong labels by heart since {since}: test accuracy went{peak} to {percent(now)}"
    if finding.answer == "no":
        return f"No sign of memorising: it scores {percent(now)} on test samples"
    return f"Whether it memorises cannot be told: it scores {percent(now)} on test samples"


def _left(seen: Evidence, by_topic: dict[str, Finding]) -> str:
    found = seen.latent_gap()
    if by_topic["knowledge"].answer != "yes" or found is None:
        return "; its layers know no more" if by_topic["knowledge"].answer == "no" else ""
    text = f"; {found.layer} still reads {percent(found.probed.value)} ({found.probe})"
    gains = seen.repairs()
    best = max(gains.values(), key=lambda one: one["value"]) if gains else None
    if best is None or by_topic["repair"].answer != "yes":
        return text
    what = "VeLPIC in its head" if best is gains.get("head") else f"a new head on {best['layer']}"
    return f"{text}, and {what} gives back {100 * best['value']:.1f} points"


def _features(finding: Finding) -> str:
    words = {"yes": "its features are rich", "no": "its features are lazy"}
    return words.get(finding.answer, "rich or lazy cannot be told")


def _touch(finding: Finding) -> str:
    words = {
        "yes": "its deep layers understand features of long ago",
        "no": "its deep layers soon lose touch with earlier features",
    }
    return words.get(finding.answer, "how far back its deep layers understand features cannot be told")
