"""Each corruption against an independent computation: formulas, scipy, Pillow, colorsys, known distributions."""

from __future__ import annotations

import colorsys
import io
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats
from torch import Tensor

from undertow.data.corruptions import SEVERITIES, catalogue, corrupt
from undertow.data.corruptions.blur import defocus_blur, disk_kernel, glass_blur
from undertow.data.corruptions.digital import elastic
from undertow.data.corruptions.draws import Draws
from undertow.data.corruptions.pixels import from_pixels, to_pixels
from undertow.data.corruptions.resample import gaussian_matrix, trail, trail_weights, zoom_matrix
from undertow.data.corruptions.weather import fog, frost_texture, plasma


def photos(count: int = 12, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    """Smooth random pictures that use the whole range, like photographs."""
    source = np.random.default_rng(0)
    rough = source.normal(size=(count, channels, height, width))
    smooth = ndimage.gaussian_filter(rough, (0, 0, 2, 2), mode="wrap")
    smooth = (smooth - smooth.mean((1, 2, 3), keepdims=True)) / smooth.std((1, 2, 3), keepdims=True)
    return torch.from_numpy((127 + 60 * smooth).clip(0, 255).astype(np.uint8))


def flat(value: int, count: int = 40) -> Tensor:
    return torch.full((count, 3, 32, 32), value, dtype=torch.uint8)


def by_severity(*settings: float) -> list[tuple[int, float]]:
    return list(zip(SEVERITIES, settings, strict=True))


# Noise


@pytest.mark.parametrize(("severity", "deviation"), by_severity(0.04, 0.06, 0.08, 0.09, 0.10))
def test_gaussian_noise_has_its_deviation(severity: int, deviation: float) -> None:
    noise = (corrupt(flat(128), "gaussian_noise", severity).double() - 128) / 255
    count = noise.numel()
    expected = (deviation**2 + 1 / 12 / 255**2) ** 0.5  # rounding adds its own
    assert abs(float(noise.std()) - expected) < 4 * expected / (2 * count) ** 0.5
    assert abs(float(noise.mean())) < 4 * expected / count**0.5


@pytest.mark.parametrize(("severity", "photons"), by_severity(500, 250, 100, 75, 50))
def test_shot_noise_counts_photons(severity: int, photons: int) -> None:
    """Level 51 is 0.2: counts have mean and variance 0.2 photons. Fails for a normal approximation at 50."""
    worse = corrupt(flat(51), "shot_noise", severity).double()
    counts = worse * photons / 255
    count, rate = counts.numel(), 0.2 * photons
    assert abs(float(counts.mean()) - rate) < 4 * (rate / count) ** 0.5 + 1e-3
    if photons == 50:  # every count has its own pixel value
        seen = np.bincount(counts.round().long().flatten(), minlength=30)
        likely = stats.poisson.pmf(np.arange(30), rate) * count
        enough = likely > 5
        table = np.append(seen[enough], count - seen[enough].sum())
        expected = np.append(likely[enough], count - likely[enough].sum())
        assert stats.chisquare(table, expected).pvalue > 1e-4


def test_shot_noise_leaves_black_black_and_darkens_half_of_white() -> None:
    assert bool((corrupt(flat(0), "shot_noise", 5) == 0).all())
    white = corrupt(flat(255), "shot_noise", 5)
    below = float((white < 255).double().mean())
    assert abs(below - stats.poisson.cdf(49, 50)) < 4 * (0.25 / white.numel()) ** 0.5


@pytest.mark.parametrize(("severity", "share"), by_severity(0.01, 0.02, 0.03, 0.05, 0.07))
def test_impulse_noise_is_half_salt_half_pepper(severity: int, share: float) -> None:
    worse = corrupt(flat(100), "impulse_noise", severity)
    for value in (0, 255):
        found = float((worse == value).double().mean())
        assert abs(found - share / 2) < 4 * (share / 2 / worse.numel()) ** 0.5
    assert bool(((worse == 0) | (worse == 100) | (worse == 255)).all())


# Blur


@pytest.mark.parametrize(("radius", "sigma"), [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)])
def test_disk_kernels_sum_to_one_and_blur_like_scipy(radius: float, sigma: float) -> None:
    kernel = disk_kernel(radius, sigma)
    assert float(kernel.sum()) == pytest.approx(1, abs=1e-14)
    torch.testing.assert_close(kernel, kernel.T, rtol=1e-14, atol=0)
    torch.testing.assert_close(kernel, kernel.flip(0), rtol=1e-14, atol=0)
    x = from_pixels(photos(2))
    ours = defocus_blur(x, Draws(0, "x", torch.arange(2)), radius, sigma)
    theirs = ndimage.correlate(x.numpy(), kernel.numpy()[None, None], mode="mirror")
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-14)


