"""A run that has memorised wrong labels, trained once for all tests of the room."""

from __future__ import annotations

import pytest

import undertow as ut


@pytest.fixture(scope="session")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> ut.Run:
    """Digits with 40 % of the labels drawn at random, learned by heart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERTOW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        config = ut.TrainConfig(
            model="mlp:256-256-256",
            data="digits",
            noise="0.4",
            epochs=40,
            device="cpu",
            checkpoints="0,40",
        )
        return ut.train(config, tmp_path_factory.mktemp("runs") / "noisy")
