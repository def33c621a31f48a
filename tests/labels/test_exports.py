"""What was found, as other programs read it: cleanlab, Label Studio, FiftyOne, Hugging Face; no formulas in csv."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import undertow as ut
from undertow.errors import BadData, BadValue, UnknownName
from undertow.labels.exports import Exports, cleanlab_table, labelstudio_interface, named_table, save_table
from undertow.labels.given_files import Shown
from undertow.labels.review_order import spread
from undertow.labels.suspects import write_table

# cleanlab forks its other processes, and a fork beside threads may wait for ever.
ONE_PROCESS = {"n_jobs": 1}
NAMES = np.array([*"abcdefg", '=cmd("x")', "-9", 'n<i>&"ne'])


@pytest.fixture(scope="module")
def digits():
    """Features, labels (a fifth drawn anew, ten missing) and true labels."""
    x, true = load_digits(return_X_y=True)
    x, true = x[:900].astype(np.float32), true[:900]
    drawn = np.random.default_rng(0)
    labels = np.where(drawn.random(900) < 0.2, drawn.integers(0, 10, 900), true)
    labels[:10] = -1
    return x, labels, true


@pytest.fixture(scope="module")
def numbered(digits):
    return ut.label_errors(features=digits[0], labels=digits[1])


@pytest.fixture(scope="module")
def named(digits):
    names = [None if label < 0 else str(NAMES[label]) for label in digits[1]]
    return ut.label_errors(features=digits[0], labels=names)


@pytest.fixture
def shown():
    files = tuple(Path("/pictures") / "a b" / f"{row}.png" for row in range(900))
    return Shown(tuple(f"@text, {row}" for row in range(900)), files)


def test_cleanlabs_columns_are_cleanlabs(digits):
    """Against cleanlab itself, on the same probabilities."""
    filters = pytest.importorskip("cleanlab.classification")
    kept = digits[1] >= 0
    found = ut.label_errors(features=digits[0][kept], labels=digits[1][kept])
    own = filters.CleanLearning(find_label_issues_kwargs=ONE_PROCESS)
    theirs = own.find_label_issues(labels=digits[1][kept], pred_probs=found.pred_probs)
    ours = cleanlab_table(found)
    assert set(theirs.columns) <= {*ours.columns, "sample_weight"}
    for name in ("given_label", "predicted_label"):
        assert ours[name].dtype.kind == theirs[name].dtype.kind
        assert ours[name].tolist() == theirs[name].tolist()
    assert ours["is_label_issue"].dtype == theirs["is_label_issue"].dtype
    assert ours["label_quality"].tolist() == (1 - found.table["score"]).tolist()
    assert ours["label_quality"].corr(theirs["label_quality"], method="spearman") > 0.9


def test_cleanlabs_columns_name_classes_and_leave_gaps(named, numbered):
    table = cleanlab_table(named)
    assert table["given_label"].isna().sum() == 10
    assert table["given_label"].iloc[20] == named.classes[int(named.given[20])]
    assert set(table["predicted_label"]) <= set(NAMES)
    gaps = cleanlab_table(numbered)["given_label"]
    assert gaps.isna().tolist() == [True] * 10 + [False] * 890
    assert gaps.iloc[10] == int(numbered.given[10])


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # cleanlab with pandas 3.1
def test_datalab_reads_the_table_and_the_probabilities(digits, tmp_path):
    """Fails if names are guarded or ordered in another way than cleanlab's Datalab takes them."""
    datalab = pytest.importorskip("cleanlab").Datalab
    kept = digits[1] >= 0
    names = np.array([f"class {'jihgfedcba'[label]}" for label in digits[1][kept]])
    found = ut.label_errors(features=digits[0][kept], labels=names)
    path = save_table(cleanlab_table(found), tmp_path / "a.csv")
    lab = datalab(data={"label": pd.read_csv(path)["given_label"].tolist()}, label_name="label", verbosity=0)
    settings = {"clean_learning_kwargs": {"find_label_issues_kwargs": ONE_PROCESS}}
    lab.find_issues(pred_probs=found.pred_probs.astype(np.float64), issue_types={"label": settings})
    theirs = lab.get_issues("label")
    assert theirs["given_label"].tolist() == names.tolist()
    assert theirs["predicted_label"].tolist() == pd.read_csv(path)["predicted_label"].tolist()
    wrong = digits[0][kept].shape[0] - int((digits[1] == digits[2])[kept].sum())
    worst = theirs["label_score"].to_numpy().argsort()[:wrong]
    assert (digits[1] != digits[2])[kept][worst].mean() > 0.7


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_keeps_every_row(named, shown, tmp_path, ending):
    path = tmp_path / f"a{ending}"
    assert Exports(to_cleanlab=path).write(named, shown) == [path]
    read = pd.read_csv(path) if ending == ".csv" else pd.read_parquet(path)
    assert read["sample"].tolist() == list(range(900))
    assert read["filepath"].iloc[3] == "/pictures/a b/3.png"


