"""One run of each world, made once for all tests."""

from __future__ import annotations

import pytest

from . import worlds


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return worlds.bert_run(tmp_path_factory.mktemp("hf") / "out")


@pytest.fixture(scope="session")
def lightning(tmp_path_factory):
    return worlds.lightning_run(tmp_path_factory.mktemp("lightning"))


@pytest.fixture(scope="session")
def timm(tmp_path_factory):
    return worlds.timm_run(tmp_path_factory.mktemp("timm") / "out")


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    return worlds.plain_run(tmp_path_factory.mktemp("plain") / "ckpts")
