"""Questions as rows of word numbers, with the class that each asks for.

    data = questions("trec", seed=0, train_size=2000, test_size=500, length=16)
    data.train.x            # (2000, 16) int64: 0 is no word (in front), 1 a rare one, then words by frequency
    questions("made", ...)  # sentences from a small grammar, where no text is at hand

Classes of TREC: abbreviation, description, entity, human, location, number. Words are those of the training
questions; a word that occurs once says nothing about another question and counts as rare.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from undertow.data.samples import DataSet, Samples
from undertow.errors import BadData, NotThere, unknown
from undertow.training.seeds import stream

SOURCES = ("trec", "made")
FILE = "real_noise/trec.parquet"
NONE, RARE = 0, 1
"""Numbers that are no words."""

_CLASSES = 6
Labelled = tuple[list[str], list[int]]


def questions(source: str, *, seed: int, train_size: int, test_size: int, length: int) -> DataSet:
    """So many questions for training and test, drawn by `seed`; the first `length` words of each."""
    if source not in SOURCES:
        raise unknown("source of questions", source, SOURCES)
    train, test = _trec() if source == "trec" else _made(seed, train_size, test_size)
    parts = [_drawn(part, size, seed) for part, size in ((train, train_size), (test, test_size))]
    known = vocabulary(parts[0][0])
    made = [
        Samples.of(torch.stack([as_numbers(text, known, length) for text in texts]), torch.tensor(labels))
        for texts, labels in parts
    ]
    return DataSet(source, made[0], made[1], tuple(map(str, range(_CLASSES))))


def vocabulary(texts: Sequence[str]) -> dict[str, int]:
    """Words that occur more than once, numbered from 2 on, the commonest first and alike ones by the alphabet."""
    counts = Counter(word for text in texts for word in text.split())
    common = sorted((word for word in counts if counts[word] > 1), key=lambda word: (-counts[word], word))
    return {word: RARE + 1 + place for place, word in enumerate(common)}


def as_numbers(text: str, known: dict[str, int], length: int) -> Tensor:
    """(length,) int64: the first words, filled up in front, so that the last place holds a word."""
    words = [known.get(word, RARE) for word in text.split()[:length]]
    return torch.tensor([NONE] * (length - len(words)) + words)


def _drawn(part: Labelled, size: int, seed: int) -> Labelled:
    texts, labels = part
    if size > len(texts):
        raise BadData(f"questions: wanted {size}, got {len(texts)}. Ask for fewer.")
    order = torch.randperm(len(texts), generator=stream(seed, "questions", len(texts)))[:size].tolist()
    return [texts[at] for at in order], [labels[at] for at in order]


def _trec() -> tuple[Labelled, Labelled]:
    from pyarrow import parquet

    root = os.environ.get("UNDERTOW_DATA")
    path = Path(root or ".") / FILE
    if root is None or not path.is_file():
        raise NotThere(
            f"TREC's questions: wanted {FILE} in the folder that UNDERTOW_DATA names (columns split, text, true), "
            f"got {root or 'no such folder'}. Put the file there, or take source='made'."
        )
    # By its path: pandas would open it as a Python file, which Arrow's threads must not hold (see stored/tables.py).
    table = parquet.read_table(path, columns=["split", "text", "true"]).to_pandas()
    train, test = (table[table["split"] == split] for split in ("train", "test"))
    return (
        (train["text"].tolist(), train["true"].astype(int).tolist()),
        (test["text"].tolist(), test["true"].astype(int).tolist()),
    )


# ------------------------------------------------------------------------------------------- made-up questions

_OPENINGS = (
    "what does it mean when they say", "how did people explain", "which animal ate",
    "who wrote about", "where is the town of", "how many people saw",
)  # fmt: skip
_NOUNS = (
    "river bridge mountain poem song king clock garden ship market letter star window horse castle story lamp"
)


def _made(seed: int, train_size: int, test_size: int) -> tuple[Labelled, Labelled]:
    """An opening that tells the class, and nouns that do not; nearly all sentences differ."""
    draw = stream(seed, "made questions", 0)
    nouns, count = _NOUNS.split(), train_size + test_size
    labels = torch.randint(_CLASSES, (count,), generator=draw).tolist()
    picks = torch.randint(len(nouns), (count, 4), generator=draw).tolist()
    texts = [
        f"{_OPENINGS[label]} the {' and the '.join(nouns[at] for at in row)} ?"
        for label, row in zip(labels, picks, strict=True)
    ]
    return (texts[:train_size], labels[:train_size]), (texts[train_size:], labels[train_size:])
