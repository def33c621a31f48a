"""undertow's measures as torchmetrics: states of one size that are summed over batches and processes.

    metric = DLR(features=512, outputs=10)
    metric.update(features, logits); metric.compute()               # 0 rich, towards 1 lazy

    metric = NeuralCollapse(features=512, classes=10, head=model.head)
    metric.update(features, labels); metric.compute()               # {"nc1": ..., "nc2_etf": ..., "nc3": ...}

    metric = LatentAccuracy(features=512, classes=10, probe=VeLPIC())
    metric.learn(features, labels)                                  # training batches
    metric.fit()                                                    # once, on every process
    metric.update(held_out_features, labels); metric.compute()

Sums are float64 and not centred, because sums alone add up over processes that do not know one another's means.
Features whose mean is m times their spread lose 2 log10(m) of float64's 16 digits: at m = 1000 ten are left.
Processes may have seen different numbers of samples, or none.
"""

from __future__ import annotations

from copy import copy
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn

from undertow.errors import BadData, BadValue, NotThere
from undertow.features.joint import Joint
from undertow.features.moments import Moments, check_labels
from undertow.latent.probe import MomentsProbe
from undertow.latent.velpic import VeLPIC
from undertow.richness.alignment import low_rank_of, read_head
from undertow.richness.collapse import ClassMeans, Within, collapse_of
from undertow.richness.kernel import Kernel
from undertow.richness.rows import float_rows

try:
    from torchmetrics import Metric
except ImportError:
    raise NotThere("These metrics need torchmetrics: pip install 'undertow[torchmetrics]'.") from None

COLLAPSE = ("nc1", "nc1_stabilised", "trace_within", "nc2_equinorm", "nc2_equiangle", "nc2_etf", "nc3")
LEARNED = ("counts", "sums", "products")
"""The states that a probe is fitted from."""


class _Summed(Metric):
    """A metric whose states are float64 sums."""

    full_state_update = False
    higher_is_better = None
    is_differentiable = False

    def _sums(self, **shapes: tuple[int, ...]) -> None:
        for name, shape in shapes.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def _sum(self, name: str) -> Tensor:
        return cast("Tensor", getattr(self, name))

    def _add(self, **parts: Tensor) -> None:
        for name, part in parts.items():
            setattr(self, name, self._sum(name) + part)

    def _rows(self, features: Tensor, width: int) -> Tensor:
        rows = float_rows(features, type(self).__name__).double()
        if rows.shape[1] != width:
            raise BadData(f"{type(self).__name__}: wanted rows of width {width}, got {rows.shape[1]}.")
        return rows


class DLR(_Summed):
    """D_LR of the features that enter the last layer and the outputs that leave it."""

    def __init__(self, features: int, outputs: int, **kwargs: Any) -> None:
        """Start without samples.

        Args:
            features: width of what enters the last layer.
            outputs: width of what leaves it, before any softmax.
            kwargs: of torchmetrics.Metric.
        """
        super().__init__(**kwargs)
        self.features, self.outputs = features, outputs
        self._sums(
            count=(), feature_sum=(features,), output_sum=(outputs,), feature_products=(features, features),
            cross_products=(features, outputs), output_products=(outputs, outputs),
        )  # fmt: skip

    def update(self, features: Tensor, outputs: Tensor) -> None:
        """Take in features (N, P) and outputs (N, C) of the same samples."""
        rows, outs = read_head(features.detach(), outputs.detach(), "DLR")
        x, f = self._rows(rows, self.features), self._rows(outs, self.outputs)
        self._add(
            count=torch.tensor(float(len(x)), dtype=torch.float64, device=x.device), feature_sum=x.sum(0),
            output_sum=f.sum(0), feature_products=x.T @ x, cross_products=x.T @ f, output_products=f.T @ f,
        )  # fmt: skip

    def compute(self) -> Tensor:
        """D_LR of all samples so far."""
        count = int(self._sum("count"))
        if count < 2:
            raise BadData(f"DLR: wanted at least 2 samples, got {count}. Update it first.")
        mean, told = self._sum("feature_sum") / count, self._sum("output_sum") / count
        joint = Joint(
            count, torch.zeros_like(mean), told, self._sum("cross_products") - count * torch.outer(mean, told),
            self._sum("output_products") - count * torch.outer(told, told),
        )  # fmt: skip
        products = self._sum("feature_products") - count * torch.outer(mean, mean)
        return torch.tensor(
            low_rank_of(Kernel(count, mean, products, None, joint)).value, dtype=torch.float64
        )


