"""Reviewed labels, read back: none is lost, and what cannot be meant is refused in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from undertow.errors import UndertowError
from undertow.labels.cells import as_labels
from undertow.labels.given import read_labels
from undertow.labels.given_files import GivenFiles, read_label_file
from undertow.labels.reviewed import apply_review, read_review
from undertow.training.labels_file import LabelsFile

GIVEN = read_labels(["cat", "dog", "cat", None, "=owl", "dog"])  # =owl, cat, dog


def reviewed(path):
    return apply_review(GIVEN, read_review(path), str(path))


def saved(table, path):
    save = {".parquet": pd.DataFrame.to_parquet, ".csv": pd.DataFrame.to_csv}[path.suffix]
    save(table, path, index=False)


def task(sample, *annotations, given=None):
    data = {"sample": sample} | ({} if given is None else {"given": given})
    return {"id": 1, "data": data, "annotations": list(annotations)}


def said(*choices, skipped=False):
    result = [{"type": "choices", "from_name": "label", "value": {"choices": [one]}} for one in choices]
    return {"was_cancelled": skipped, "result": result}


@pytest.mark.parametrize("column", ["label", "reviewed"])
@pytest.mark.parametrize("split", [",", ";", "\t"])
def test_a_table_as_people_save_it(tmp_path, column, split):
    lines = [
        ["sample", column],
        ["0", "dog"],
        ["1", "dog"],
        ["2", ""],
        ["3", "cat"],
        ["4", "?"],
        ["9", "cat"],
    ]
    path = tmp_path / "a.csv"
    path.write_text("\ufeff" + "\n".join(split.join(line) for line in lines) + "\n\n", encoding="utf-8")
    done = reviewed(path)
    assert done.labels.tolist() == [2, 2, 1, 1, 0, 2]
    assert (done.changed, done.confirmed, done.left_open, done.unknown) == ((0, 3), (1,), (4,), (9,))
    assert done.not_reviewed == 2
    assert str(done).startswith(
        "2 changed, 1 confirmed, 1 left open, 2 not reviewed, 1 unknown. There is no sample 9"
    )


def test_every_answer_ends_in_one_place(tmp_path):
    """Law: answers in, answers out, whatever they say."""
    drawn = np.random.default_rng(0)
    samples = drawn.permutation(8)[:7]
    answers = drawn.choice(["cat", "dog", "=owl", "unsure", "1"], 7)
    pd.DataFrame({"sample": samples, "reviewed": answers}).to_parquet(tmp_path / "a.parquet")
    done = reviewed(tmp_path / "a.parquet")
    places = [*done.changed, *done.confirmed, *done.left_open, *done.unknown]
    assert sorted(places) == sorted(samples.tolist())
    for sample, answer in zip(samples.tolist(), answers.tolist(), strict=True):
        if sample < 6 and answer != "unsure":
            expected = 1 if answer == "1" else GIVEN.names.index(answer)
            assert int(done.labels[sample]) == expected


def test_label_studio_exports(tmp_path):
    path = tmp_path / "a.json"
    tasks = [
        task(0, said("dog"), said("dog"), given="cat"), task(1, said(skipped=True)), task(2), task(4, said("=owl")),
        task(3, said("cat"), given=""),
    ]  # fmt: skip
    path.write_text(json.dumps(tasks))
    done = reviewed(path)
    assert (done.changed, done.confirmed, done.left_open) == ((0, 3), (4,), (1,))
    path.write_text(
        json.dumps([{"sample": 0, "label": "dog", "given": "cat", "id": 4}, {"sample": 1, "id": 5}])
    )
    assert reviewed(path).changed == (0,)


def test_a_csv_as_label_studio_writes_it(tmp_path):
    """Its own converter sorts the columns, quotes texts, and leaves out tasks that were skipped."""
    path = tmp_path / "a.csv"
    path.write_text(
        '"about","annotation_id","annotator","given","id","label","lead_time","proposed","sample","score","text"\n'
        '"given: cat, proposed: dog",1,"1","cat",1,"dog",1.0,"dog",0,0.99,"@text, 0"\n'
        '"given: =owl, proposed: cat",2,"1","=owl",2,"=owl",1.0,"cat",4,0.9,"a ""b"""\n'
        '"given: none, proposed: cat",3,"1","",3,"cat",1.0,"cat",3,0.0,"c"\n'
    )
    done = reviewed(path)
    assert (done.changed, done.confirmed, done.left_open, done.not_reviewed) == ((0, 3), (4,), (), 3)
    assert [GIVEN.names[int(one)] for one in done.labels] == ["dog", "dog", "cat", "cat", "=owl", "dog"]


