"""VeLPIC: one unit vector per class; the largest inner product wins.

    probe = VeLPIC().fit(features, labels)
    probe.vectors_                                # (C, D) unit vectors: the weights of a linear layer
    probe.predict(test_features)                  # argmax of test_features @ vectors_.T

    VeLPIC(sign="all")                            # signs as the authors' code takes them
    VeLPIC().fit_moments(moments)                 # without features
    VeLPIC().fit_bases(masc.bases_, means, counts)   # the directions that a MASC probe has found already

The vector of a class is the leading principal direction of its rows and their negatives (MASC's first),
flipped if a mean has a negative inner product with it. Whose mean, the paper leaves open: the class's own
(`sign="own"`), or that of all training rows (`sign="all"`, the authors' code). After a ReLU both agree; on
signed features they need not. Where the mean is at a right angle, the largest entry is made positive. A
class whose rows are all zero has the zero vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from sklearn.utils import Tags
from torch import Tensor

from undertow.errors import unknown
from undertow.features.wide import Rows, mean_of
from undertow.latent.arrays import Array, as_tensor, as_written, matching
from undertow.latent.probe import MomentsProbe, by_class, class_means
from undertow.latent.subspace import of_classes, of_moment, of_stored

if TYPE_CHECKING:
    from undertow.features.moments import Moments

SIGNS = ("own", "all")


class VeLPIC(MomentsProbe):
    """Vector linear probe intermediate-layer classifier.

    After `fit`: `vectors_` (C, D), of length 1.

    Args:
        sign: "own" to turn each vector towards the mean of its class, "all" towards the mean of all rows.
    """

    vectors_: Array

    def __init__(self, sign: str = "own") -> None:
        self.sign = sign

    def fit_rows(
        self, rows: Sequence[Rows], classes: Sequence[Any] | Array | None = None, *, thin: bool = False
    ) -> Self:
        """Learn from rows that are read in blocks, one item per class, as `MASC.fit_rows`."""
        with as_written(rows[0].device):
            bases = [of_stored(part, thin=thin, count=1).basis for part in rows]
        means = torch.stack([mean_of(part) for part in rows])
        return self.fit_bases(bases, means, torch.tensor([part.shape[0] for part in rows]), classes)

    def fit_bases(
        self,
        bases: Sequence[Array],
        means: Tensor,
        counts: Tensor,
        classes: Sequence[Any] | Array | None = None,
    ) -> Self:
        """Learn from bases (D, k_c) of the classes, such as MASC's, of which the first column is taken.

        Args:
            bases: one per class, leading direction first.
            means: (C, D) means of the classes.
            counts: (C,) training rows of the classes.
            classes: names of the classes; the numbers by default.
        """
        self._check_settings()
        self._start(means.shape[1], counts, classes)
        leading = torch.stack([_first(as_tensor(basis)) for basis in bases])
        self._keep({"vectors_": self._turned(leading, means, counts)}, like=means)
        return self

    def _learn(self, rows: Tensor, index: Tensor, counts: Tensor) -> dict[str, Tensor]:
        found = of_classes(rows, by_class(index, counts), count=1)
        leading = torch.stack([_first(one.basis) for one in found])
        return {"vectors_": self._turned(leading, class_means(rows, index, counts), counts)}

    def _learn_moments(self, moments: Moments) -> dict[str, Tensor]:
        found = (
            of_moment(moments.second_moment(c), count=1, rounding=moments.resolution)
            for c in range(moments.classes)
        )
        leading = torch.stack([_first(part.basis) for part in found])
        return {"vectors_": self._turned(leading, moments.means, moments.counts)}

    def _turned(self, leading: Tensor, means: Tensor, counts: Tensor) -> Tensor:
        """`leading` (C, D) with the signs that the setting asks for."""
        means = means.to(leading.device, torch.float64)
        weights = counts.to(leading.device, torch.float64) / counts.sum()
        towards = means if self.sign == "own" else (weights @ means).expand_as(means)
        along = (leading.double() * towards).sum(1)
        largest = leading.gather(1, leading.abs().argmax(1, keepdim=True))[:, 0]
        negative = torch.where(along == 0, largest < 0, along < 0)
        return torch.where(negative[:, None], -leading, leading)

    def _score(self, rows: Tensor) -> Tensor:
        return rows @ matching(self.vectors_, rows).T

    def _check_settings(self) -> None:
        if self.sign not in SIGNS:
            raise unknown("sign for VeLPIC", self.sign, SIGNS)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Around centred rows the mean of all is zero and gives no sign: the authors' rule is for positive ones.
        tags.classifier_tags.poor_score = self.sign == "all"
        return tags


def _first(basis: Tensor) -> Tensor:
    """The first column, or zeros if there is none."""
    return basis[:, 0] if basis.shape[1] else basis.new_zeros(len(basis))
