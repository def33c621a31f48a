"""A temperature for a new head, so that the softmax of its scores can be read as confidence.

    temperature = fit_temperature(scores, labels)             # held-out scores (N, C)
    calibration_error(scores / temperature, labels)           # expected calibration error, 15 bins
    found = calibrate(before, after, labels)                  # both models; the error after is cross-fitted
    found.temperature, found.before, found.raw, found.after

A probe's scores have the scale of its features, which the softmax takes at its word. One number, fitted by
the likelihood of held-out labels, puts that right and leaves every argmax alone. Under even label noise of
rate p the labels follow (1 - p) softmax + p / C: that likelihood is used, and the error, which such labels
shrink by 1 - p, is scaled back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from undertow.errors import BadData, BadValue

BINS = 15
REACH = 1000.0
"""The temperature is sought from the spread of the scores divided by this to the spread times this."""


@dataclass(frozen=True)
class Calibration:
    """The temperature and the calibration errors that go with it."""

    temperature: float
    before: float  # of the model as it was
    raw: float  # of the new head's scores as they are
    after: float  # of the new head with the temperature, fitted on one half and measured on the other


def calibrate(before: Tensor, after: Tensor, labels: Tensor, noise: float = 0.0) -> Calibration:
    """The temperature of the scores `after` (N, C), and errors of it and of `before` (N, K)."""
    halves = torch.arange(len(labels)) % 2 == 0
    scaled = after.double().clone()
    for half in (halves, ~halves):
        scaled[half] /= fit_temperature(after[~half], labels[~half], noise)
    return Calibration(
        fit_temperature(after, labels, noise),
        calibration_error(before, labels, noise),
        calibration_error(after, labels, noise),
        calibration_error(scaled, labels, noise),
    )


def fit_temperature(scores: Tensor, labels: Tensor, noise: float = 0.0) -> float:
    """The T for which softmax(scores / T) makes `labels` most likely.

    Where all scores of each row are alike no T matters, and it is 1. Where every label has the largest score,
    ever smaller T fit better: the answer is then the smallest that is tried (see REACH).
    """
    rows = _checked(scores, labels, noise)
    spread = float((rows - rows.mean(1, keepdim=True)).square().mean().sqrt())
    if spread == 0:
        return 1.0

    def loss(log_t: float) -> float:
        likely = (rows / (spread * math.exp(log_t))).log_softmax(1).gather(1, labels[:, None])[:, 0]
        if noise:
            likely = (likely.exp() * (1 - noise) + noise / rows.shape[1]).log()
        return -float(likely.mean())

    edge = math.log(REACH)
    steps = torch.linspace(-edge, edge, 41).tolist()
    # With noise the likelihood may have two valleys: look everywhere before going down.
    best = min(steps, key=loss)
    step = steps[1] - steps[0]
    bounds = (max(-edge, best - step), min(edge, best + step))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return spread * math.exp(float(found.x))  # pyright: ignore[reportAttributeAccessIssue]


def calibration_error(scores: Tensor, labels: Tensor, noise: float = 0.0, bins: int = BINS) -> float:
    """The mean gap between confidence and accuracy over bins of equal width, weighted by their samples."""
    rows = _checked(scores, labels, noise)
    sure, said = rows.softmax(1).max(1)
    # As sure as one can be of a noisy label; against clean ones (noise 0) this changes nothing.
    sure = sure * (1 - noise) + noise / rows.shape[1]
    right = (said == labels).double()
    place = (sure * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, right - sure)
    return float(gaps.abs().sum()) / len(rows) / (1 - noise)


def _checked(scores: Tensor, labels: Tensor, noise: float) -> Tensor:
    if not 0 <= noise < 1:
        raise BadValue("calibration(noise=...)", "a share from 0 to below 1", noise)
    if scores.ndim != 2 or len(scores) != len(labels) or not len(labels):
        got = f"{tuple(scores.shape)} and {tuple(labels.shape)}"
        raise BadData(f"calibration: wanted scores (N, C) and labels (N,), got {got}.")
    rows = scores.detach().cpu().double()
    if not bool(torch.isfinite(rows).all()):
        raise BadData("calibration: wanted finite scores, got NaN or infinity.")
    return rows
