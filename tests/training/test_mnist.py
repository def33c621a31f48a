"""Real MNIST with 40 % label noise: the test accuracy peaks early and falls while wrong labels are learned."""

from __future__ import annotations

from pathlib import Path

import pytest

import undertow as ut


@pytest.mark.slow
@pytest.mark.realdata
def test_the_early_peak(tmp_path: Path, real_data: Path):
    """The paper's MLP on 3,000 samples and at ten times its learning rate, to memorise within a minute or two."""
    config = ut.TrainConfig(
        "mlp", data="mnist", noise="0.4", train_size=3000, test_size=2000, epochs=45, optimiser="sgd", lr=1e-2,
        batch_size=32, device="cpu",
    )  # fmt: skip
    metrics = ut.train(config, tmp_path / "run").metrics
    best = metrics.loc[metrics["test_accuracy"].idxmax()]
    last = metrics.iloc[-1]
    assert best["epoch"] < 20
    assert best["test_accuracy"] > 0.83
    assert last["test_accuracy"] < best["test_accuracy"] - 0.12
    assert last["train_wrong_fit"] > 0.6