def test_a_table_says_in_which_order_to_review_and_is_read_back(named, tmp_path):
    path = tmp_path / "all.csv"
    write_table(named, path)
    table = pd.read_csv(path, dtype={"review": "Int64"})
    first = table.sort_values("review")["sample"].head(40)
    assert first.tolist() == named.review_order(40).tolist()
    assert table["review"].isna().sum() == 10  # those without a label
    table["reviewed"] = table["proposed_label"].where(table["review"] <= 40)
    table.to_csv(path, index=False)
    done = named.reviewed(path)
    assert sorted(done.changed) == sorted(one for one in first.tolist() if named.proposed[one] >= 0)


def test_no_cell_begins_like_a_formula(named, shown, tmp_path):
    """Fails if names, texts or files reach a spreadsheet that would run them."""
    path = save_table(cleanlab_table(named, shown), tmp_path / "a.csv")
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for name in ("given_label", "predicted_label", "proposed_label", "text", "filepath"):
        assert not any(row[name][:1] in set("=+-@\t\r") for row in rows if row[name])
    assert rows[0]["text"] == "'@text, 0"
    assert '\'=cmd("x")' in {row["given_label"] for row in rows}
    assert {row["proposed"] for row in rows} >= {"-1"}  # numbers stay numbers
    assert pd.read_csv(path)["score"].dtype == float


def test_label_studio_tasks(named, shown, tmp_path):
    path = tmp_path / "tasks.json"
    assert Exports(to_labelstudio=path).write(named, shown) == [path, tmp_path / "tasks.xml"]
    tasks = json.loads(path.read_text())
    wanted = set(named.flagged.nonzero()[:, 0].tolist()) | set(range(10))
    assert {task["data"]["sample"] for task in tasks} == wanted
    assert len(tasks) == len(wanted)
    first = named.review_order(5).tolist()
    assert [task["data"]["sample"] for task in tasks[:5]] == first
    interface = ElementTree.fromstring((tmp_path / "tasks.xml").read_text())
    choices = interface.find("Choices")
    names = {choice.get("value") for choice in choices}
    assert names == set(NAMES)
    for task in tasks:
        row = task["data"]["sample"]
        assert task["data"]["image"] == f"/data/local-files/?d={row}.png"
        assert len(task["predictions"]) == int(named.proposed[row] >= 0)
        for prediction in task["predictions"]:
            (result,) = prediction["result"]
            assert prediction["score"] == pytest.approx(float(named.beliefs[row, named.proposed[row]]))
            assert (result["from_name"], result["to_name"]) == (choices.get("name"), choices.get("toName"))
            assert result["to_name"] == interface.find("Image").get("name")
            assert result["value"]["choices"] == [named.classes[int(named.proposed[row])]]
    assert ElementTree.fromstring(labelstudio_interface(named)).find("Text").get("value") == "$text"


def test_label_studio_tasks_carry_pictures_that_have_no_file(named, digits, tmp_path):
    pixels = digits[0].reshape(-1, 1, 8, 8)
    written = named.export(to_labelstudio=tmp_path / "tasks.json", images=pixels)
    assert written == [tmp_path / "tasks.json", tmp_path / "tasks.xml"]
    assert ElementTree.fromstring(written[1].read_text()).find("Image").get("value") == "$image"
    for task in json.loads(written[0].read_text())[:5]:
        head, _, coded = task["data"]["image"].partition(",")
        assert head == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(coded))) as image:
            seen = np.asarray(image)
        expected = np.rint(pixels[task["data"]["sample"], 0] * (255 / pixels.max()))
        np.testing.assert_allclose(seen, expected, atol=1)


