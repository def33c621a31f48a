"""What `beyond/three-lenses` measures: one number of each lens on one run.

rows = three_lenses(run, case="noise 0.4, width 64, 30 a class", seed=0, checkpoints="10,20,30,40")
"""

from __future__ import annotations

import numpy as np

from undertow.latent.masc import MASC
from undertow.latent.velpic import VeLPIC
from undertow.richness.alignment import low_rank
from undertow.session.checkpoints import choose
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.studies.temporal.composite_measures import some
from undertow.studies.temporal.dynamics_measures import anisotropy_rows, window_rows
from undertow.studies.temporal.feature_space_measures import cuts_of, features_at
from undertow.studies.temporal.noise_measures import noise_at
from undertow.temporal.consistency import consistency_matrix
from undertow.temporal.matrix import composite_matrix
from undertow.training.run import Run


def three_lenses(
    run: Run,
    *,
    case: str,
    seed: int,
    checkpoints: str,
    samples: int = 500,
    batches: int = 32,
    inputs: int = 4,
) -> Rows:
    """D_LR, latent gap, consistency and its window, and anisotropy of SGD noise, at the last of `checkpoints`.

    Args:
        run: a trained run; its cuts are the hidden layers.
        case: the study's case (unused).
        seed: the case's seed; of mini-batches here.
        checkpoints: epochs such as 10,20,30; the window is over these, all else at the last.
        samples: of training and test data.
        batches: mini-batches for the noise of one step.
        inputs: test samples whose features are followed there.
    """
    times = list(choose(run, checkpoints))
    rows = [*_features_rows(run, times[-1], samples), *_window_rows(run, times, samples)]
    found = [
        anisotropy_rows(delta)
        for _, delta in noise_at(run, times[-1], batches=batches, inputs=inputs, seed=seed)
    ]
    strength = np.mean([one["value"] for cut in found for one in cut if one["measure"] == "anisotropy"])
    return [*rows, row("anisotropy", float(strength), checkpoint=times[-1])]


def _features_rows(run: Run, at: int, samples: int) -> Rows:
    """Richness of the head's features, and how much better the best hidden layer knows than the model."""
    data, cuts = run.data(), cuts_of(run)
    train, test = some(data.train, samples), some(data.test, samples)
    known, seen = features_at(run, at, train, cuts), features_at(run, at, test, cuts)
    right = test.y if test.true is None else test.true
    model = float((seen[1].argmax(1) == right).double().mean())
    best = max(
        float((probe.fit(known[0][cut], train.y).predict(seen[0][cut]) == right).double().mean())
        for cut in cuts
        for probe in (MASC(), VeLPIC())
    )
    rich = low_rank(seen[0][cuts[-1]], seen[1])
    return [
        row("d_lr", rich.value, checkpoint=at, note=rich.note),
        row("latent_gap", best - model, checkpoint=at),
        row("test_accuracy", model, checkpoint=at),
    ]


def _window_rows(run: Run, times: list[int], samples: int) -> Rows:
    """Mean over cuts on test samples: consistency with the earlier checkpoints, and the window in epochs."""
    found = composite_matrix(run, some(run.data().test, samples), split="test", checkpoints=times)
    parts = [
        one
        for place in range(len(found.cuts))
        for one in window_rows(
            consistency_matrix(found.predictions[place], times).values, times, 0.8, len(times) - 1
        )
    ]
    return [
        row(
            name,
            float(np.mean([one["value"] for one in parts if one["measure"] == name])),
            checkpoint=times[-1],
        )
        for name in ("consistency", "window")
    ]
