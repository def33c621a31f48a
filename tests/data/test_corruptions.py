"""All corruptions alike: growth with severity, one picture per image number, bad input, published files, the sheet."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from undertow.data.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    catalogue,
    contact_sheet,
    corrupt,
    corrupt_samples,
    published,
    published_folder,
)
from undertow.data.corruptions.digital import elastic
from undertow.data.corruptions.draws import Draws
from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, NotThere, UnknownName

# Mean change falls somewhere by the published settings: glass_blur smooths more from 2 to 3 and from 4 to 5,
# frost darkens the picture under the ice, elastic stretches less and less as it wobbles more.
NOT_MONOTONE = {"glass_blur", "frost", "elastic"}
# By the published settings 3 and 4 differ in a radius that lies beyond the reach of their sigma.
EQUAL_STEPS = {("motion_blur", 3)}


def photos(count: int = 12, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    """Smooth random pictures that use the whole range, like photographs."""
    source = np.random.default_rng(0)
    rough = source.normal(size=(count, channels, height, width))
    smooth = ndimage.gaussian_filter(rough, (0, 0, 2, 2), mode="wrap")
    smooth = (smooth - smooth.mean((1, 2, 3), keepdims=True)) / smooth.std((1, 2, 3), keepdims=True)
    return torch.from_numpy((127 + 60 * smooth).clip(0, 255).astype(np.uint8))


def flat(value: int, count: int = 40) -> Tensor:
    return torch.full((count, 3, 32, 32), value, dtype=torch.uint8)


def change(images: Tensor, name: str, severity: int) -> float:
    return float((corrupt(images, name, severity).double() - images.double()).abs().mean())


# All fifteen


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 30, 41), (3, 8, 8)], ids=str)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_grey_and_colour_of_any_size_keep_shape_and_type(name: str, shape: tuple[int, int, int]) -> None:
    images = photos(3, *shape)
    before = images.clone()
    for severity in SEVERITIES:
        worse = corrupt(images, name, severity)
        assert worse.shape == images.shape
        assert worse.dtype == torch.uint8
        assert not torch.equal(worse, images)
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severity_grows(name: str) -> None:
    steps = [change(photos(), name, severity) for severity in SEVERITIES]
    assert steps[0] > 0.4
    if name in NOT_MONOTONE:
        return
    for severity, (less, more) in enumerate(pairwise(steps), start=1):
        assert more == less if (name, severity) in EQUAL_STEPS else more > less


@pytest.mark.parametrize("name", ["glass_blur", "frost"])
def test_what_does_not_grow_in_mean_change_still_hides_more(name: str) -> None:
    """Less of the clean picture is left from severity 1 to 5, as correlation."""
    images = photos(30)

    def kept(severity: int) -> float:
        clean, worse = images.double(), corrupt(images, name, severity).double()
        return float(np.corrcoef(clean.flatten(), worse.flatten())[0, 1])

    assert kept(5) < kept(1) - 0.02


def test_elastic_wobbles_more_and_stretches_less() -> None:
    """The published settings trade one for the other; the local field shows as bent straight lines."""
    ramp = torch.arange(32, dtype=torch.float64).expand(20, 1, 32, 32) / 31

    def bend(severity: int) -> float:
        settings = catalogue.CATALOGUE["elastic"][1][severity - 1]
        bent = elastic(ramp, Draws(0, "elastic", torch.arange(20)), *settings)
        return float(bent[:, :, 8:24, 8:24].diff(n=2, dim=3).abs().mean())

    bends = [bend(severity) for severity in SEVERITIES]
    assert bends[0] < 1e-12
    assert all(less < more for less, more in pairwise(bends))


@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_looks_the_same_in_any_batch(
    name: str, severity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if draws run on from image to image, or if rounding in a matrix product reaches a pixel."""
    images = photos(23)
    whole = corrupt(images, name, severity, seed=3)
    order = torch.randperm(23, generator=torch.Generator().manual_seed(0))
    assert torch.equal(corrupt(images[order], name, severity, seed=3, index=order), whole[order])
    alone = corrupt(images[7:8], name, severity, seed=3, index=torch.tensor([7]))
    assert torch.equal(alone[0], whole[7])
    monkeypatch.setattr(catalogue, "_CHUNK", 5)
    assert torch.equal(corrupt(images, name, severity, seed=3), whole)


