"""Suspected labels: pictures that a page can carry."""

from __future__ import annotations

import base64
import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from undertow.errors import RunProblem
from undertow.report.gallery import MOST, data_uri, suspects


def image_of(address):
    return np.asarray(
        Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))
    )


def write(folder, rows, **arrays):
    pd.DataFrame(rows).to_parquet(folder / "suspects.parquet")
    np.savez(folder / "suspects.npz", **arrays)


PICTURES = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)
ROWS = {
    "sample": [4, 7, 9],
    "given": [0, 1, 1],
    "proposed": [1, 0, 5],
    "score": [1.0, 3.0, 2.0],
    "confidence": [0.5, 0.9, np.nan],
    "true": [1, 0, np.nan],
}


@pytest.mark.parametrize(
    "arrays",
    [{"sample": np.array([4, 7, 9]), "images": PICTURES}, dict(zip("479", PICTURES, strict=True))],
    ids=["stacked", "by name"],
)
def test_the_worst_come_first_with_their_own_picture(tmp_path, arrays):
    write(tmp_path, ROWS, **arrays)
    found = suspects(tmp_path, ["cat", "dog"])
    assert [own["sample"] for own in found] == [7, 4, 9], "the worst of each given class, then the second"
    assert [(own["given"], own["proposed"]) for own in found] == [
        ("dog", "cat"),
        ("cat", "dog"),
        ("dog", "5"),
    ]
    assert found[2]["confidence"] is None
    assert [own["score"] for own in found] == [3, 1, 2]
    assert [own["true"] for own in found] == ["cat", "dog", None]
    for own, place in zip(found, (1, 0, 2), strict=True):
        np.testing.assert_array_equal(image_of(own["image"]), PICTURES[place])


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3)])
def test_grey_and_coloured_pictures(shape):
    image = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
    np.testing.assert_array_equal(image_of(data_uri(image)), image[..., 0] if shape[-1] == 1 else image)


def test_without_true_labels_none_is_shown(tmp_path):
    rows = {name: values for name, values in ROWS.items() if name != "true"}
    write(tmp_path, rows, sample=np.array([4, 7, 9]), images=PICTURES)
    assert [own["true"] for own in suspects(tmp_path, [])] == [None] * 3


def test_without_pictures_there_is_no_gallery(tmp_path):
    pd.DataFrame(ROWS).to_parquet(tmp_path / "suspects.parquet")
    assert suspects(tmp_path, []) == []


def test_a_page_carries_so_many_and_no_more(tmp_path):
    rows = {"sample": range(300), "given": 0, "proposed": 1, "score": np.arange(300.0)}
    write(tmp_path, rows, sample=np.arange(300), images=np.zeros((300, 2, 2), np.uint8))
    assert [own["sample"] for own in suspects(tmp_path, [])] == list(range(299, 299 - MOST, -1))


def test_pickled_pictures_are_refused(tmp_path):
    """Opening a report must not run what a stranger's file says."""
    pd.DataFrame(ROWS).to_parquet(tmp_path / "suspects.parquet")
    np.savez(tmp_path / "suspects.npz", **{"4": np.array([{"a": 1}], dtype=object)})
    with pytest.raises(RunProblem, match="wanted thumbnails by sample, but it cannot be read"):
        suspects(tmp_path, [])
