"""Which data a study needs, and what is said where it is missing."""

from __future__ import annotations

import pytest

from undertow.errors import NotThere
from undertow.studies import required_data
from undertow.studies.catalogue import STUDIES, find_study
from undertow.studies.required_data import check_data, data_needed, whereabouts


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch, tmp_path):
    """No mirror, no earlier download, no network."""
    monkeypatch.delenv("UNDERTOW_DATA", raising=False)
    monkeypatch.delenv("HF_DATASETS_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))


def test_where_a_set_is(monkeypatch, tmp_path):
    assert whereabouts("digits") == "here"
    assert whereabouts("mnist") == "to download"
    (tmp_path / "hub/datasets/ylecun___mnist").mkdir(parents=True)
    assert whereabouts("mnist") == "downloaded"
    monkeypatch.setenv("UNDERTOW_DATA", str(tmp_path))
    (tmp_path / "mnist_subset").mkdir()
    assert whereabouts("mnist") == "subset"
    (tmp_path / "mnist").mkdir()
    assert whereabouts("mnist") == "here"


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_smoke_needs_nothing_from_outside(name):
    assert data_needed(find_study(name).at("smoke")) == ()


def test_a_scale_decides_what_is_needed():
    study = find_study("latent/transfer")
    assert data_needed(study.at("laptop")) == ("mnist", "cifar10", "fashion_mnist")
    assert "tiny_imagenet" in data_needed(study)
    assert data_needed(find_study("latent/no-download").at("laptop")) == ()


def test_all_that_is_missing_is_named_once_with_a_way_to_get_it(monkeypatch):
    asked = []

    def absent(name):
        asked.append(name)
        raise NotThere(f"{name}: there is no mirror. Set UNDERTOW_DATA.")

    monkeypatch.setattr("undertow.data.load.load_data", absent)
    studies = [
        find_study(name).at("laptop")
        for name in ("latent/transfer", "temporal/induction", "richness/nystrom")
    ]
    with pytest.raises(NotThere) as caught:
        check_data(studies)
    assert asked == ["mnist", "cifar10", "fashion_mnist"]
    assert str(caught.value) == (
        "Nothing was trained, because data is missing for latent/transfer, temporal/induction. "
        "mnist: there is no mirror. Set UNDERTOW_DATA. Also missing: cifar10, fashion_mnist."
    )


def test_what_is_embedded_is_not_loaded(monkeypatch):
    monkeypatch.setattr("undertow.data.load.load_data", lambda name: pytest.fail(name))
    check_data([find_study("latent/no-download").at("laptop")])
    assert required_data.data_needed(find_study("richness/heaviside")) == ()