DRAWN = [
    name
    for name in CORRUPTIONS
    if name not in ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg")
]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_seeds_decide_and_global_generators_stay(name: str) -> None:
    images = photos(4)
    torch_state, legacy = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first, again, other = (corrupt(images, name, 3, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name not in DRAWN)
    assert torch.equal(torch_state, torch.get_rng_state())
    assert legacy == np.random.get_state()[1].tolist()  # noqa: NPY002


@pytest.mark.parametrize("name", DRAWN)
def test_equal_pictures_with_different_numbers_differ(name: str) -> None:
    worse = corrupt(photos(1).expand(5, -1, -1, -1), name, 5)
    assert len({bytes(image.numpy()) for image in worse}) == 5


@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_black_and_white_pictures_give_no_nonsense(name: str, value: int) -> None:
    """Fails for a division by a brightness of zero (fog, brightness): NaN would turn to some pixel."""
    worse = corrupt(flat(value, 3), name, 5).double()
    if name in ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "contrast", "elastic", "pixelate"):
        assert bool((worse == value).all())
    if name == "brightness":
        assert bool((worse == (255 if value else 77)).all())  # 0.3 of white
    if name == "fog" and value == 0:
        assert bool((worse == 0).all())


def test_names_come_in_the_papers_order() -> None:
    assert (
        *("gaussian_noise", "shot_noise", "impulse_noise"),
        *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
        *("snow", "frost", "fog"),
        *("brightness", "contrast", "elastic", "pixelate", "jpeg"),
    ) == CORRUPTIONS


# Bad input


def test_bad_names_get_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"no corruption 'gausian_noise'\. Did you mean 'gaussian_noise'"):
        corrupt(photos(1), "gausian_noise", 1)


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, True, "3", None])
def test_bad_severities_get_one_sentence(severity: object) -> None:
    with pytest.raises(BadValue, match="corruption 'fog': wanted a severity from 1 to 5, got"):
        corrupt(photos(1), "fog", severity)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "images",
    [torch.rand(2, 3, 32, 32), photos(2)[0], photos(2, channels=4), photos(2)[:0], photos(2, 3, 7, 32)],
    ids=["float", "one", "four channels", "none", "small"],
)
def test_bad_images_are_refused(images: Tensor) -> None:
    with pytest.raises(BadData, match="corrupt: wanted"):
        corrupt(images, "fog", 1)


def test_a_bad_index_is_refused() -> None:
    with pytest.raises(BadValue, match="an index for each of 3 images"):
        corrupt(photos(3), "fog", 1, index=torch.arange(2))


# The published set