def test_export_and_review_in_python(named, tmp_path):
    tasks = named.export(to_labelstudio=tmp_path / "tasks.json", texts=["question"] * 900)[0]
    answered = json.loads(tasks.read_text())[:30]
    for task in answered:
        result = {"type": "choices", "value": {"choices": [str(NAMES[3])]}}
        task["annotations"] = [{"result": [result]}]
    (tmp_path / "export.json").write_text(json.dumps(answered))
    done = named.reviewed(tmp_path / "export.json")
    rows = [task["data"]["sample"] for task in answered]
    assert {named.classes[one] for one in done.labels[rows].tolist()} == {str(NAMES[3])}
    assert len(done.changed) + len(done.confirmed) == 30
    with pytest.raises(UnknownName, match="Did you mean 'to_labelstudio'"):
        named.export(labelstudio=tmp_path / "tasks.json")
    with pytest.raises(BadData, match="texts: wanted one for each of 900 samples in their order, got 1"):
        named.export(to_labelstudio=tmp_path / "tasks.json", texts=["one"])


def test_fiftyone_fields(named, shown, tmp_path):
    path = tmp_path / "samples.jsonl"
    Exports(to_fiftyone=path).write(named, shown)
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["sample"] for one in samples] == list(range(900))
    assert samples[0]["ground_truth"] is None
    one = int(named.review_order(1)[0])
    assert samples[one]["ground_truth"] == {
        "_cls": "Classification",
        "label": named.class_name(int(named.given[one])),
    }
    assert samples[one]["proposed"]["label"] == named.class_name(int(named.proposed[one]))
    assert samples[one]["mistakenness"] == float(named.scores[one])
    assert samples[one]["filepath"] == f"/pictures/a b/{one}.png"
    Exports(to_fiftyone=path).write(named)
    assert "filepath" not in json.loads(path.read_text().splitlines()[0])


def test_hugging_face_reads_the_columns_beside_its_own(named, tmp_path):
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "columns.parquet"
    Exports(to_huggingface=path).write(named)
    read = datasets.load_dataset(
        "parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert read.features["given_label"].names == list(named.classes)
    assert read["given_label"][:10] == [None] * 10
    assert read["given_label"][10:] == named.given[10:].tolist()
    flagged = [row for row, one in enumerate(read["label_flagged"]) if one]
    assert flagged == named.flagged.nonzero()[:, 0].tolist()
    np.testing.assert_array_equal(read["label_score"], named.scores.numpy())
    own = datasets.Dataset.from_dict({"text": [f"t{row}" for row in range(900)], "label": [0] * 900})
    together = datasets.concatenate_datasets([own, read], axis=1)
    assert together[17]["text"] == "t17"
    assert together[17]["label_score"] == float(named.scores[17])


def test_numbers_need_no_names(numbered):
    assert "given_label" not in named_table(numbered)
    assert "text" not in named_table(numbered)


@pytest.mark.parametrize(
    ("flag", "path", "message"),
    [
        ("to_cleanlab", "a.xlsx", "--to-cleanlab: wanted a .csv or .parquet file, got 'a.xlsx'"),
        ("to_labelstudio", "a.csv", "--to-labelstudio: wanted a .json file"),
        ("to_fiftyone", "a.json", "--to-fiftyone: wanted a .jsonl file"),
        ("to_huggingface", "a.arrow", "--to-huggingface: wanted a .parquet file"),
    ],
)
def test_an_unknown_kind_of_file_is_refused_at_once(flag, path, message):
    with pytest.raises(BadValue, match=message):
        Exports(**{flag: Path(path)})


def test_review_order_has_each_label_once(named):
    order = named.review_order(10_000).tolist()
    assert sorted(order) == list(range(10, 900))  # missing labels cannot be reviewed
    flagged = int(named.flagged.sum())
    assert set(order[:flagged]) == set(named.flagged.nonzero()[:, 0].tolist())
    scores = named.scores[order[flagged:]]
    assert bool((scores.diff() <= 0).all())
    assert named.review_order(7).tolist() == order[:7]


@pytest.mark.parametrize("count", [1, 2, 12, 100, 777])
def test_any_beginning_of_the_review_is_an_even_part_of_all_suspects(count):
    """Three gap theorem: after k golden steps no gap is wider than 2.7 k-ths of the circle."""
    suspected = torch.arange(count) + 5
    order = spread(suspected)
    assert order[0] == 5  # the most suspicious first
    assert sorted(order.tolist()) == suspected.tolist()
    for length in {1, 2, 3, 5, 10, 50, count} & set(range(count + 1)):
        seen = torch.cat([torch.tensor([4]), order[:length].sort().values, torch.tensor([count + 5])])
        assert int(seen.diff().max()) <= 2.7 * count / length + 1
    assert spread(suspected[:0]).tolist() == []
