"""Questions as numbers, and a text classifier that memorises: what is read, refused, and claimed."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from undertow.errors import BadData, NotThere, UnknownName
from undertow.studies.catalogue import find_study
from undertow.studies.findings import row
from undertow.studies.latent.text_data import NONE, RARE, as_numbers, questions, vocabulary
from undertow.studies.latent.text_measures import memorised_text
from undertow.studies.outcome import StudyOutcome

SMALL = {"train_size": 60, "test_size": 30, "length": 8}


def test_words_are_numbered_by_how_often_they_occur():
    known = vocabulary(["who wrote it ?", "who saw it ?", "who ?"])
    assert known == {"?": RARE + 1, "who": RARE + 2, "it": RARE + 3}


def test_the_last_place_holds_a_word_and_long_questions_are_cut():
    known = {"who": 2, "?": 3}
    assert as_numbers("who wrote ?", known, 5).tolist() == [NONE, NONE, 2, RARE, 3]
    assert as_numbers("who who who ?", known, 2).tolist() == [2, 2]


def test_made_questions_are_drawn_by_their_seed():
    one, same, other = (questions("made", seed=seed, **SMALL) for seed in (0, 0, 1))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert one.kind == "tokens"
    assert one.shape == (8,)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Six questions for training and two for the test, in the mirror's layout."""
    texts = [f"question {n} about x" for n in range(6)] + ["question y about x", "z"] + ["left out"] * 3
    table = {
        "split": ["train"] * 6 + ["test"] * 2 + ["valid"] * 3, "text": texts,
        "true": [0, 1, 2, 3, 4, 5, 0, 5, 1, 1, 1],
    }  # fmt: skip
    (tmp_path / "real_noise").mkdir()
    pd.DataFrame(table).to_parquet(tmp_path / "real_noise" / "trec.parquet")
    monkeypatch.setenv("UNDERTOW_DATA", str(tmp_path))


def test_words_of_the_test_are_not_known(mirror):
    """A vocabulary of both splits would let the test into training."""
    data = questions("trec", seed=0, train_size=6, test_size=2, length=4)
    assert sorted(data.train.y.tolist()) == [0, 1, 2, 3, 4, 5]
    by_label = dict(zip(data.test.y.tolist(), data.test.tensor.tolist(), strict=True))
    assert by_label[0][1] == RARE  # y
    assert by_label[5] == [NONE, NONE, NONE, RARE]  # z
    assert int(data.train.tensor.max()) == RARE + 3  # question, about and x


def test_what_is_not_there_is_said(mirror, tmp_path, monkeypatch):
    with pytest.raises(BadData, match="wanted 7, got 6"):
        questions("trec", seed=0, train_size=7, test_size=2, length=4)
    with pytest.raises(UnknownName, match="source of questions"):
        questions("trek", seed=0, **SMALL)
    monkeypatch.setenv("UNDERTOW_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotThere, match=r"trec\.parquet"):
        questions("trec", seed=0, **SMALL)


def test_labels_are_corrupted_for_training_and_probes_alike():
    """Probes fitted with true labels would show knowledge that the network was never given."""
    torch.set_num_threads(1)
    rows = memorised_text(
        None, case="x 0.4", seed=0, degree=0.4, source="made", epochs=90, train_size=120, test_size=40, length=12,
        model="transformer:depth=1,width=32,heads=2",
    )  # fmt: skip
    last = max(one["checkpoint"] for one in rows if "checkpoint" in one)
    said = {
        (one["split"], one["labels"]): one["value"]
        for one in rows
        if one.get("probe") == "model" and one["checkpoint"] == last and one["measure"] == "accuracy"
    }
    fit = next(one["value"] for one in rows if one["measure"] == "train_fit")
    assert said["train", "given"] == pytest.approx(fit)
    assert said["train", "given"] > said["train", "true"] + 0.1  # it learned wrong labels
    assert {one["fit"] for one in rows if one.get("probe") in ("masc", "velpic")} == {"given"}
    assert next(one["value"] for one in rows if one["measure"] == "commonest_class") < 0.5


def made_up(case, *, model, masc, velpic, guessed, fit=1.0):
    """Accuracies at the start, the peak and the end."""
    rows = [row("commonest_class", guessed, split="test"), row("train_fit", fit, split="train")]
    for name, layer, values in (
        ("model", "output", model),
        ("masc", "block1", masc),
        ("velpic", "block1", velpic),
    ):
        rows += [
            row("accuracy", value, checkpoint=at, probe=name, layer=layer, split="test", n=1000)
            for at, value in zip((0, 4, 20), values, strict=True)
        ]  # fmt: skip
    return [{"case": case, "seed": 0, **one} for one in rows]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"model": (0.1, 0.8, 0.5), "masc": (0.4, 0.7, 0.6), "velpic": (0.3, 0.7, 0.6), "guessed": 0.3}, [True] * 4),
        ({"model": (0.1, 0.6, 0.7), "masc": (0.2, 0.7, 0.5), "velpic": (0.3, 0.7, 0.5), "guessed": 0.3}, [False] * 4),
        (
            {"model": (0.1, 0.8, 0.5), "masc": (0.4, 0.7, 0.6), "velpic": (0.3, 0.7, 0.6), "guessed": 0.3, "fit": 0.6},
            [None, None, None, True],
        ),
    ],
)  # fmt: skip
def test_claims_on_made_up_rows(numbers, expected):
    """An unfitted network must not speak of memorisation; before training its fit does not matter."""
    study = find_study("latent/text")
    rows = [
        one for case in ("transformer-TREC 0.4", "transformer-TREC 0.8") for one in made_up(case, **numbers)
    ]
    verdicts = StudyOutcome.of(study, "laptop", pd.DataFrame(rows)).verdicts()
    assert [verdict.holds for _, verdict in verdicts] == expected
