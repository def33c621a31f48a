"""What would not fit into the memory is refused before it is unpacked."""

from __future__ import annotations

import io
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from undertow import room
from undertow.data.decode import decode_images
from undertow.data.load import load_data
from undertow.errors import BadData
from undertow.models.build import build_model
from undertow.room import LATER, check_room, free_memory, in_all


@pytest.fixture
def little_free(tmp_path: Path, monkeypatch) -> None:
    """A machine with 100 MB to spare."""
    (tmp_path / "meminfo").write_text("MemTotal: 999999999 kB\nMemAvailable:     97656 kB\n")
    monkeypatch.setattr(room, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(room, "GROUP", tmp_path / "no container")


def black(side: int) -> bytes:
    written = io.BytesIO()
    Image.new("L", (side, side)).save(written, "PNG")
    return written.getvalue()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_the_smaller_of_machine_and_container_counts(tmp_path: Path, little_free, monkeypatch):
    assert free_memory() == 97656 * 1024
    monkeypatch.setattr(room, "GROUP", tmp_path)
    (tmp_path / "memory.max").write_text("50000000\n")
    (tmp_path / "memory.current").write_text("30000000\n")
    assert free_memory() == 20_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory() == 97656 * 1024


def test_a_plan_says_where_more_is_wanted_than_is_free(little_free):
    """Fails if libraries that are loaded later do not count, or if it is said of all."""
    free = 97656 * 1024
    more = r", more than the 100 MB that are free: give a smaller --memory or fewer --samples"
    assert in_all(free - LATER + 1).endswith(f"samples counted{more})")
    assert in_all(free - LATER).endswith("samples counted)")


def test_a_system_that_does_not_tell_refuses_nothing(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(room, "MEMINFO", tmp_path / "none")
    monkeypatch.setattr(room, "GROUP", tmp_path / "none")
    assert free_memory() is None
    check_room(10**18, "all of it")


def test_many_small_files_of_large_pictures_are_refused(little_free):
    """Fails if the space is taken page by page until the system kills the process."""
    bomb, before = black(3000), peak()
    assert len(bomb) < 20_000
    with pytest.raises(BadData, match=r"50 images like row 0: wanted at most 100 MB .* takes 450 MB"):
        decode_images([bomb] * 50, lambda row: f"row {row}")
    assert peak() - before < 100_000_000


def test_one_picture_of_too_many_pixels_is_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(BadData, match=r"row 0: wanted an image of at most 2,000 pixels"):
        decode_images([black(50)], lambda row: f"row {row}")


def test_an_archive_that_unpacks_to_more_is_refused(tmp_path: Path, little_free):
    with zipfile.ZipFile(tmp_path / "d.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("x", "y"):
            written = io.BytesIO()
            np.save(written, np.zeros(10_000_000))
            archive.writestr(f"{name}.npy", written.getvalue())
    assert (tmp_path / "d.npz").stat().st_size < 1_000_000
    with pytest.raises(BadData, match=r"d\.npz: wanted at most 100 MB .* takes 160 MB"):
        load_data(tmp_path / "d.npz")


def test_a_model_that_does_not_fit_is_refused_before_it_is_built(tmp_path: Path, little_free):
    """Fails if a run.json from elsewhere can have the process killed by the size of its model."""
    before = peak()
    with pytest.raises(BadData, match=r"weights of 'mlp:1000': wanted at most 100 MB .* takes 400 MB"):
        build_model("mlp:1000", (100_000,), 10, seed=0)
    assert peak() - before < 100_000_000
