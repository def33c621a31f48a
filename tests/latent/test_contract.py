"""What every probe promises: scikit-learn's manners, answers in kind, and reasons in hard cases."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor

from undertow.errors import BadData
from undertow.features.moments import Moments
from undertow.latent import KNN, LDA, MASC, QDA, LogisticProbe, NearestMean, Probe, VeLPIC

Features = Callable[..., tuple[Tensor, Tensor]]


@pytest.fixture
def features(features: Features) -> Features:
    """ReLU features without dead units, which QDA refuses."""

    def lively(count: int, dim: int, **settings: Any) -> tuple[Tensor, Tensor]:
        rows, labels = features(count, dim, **settings)
        return rows + 0.1 * torch.randn(
            count, dim, generator=torch.Generator().manual_seed(9)
        ).double(), labels

    return lively


PROBES = [
    MASC(),
    MASC(components=1),
    VeLPIC(),
    VeLPIC(sign="all"),
    LogisticProbe(),
    LogisticProbe(solver="lbfgs"),
    NearestMean(),
    NearestMean(metric="euclidean"),
    KNN(),
    KNN(metric="euclidean"),
    LDA(),
    QDA(),
    QDA(reg=0.1),
]
each_probe = pytest.mark.parametrize("probe", PROBES, ids=repr)
each_moments_probe = pytest.mark.parametrize(
    "probe", [p for p in PROBES if hasattr(p, "fit_moments")], ids=repr
)


@parametrize_with_checks(PROBES)
def test_scikit_learn_contract(estimator: Probe, check: Callable[[Probe], None]) -> None:
    check(estimator)


@each_probe
def test_tensors_and_arrays_get_the_same_answers_in_kind(probe: Probe, features: Features) -> None:
    rows, labels = features(200, 5)
    by_tensor, by_array = clone(probe).fit(rows, labels), clone(probe).fit(rows.numpy(), labels.numpy())
    for method in ("predict", "scores", "decision_function"):
        for fitted in (by_tensor, by_array):  # whatever it was fitted with, the question decides
            one, other = getattr(fitted, method)(rows), getattr(fitted, method)(rows.numpy())
            assert isinstance(one, Tensor)
            assert isinstance(other, np.ndarray)
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(by_tensor.predict(rows), by_array.predict(rows))
    assert isinstance(by_tensor.classes_, Tensor)
    assert isinstance(by_array.classes_, np.ndarray)
    assert by_tensor.score(rows, labels) == by_array.score(rows.numpy(), labels.numpy())


@each_probe
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.uint8])
def test_any_real_dtype_is_taken(probe: Probe, dtype: torch.dtype, features: Features) -> None:
    rows, labels = features(200, 10, latent=4)
    rows = (rows * 20).clamp(0, 255).to(dtype)
    found = clone(probe).fit(rows, labels).predict(rows)
    exact = clone(probe).fit(rows.double(), labels).predict(rows.double())
    assert float((found == exact).double().mean()) > 0.97


@each_probe
def test_the_answer_keeps_to_the_device_and_dtype_of_the_names(probe: Probe, features: Features) -> None:
    rows, labels = features(160, 4)
    found = clone(probe).fit(rows, labels.int() + 7).predict(rows)
    assert found.dtype == torch.int32
    assert set(found.tolist()) <= {7, 8, 9, 10}


@each_probe
def test_names_may_be_strings_or_gaps(probe: Probe, features: Features) -> None:
    rows, labels = features(200, 5)
    plain = clone(probe).fit(rows, labels).predict(rows).numpy()
    words = np.array(["ant", "bee", "cat", "dog"])
    by_words = clone(probe).fit(rows, words[labels])
    np.testing.assert_array_equal(by_words.predict(rows), words[plain])  # no tensor can hold them
    np.testing.assert_array_equal(by_words.predict(rows.numpy()), words[plain])
    gaps = torch.tensor([-5, 3, 40, 1000])
    np.testing.assert_array_equal(clone(probe).fit(rows, gaps[labels]).predict(rows), gaps[plain])
    assert by_words.score(rows, words[labels]) == pytest.approx(float((plain == labels.numpy()).mean()))


@each_probe
def test_pickle_clone_and_data_frames(probe: Probe, features: Features) -> None:
    rows, labels = features(200, 5)
    for given in (rows, pd.DataFrame(rows.numpy(), columns=list("abcde"))):
        fitted = clone(probe).fit(given, labels)
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.predict(given), fitted.predict(given))
        assert not hasattr(clone(fitted), "classes_")
    assert list(fitted.feature_names_in_) == list("abcde")


def test_a_pickle_has_no_second_copy_of_the_bases(features: Features) -> None:
    """Fails if views of one matrix are pickled one by one, each with all of it."""
    rows, labels = features(800, 100, classes=8)
    for given in (rows, rows.numpy()):
        fitted = MASC(0.9).fit(given, labels)
        assert len(pickle.dumps(fitted)) < fitted.basis_.nbytes + 20_000


@each_probe
def test_pipelines_and_cross_validation(probe: Probe, features: Features) -> None:
    rows, labels = features(300, 5, spread=0.4)
    scores = cross_val_score(
        make_pipeline(StandardScaler(), clone(probe)), rows.numpy(), labels.numpy(), cv=3
    )
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()


def test_a_grid_search_over_variance(features: Features) -> None:
    rows, labels = features(300, 20, spread=0.5)
    search = GridSearchCV(MASC(), {"variance": [0.5, 0.9, 0.99]}, cv=3).fit(rows.numpy(), labels.numpy())
    assert search.best_score_ > 0.8


@each_probe
def test_weighted_score(probe: Probe, features: Features) -> None:
    rows, labels = features(100, 4)
    fitted = clone(probe).fit(rows, labels)
    right = (fitted.predict(rows) == labels).double()
    weights = torch.rand(100, generator=torch.Generator().manual_seed(0)).double()
    expected = float((right * weights).sum() / weights.sum())
    assert fitted.score(rows, labels, weights) == pytest.approx(expected)


@each_probe
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_numbers_are_counted(probe: Probe, bad: float, features: Features) -> None:
    rows, labels = features(60, 4)
    fitted = clone(probe).fit(rows, labels)
    rows = rows.clone()
    rows[7, 2] = rows[9, 0] = bad
    message = "wanted finite features, got NaN or infinity in 2 of 60 rows .the first is row 7."
    for given in (rows, rows.numpy()):
        with pytest.raises(BadData, match=message):
            clone(probe).fit(given, labels)
        with pytest.raises(BadData, match=message):
            fitted.predict(given)


@each_probe
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows, labels: (rows[:, 0], labels), r"wanted a dense real tensor \(N, D\)"),
        (lambda rows, labels: (rows[:0], labels[:0]), "at least one row"),
        (lambda rows, labels: (rows.to(torch.complex64), labels), "dense real tensor"),
        (lambda rows, labels: (rows.to_sparse(), labels), "dense real tensor"),
        (lambda rows, labels: (rows, labels[:-1]), "wanted one label per row, got 60 rows and 59 labels"),
        (lambda rows, labels: (rows, None), "requires y to be passed"),
        (lambda rows, labels: (rows, labels + 0.5), "Unknown label type"),
        (lambda rows, labels: (rows, torch.eye(4)[labels]), "1d array"),
    ],
)
def test_bad_input_gets_a_sentence(probe: Probe, change: Any, message: str, features: Features) -> None:
    with pytest.raises(ValueError, match=message):
        clone(probe).fit(*change(*features(60, 4)))


@each_probe
def test_another_width_is_refused(probe: Probe, features: Features) -> None:
    fitted = clone(probe).fit(*features(60, 4))
    with pytest.raises(BadData, match="wanted rows of width 4, as in fit, got 3"):
        fitted.predict(torch.zeros(2, 3))


needs_variance = {"LDA()", "QDA()"}  # a class of one row has none; the message is tested with them


@each_probe
def test_one_row_per_class(probe: Probe) -> None:
    """More classes than would fit a line, one row each: every row is its own class."""
    rows, names = torch.eye(6).double() + 0.1, torch.arange(6)
    if repr(probe) in needs_variance:
        pytest.skip("a covariance needs more rows: see test_discriminant.py")
    fitted = clone(probe).fit(rows, names)
    assert torch.isfinite(fitted.scores(rows)).all()
    if not isinstance(probe, KNN | LogisticProbe):  # 5 neighbours outvote one; six rows make few steps
        assert fitted.predict(rows).tolist() == names.tolist()


@each_probe
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_features_give_finite_scores(probe: Probe, value: float) -> None:
    rows, labels = torch.full((40, 3), value).double(), torch.arange(40) % 2
    if repr(probe) == "QDA()":
        with pytest.raises(BadData, match="20 samples and 3 constant directions"):
            clone(probe).fit(rows, labels)
        return
    fitted = clone(probe).fit(rows, labels)
    assert torch.isfinite(fitted.scores(rows)).all()
    assert set(fitted.predict(torch.zeros(1, 3)).tolist()) <= {0, 1}


@each_probe
def test_duplicate_rows_change_nothing(probe: Probe, features: Features) -> None:
    rows, labels = features(120, 9, latent=3)
    once, thrice = clone(probe).fit(rows, labels), clone(probe).fit(rows.repeat(3, 1), labels.repeat(3))
    assert torch.isfinite(thrice.scores(rows)).all()
    if not isinstance(probe, KNN | LogisticProbe):  # these count rows or steps
        np.testing.assert_array_equal(once.predict(rows), thrice.predict(rows))


@each_probe
def test_one_class_is_always_predicted(probe: Probe, features: Features) -> None:
    rows, _ = features(50, 4)
    assert clone(probe).fit(rows, torch.full((50,), 3)).predict(rows).unique().tolist() == [3]


@each_probe
def test_two_classes_give_one_column(probe: Probe, features: Features) -> None:
    """As scikit-learn wants it: above 0 is the second class."""
    rows, labels = features(100, 4, classes=2)
    fitted = clone(probe).fit(rows, labels)
    decision = fitted.decision_function(rows)
    assert decision.shape == (100,)
    assert fitted.scores(rows).shape == (100, 2)
    np.testing.assert_array_equal(fitted.predict(rows), (decision > 0).long())


@each_probe
def test_read_only_memory_maps(probe: Probe, features: Features, tmp_path: Any) -> None:
    rows, labels = features(100, 4)
    np.save(tmp_path / "rows.npy", rows.numpy())
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    found = clone(probe).fit(mapped, labels.numpy()).predict(mapped)
    np.testing.assert_array_equal(found, clone(probe).fit(rows, labels).predict(rows))


@each_probe
def test_fit_and_scores_leave_the_rows_alone(probe: Probe, features: Features) -> None:
    rows, labels = features(100, 4)
    if not isinstance(probe, LogisticProbe):
        rows = rows * 1e20  # where some divide by a power of two first
    before = rows.clone()
    clone(probe).fit(rows, labels).scores(rows)
    assert torch.equal(rows, before)


@each_probe
def test_gradients_and_autocast_do_not_matter(probe: Probe, features: Features) -> None:
    rows, labels = features(100, 4)
    rows = rows.float()
    plain = clone(probe).fit(rows, labels).scores(rows)
    with torch.autocast("cpu", torch.bfloat16):
        inside = clone(probe).fit(rows.clone().requires_grad_(), labels).scores(rows)
    assert not inside.requires_grad
    np.testing.assert_array_equal(inside, plain)


@each_moments_probe
def test_moments_give_the_same_probe(probe: Any, features: Features) -> None:
    rows, labels = features(200, 5)
    whole = clone(probe).fit(rows, labels)
    by_moments = clone(probe).fit_moments(Moments.of(rows, labels, 4), classes=["a", "b", "c", "d"])
    np.testing.assert_allclose(by_moments.scores(rows), whole.scores(rows), rtol=1e-7, atol=1e-9)
    assert by_moments.classes_.tolist() == ["a", "b", "c", "d"]
    assert by_moments.n_features_in_ == 5
    assert by_moments.counts_.tolist() == [50] * 4


@each_moments_probe
def test_autocast_does_not_reach_fits_from_moments(probe: Any, features: Features) -> None:
    rows, labels = features(2000, 5)
    moments = Moments.of(rows.float(), labels, 4)
    plain = clone(probe).fit_moments(moments).scores(rows)
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_array_equal(clone(probe).fit_moments(moments).scores(rows), plain)


@each_moments_probe
def test_a_class_without_rows_is_never_predicted(probe: Any, features: Features) -> None:
    rows, labels = features(200, 5)
    fitted = clone(probe).fit_moments(Moments.of(rows, labels + 1, 6))  # none of class 0 and 5
    scores = fitted.scores(torch.cat([rows, torch.zeros(1, 5).double()]))
    assert torch.isneginf(scores[:, [0, 5]]).all()
    assert torch.isfinite(scores[:, 1:5]).all()
    assert set(fitted.predict(rows).tolist()) <= {1, 2, 3, 4}


def test_scores_come_in_blocks_of_rows(features: Features, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if blocks are joined in the wrong order or the last one is lost."""
    rows, labels = features(103, 6)
    for probe in PROBES:
        fitted = clone(probe).fit(rows, labels)
        whole = fitted.scores(rows)
        monkeypatch.setattr("undertow.latent.probe.ROWS", 10)
        np.testing.assert_allclose(fitted.scores(rows), whole, rtol=1e-9, atol=1e-12)
        monkeypatch.undo()