class _ByClass(_Summed):
    """Counts, sums and products of feature rows, class by class."""

    def __init__(self, features: int, classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if classes < 2:
            raise BadValue(type(self).__name__, "two classes or more", classes)
        self.features, self.classes = features, classes
        self._sums(counts=(classes,), sums=(classes, features), products=(classes, features, features))

    def _take_in(self, features: Tensor, labels: Tensor) -> None:
        rows = self._rows(features.detach(), self.features)
        check_labels(labels, len(rows), self.classes, type(self).__name__)
        member = nn.functional.one_hot(labels, self.classes).to(rows)  # (N, C)
        products = torch.stack([own.T @ own for own in (rows[labels == c] for c in range(self.classes))])
        self._add(counts=member.sum(0), sums=member.T @ rows, products=products)

    def moments(self) -> Moments:
        """The moments of all rows so far, centred."""
        counts = self._sum("counts")
        if not int(counts.sum()):
            raise BadData(
                f"{type(self).__name__}: wanted samples to compute from, got none. Update it first."
            )
        means = self._sum("sums") / counts.clamp(min=1)[:, None]
        upper = self._sum("products") - counts[:, None, None] * means[:, :, None] * means[:, None]
        return Moments(counts.long(), means, upper, None, torch.finfo(torch.float64).eps)


class NeuralCollapse(_ByClass):
    """Neural collapse; each class counts the same, however many samples it has.

    State takes classes x features x features numbers: 21 MB for ten classes of width 512.
    """

    def __init__(self, features: int, classes: int, head: nn.Linear | None = None, **kwargs: Any) -> None:
        """Start without samples.

        Args:
            features: width of what enters the last layer.
            classes: how many.
            head: the last layer, for `nc3`.
            kwargs: of torchmetrics.Metric.
        """
        super().__init__(features, classes, **kwargs)
        self._head = (head,)  # in a tuple, so that it does not become a part of the metric

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Take in features (N, P) and their class numbers (N,)."""
        self._take_in(features, labels)

    def compute(self) -> dict[str, Tensor]:
        """The measures by name; one that has no value here is left out."""
        seen, head = self.moments(), self._head[0]
        of = ClassMeans.of(seen.counts, seen.means)
        within = seen.within(balanced=True) * self.classes  # a sum over the classes
        along = ((of.directions @ within) * of.directions).sum(1)
        found = collapse_of(of, Within(float(within.trace()), along), None if head is None else head.weight)
        values = {name: getattr(found, name) for name in COLLAPSE}
        return {name: torch.tensor(value) for name, value in values.items() if value is not None}


class LatentAccuracy(_ByClass):
    """How often a closed-form probe of a layer is right on held-out samples.

    `reset` forgets the samples; the probe stays until it is fitted again.
    """

    def __init__(self, features: int, classes: int, probe: MomentsProbe | None = None, **kwargs: Any) -> None:
        """Start without samples.

        Args:
            features: width of the layer.
            classes: how many.
            probe: MASC, VeLPIC, NearestMean or LDA; VeLPIC when not given.
            kwargs: of torchmetrics.Metric.
        """
        super().__init__(features, classes, **kwargs)
        self.probe: MomentsProbe = copy(probe) if probe is not None else VeLPIC()
        self.fitted = False
        self._sums(hits=(), judged=())

    def learn(self, features: Tensor, labels: Tensor) -> None:
        """Take in training rows (N, P) and their class numbers (N,)."""
        self._take_in(features, labels)

    def fit(self) -> MomentsProbe:
        """Fit the probe to what all processes have learned; every process must call it, once."""
        together = distributed.is_available() and distributed.is_initialized()
        if together:
            for name in LEARNED:
                distributed.all_reduce(self._sum(name))
        self.probe.fit_moments(self.moments())
        self.fitted = True
        if (
            together and distributed.get_rank()
        ):  # kept by the first alone, or `compute` would count them again
            for name in LEARNED:
                setattr(self, name, torch.zeros_like(self._sum(name)))
        return self.probe

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Judge held-out rows (N, P) with their class numbers (N,)."""
        if not self.fitted:
            raise BadData(
                "LatentAccuracy: wanted a fitted probe. Call learn(...) on training batches, then fit()."
            )
        rows = self._rows(features.detach(), self.features)
        check_labels(labels, len(rows), self.classes, "LatentAccuracy")
        hits = (cast("Tensor", self.probe.predict(rows)) == labels).double().sum()
        self._add(hits=hits, judged=torch.full_like(hits, len(rows)))

    def compute(self) -> Tensor:
        """The share of held-out samples that the probe names rightly."""
        if not int(self._sum("judged")):
            raise BadData("LatentAccuracy: wanted held-out samples, got none. Update it first.")
        return self._sum("hits") / self._sum("judged")
