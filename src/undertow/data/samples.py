"""What every source of data gives: samples with labels, compact, checked once.

    data = DataSet("mine", train=Samples.of(x, y), test=Samples.of(x2, y2), classes=("cat", "dog"))
    data.train.x            # (N, C, H, W) uint8 pixels, (N, D) float32 vectors or (N, L) int64 tokens; or several
                            # tensors by name, as Hugging Face's models take them (see entries.py)
    data.train.y            # (N,) int64: the labels that training sees
    data.train.true         # (N,) int64: the labels before any noise, or None where nobody knows
    data.fingerprint        # hash of the content, stored with each run

Pixels stay uint8 here; `undertow.data.inputs` turns them into what a network sees.
Bad samples are refused when the DataSet is made, before anything is trained.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from undertow.data.catalogue import Kind
from undertow.data.entries import (
    SampleInputs,
    check_entries,
    count,
    first_entry,
    hash_inputs,
    rows_of,
    shown,
)
from undertow.data.plain import MOST_CLASSES, check_dense, check_finite, check_range
from undertow.errors import BadData


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs with the labels that training sees and, where known, the true ones."""

    x: SampleInputs  # (N, ...), or such tensors by name
    y: Tensor  # (N,) int64
    true: Tensor | None  # (N,) int64
    index: Tensor  # (N,) int64, the row in the source's split

    @classmethod
    def of(cls, x: SampleInputs, y: Tensor, true: Tensor | None = None) -> Samples:
        """Samples numbered in the order given."""
        return cls(x, y, true, torch.arange(count(x)))

    def __len__(self) -> int:
        return count(self.x)

    @property
    def tensor(self) -> Tensor:
        """The inputs, for work that knows no others than those in one tensor."""
        if isinstance(self.x, Tensor):
            return self.x
        raise BadData(
            f"samples: wanted inputs in one tensor, got entries by name ({', '.join(self.x)}). Those go through "
            "features, probes, audit, repair and labels; undertow's own networks and pictures take one tensor."
        )

    def take(self, rows: Tensor) -> Samples:
        """The samples at `rows` (int64), in that order."""
        true = None if self.true is None else self.true[rows]
        return Samples(rows_of(self.x, rows), self.y[rows], true, self.index[rows])

    def relabelled(self, given: Tensor) -> Samples:
        """The same samples with other labels for training; the labels until now count as the true ones."""
        return replace(self, y=given, true=self.y if self.true is None else self.true)


@dataclass(frozen=True, eq=False)
class DataSet:
    """A training and a test split over the same classes."""

    name: str
    train: Samples
    test: Samples
    classes: tuple[str, ...]
    scaling: str = "half"  # how pixels become inputs unless training says otherwise: see inputs.SCALINGS
    note: str = ""  # what the user must be told, for example that a subset stands in

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise BadData(
                f"{self.name}: wanted two classes or more, got {len(self.classes)}. One class teaches nothing."
            )
        for split, samples in (("train", self.train), ("test", self.test)):
            check_samples(samples, len(self.classes), f"{self.name}/{split}")
        train, test = (_form(part.x) for part in (self.train, self.test))
        if train != test:
            raise BadData(
                f"{self.name}: wanted train and test samples of one type and shape, got {train} and {test}. "
                "Convert or resize one of them."
            )
        if bool((self.train.y == self.train.y[0]).all()):
            raise BadData(
                f"{self.name}/train labels: wanted two classes or more, got only class {int(self.train.y[0])}. "
                "One class teaches nothing."
            )

    @property
    def kind(self) -> Kind:
        """What a sample is: an image (C, H, W), a vector (D,), a row of tokens (L,) or entries by name."""
        x = self.train.x
        if not isinstance(x, Tensor):
            return "named"
        if x.ndim == 4:
            return "image"
        return "vector" if x.is_floating_point() else "tokens"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample; of its first entry, where there are several."""
        return tuple(first_entry(self.train.x).shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of inputs, given and true labels of both splits."""
        seen = hashlib.blake2b(digest_size=16)
        for samples in (self.train, self.test):
            for part in (samples.x, samples.y, samples.true):
                if part is not None:
                    hash_inputs(seen, part)
        return seen.hexdigest()


