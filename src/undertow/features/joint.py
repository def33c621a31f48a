"""Moments of features and outputs together, over all samples: what D_LR needs beside the classes.

    joint = Joint.empty(dim=512, outputs=10)
    joint = joint.merge(Joint.of(rows - mean, mean, logits))  # float64 rows (N, D) and outputs (N, K)
    joint.cross                                               # (D, K) sum of (x - mean x)(f - mean f)^T

State is centred, as in moments.py and for the same reason; the raw sums are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Joint:
    """Count, means, centred cross products and centred output products; all float64."""

    count: int
    feature_mean: Tensor  # (D,)
    output_mean: Tensor  # (K,)
    cross: Tensor  # (D, K), sum of (x - feature_mean)(f - output_mean)^T
    output_scatter: Tensor  # (K, K), sum of (f - output_mean)(f - output_mean)^T

    @classmethod
    def empty(cls, dim: int, outputs: int, device: torch.device | str = "cpu") -> Joint:
        """No samples yet; merging it changes nothing."""
        sizes = ((dim,), (outputs,), (dim, outputs), (outputs, outputs))
        return cls(0, *(torch.zeros(size, dtype=torch.float64, device=device) for size in sizes))

    @classmethod
    def of(cls, centred: Tensor, feature_mean: Tensor, outputs: Tensor) -> Joint:
        """Of float64 rows whose mean was taken off already, and their outputs (N, K)."""
        mean = outputs.mean(0)
        off = outputs - mean
        return cls(len(outputs), feature_mean, mean, centred.T @ off, off.T @ off)

    def merge(self, other: Joint) -> Joint:
        """Both sets of samples as one (Chan, Golub and LeVeque's update)."""
        count = self.count + other.count
        share = other.count / max(count, 1)
        weight = self.count * share
        x = other.feature_mean - self.feature_mean
        f = other.output_mean - self.output_mean
        return Joint(
            count,
            self.feature_mean + x * share,
            self.output_mean + f * share,
            self.cross + other.cross + torch.outer(x, f) * weight,
            self.output_scatter + other.output_scatter + torch.outer(f, f) * weight,
        )

    def to(self, device: torch.device | str) -> Joint:
        """The same on another device."""
        parts = (self.feature_mean, self.output_mean, self.cross, self.output_scatter)
        return Joint(self.count, *(part.to(device) for part in parts))