@pytest.fixture
def small_set(tmp_path: Path) -> Path:
    """Four images instead of 10,000; severity s of corruption k is filled with 10 k + s."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    names = {"elastic": "elastic_transform", "jpeg": "jpeg_compression"}
    for number, name in enumerate(CORRUPTIONS):
        values = np.repeat(10 * number + np.arange(1, 6), 4).astype(np.uint8)
        images = np.broadcast_to(values[:, None, None, None], (20, 32, 32, 3)).copy()
        images[:, 0, 1, 2] = np.tile(np.arange(4), 5)  # row 0, column 1, blue: which image
        np.save(folder / f"{names.get(name, name)}.npy", images)
    np.save(folder / "labels.npy", np.tile(np.array([3, 8, 8, 0], dtype=np.uint8), 5))
    return folder


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_published_rows_are_found_by_severity(small_set: Path, name: str) -> None:
    for severity in SEVERITIES:
        samples = published(small_set, name, severity)
        assert samples.x.shape == (4, 3, 32, 32)
        assert int(samples.x[0, 0, 5, 5]) == 10 * CORRUPTIONS.index(name) + severity
        assert samples.x[:, 2, 0, 1].tolist() == [0, 1, 2, 3]
        assert samples.y.tolist() == [3, 8, 8, 0]
        assert samples.y.dtype == torch.int64


def test_samples_get_their_own_published_rows(small_set: Path) -> None:
    test = Samples.of(photos(4), torch.tensor([3, 8, 8, 0])).take(torch.tensor([3, 1]))
    worse = corrupt_samples(test, "fog", 2, folder=small_set)
    assert worse.x[:, 2, 0, 1].tolist() == [3, 1]
    assert worse.y.tolist() == [0, 8]
    assert worse.index.tolist() == [3, 1]


def test_samples_without_a_folder_are_computed_by_their_index() -> None:
    test = Samples.of(photos(6), torch.arange(6))
    part = test.take(torch.tensor([5, 2]))
    whole = corrupt_samples(test, "snow", 2, seed=4)
    assert torch.equal(corrupt_samples(part, "snow", 2, seed=4).x, whole.x[[5, 2]])


def test_the_folder_is_looked_for_under_undertow_data(
    small_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTOW_DATA", str(tmp_path))
    assert published_folder() == small_set
    monkeypatch.setenv("UNDERTOW_DATA", str(small_set))
    assert published_folder() is None
    monkeypatch.delenv("UNDERTOW_DATA")
    assert published_folder() is None


def test_a_published_set_that_does_not_fit_is_refused(small_set: Path) -> None:
    other = Samples.of(photos(4), torch.tensor([3, 8, 1, 0]))
    with pytest.raises(BadData, match=r"another at index 2 \(1 such labels\)"):
        corrupt_samples(other, "fog", 2, folder=small_set)
    with pytest.raises(BadData, match="4 rows for index 5"):
        corrupt_samples(Samples.of(photos(6), torch.arange(6)), "fog", 2, folder=small_set)
    np.save(small_set / "snow.npy", np.zeros((19, 32, 32, 3), dtype=np.uint8))
    with pytest.raises(BadData, match=r"snow\.npy: wanted uint8 images"):
        published(small_set, "snow", 1)
    (small_set / "frost.npy").write_text("no array")
    with pytest.raises(BadData, match=r"frost\.npy: wanted a NumPy array"):
        published(small_set, "frost", 1)
    (small_set / "fog.npy").unlink()
    with pytest.raises(NotThere, match=r"There is no fog\.npy.*computed"):
        published(small_set, "fog", 1)


# The contact sheet


@pytest.mark.parametrize("channels", [1, 3])
def test_the_sheet_shows_every_cell(tmp_path: Path, channels: int) -> None:
    images = photos(2, channels, 28, 28)
    path = tmp_path / "sheet.png"
    contact_sheet(images, path, scale=2)
    sheet = np.array(Image.open(path).convert("RGB"))
    cell = (28 * 2, 28 * 2 * 2)
    assert sheet.shape[0] >= 15 * cell[0]
    assert sheet.shape[1] >= 6 * cell[1]
    # The bottom right cell is jpeg at 5, up to the gap after it.
    last = sheet[-6 - cell[0] : -6, -6 - cell[1] : -6]
    expected = corrupt(images, "jpeg", 5).expand(-1, 3, -1, -1)
    expected = torch.cat(list(expected), 2).permute(1, 2, 0).repeat_interleave(2, 0).repeat_interleave(2, 1)
    assert np.array_equal(last, expected.numpy())


def test_a_sheet_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="at least one image"):
        contact_sheet(photos(1)[:0], tmp_path / "sheet.png")
    assert not list(tmp_path.iterdir())


def test_gaussian_blur_is_scipys_and_no_mean_counts_it() -> None:
    from scipy.ndimage import gaussian_filter

    images = photos(2)
    pixels = images.double().numpy() / 255
    expected = gaussian_filter(pixels, (0, 0, 1.0, 1.0), mode="nearest", truncate=4.0)
    worse = corrupt(images, "gaussian_blur", 5).double().numpy() / 255
    np.testing.assert_allclose(worse, expected, rtol=0, atol=0.5 / 255 + 1e-9)
    assert "gaussian_blur" not in CORRUPTIONS
    assert len(CORRUPTIONS) == 15