def test_the_small_disks_are_what_the_table_says() -> None:
    """Radius 1 is a cross of five pixels, 1.5 a square of nine; below 1 only the Gaussian is left."""
    cross, square, point = disk_kernel(1.0, 0.1), disk_kernel(1.5, 0.1), disk_kernel(0.3, 0.4)
    assert int((cross > 0.19).sum()) == 5
    assert int((square > 0.11).sum()) == 9
    tap = np.exp(-0.5 / 0.4**2)
    middle = 1 / (1 + 2 * tap)
    assert float(point.max()) == pytest.approx(middle**2, rel=1e-14)


@pytest.mark.parametrize(("edge", "cut"), [("nearest", 4.0), ("reflect", 3.0)])
def test_gaussian_matrices_smooth_like_scipy(edge: str, cut: float) -> None:
    """A sigma far above the image size must still sum to one."""
    row = np.random.default_rng(0).normal(size=20)
    for sigma in (0.05, 0.4, 3.0, 30.0):
        matrix = gaussian_matrix(20, sigma, edge, cut).numpy()  # type: ignore[arg-type]
        np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-13)
        theirs = ndimage.gaussian_filter1d(row, sigma, mode=edge, truncate=cut)
        np.testing.assert_allclose(matrix @ row, theirs, rtol=0, atol=1e-13)
    assert torch.equal(gaussian_matrix(20, 0, "nearest"), torch.eye(20).double())


def test_glass_blur_takes_pixels_from_next_door() -> None:
    """Without smoothing each pixel is one of four neighbours, and all four are equally likely."""
    place = torch.arange(32 * 32, dtype=torch.float64).reshape(1, 1, 32, 32).repeat(50, 1, 1, 1)
    moved = place - glass_blur(place, Draws(0, "x", torch.arange(50)), 0.0, 1)
    assert set(moved.unique().tolist()) == {0, 1, 32, 33}
    assert bool((moved[:, :, :2] == 0).all())
    assert bool((moved[:, :, :, :2] == 0).all())
    counts = np.unique(moved[:, :, 2:, 2:], return_counts=True)[1]
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(("radius", "sigma"), [(6, 1.0), (9, 2.5), (8, 3.0), (14, 12.0)])
def test_trails_run_one_way_with_a_half_gaussian(radius: int, sigma: float) -> None:
    weights = trail_weights(radius, sigma)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-14)
    half = np.exp(-0.5 * (np.arange(2 * radius + 1) / sigma) ** 2)
    np.testing.assert_allclose(weights, (half / half.sum())[: len(weights)], rtol=1e-3)
    dot = torch.zeros(4, 1, 65, 65, dtype=torch.float64)
    dot[:, :, 32, 32] = 1
    smeared = trail(dot, torch.tensor([0.0, 90.0, 180.0, -90.0]).double(), radius, sigma)[:, 0]
    count = len(weights)
    for one, line in enumerate((smeared[0, 32, 32:], smeared[1, 32:, 32], smeared[2, 32, :33].flip(0))):
        torch.testing.assert_close(line[:count], weights, rtol=0, atol=1e-15, msg=str(one))
    torch.testing.assert_close(smeared[3, :33, 32].flip(0)[:count], weights, rtol=0, atol=1e-15)
    torch.testing.assert_close(smeared.sum((1, 2)), torch.ones(4).double())


