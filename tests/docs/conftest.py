"""The tests here share what a reader has: a run, data, files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import reader


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files that the pages name; tests work on copies of it."""
    return reader.set_up(tmp_path_factory.mktemp("reader"))
