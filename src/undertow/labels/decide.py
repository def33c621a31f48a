"""Which labels to suspect, and what to propose instead.

    flagged = suspects(scores, judged, share)              # (N,) bool: the likeliest wrong, as many as are guessed
    proposed = proposals(beliefs, labels, flagged)         # (N,) int64: another class, or -1 for none

F1 is best near where as many are flagged as are wrong, and flat around it: a guess of the share within a third of the
truth costs little. A score of one half is no threshold: it would need beliefs that are calibrated, which nobody can
check without clean labels.
"""

from __future__ import annotations

import torch
from torch import Tensor

SURE_OF_ANOTHER, MOST_NEEDED = 0.25, 0.4
"""The share of all belief in other classes that the best of them needs to be proposed: so much more than each would
have if nothing were known, and never more than the second."""
SURE_OF_MISSING = 0.5
"""The belief in a class that is proposed for a sample without a label."""


def suspects(scores: Tensor, judged: Tensor, share: float) -> Tensor:
    """(N,) bool: the highest scores among judged samples, so many as `share` of them."""
    count = round(share * int(judged.sum()))
    flagged = torch.zeros(len(scores), dtype=torch.bool)
    order = scores.masked_fill(~judged, -torch.inf).argsort(descending=True, stable=True)
    flagged[order[:count]] = True
    return flagged


def proposals(beliefs: Tensor, labels: Tensor, flagged: Tensor) -> Tensor:
    """(N,) int64: a class for flagged and for unlabelled samples, never the given one; -1 where none stands out."""
    proposed = torch.full((len(labels),), -1, dtype=torch.int64)
    rows = flagged.nonzero()[:, 0]
    others = beliefs[rows].scatter(1, labels[rows][:, None], 0.0)
    best = others.max(1)
    needed = min(MOST_NEEDED, SURE_OF_ANOTHER + 1 / max(1, beliefs.shape[1] - 1))
    enough = best.values >= needed * others.sum(1)
    proposed[rows[enough]] = best.indices[enough]
    rows = (labels < 0).nonzero()[:, 0]
    best = beliefs[rows].max(1)
    enough = best.values >= SURE_OF_MISSING
    proposed[rows[enough]] = best.indices[enough]
    return proposed
