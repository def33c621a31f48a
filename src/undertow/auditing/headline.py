"""A verdict in one or two short sentences, twenty words at most: what happened, and what to do.

headline_of(seen, findings)      # "It memorised wrong labels after epoch 8: test accuracy fell ..."
"""

from __future__ import annotations

from collections.abc import Sequence

from undertow.auditing.evidence import Evidence
from undertow.auditing.finding import Finding, at_words
from undertow.auditing.memorising import began
from undertow.auditing.rules import broken_words
from undertow.shares import percent
from undertow.words import PROBES, layer_name


def headline_of(seen: Evidence, findings: Sequence[Finding]) -> str:
    """What matters most: a broken or half-trained model first, then memorising and what is left to give back."""
    by_topic = {one.topic: one for one in findings}
    training = by_topic["training"]
    if training.answer == "no":
        return _untrained(seen, training)
    now = seen.accuracy(seen.last)
    if now is None:
        lead = (
            "No accuracy, as its one output names no class"
            if seen.answers.at[seen.last].reason
            else "No labels"
        )
        return f"{lead}: {_features(by_topic['richness'])}; {_touch(by_topic['window'])}."
    return f"{_learned(seen, by_topic['memorising'], now.value)} {_left(seen, by_topic)}".strip()


def _untrained(seen: Evidence, training: Finding) -> str:
    """A broken or half-trained model, in fewer words than its finding has."""
    if seen.broken:
        return broken_words(seen)
    now, fit, probed = seen.accuracy(seen.last), seen.accuracy(seen.last, "train"), seen.last_layer_fit()
    if "behind" in training.numbers and fit is not None and probed is not None:
        return (
            f"Under-trained: its head fits {percent(fit.value)} of the training labels, its last layer "
            f"{percent(probed.value)}. Train on."
        )
    if "gain" in training.numbers and now is not None:
        where = at_words(seen, seen.last)
        return f"Under-trained: test accuracy still rises, to {percent(now.value)} at {where}. Train on."
    return training.sentence


def _learned(seen: Evidence, finding: Finding, now: float) -> str:
    if finding.answer == "yes":
        since = _after(seen, finding) if began(seen, finding.numbers) else ""
        best = None if seen.best is None else seen.accuracy(seen.best)
        went = f"test accuracy is {percent(now)}"
        if best is not None and best.value > now:
            went = f"test accuracy fell from {100 * best.value:.1f} to {percent(now)}"
        return f"It memorised wrong labels{' ' * bool(since)}{since}: {went}."
    if finding.answer == "no":
        return f"No sign of memorising: {percent(now)} on test samples."
    return f"We cannot tell whether it memorises: {percent(now)} on test samples."


def _after(seen: Evidence, finding: Finding) -> str:
    """When it began, as far as it needs one number."""
    before = finding.numbers.get("before", finding.numbers.get("since"))
    return "from the start" if before is None else f"after {seen.context.unit} {before}"


def _left(seen: Evidence, by_topic: dict[str, Finding]) -> str:
    found = seen.latent_gap()
    if by_topic["knowledge"].answer != "yes" or found is None:
        return "Its layers know no more." if by_topic["knowledge"].answer == "no" else ""
    gains = [one.gain or 0.0 for _, one in seen.worthwhile_repairs().values()]
    if not gains:
        probe = PROBES.get(found.probe, found.probe)
        return f"{layer_name(found.layer)} still knows {percent(found.probed.value)} ({probe})."
    best = seen.ahead_of_repair()
    if best is not None:
        return f"Use {at_words(seen, best)}."
    return f"Repair returns {100 * max(gains):.1f} points."


def _features(finding: Finding) -> str:
    words = {"yes": "its features are rich", "no": "its features are lazy"}
    return words.get(finding.answer, "we cannot tell rich features from lazy ones")


def _touch(finding: Finding) -> str:
    words = {
        "yes": "its deep layers understand features of long ago",
        "no": "its deep layers soon lose touch with earlier features",
    }
    return words.get(finding.answer, "how far back its layers understand one another is unclear")
