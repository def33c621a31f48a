"""Fixtures for all tests."""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path

import pytest
import torch

# Two MKL threads on busy cores collapse (an eigh of 0.2 s took 21 s): one thread per test process.
torch.set_num_threads(1)


LAST_WORDS = 300
"""Seconds for a process of tests to end after its last test."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A thread or child that never ends must not hold the whole suite: the process says where it is, and goes."""
    if (
        session.config.getoption("dist", "no") == "no"
    ):  # the process that waits for others has nothing of its own
        faulthandler.dump_traceback_later(LAST_WORDS, exit=True)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets; skips where the machine has none."""
    folder = os.environ.get("UNDERTOW_DATA")
    if not folder:
        pytest.skip("UNDERTOW_DATA names no folder with real data sets (mnist, cifar10, ...)")
    return Path(folder)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's cache; all tests of a session share one."""
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def no_lines_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine work takes long enough to say how far it is; what tests read of a command stays the same."""
    from undertow.session import progress

    monkeypatch.setattr(progress, "LOG_EVERY", float("inf"))