def test_motion_directions_fill_the_fan() -> None:
    """The smear of a dot points to the right, up to 45 degrees up or down."""
    dot = torch.zeros(300, 1, 33, 33, dtype=torch.uint8)
    dot[:, :, 16, 16] = 255
    worse = corrupt(dot, "motion_blur", 5)[:, 0].double()
    rows, columns = torch.meshgrid(torch.arange(33.0) - 16, torch.arange(33.0) - 16, indexing="ij")
    mass = worse.sum((1, 2))
    angle = torch.rad2deg(
        torch.atan2((worse * rows).sum((1, 2)) / mass, (worse * columns).sum((1, 2)) / mass)
    )
    assert -48 < float(angle.min()) < -40
    assert 40 < float(angle.max()) < 48
    assert abs(float(angle.mean())) < 4 * 26 / 300**0.5


@pytest.mark.parametrize("factor", [1.0, 1.03, 1.25, 2.25])
def test_zoom_matrices_interpolate_about_the_centre(factor: float) -> None:
    for size in (28, 33):
        matrix = zoom_matrix(size, factor).numpy()
        np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-13)
        np.testing.assert_allclose(matrix, matrix[::-1, ::-1], rtol=0, atol=1e-13)
        row = np.random.default_rng(0).normal(size=size)
        place = (size - 1) / 2 + (np.arange(size) - (size - 1) / 2) / factor
        np.testing.assert_allclose(matrix @ row, np.interp(place, np.arange(size), row), rtol=0, atol=1e-13)


def test_zoom_blur_is_a_mean_of_zooms() -> None:
    """Severity 1 by hand: the image, and its zooms 1 to 1.05 in steps of .01; fails if the last is left out."""
    images = photos(2)
    x = images.numpy() / 255
    grid = np.indices((32, 32)) - 15.5
    total = x.copy()
    for factor in (1, 1.01, 1.02, 1.03, 1.04, 1.05):
        total += np.stack(
            [[ndimage.map_coordinates(c, grid / factor + 15.5, order=1) for c in im] for im in x]
        )
    expected = np.floor(total / 7 * 255 + 0.5)
    assert np.abs(corrupt(images, "zoom_blur", 1).numpy() - expected).max() <= 1
    assert (corrupt(images, "zoom_blur", 1).numpy() != expected).mean() < 1e-3


# Weather


def test_plasma_fills_zero_to_one_and_is_smoother_with_more_decay() -> None:
    rough = [
        float(plasma(Draws(0, "x", torch.arange(30)), 32, decay).diff(dim=2).abs().mean())
        for decay in (3, 2.5, 2, 1.75)
    ]
    assert all(less < more for less, more in pairwise(rough))
    clouds = plasma(Draws(0, "x", torch.arange(30)), 64, 2.0)
    assert bool((clouds.amin((1, 2)) == 0).all())
    assert bool((clouds.amax((1, 2)) == 1).all())


def test_plasma_equals_a_loop_over_cells() -> None:
    """Middles from four corners, then edges from two corners and two middles, all around the torus."""
    size, decay = 8, 1.75
    draws, field = Draws(0, "x", torch.arange(1)), np.zeros((size, size))
    step, amplitude = size, 1.0
    while step > 1:
        half, cells = step // 2, size // step
        offset = amplitude * draws.between(-1, 1, 3, cells, cells)[0].numpy()
        corners = [(i, j) for i in range(cells) for j in range(cells)]
        for i, j in corners:
            r, c = i * step, j * step
            around = [field[(r + a) % size, (c + b) % size] for a in (0, step) for b in (0, step)]
            field[r + half, c + half] = np.mean(around) + offset[0, i, j]
        old = field.copy()
        for i, j in corners:
            for kind, (r, c) in ((1, (i * step, j * step + half)), (2, (i * step + half, j * step))):
                around = [
                    old[(r + a) % size, (c + b) % size]
                    for a, b in ((half, 0), (-half, 0), (0, half), (0, -half))
                ]
                field[r, c] = np.mean(around) + offset[kind, i, j]
        step, amplitude = half, amplitude / decay**2
    expected = (field - field.min()) / (field.max() - field.min())
    ours = plasma(Draws(0, "x", torch.arange(1)), size, decay)[0]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-13)