def test_names_win_over_numbers():
    given = read_labels(np.array(["10", "20", "10"]))
    done = apply_review(given, [], "x")
    assert done.not_reviewed == 3
    from undertow.labels.reviewed import Answer

    assert apply_review(given, [Answer(0, "20.0")], "x").labels.tolist() == [1, 1, 0]
    with pytest.raises(UndertowError, match="no class"):
        apply_review(given, [Answer(0, "1")], "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sample,label\n0,cat\n0,dog\n", "sample 0 is labelled both cat and dog"),
        ("sample,label\n0,catt\n", "Did you mean 'cat'"),
        ("sample,note\n0,cat\n", "Add it to the table, filled where you have looked; there are sample, note"),
        ("label\ncat\n", "got no such column in row 0"),
        ("sample,label\nx,cat\n", "wanted a sample's number in column sample"),
        ("sample,label\n,cat\n", "got an empty cell in row 0"),
        ("sample,label\n0,\n", "holds no answer"),
        ("sample,label\n0,cat,dog\n", "wanted 2 cells in each row"),
        ("sample,given,label\n0,dog,dog\n1,cat,cat\n", "sample 0 was given dog, and here it is cat"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(UndertowError, match=message) as caught:
        reviewed(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "wanted a list of Label Studio tasks"),
        ("nonsense", "cannot be read"),
        (json.dumps([task(0, said("cat", "dog"))]), "labelled both cat and dog"),
        (json.dumps([task(0, said("cat"), said("dog"))]), "labelled both cat and dog"),
        (json.dumps([{"data": {"text": "a"}, "annotations": [said("cat")]}]), "Review a table or tasks"),
        (json.dumps([task(0)]), "holds no answer"),
        (json.dumps([task(0, {"result": [{"type": "choices"}]})]), "a.json: value: wanted"),
        (json.dumps([task(0, {"result": [{"type": "choices", "value": None}]})]), "a.json: value: wanted"),
        (json.dumps([task(0, {"result": [{"type": "choices", "value": {"choices": None}}]})]), "choices"),
        (json.dumps([task(0, {"result": [{"type": "choices", "value": {"choices": [[1]]}}]})]), "choices"),
        (json.dumps([task(0, {"result": ["cat"]})]), "result"),
        (json.dumps([task(0, {"result": 5})]), "result"),
        *(
            (json.dumps([{"data": {"sample": 0}, "annotations": own}]), "annotations")
            for own in (5, [5], "x")
        ),
        (json.dumps([{"data": {"sample": 0}, "annotations": None, "completions": 5}]), "completions"),
        ("[" * 5000 + "]" * 5000, "nested"),
        ('[{"sample": 0, "label": ' + "[" * 5000 + "]" * 5000 + "}]", "nested"),
        (json.dumps([{"sample": "9" * 400, "label": "cat"}]), "wanted a sample's number"),
        (json.dumps([{"sample": 0, "label": "9" * 400}]), "no class"),
        (json.dumps([{"sample": 0, "label": {"choices": 5}}]), "no class"),
    ],
)
def test_exports_that_cannot_be_meant_are_refused(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UndertowError, match=message):
        reviewed(path)


def test_other_marks_than_choices_may_be_of_any_form(tmp_path):
    """Fails if a rating, a text or a relation beside the choice is taken for a malformed export."""
    path = tmp_path / "a.json"
    beside = [{"type": "rating", "value": {"rating": 3}}, {"type": "relation", "from_id": 1}, {"id": 3}]
    path.write_text(json.dumps([task(0, {**said("dog"), "result": [*beside, *said("dog")["result"]]})]))
    assert reviewed(path).changed == (0,)


@pytest.mark.parametrize("text", ["sample,label,label\n0,cat,dog\n", "label,label\ncat,dog\n"])
def test_a_column_that_is_there_twice_is_refused(tmp_path, text):
    """Fails if one of two columns called label is taken without a word."""
    (tmp_path / "a.csv").write_text(text)
    for read in (read_review, read_label_file, LabelsFile.read):
        with pytest.raises(UndertowError, match="once, got label twice"):
            read(tmp_path / "a.csv")


@pytest.mark.parametrize("sample", ["1.5", "9" * 400, "999999999999999"])
def test_numbers_of_samples_that_cannot_be_meant(tmp_path, sample):
    """Fails if 1.5 is sample 1, or a list of a million gigabytes is made."""
    (tmp_path / "a.csv").write_text(f"sample,label\n0,cat\n{sample},dog\n")
    with pytest.raises(UndertowError, match=r"a\.csv"):
        read_label_file(tmp_path / "a.csv")