def label_sets(labels: Tensor) -> list[Any]:
    """As they are, shuffled, without one class, and as words."""
    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(4))]
    return [labels, shuffled, labels.clamp(max=2), np.array(["ant", "bee", "cat", "dog"])[shuffled]]


@each_probe
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_several_sets_of_labels_at_once_are_as_each_alone(
    probe: Probe, dtype: torch.dtype, features: Features
) -> None:
    """Fails if fits of one pass mix their classes, or if names and counts of one land in another."""
    rows, labels = features(200, 5)
    rows, sets = rows.to(dtype), label_sets(labels)
    unfitted = clone(probe)
    for found, own in zip(unfitted.fit_each(rows, sets), sets, strict=True):
        alone = clone(probe).fit(rows, own)
        np.testing.assert_array_equal(found.classes_, alone.classes_)
        np.testing.assert_array_equal(found.counts_, alone.counts_)
        near = 1e-9 if dtype == torch.float64 else 1e-5
        np.testing.assert_allclose(found.scores(rows), alone.scores(rows), rtol=near, atol=near)
        np.testing.assert_array_equal(found.predict(rows), alone.predict(rows))
        assert set(vars(found)) == set(vars(alone))
    assert not hasattr(unfitted, "classes_")


def test_several_probes_for_the_same_rows_answer_as_each_alone(
    features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if what one prepares is taken by another kind, or blocks of rows are joined wrongly."""
    monkeypatch.setattr("undertow.latent.probe.ROWS", 30)
    rows, labels = features(103, 6)
    fitted = [one for probe in PROBES for one in probe.fit_each(rows, label_sets(labels))]
    fitted += [KNN().fit(rows[:50], labels[:50]), KNN(k=1).fit(rows, labels), fitted[0]]
    for given in (rows, rows.numpy()):
        said = Probe.predict_each(fitted, given)
        for probe, own in zip(fitted, said, strict=True):
            alone = probe.predict(given)
            assert type(own) is type(alone)
            np.testing.assert_array_equal(own, alone)
    assert Probe.predict_each([], rows) == []


def test_neighbours_of_the_same_rows_are_looked_for_once(
    features: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, labels = features(60, 6)
    fitted = KNN().fit_each(rows, [labels, labels.flip(0), labels.roll(1)])
    calls, topk = [], Tensor.topk
    monkeypatch.setattr(Tensor, "topk", lambda *given, **options: calls.append(1) or topk(*given, **options))
    Probe.predict_each(fitted, rows)
    assert len(calls) == 1