def test_plasma_closes_around_the_edges() -> None:
    """On a torus the seam is no rougher than the rest; fails where nothing is carried around the edge."""
    clouds = plasma(Draws(0, "x", torch.arange(200)), 32, 2.0)
    inside = clouds.diff(dim=2).abs().mean()
    seam = (clouds[:, :, 0] - clouds[:, :, -1]).abs().mean()
    assert 0.7 < float(seam / inside) < 1.4
    inside, seam = clouds.diff(dim=1).abs().mean(), (clouds[:, 0] - clouds[:, -1]).abs().mean()
    assert 0.7 < float(seam / inside) < 1.4


def test_fog_keeps_the_brightest_value_as_a_bound() -> None:
    x = from_pixels(photos(20))
    for strength, decay in catalogue.CATALOGUE["fog"][1]:
        foggy = fog(x, Draws(0, "fog", torch.arange(20)), strength, decay)
        assert bool((foggy.amax((1, 2, 3)) <= x.amax((1, 2, 3)) + 1e-12).all())


def test_fog_is_the_clouds_added_and_scaled() -> None:
    x = from_pixels(photos(3, 3, 28, 30))
    clouds = plasma(Draws(0, "fog", torch.arange(3)), 32, 2.0)[:, None, :28, :30].numpy()
    top = x.numpy().max((1, 2, 3), keepdims=True)
    expected = np.floor(255 * (x.numpy() + clouds) * top / (top + 1) + 0.5 + 1e-6)
    assert np.array_equal(corrupt(to_pixels(x), "fog", 4).numpy(), expected)


def test_snow_only_lightens_and_falls_both_ways() -> None:
    images = photos(20)
    worse = corrupt(images, "snow", 3)
    assert bool((worse >= images).all())
    flakes = corrupt(flat(0, 20), "snow", 1)[:, 0]
    assert torch.equal(flakes, flakes.flip(1, 2))  # the layer and its half turn


def test_frost_grows_its_own_crystals() -> None:
    ice = frost_texture(Draws(0, "frost", torch.arange(200)), 32, 32)
    assert float(ice.min()) >= 0
    assert float(ice.max()) <= 1
    assert 0.4 < float(ice.mean()) < 0.65
    assert float(ice.std((1, 2)).min()) > 0.08  # each has structure
    assert bool((corrupt(flat(0, 20), "frost", 5).amax((1, 2, 3)) <= round(255 * 0.45)).all())


def test_frost_is_bluish_on_colour_images() -> None:
    red, green, blue = corrupt(flat(0, 20), "frost", 3).double().mean((0, 2, 3))
    assert red < green < blue


# Digital


@pytest.mark.parametrize(("severity", "more"), by_severity(0.05, 0.1, 0.15, 0.2, 0.3))
def test_brightness_goes_through_hsv(severity: int, more: float) -> None:
    source = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (3, 3, 9, 9), generator=source, dtype=torch.uint8)
    images[0, :, 0, 0] = 0  # black has no hue
    worse = corrupt(images, "brightness", severity)
    for pixel, result in zip(
        images.permute(0, 2, 3, 1).reshape(-1, 3), worse.permute(0, 2, 3, 1).reshape(-1, 3), strict=True
    ):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixel.double() / 255).tolist())
        expected = colorsys.hsv_to_rgb(hue, saturation, min(1, value + more))
        assert np.abs(result.numpy() - 255 * np.array(expected)).max() <= 0.5 + 1e-5


def test_brightness_of_grey_images_adds_to_the_pixels() -> None:
    images = photos(3, channels=1)
    expected = (images.double() + 255 * 0.2).clamp(max=255)
    assert float((corrupt(images, "brightness", 4).double() - expected).abs().max()) <= 0.5 + 1e-5


@pytest.mark.parametrize(("severity", "keep"), by_severity(0.75, 0.5, 0.4, 0.3, 0.15))
def test_contrast_is_its_formula_exactly(severity: int, keep: float) -> None:
    """The mean of each channel of each image; fails for one mean per image or per batch."""
    images = photos(5)
    x = images.numpy() / 255
    mean = x.mean((2, 3), keepdims=True)
    expected = np.floor(((x - mean) * keep + mean) * 255 + 0.5 + 1e-6)
    assert np.array_equal(corrupt(images, "contrast", severity).numpy(), expected)


