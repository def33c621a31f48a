"""All probes of a layer at once: the same as one by one, within the room, and reasons where they do not go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from undertow.features import wide
from undertow.features.moments import Moments
from undertow.features.wide import TensorRows
from undertow.latent import MASC, Probe, VeLPIC
from undertow.latent.layer import (
    PROBES,
    answer_layer,
    fit_and_answer,
    fit_layer,
    fit_moments,
    fit_stored,
)

Features = Callable[..., tuple[Tensor, Tensor]]
ROOM = 10**9


def sets_of(labels: Tensor) -> dict[str, Tensor]:
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))]
    return {"given": labels, "true": labels.roll(1), "shuffled": shuffled}


class LargestAllocation(TorchDispatchMode):
    """Notes the largest tensor, in bytes, that anything makes meanwhile; views of `rows` are none."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.bytes, self.rows = 0, rows.untyped_storage().data_ptr()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for part in found if isinstance(found, tuple | list) else (found,):
            if isinstance(part, Tensor) and part.untyped_storage().data_ptr() != self.rows:
                self.bytes = max(self.bytes, part.untyped_storage().nbytes())
        return found


@pytest.mark.parametrize(("count", "dim"), [(200, 9), (80, 150)])
def test_each_fit_is_as_it_would_be_alone(features: Features, count: int, dim: int) -> None:
    rows, labels = features(count, dim)
    rows = rows + 0.1 * torch.randn(
        count, dim, generator=torch.Generator().manual_seed(9)
    )  # QDA wants all directions
    sets, test = sets_of(labels), features(30, dim, seed=3)[0]
    found = fit_layer(rows, sets, list(PROBES), classes=4, room=ROOM)
    assert set(found) == {(fit, name) for fit in sets for name in PROBES}
    said = answer_layer(found, test)
    for (fit, name), outcome in found.items():
        if name == "qda" and dim > 20:
            assert "constant directions" in outcome
            assert (fit, name) not in said
            continue
        alone = PROBES[name]().fit(rows, sets[fit])
        np.testing.assert_allclose(outcome.scores(test), alone.scores(test), rtol=1e-8, atol=1e-8)
        np.testing.assert_array_equal(said[fit, name], alone.predict(test))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_kernel_serves_all_fits_of_a_wide_layer(
    features: Features, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if a class's part of the kernel is not its own, or answers belong to another set."""
    rows, labels = features(120, 400, latent=40)
    rows, sets, calls = rows.to(dtype), sets_of(labels), []
    kernel = MASC.fit_and_answer
    monkeypatch.setattr(MASC, "fit_and_answer", lambda *given: calls.append(1) or kernel(*given))
    found, said = fit_and_answer(rows, sets, ["velpic", "masc"], classes=4, room=ROOM)
    assert len(calls) == 1
    near = 1e-9 if dtype == torch.float64 else 1e-4
    for fit, own in sets.items():
        alone = MASC().fit(rows, own)
        assert found[fit, "masc"].dimensions_.tolist() == alone.dimensions_.tolist()
        np.testing.assert_allclose(found[fit, "masc"].scores(rows), alone.scores(rows), rtol=0, atol=near)
        np.testing.assert_array_equal(said[fit, "masc"], alone.predict(rows))
        np.testing.assert_allclose(
            found[fit, "velpic"].vectors_, VeLPIC().fit(rows, own).vectors_, rtol=0, atol=near
        )
        np.testing.assert_array_equal(said[fit, "velpic"], found[fit, "velpic"].predict(rows))
    fit_and_answer(rows, sets, ["masc"], classes=4, room=2 * 120**2 * dtype.itemsize - 1)  # no room for it
    fit_and_answer(rows[:, :150], sets, ["masc"], classes=4, room=ROOM)  # not wide enough
    fit_and_answer(rows, {"given": labels}, ["masc"], classes=4, room=ROOM)  # nothing to share
    assert len(calls) == 1


def test_a_diverged_layer_is_a_reason_for_every_probe(features: Features) -> None:
    rows, labels = features(60, 300)
    rows[3, 5] = torch.nan
    found, said = fit_and_answer(rows, sets_of(labels), list(PROBES), classes=4, room=ROOM)
    assert all("NaN or infinity in 1 of 60 rows" in outcome for outcome in found.values())
    assert not said


def test_labels_that_one_set_lacks_do_not_stop_the_others(features: Features) -> None:
    rows, labels = features(200, 3, latent=3)
    lonely = labels.clone()
    lonely[labels == 3] = 0
    lonely[0] = 3  # a class of one row, which QDA refuses
    found = fit_layer(rows, {"given": labels, "lonely": lonely}, ["qda", "masc"], classes=4, room=ROOM)
    assert isinstance(found["given", "qda"], Probe)
    assert "class 3 with 1 sample and" in found["lonely", "qda"]
    assert isinstance(found["lonely", "masc"], Probe)


def test_matrices_without_room_are_a_reason(features: Features) -> None:
    rows, labels = features(200, 50)
    found = fit_layer(rows, sets_of(labels), ["lda", "qda", "mean"], classes=4, room=20_000)
    for fit in ("given", "true", "shuffled"):
        assert "lda needs 140 kB for the matrices of a layer of width 50" in found[fit, "lda"]
        assert "--memory leaves 20 kB" in found[fit, "qda"]
        assert isinstance(found[fit, "mean"], Probe)


@pytest.mark.parametrize("where", ["memory", "blocks"])
def test_many_rows_of_a_wide_layer_never_make_a_square_matrix(
    features: Features, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if rows x rows (or columns x columns) of a class is built although there is no room for it."""
    monkeypatch.setattr(wide, "READ_BYTES", 2**21)
    rows, labels = features(4000, 1600, classes=2, latent=20)
    rows = rows.float()
    parts = [TensorRows(rows, (labels == c).nonzero()[:, 0]) for c in range(2)]
    with LargestAllocation(rows) as seen:
        if where == "memory":
            found = fit_layer(rows, {"given": labels}, ["masc", "velpic"], classes=2, room=10**6)
        else:
            found = fit_stored({"given": parts}, ["masc", "velpic"], thin=True)
    assert seen.bytes < 1600**2 * 4
    roomy = MASC().fit(rows, labels)
    masc, velpic = found["given", "masc"], found["given", "velpic"]
    assert masc.dimensions_.tolist() == roomy.dimensions_.tolist()
    np.testing.assert_array_equal(masc.predict(rows), roomy.predict(rows))
    np.testing.assert_allclose(velpic.vectors_, VeLPIC().fit(rows, labels).vectors_, rtol=0, atol=1e-5)
    with LargestAllocation(rows) as seen:
        fit_stored({"given": parts}, ["masc"], thin=False)
    assert seen.bytes >= 2000**2 * 8  # the guard can fail


def test_a_class_beyond_the_thin_space_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("subspace", "spectrum"):
        monkeypatch.setattr(f"undertow.latent.{place}.DIRECTIONS", 96)
    rows = torch.randn(
        600, 300, generator=torch.Generator().manual_seed(0)
    )  # 99 % needs nearly all directions
    found = fit_layer(rows, {"given": torch.arange(600) % 2}, ["masc", "velpic"], classes=2, room=1000)
    assert "A class of 300 rows needs more than a space of 96 directions" in found["given", "masc"]
    assert "--memory" in found["given", "masc"]


def test_narrow_rows_of_a_thin_route_go_by_their_moment(features: Features) -> None:
    rows, labels = features(2500, 40, classes=2)
    parts = [TensorRows(rows, (labels == c).nonzero()[:, 0]) for c in range(2)]
    with LargestAllocation(rows) as seen:
        found = fit_stored({"given": parts}, ["masc"], thin=True)
    assert seen.bytes < 1250**2 * 8
    np.testing.assert_allclose(
        found["given", "masc"].scores(rows), MASC().fit(rows, labels).scores(rows), atol=1e-5
    )


@pytest.mark.parametrize("road", ["moments", "stored"])
def test_what_moments_and_files_allow(features: Features, road: str) -> None:
    rows, labels = features(300, 30)
    rows = rows + 0.1 * torch.randn(300, 30, generator=torch.Generator().manual_seed(9))
    sets = sets_of(labels)
    if road == "moments":
        moments = {fit: Moments.of(rows, own, 4) for fit, own in sets.items()}
        found = fit_moments(moments, list(PROBES), room=ROOM)
        fitted = {"masc", "velpic", "mean", "lda", "qda"}
        small = fit_moments(moments, ["qda", "mean"], room=1000)
        assert "qda needs" in small["given", "qda"]
        assert isinstance(small["given", "mean"], Probe)
    else:
        places = {fit: [(own == c).nonzero()[:, 0] for c in range(4)] for fit, own in sets.items()}
        parts = {fit: [TensorRows(rows, at) for at in each] for fit, each in places.items()}
        found = fit_stored(parts, list(PROBES), thin=False)
        fitted = {"masc", "velpic", "mean"}
    for (fit, name), outcome in found.items():
        if name not in fitted:
            assert outcome.startswith(f"{name} needs the layer's features in memory")
            continue
        alone = PROBES[name]().fit(rows, sets[fit])
        np.testing.assert_allclose(outcome.scores(rows), alone.scores(rows), rtol=1e-5, atol=1e-5)
