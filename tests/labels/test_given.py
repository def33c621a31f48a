"""Labels, features and probabilities as people hand them over."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.metrics import average_precision_score

import undertow as ut
from undertow.errors import BadData, BadValue
from undertow.labels.given import evened, read_features, read_labels, read_probabilities
from undertow.labels.judge import judge_labels
from undertow.labels.views import View

NAN = float("nan")


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, -1, 2],
        [0, 1, None, 2],
        [0, 1, NAN, 2],
        [0, 1, "", 2],
        torch.tensor([0, 1, -1, 2]),
        np.array([0, 1, np.nan, 2]),
        np.array([0, 1, None, 2], dtype=object),
        pd.Series([0, 1, None, 2], dtype="Int64"),
    ],
    ids=repr,
)
def test_numbers_stay_numbers_whatever_is_missing(labels):
    given = read_labels(labels)
    assert given.labels.tolist() == [0, 1, -1, 2]
    assert given.names == ("0", "1", "2")


@pytest.mark.parametrize(
    "labels",
    [
        ["cat", "dog", None, "cat"],
        ["cat", "dog", NAN, "cat"],
        ["cat", "dog", "", "cat"],
        ["cat", "dog", " ", "cat"],
        ["cat", "dog", -1, "cat"],
        np.array(["cat", "dog", "", "cat"]),
        np.array(["cat", "dog", None, "cat"], dtype=object),
        pd.Series(["cat", "dog", None, "cat"], dtype="string"),
        pd.Series(["cat", "dog", None, "cat"], dtype="category"),
    ],
    ids=repr,
)
def test_names_are_sorted_and_gaps_stay_gaps(labels):
    """Fails if numpy turns a NaN among texts into the class nan."""
    given = read_labels(labels)
    assert given.labels.tolist() == [0, 1, -1, 0]
    assert given.names == ("cat", "dog")


def test_numbers_beyond_nine_keep_their_order():
    """Fails if numbers with a gap are sorted as texts: 10 would come before 2."""
    assert read_labels([10, 2, None, 1]).labels.tolist() == [10, 2, -1, 1]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1]], r"one label per sample, got shape \(1, 2\)"),
        ([0.5, 1.0], "Scores are no labels"),
        ([0, -3], "got -3 at 1"),
        ([0.0, float("inf")], "class numbers or names, got inf at 1"),
        ([0, 10**40], "wanted class numbers or names, got 1e"),
    ],
)
def test_labels_that_are_none_are_refused(labels, message):
    with pytest.raises(BadData, match=message):
        read_labels(labels)


def test_numbers_that_are_names_are_classes_as_many_as_there_are():
    """Fails by hanging: a class for every number up to the largest."""
    given = read_labels([20260131, 2**40, None, 20260131])
    assert given.labels.tolist() == [0, 1, -1, 0]
    assert given.names == ("20260131", str(2**40))
    assert len(read_labels([0, 99]).names) == 100


@pytest.mark.parametrize("labels", [np.arange(120), np.arange(120) // 2, [*range(119), 0]])
def test_classes_that_have_no_others_to_compare_with(labels):
    """Fails by a ValueError about NaN."""
    with pytest.raises(BadData, match=r"wanted a class of \d+ samples or more.*numbers of samples\?"):
        ut.label_errors(features=np.random.default_rng(0).normal(size=(120, 5)), labels=labels)


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(BadData, match=r"features: wanted numbers .N, D., got rows of different lengths"):
        read_features([[1.0], [1.0, 2.0]])


def test_features_that_foretell_nothing_suspect_nobody():
    found = ut.label_errors(features=np.ones((200, 4)), labels=np.arange(200) % 4)
    assert found.rate.value is None
    assert not found.flagged.any()


def test_probabilities_are_checked():
    even = np.full((60, 4), 0.25)
    assert len(read_probabilities(even)) == 1
    assert len(read_probabilities([even, torch.from_numpy(even)])) == 2
    with pytest.raises(BadData, match="add up to 1, got 4 in row 0"):
        read_probabilities(np.ones((60, 4)))
    with pytest.raises(BadData, match="negative or missing"):
        read_probabilities(np.full((60, 4), np.nan))


@pytest.fixture(scope="module")
def planted(blobs, flipped):
    rows, true = blobs([200] * 5, apart=1.5)
    return rows, true, flipped(true, 0.25, 5)


def recall_and_precision(found: ut.LabelErrors, wrong) -> tuple[float, float]:
    hits = float((found.flagged & wrong).sum())
    return hits / float(wrong.sum()), hits / float(found.flagged.sum())


def test_features_alone(planted):
    rows, true, given = planted
    for features in (rows, rows.numpy(), rows.double().numpy().tolist()):
        found = ut.label_errors(features=features, labels=given)
        assert min(recall_and_precision(found, given != true)) > 0.95
        assert found.rate.low <= float((given != true).float().mean()) <= found.rate.high
        assert "true" not in found.table


def test_several_views_by_name(planted):
    rows, true, given = planted
    found = ut.label_errors(features={"clip": rows[:, :6], "dino": rows[:, 6:].numpy()}, labels=given)
    assert {voter.name for voter in found.found.voters} == {"clip", "dino"}
    alone = ut.label_errors(features=rows[:, :6], labels=given)
    assert recall_and_precision(found, given != true)[0] > recall_and_precision(alone, given != true)[0]


def test_names_of_classes_come_back(planted):
    rows, true, given = planted
    names = np.array(["ant", "bee", "cow", "dog", "eel"])
    listed = [names[one] if at % 50 else None for at, one in enumerate(given.tolist())]
    found = ut.label_errors(features=rows, labels=listed)
    assert found.classes == tuple(names)
    assert (found.table["given"] == -1).sum() == 20
    missing = found.given == -1
    assert (found.proposed[missing] == true[missing]).float().mean() > 0.9
    assert found.class_name(int(found.proposed[0])) in names
    assert found.class_name(-1) == ""
    cleaned = found.clean("relabel").table.set_index("sample")["label"]
    assert (cleaned == pd.Series(true.numpy())[cleaned.index]).mean() > 0.97


def test_probabilities_alone_and_several(planted):
    rows, true, given = planted
    far = torch.cdist(rows, torch.stack([rows[true == one].mean(0) for one in range(5)]))
    one, other = (-far).softmax(1), (-(far**2) / 4).softmax(1).numpy()
    for likely in (one, [one, other]):
        found = ut.label_errors(pred_probs=likely, labels=given)
        assert recall_and_precision(found, given != true)[1] > 0.8
        assert float(found.scores[given != true].min()) > float(found.scores[given == true].median())
    wide = torch.cat([one, torch.zeros(1000, 1)], 1)  # a class that nobody is given
    found = ut.label_errors(pred_probs=wide, labels=given)
    assert len(found.classes) == 6
    assert (found.proposed < 5).all()
    with pytest.raises(BadData, match=r"probabilities: wanted \(1000, 5\)"):
        ut.label_errors(pred_probs=one[:, :4] / one[:, :4].sum(1, keepdim=True), labels=given)


def test_probabilities_by_name_and_stacked(planted):
    rows, true, given = planted
    far = torch.cdist(rows, torch.stack([rows[true == one].mean(0) for one in range(5)]))
    one, other = (-far).softmax(1), (-(far**2) / 4).softmax(1)
    listed = ut.label_errors(pred_probs=[one, other], labels=given)
    for several in ({"a": one, "b": other}, torch.stack([one, other]), np.stack([one, other])):
        assert ut.label_errors(pred_probs=several, labels=given).scores.equal(listed.scores)


def wine():
    """Thirteen measurements in their own units, and labels of which a quarter is wrong."""
    x, true = load_wine(return_X_y=True)
    drawn = np.random.default_rng(0)
    return (
        x,
        true,
        np.where(drawn.random(len(true)) < 0.25, (true + drawn.integers(1, 3, len(true))) % 3, true),
    )


def test_columns_in_other_units_do_not_drown_the_others():
    """One column of wine has 99.8 % of all variance: as it stands, neighbours see nothing else."""
    x, true, given = wine()
    found = ut.label_errors(features=x, labels=given)
    assert average_precision_score(true != given, found.scores) > 0.97
    alone = judge_labels(torch.from_numpy(given), 3, [View(rows=torch.from_numpy(x).float())])
    assert average_precision_score(true != given, alone.scores) < 0.95
    assert any("units. Each column was divided" in note for note in found.notes)
    again = ut.label_errors(features=x * 10.0 ** np.arange(13), labels=given)
    assert again.scores.numpy() == pytest.approx(found.scores.numpy(), abs=1e-3)


def test_columns_on_one_scale_are_left_as_they_are(planted, tmp_path):
    rows, _, given = planted
    assert not any("units" in note for note in ut.label_errors(features=rows, labels=given).notes)
    view, note = evened(View(rows=rows))
    assert (view.rows is rows, note) == (True, "")
    wide = rows.clone()
    wide[:, 2] *= 1000
    np.save(tmp_path / "wide.npy", wide.numpy())
    (mapped,) = read_features(np.load(tmp_path / "wide.npy", "c"))
    kept, note = evened(mapped)
    assert kept is mapped  # a file may be larger than the memory
    assert note.endswith("Divide each column by its standard deviation before you search.")
    still = torch.zeros(60, 3)
    assert evened(View(rows=still))[0].rows is still
    still[:, 1] = torch.arange(60) * 1e3  # two columns that are all zeros stay so
    even, _ = evened(View(rows=torch.cat([still, rows[:60] * 1e-3], 1)))
    assert even.rows[:, 0].abs().max() == 0
    assert torch.isfinite(even.rows).all()


@pytest.mark.parametrize(
    "renamed", [lambda y: y + 1, lambda y: 3 * y, lambda y: 10 - y], ids=["from 1", "gaps", "back"]
)
def test_numbers_that_nobody_is_given_make_no_difference(renamed):
    """Fails if a class that is never given counts among those that a label could be."""
    x, _, given = wine()
    plain, other = (ut.label_errors(features=x, labels=one) for one in (given, renamed(given)))
    assert (plain.rate.low, plain.rate.high) == pytest.approx((other.rate.low, other.rate.high), abs=0.03)
    order = plain.scores.argsort(descending=True)[:20]
    assert other.scores[order].numpy() == pytest.approx(plain.scores[order].numpy(), abs=0.1)
    assert set(other.proposed.unique().tolist()) <= {-1, *renamed(np.arange(3)).tolist()}
    assert other.pred_probs.shape[1] == other.noise_matrix.shape[0] == len(other.classes)
    assert other.pred_probs.sum(1) == pytest.approx(1, abs=1e-4)
    assert other.noise_matrix.sum(1) == pytest.approx(1)
    assert other.beliefs.sum(1).numpy() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("wine.npy", r"got the text 'wine.npy'. Load the file first"),
        (
            pd.DataFrame({"a": [1.0] * 60, "maker": ["x"] * 60}),
            "got no numbers in column maker. Leave it out",
        ),
    ],
)
def test_features_that_are_no_numbers_are_named(features, message):
    with pytest.raises(BadData, match=message):
        ut.label_errors(features=features, labels=[0, 1] * 30)


def test_what_does_not_go_together_is_refused(planted):
    rows, _, given = planted
    with pytest.raises(BadValue, match=r"label_errors\(features=X, labels=y\)"):
        ut.label_errors(features=rows)
    with pytest.raises(BadValue, match="a run, or labels with"):
        ut.label_errors(labels=given)
    with pytest.raises(BadData, match="at least 50 samples, got 40"):
        ut.label_errors(features=rows[:40], labels=given[:40])
    with pytest.raises(BadData, match="NaN or infinity in 1 of 1000 rows, first in row 3"):
        ut.label_errors(features=rows.clone().index_fill_(0, torch.tensor([3]), torch.nan), labels=given)
    with pytest.raises(BadData, match="wanted numbers"):
        ut.label_errors(features=np.full((1000, 2), "a"), labels=given)
    with pytest.raises(BadData, match=r"got \(1000,\)"):
        ut.label_errors(features=rows[:, 0], labels=given)
    with pytest.raises(BadData, match="One class has no wrong label"):
        ut.label_errors(features=rows, labels=given * 0)
    with pytest.raises(BadData, match="nothing can be told apart"):
        ut.label_errors(features=rows, labels=given * 0 + 1)
