"""Moments over the processes of torch.distributed.

    mine = seen.compute()                       # of this process's samples
    whole = reduce_over_processes(mine)         # of all, the same in each process

Counts and means are gathered first; each process then moves its scatter to the common means, and one
sum gives the whole. The D x D matrices are sent once, whatever the number of processes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

from undertow.errors import BadValue
from undertow.features.joint import Joint
from undertow.features.moments import Moments


def reduce_over_processes(moments: Moments, group: Any = None) -> Moments:
    """The moments of all processes in `group`; without torch.distributed a process is the whole.

    Args:
        moments: of this process, on a device that the backend can send from; empty ones will do.
        group: a process group; None for all processes.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return moments
    facts: list[Any] = [None] * distributed.get_world_size(group)
    own = (moments.dim, moments.classes, moments.outputs)
    distributed.all_gather_object(facts, (own, moments.resolution), group)
    sizes = {size for size, _ in facts}
    if len(sizes) > 1:
        raise BadValue("reduce_over_processes", "the same (dim, classes, outputs) everywhere", sorted(sizes))
    counts, means = _common(moments.counts, moments.means, group)
    upper = moments.upper.clone()
    for c, gap in enumerate(moments.means - means):
        upper[c].addr_(gap, gap, alpha=int(moments.counts[c]))
    distributed.all_reduce(upper, group=group)
    joint = None if moments.joint is None else _reduce_joint(moments.joint, group)
    return Moments(counts, means, upper, joint, max(resolution for _, resolution in facts))


def _reduce_joint(joint: Joint, group: Any) -> Joint:
    own = torch.tensor([joint.count], device=joint.cross.device)
    count, x = _common(own, joint.feature_mean[None], group)
    _, f = _common(own, joint.output_mean[None], group)
    gap_x, gap_f = joint.feature_mean - x[0], joint.output_mean - f[0]
    cross = joint.cross + torch.outer(gap_x, gap_f) * joint.count
    scatter = joint.output_scatter + torch.outer(gap_f, gap_f) * joint.count
    distributed.all_reduce(cross, group=group)
    distributed.all_reduce(scatter, group=group)
    return Joint(int(count), x[0], f[0], cross, scatter)


def _common(counts: Tensor, means: Tensor, group: Any) -> tuple[Tensor, Tensor]:
    """Counts (C,) and means (C, D) of all processes together."""
    every = _gathered(counts, group)  # (W, C)
    total = every.sum(0)
    shares = every.double() / total.clamp(min=1)  # whole numbers alone would divide in float32
    return total, (shares[..., None] * _gathered(means, group)).sum(0)


def _gathered(own: Tensor, group: Any) -> Tensor:
    """(W, ...) the tensors of all processes."""
    parts = [torch.empty_like(own) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(parts, own.contiguous(), group=group)
    return torch.stack(parts)
