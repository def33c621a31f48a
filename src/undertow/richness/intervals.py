"""How far D_LR would move with other samples of the same kind: an interval for what many would give.

    found = d_lr_interval(features, outputs)             # DLRInterval(value=.31, low=.28, high=.33, ...)
    found.low, found.high, found.bias                    # 95 % for D_LR of endlessly many samples

The groups (20 by default, drawn at random) are left out in turn, and D_LR is taken of the rest: their products are
subtracted from those of all samples. From the twenty numbers follow a standard error, a t interval, and the bias of
too few samples, which is taken off: with P features and n samples second moments are overstated by about P/n, which
shifts D_LR by as much as its standard error. A bootstrap would add that bias once more.

The arithmetic is done on the logit scale, so no interval leaves 0 to 1. `value` is the plain measure of all samples;
where the bias is large against the interval it may lie outside, which is the reader's sign that more samples are
wanted. Samples must be drawn independently: tokens of one text are not, and then the interval is too narrow.

Drawn from Gaussian and heavy-tailed features with a known answer, 95 % intervals held it in 91 to 98 % of 200 draws
at n >= 4 P (10 settings), and in 86 % at n = 2 P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undertow.errors import BadData, BadValue
from undertow.richness.alignment import d_lr_of, low_rank_of, read_head
from undertow.richness.kernel import Kernel
from undertow.richness.rows import Array

GROUPS = 20
"""Groups of samples that are left out in turn; more would narrow the interval by a few per cent only."""


@dataclass(frozen=True)
class DLRInterval:
    """D_LR, and where it would lie for endlessly many samples."""

    value: float  # of all samples
    low: float
    high: float
    centre: float  # the value without the bias of few samples
    level: float  # how often such an interval holds the answer
    groups: int

    @property
    def bias(self) -> float:
        """How much too high the value is for having few samples."""
        return self.value - self.centre


def d_lr_interval(
    features: Array,
    outputs: Array,
    projection: bool = True,
    *,
    level: float = 0.95,
    groups: int = GROUPS,
    seed: int = 0,
) -> DLRInterval:
    """D_LR with an interval over samples; see `d_lr` for features and outputs.

    Args:
        features: (N, P), of independent samples.
        outputs: (N, C).
        projection: see `d_lr`.
        level: how often the interval is to hold the answer.
        groups: of samples, left out in turn.
        seed: of the draw of the groups.
    """
    rows, outs = read_head(features, outputs, "d_lr_interval")
    dealt = drawn_groups(len(rows), groups, seed)
    kernel = Kernel.of(rows, outs)
    value = low_rank_of(kernel, projection).value
    return jackknifed(value, values_without(kernel, rows, outs, dealt, projection), level)


def drawn_groups(count: int, groups: int, seed: int) -> Sequence[Tensor]:
    """Sample numbers of each group, as equal in size as can be; refuses too few groups, or samples."""
    if groups < 5:
        raise BadValue("groups", "5 or more: fewer tell little of the spread", groups)
    if count < 2 * groups:
        raise BadData(
            f"interval: wanted at least {2 * groups} samples for {groups} groups, got {count}. Give more samples."
        )
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tensor_split(groups)


def values_without(
    kernel: Kernel, rows: Tensor, outputs: Tensor, groups: Sequence[Tensor], projection: bool = True
) -> list[float]:
    """D_LR of all samples but those of one group, for each group."""
    own = [group.to(rows.device) for group in groups]
    return d_lr_of(kernel.without(rows, outputs, own), kernel.mean, projection)[0].tolist()


def jackknifed(value: float, without: Sequence[float], level: float = 0.95) -> DLRInterval:
    """From the value of all samples and the values without one group each (the grouped jackknife).

    Raises:
        BadData: a value at the end of its range: nothing is known of its spread.
    """
    from scipy.special import stdtrit  # imported late: most measures need no interval

    if not 0 < level < 1:
        raise BadValue("level", "a share between 0 and 1", level)
    whole, rest = _logit(value), [_logit(each) for each in without]
    groups, mean = len(rest), math.fsum(rest) / len(rest)
    centre = groups * whole - (groups - 1) * mean
    error = math.sqrt((groups - 1) / groups * math.fsum((each - mean) ** 2 for each in rest))
    reach = float(stdtrit(groups - 1, (1 + level) / 2)) * error
    return DLRInterval(value, _share(centre - reach), _share(centre + reach), _share(centre), level, groups)


def _logit(value: float) -> float:
    if not 0 < value < 1:
        raise BadData(
            f"interval: wanted a measure between 0 and 1, got {value:.3g}: at the end of its range."
        )
    return math.log(value) - math.log1p(-value)


def _share(value: float) -> float:
    return 0.5 * (1 + math.tanh(value / 2))