def test_a_review_can_be_applied_twice(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sample,given,label\n0,cat,dog\n")
    once = reviewed(path)
    again = apply_review(type(GIVEN)(once.labels, GIVEN.names), read_review(path), "a.csv")
    assert again.labels.equal(once.labels)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "label\n3\n\n1\n", [3, -1, 1]),
        ("a.csv", "id,label\na,3.0\nb,\nc,nan\n", [3, -1, -1]),
        ("a.csv", "3\n1\n2\n", [3, 1, 2]),
        ("a.csv", "label\ncat\nNA\n\n", ["cat", "NA", None]),
        ("a.csv", "label\n007\n8\n9\n", ["007", "8", "9"]),
        ("a.csv", "label\n'=x\n'tis\nb\n", ["=x", "'tis", "b"]),
        ("a.txt", "cat\ndog\n\n", ["cat", "dog", None]),
    ],
)
def test_labels_of_text_files(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert read_label_file(tmp_path / name, 3).tolist() == expected


def test_labels_of_other_files(tmp_path):
    np.save(tmp_path / "a.npy", np.array(["b", "a"]))
    assert read_label_file(tmp_path / "a.npy").tolist() == ["b", "a"]
    pd.DataFrame({"x": [1, 2], "label": ["b", None]}).to_parquet(tmp_path / "a.parquet")
    assert read_labels(read_label_file(tmp_path / "a.parquet")).labels.tolist() == [0, -1]
    assert as_labels(["1.5", "2"]).tolist() == [1.5, 2.0]  # refused as broken numbers, not taken for names


def test_features_of_files(tmp_path):
    a, b = np.ones((3, 2), np.float32), np.zeros((3, 4), np.float32)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "two.npz", u=a, v=b)
    pd.DataFrame({"emb": list(b), "label": [1, 2, 3]}).to_parquet(tmp_path / "lists.parquet")
    pd.DataFrame(a, columns=["p", "q"]).to_parquet(tmp_path / "wide.parquet")

    def read(*parts):
        found = GivenFiles(
            features=tuple(part.replace("@", f"{tmp_path}/") for part in parts)
        ).read_features()
        return {name: one.shape for name, one in found.items()}

    assert read("@a.npy") == {"a": (3, 2)}
    assert read("clip=@a.npy", "dino=@two.npz") == {"clip": (3, 2), "dino.u": (3, 2), "dino.v": (3, 4)}
    assert read("@lists.parquet") == {"lists": (3, 4)}
    assert read("@wide.parquet") == {"wide": (3, 2)}
    with pytest.raises(UndertowError, match="a name of its own"):
        read("@a.npy", "@a.npy")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_one_table_with_features_and_labels(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    save = {"parquet": pd.DataFrame.to_parquet, "csv": pd.DataFrame.to_csv}[ending]
    save(
        pd.DataFrame({"p": [1.5, 2, 4], "label": ["b", "a", "b"], "q": [3, 1, 2], "text": list("xyz")}),
        path,
        index=False,
    )
    files = GivenFiles(features=(str(path),), labels=path, texts=path)
    assert files.read_features()["a"].tolist() == [[1.5, 3], [2, 1], [4, 2]]
    assert files.read_labels(3).tolist() == ["b", "a", "b"]
    assert files.read_shown(3).texts == ("x", "y", "z")
    with pytest.raises(
        UndertowError, match="Labels must not be features: leave it out, or give the same file"
    ):
        GivenFiles(features=(str(path),), labels=tmp_path / "b.csv").read_features()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_row_number_is_no_feature(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    save = {"parquet": pd.DataFrame.to_parquet, "csv": pd.DataFrame.to_csv}[ending]
    save(pd.DataFrame({"id": [1, 2, 3], "p": [1.5, 2, 4]}), path, index=False)
    with pytest.raises(UndertowError, match=r"column id of .* only numbers the rows. Leave it out"):
        GivenFiles(features=(str(path),)).read_features()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_row_number_is_no_feature_in_any_order(tmp_path, ending, first):
    """Fails if only ascending numbers are refused: others tell where a row stood, and so its class."""
    path = tmp_path / f"a.{ending}"
    numbers = torch.randperm(20, generator=torch.Generator().manual_seed(0)).numpy() + first
    saved(pd.DataFrame({"id": numbers, "p": np.arange(20) / 7}), path)
    with pytest.raises(UndertowError, match=r"column id of .* only numbers the rows. Leave it out, or call"):
        GivenFiles(features=(str(path),)).read_features()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_features_texts_and_labels_are_found_by_their_sample(tmp_path, ending):
    """Fails if the number of a sample is a feature, or rows are taken as they stand."""
    path = tmp_path / f"a.{ending}"
    columns = {"sample": [2, 0, 1], "p": [2.5, 0.5, 1.5], "label": [*"cab"], "text": [*"zxy"]}
    saved(pd.DataFrame(columns), path)
    files = GivenFiles(features=(str(path),), labels=path, texts=path)
    assert files.read_features()["a"].tolist() == [[0.5], [1.5], [2.5]]
    assert files.read_labels(3).tolist() == ["a", "b", "c"]
    assert files.read_shown(3).texts == ("x", "y", "z")
    saved(pd.DataFrame({"sample": [3, 1, 2], "p": [3.5, 1.5, 2.5]}), path)
    with pytest.raises(UndertowError, match=r"wanted each sample from 0 to 2 once .* none with number 0"):
        GivenFiles(features=(str(path),)).read_features()


def test_lists_of_features_are_found_by_their_sample(tmp_path):
    rows = {"sample": [1, 0], "emb": [[1.0, 2.0], [3.0, 4.0]]}
    pd.DataFrame(rows).to_parquet(tmp_path / "a.parquet")
    found = GivenFiles(features=(str(tmp_path / "a.parquet"),)).read_features()
    assert found["a"].tolist() == [[3, 4], [1, 2]]


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_names_beside_labels_that_nobody_reads_are_told(tmp_path, ending):
    """Fails if rows that name their samples are matched by position without a word."""
    path = tmp_path / f"y.{ending}"
    files = GivenFiles(features=("x.npy",), labels=path)
    for names in (["s2", "s0", "s1"], [2, 0, 1]):
        saved(pd.DataFrame({"id": names, "label": [0, 1, 0]}), path)
        assert "its column id was not read. A column sample, from 0 on, says whose" in files.notes[0]
    for own in ([0, 1, 2], [0.5, 0.1, 0.3], ["a", "a", "b"]):
        saved(pd.DataFrame({"id": own, "label": [0, 1, 0]}), path)
        assert files.notes == ()
    saved(pd.DataFrame({"sample": [2, 0, 1], "id": [*"cab"], "label": [0, 1, 0]}), path)
    assert files.notes == ()


@pytest.mark.parametrize("lines", ["p,q,\n4,3,\n2,5,\n", "p,q,none\n4,3,\n2,5,\n"])
def test_a_column_of_nothing_is_named(tmp_path, lines):
    """Fails if every sample is called bad where each line ends in a comma."""
    (tmp_path / "a.csv").write_text(lines)
    with pytest.raises(
        UndertowError, match=r"column (3 \(it has no name\)|none) of .* is empty. Leave it out"
    ):
        GivenFiles(features=(str(tmp_path / "a.csv"),)).read_features()


def test_a_csv_of_features_names_what_is_no_number(tmp_path):
    (tmp_path / "a.csv").write_text("p,maker\n1,x\n,y\n")
    with pytest.raises(UndertowError, match=r"wanted numbers in column maker of .*, got 'x'. Leave it out"):
        GivenFiles(features=(str(tmp_path / "a.csv"),)).read_features()
    (tmp_path / "a.csv").write_text("p,q\n1,3\n,5\n")
    assert np.isnan(GivenFiles(features=(str(tmp_path / "a.csv"),)).read_features()["a"][1, 0])


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_cleaned_labels_are_searched_again_and_reviewed_again(tmp_path, ending):
    """Fails if samples that were left out move the labels of all that follow."""
    path = tmp_path / f"cleaned.{ending}"
    LabelsFile.of(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1])).write(path, ("cat", "dog"))
    assert read_label_file(path, 5).tolist() == ["dog", None, "cat", "dog", None]
    assert read_label_file(path).tolist() == ["dog", None, "cat", "dog"]
    LabelsFile.of(torch.tensor([0, 2]), torch.tensor([1, 0])).write(path)
    assert read_label_file(path, 4).tolist() == [1, -1, 0, -1]
    with pytest.raises(UndertowError, match="has sample 2, but there are 2 samples, 0 to 1"):
        read_label_file(path, 2)
    assert LabelsFile.read(path).label.tolist() == [1, 0]  # as `train --labels` reads it
    pd.DataFrame({"sample": [1, 1], "label": [0, 1]}).to_csv(tmp_path / "twice.csv", index=False)
    with pytest.raises(UndertowError, match="sample 1 more than once"):
        read_label_file(tmp_path / "twice.csv")
    pd.DataFrame({"sample": ["a.png", "b.png"], "label": [0, 1]}).to_csv(tmp_path / "names.csv", index=False)
    assert read_label_file(tmp_path / "names.csv").tolist() == [0, 1]  # names of samples, in their order


def test_pictures_in_the_order_in_which_people_count(tmp_path):
    for number in (10, 9, 1):
        (tmp_path / f"{number}.png").touch()
    shown = GivenFiles(images=tmp_path).read_shown(3)
    assert [path.stem for path in shown.files] == ["1", "9", "10"]
    with pytest.raises(UndertowError, match="one for each of 4 samples in their order, got 3"):
        GivenFiles(images=tmp_path).read_shown(4)
    np.save(tmp_path / "a.npy", np.zeros((3, 8, 8, 3), np.uint8))
    assert GivenFiles(images=tmp_path / "a.npy").read_shown(3).pixels.shape == (3, 3, 8, 8)