def test_elastic_without_movement_is_the_image() -> None:
    x = from_pixels(photos(3))
    still = elastic(x, Draws(0, "x", torch.arange(3)), 0.0, 0.0, 0.0)
    torch.testing.assert_close(still, x, rtol=0, atol=1e-13)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_samples_where_it_says(severity: int) -> None:
    """Ramps read off the sampled places; scipy then samples the image there.

    Fails if rows and columns are exchanged on a picture that is not square.
    """
    x = from_pixels(photos(4, 3, 30, 36))
    rows, columns = torch.meshgrid(torch.arange(30.0), torch.arange(36.0), indexing="ij")
    ramps = torch.stack([rows, columns]).double().expand(4, 2, 30, 36)
    settings = catalogue.CATALOGUE["elastic"][1][severity - 1]
    places = elastic(ramps, Draws(0, "x", torch.arange(4)), *settings).numpy()
    ours = elastic(x, Draws(0, "x", torch.arange(4)), *settings).numpy()
    inside = (places[:, 0] > 1) & (places[:, 0] < 28) & (places[:, 1] > 1) & (places[:, 1] < 34)
    for image in range(4):
        for channel in range(3):
            theirs = ndimage.map_coordinates(x[image, channel].numpy(), places[image], order=1)
            np.testing.assert_allclose(
                ours[image, channel][inside[image]], theirs[inside[image]], rtol=0, atol=1e-10
            )


def test_elastic_moves_three_points_as_far_as_the_table_says() -> None:
    """Severity 1 is affine. The map is fitted to ramps near the centre, where nothing is reflected.

    Fails if the points move by a share of another length, or if the map is the inverse one.
    """
    count, reach = 200, 32 * 0.08
    rows, columns = np.meshgrid(np.arange(32.0), np.arange(32.0), indexing="ij")
    ramps = torch.from_numpy(np.stack([rows, columns])).expand(count, 2, 32, 32)
    places = elastic(ramps, Draws(0, "x", torch.arange(count)), 0.0, 0.0, 0.08)[:, :, 13:20, 13:20]
    here = np.stack([rows, columns, np.ones_like(rows)])[:, 13:20, 13:20].reshape(3, -1)
    fixed = np.array([[26.0, 6, 6], [26, 26, 6]])
    moves = []
    for place in places.reshape(count, 2, -1).numpy():
        back = np.linalg.lstsq(here.T, place.T)[0].T  # (2, 3), from here to the original
        moved = np.linalg.solve(back[:, :2], fixed - back[:, 2:])
        moves.append(moved - fixed)
    assert np.abs(moves).max() <= reach + 1e-9
    assert stats.kstest(np.ravel(moves), stats.uniform(-reach, 2 * reach).cdf).pvalue > 1e-4


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 40, 64)], ids=str)
@pytest.mark.parametrize(("severity", "keep"), by_severity(0.95, 0.9, 0.85, 0.75, 0.65))
def test_pixelate_equals_pillow(severity: int, keep: float, shape: tuple[int, int, int]) -> None:
    images = photos(4, *shape)
    _, height, width = shape
    worse = corrupt(images, "pixelate", severity)
    for image, result in zip(images, worse, strict=True):
        for channel, pixels in zip(image, result, strict=True):
            whole = Image.fromarray(channel.numpy())
            small = whole.resize((int(width * keep), int(height * keep)), Image.Resampling.BOX)
            back = small.resize((width, height), Image.Resampling.BOX)
            assert np.array_equal(pixels.numpy(), np.array(back))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("severity", "quality"), by_severity(80, 65, 58, 50, 40))
def test_jpeg_equals_pillow(severity: int, quality: int, channels: int) -> None:
    images = photos(3, channels)
    worse = corrupt(images, "jpeg", severity)
    for image, result in zip(images, worse, strict=True):
        file = io.BytesIO()
        pixels = (
            image.permute(1, 2, 0).squeeze(2).numpy() if channels == 1 else image.permute(1, 2, 0).numpy()
        )
        Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", quality=quality)
        assert np.array_equal(
            result.permute(1, 2, 0).numpy().reshape(pixels.shape), np.array(Image.open(file))
        )