def check_samples(samples: Samples, classes: int, where: str) -> None:
    """Refuse samples that training could not use, with the index of the first bad one."""
    _check_form(samples.x, samples.y, where)
    check_range(samples.y, classes, f"{where} labels")
    if samples.true is not None:
        check_range(samples.true, classes, f"{where} true labels")
    if not isinstance(samples.x, Tensor):
        return
    if samples.x.is_floating_point():
        check_finite(samples.x, where)
    elif samples.x.ndim == 2:
        _check_tokens(samples.x, where)


def number_classes(labels: Tensor, where: str) -> tuple[str, ...]:
    """Names "0", "1", ... for labels that came without; a number that is left out is taken for a mistake.

    Raises:
        BadData: labels are negative, leave out a number, or name one class only.
    """
    found = labels.unique()
    if len(found) < 2:
        raise BadData(
            f"{where} labels: wanted two classes or more, got {len(found)}. One class teaches nothing."
        )
    wrong = (found != torch.arange(len(found), device=found.device)).nonzero()
    if len(wrong):
        value = int(found[int(wrong[0])])
        at = int((labels == value).nonzero()[0])
        raise BadData(
            f"{where} labels: wanted the {len(found)} classes numbered 0 to {len(found) - 1}, got {value} at index "
            f"{at} and no {int(wrong[0])}. Number the classes from 0 without gaps."
        )
    return tuple(map(str, range(len(found))))


def names_up_to(*labels: Tensor) -> tuple[str, ...]:
    """Names "0", "1", ... up to the largest label of any; none without labels. Some may have no sample.

    Raises:
        BadData: a label is so large that it is no number of a class.
    """
    largest = max((int(part.max()) for part in labels if len(part)), default=-1)
    if largest >= MOST_CLASSES:
        raise BadData(
            f"labels: wanted class numbers below {MOST_CLASSES:,}, got {largest}. "
            "Number the classes from 0 without gaps."
        )
    return tuple(map(str, range(1 + largest)))


def _form(x: SampleInputs) -> str:
    """What train and test must share: type and shape; of rows by name not the length that tokens are padded to."""
    if isinstance(x, Tensor):
        return f"{x.dtype} {shown(x)}"
    shapes = {name: part.shape[1:] if part.ndim > 2 else () for name, part in x.items()}
    return ", ".join(f"{name} {x[name].dtype} {('*', *shapes[name])}" for name in sorted(x))


def _check_form(x: SampleInputs, y: Tensor, where: str) -> None:
    if isinstance(x, Tensor):
        check_dense(x, where)
    else:
        check_entries(x, where)
    if count(x) == 0:
        raise BadData(f"{where}: wanted at least one sample, got none. Give samples or another split.")
    if count(x) != len(y):
        raise BadData(f"{where}: wanted one label per sample, got {count(x)} samples and {len(y)} labels.")
    if y.ndim != 1 or y.dtype != torch.int64:
        raise BadData(
            f"{where}: wanted whole-number labels of shape (N,), got {y.dtype} of shape {tuple(y.shape)}. "
            "Labels are class numbers, not scores or one-hot rows."
        )
    if isinstance(x, Tensor):
        _check_tensor(x, where)


def _check_tensor(x: Tensor, where: str) -> None:
    if x.ndim not in (2, 4):
        raise BadData(f"{where}: wanted samples (N, C, H, W) or (N, D), got shape {tuple(x.shape)}.")
    whole = torch.uint8 if x.ndim == 4 else torch.int64
    if not x.is_floating_point() and x.dtype != whole:
        raise BadData(
            f"{where}: wanted pixels as uint8 or float, vectors as float or tokens as int64, got {x.dtype} "
            f"of shape {tuple(x.shape)}."
        )


def _check_tokens(x: Tensor, where: str) -> None:
    bad = (x < 0).any(1).nonzero()
    if len(bad):
        at = int(bad[0])
        raise BadData(
            f"{where}: wanted tokens from 0 on, got {int(x[at].min())} in the sample at index {at}."
        )
