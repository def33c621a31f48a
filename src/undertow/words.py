"""Numbers, names and answers as people read them; page, screen and verdict share them.

number(0.048712)                                        # "0.0487"
probe_name("mean"), layer_name("3")                     # "nearest mean", "layer 3"
meaning_of({"topic": "memorising", "answer": "yes"})    # "bad"
MARKS["bad"].word(answer="yes"), MARKS["bad"].sign      # "bad", "✗"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Meaning = Literal["good", "bad", "unknown"]

PROBES = {
    "masc": "MASC", "velpic": "VeLPIC", "logistic": "logistic regression", "mean": "nearest mean", "knn": "k-NN",
    "lda": "LDA", "qda": "QDA",
}  # fmt: skip
MEANINGS: dict[str, dict[str, Meaning]] = {
    "training": {"yes": "good", "no": "bad"},
    "memorising": {"yes": "bad", "no": "good"},
    "knowledge": {"yes": "good"},
    "repair": {"yes": "good"},
    "richness": {},
    "window": {"yes": "good"},
    "place": {},
    "noise": {"yes": "bad", "no": "good"},
    "checkpoint": {"yes": "good", "no": "good"},
}
"""What an answer means to the user; what is not named is unknown: rich is no better than lazy."""


@dataclass(frozen=True)
class Mark:
    """How a meaning is shown: never by colour alone."""

    sign: str
    colour: str
    """Of the terminal."""
    said: str

    def word(self, answer: str = "") -> str:
        """The meaning in a word; an answer that is neither good nor bad news is neutral."""
        return "neutral" if self.said == "unknown" and answer in ("yes", "no") else self.said


MARKS: dict[Meaning, Mark] = {
    "good": Mark("✓", "green", "good"),
    "bad": Mark("✗", "red", "bad"),
    "unknown": Mark("○", "bright_black", "unknown"),
}


def meaning_of(finding: Mapping[str, Any]) -> Meaning:
    """Whether a finding is good news, bad news or neither: its own word, else what its topic and answer say."""
    said = finding.get("meaning")
    if said in MARKS:
        return said
    return MEANINGS.get(str(finding.get("topic")), {}).get(str(finding.get("answer")), "unknown")


def probe_name(probe: str) -> str:
    """How people write a probe's name."""
    return PROBES.get(probe, probe)


def layer_name(name: str) -> str:
    """A layer's name, after the word layer where it is a bare number."""
    return f"layer {name}" if name[:1].isdigit() else name


def moment_words(unit: str, at: float) -> str:
    """Epoch 20; where there is one model and nobody knows when it was, this checkpoint."""
    return "this checkpoint" if unit == "model" else f"{unit} {at:g}"


def number(value: float) -> str:
    """Three significant digits, without an exponent where it is easy to read without."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        digits = f"{value:.3g}"
        return f"{value:.0f}" if "e" in digits else digits
    return f"{value:.1e}"
