"""One small run for all tests of the room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import undertow as ut
from undertow.session import Session

from .nets import held_samples, recorded, train_samples


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> ut.Run:
    return recorded(tmp_path_factory.mktemp("counted") / "run")


@pytest.fixture
def opened(run: ut.Run, tmp_path: Path) -> Callable[..., Session]:
    """A session of the run that keeps what it measures in a folder of its own."""

    def make(name: str = "out", **settings: Any) -> Session:
        return Session(run, train_samples(), held_samples(), out=tmp_path / name, **settings)

    return make
