"""Inputs of several named entries: read, refused and told apart."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from undertow.data.entries import count, rows_of, trial_rows
from undertow.data.load import load_data
from undertow.data.samples import DataSet, Samples
from undertow.errors import BadData, BadValue

IDS = torch.arange(60).reshape(20, 3) % 7
MASK = torch.ones(20, 3, dtype=torch.int64)
MASK[::2, 2] = 0
Y = torch.arange(20) % 2


def entries():
    return {"input_ids": IDS.clone(), "attention_mask": MASK.clone()}


class Items(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def dicts(label="labels"):
    return [
        {"input_ids": a, "attention_mask": b, label: int(c)} for a, b, c in zip(IDS, MASK, Y, strict=True)
    ]


def pairs():
    return [({"input_ids": a, "attention_mask": b}, int(c)) for a, b, c in zip(IDS, MASK, Y, strict=True)]


def hub():
    datasets = pytest.importorskip("datasets")
    columns = {"input_ids": IDS.tolist(), "attention_mask": MASK.tolist(), "label": Y.tolist()}
    return datasets.Dataset.from_dict(columns)


SOURCES = {
    "tensors": lambda: (entries(), Y),
    "arrays and lists": lambda: ({"input_ids": IDS.numpy(), "attention_mask": MASK.tolist()}, Y.tolist()),
    "one dict": lambda: {**entries(), "labels": Y},
    "a torch Dataset of dicts": lambda: Items(dicts()),
    "a torch Dataset of pairs": lambda: Items(pairs()),
    "a Hugging Face Dataset": hub,
    "one in torch's format": lambda: hub().with_format("torch"),
    "samples": lambda: Samples.of(entries(), Y),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_way_to_give_entries_means_the_same(kind):
    data = load_data((SOURCES[kind](), (entries(), Y)))
    assert data.kind == "named"
    assert list(data.train.x) == ["input_ids", "attention_mask"]
    for split in (data.train, data.test):
        assert torch.equal(split.x["input_ids"], IDS)
        assert torch.equal(split.x["attention_mask"], MASK)
        assert split.x["attention_mask"].dtype == torch.int64
        assert torch.equal(split.y, Y)
    assert data.fingerprint == load_data(((entries(), Y), (entries(), Y))).fingerprint


def test_a_single_split_is_parted_and_columns_that_were_not_chosen_stay_out():
    chosen = hub().add_column("idx", list(range(20))).with_format("numpy", columns=["input_ids", "label"])
    data = load_data(chosen)
    assert list(data.train.x) == ["input_ids"]
    assert (len(data.train), len(data.test)) == (16, 4)
    assert torch.equal(data.test.x["input_ids"], IDS[data.test.index])


def test_files_a_saved_folder_and_a_dict_of_splits_mean_the_same(tmp_path):
    datasets = pytest.importorskip("datasets")
    want = load_data(((entries(), Y), (rows_of(entries(), slice(0, 6)), Y[:6]))).fingerprint
    both = {"train": slice(None), "test": slice(0, 6)}
    arrays = {
        f"{key}_{role}": part[rows].numpy() for role, rows in both.items() for key, part in entries().items()
    }
    np.savez(tmp_path / "texts.npz", **arrays, y_train=Y.numpy(), y_test=Y[:6].numpy())
    assert load_data(tmp_path / "texts.npz").fingerprint == want
    splits = datasets.DatasetDict({"train": hub(), "validation": hub().select(range(6))})
    assert load_data(splits).fingerprint == want
    splits.save_to_disk(tmp_path / "saved")
    assert load_data(tmp_path / "saved").fingerprint == want
    hub().save_to_disk(tmp_path / "single")
    assert len(load_data(str(tmp_path / "single")).test) == 4
    np.savez(tmp_path / "whole.npz", **{key: part.numpy() for key, part in entries().items()}, y=Y.numpy())
    assert len(load_data(tmp_path / "whole.npz").train) == 16


def raw(**changes):
    return ({**entries(), **changes}, Y)


BAD = {
    "unequal": (lambda: raw(attention_mask=MASK[:19]), "entries of one length.*input_ids 20, attention_mask 19"),
    "no labels": (lambda: Items([{"input_ids": row} for row in IDS]), "wanted labels under label or labels, got only"),
    "labels twice": (lambda: {**entries(), "label": Y, "labels": Y}, "got both"),
    "empty": (lambda: ({}, Y), "wanted inputs by name, such as input_ids, got an empty dict"),
    "ragged": (lambda: raw(input_ids=[[1]] * 19 + [[1, 2]]), "rows of several lengths. Pad them"),
    "ragged items": (
        lambda: Items([*dicts(), {"input_ids": IDS[0, :2], "attention_mask": MASK[0], "labels": 1}]),
        r"input_ids: wanted shape \(3,\) as at index 0, got \(2,\) at index 20. Pad",
    ),
    "other items": (lambda: Items([*dicts(), {"input_ids": IDS[0], "labels": 1}]), "got .* at index 20"),
    "mixed items": (lambda: Items([*dicts(), (IDS[0], 1)]), "wanted entries by name as at index 0, got tuple"),
    "text": (lambda: raw(text=["a"] * 20), "entry text: wanted numbers"),
    "one number": (lambda: raw(temperature=torch.tensor(1.0)), "entry temperature: .* got a single number"),
    "NaN": (lambda: raw(scores=torch.full((20, 2), torch.nan)), "entry scores: wanted finite numbers.*index 0"),
    "all masked": (lambda: raw(attention_mask=MASK * (torch.arange(20) != 4)[:, None]), "at index 4"),
    "too few labels": (lambda: (entries(), Y[:5]), "20 samples and 5 labels"),
    "no samples": (lambda: (rows_of(entries(), slice(0, 0)), Y[:0]), "at least one sample"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_no_model_could_take_is_refused_in_one_sentence(case):
    make, words = BAD[case]
    with pytest.raises(BadData, match=words) as told:
        load_data((make(), (entries(), Y)))
    assert "\n" not in str(told.value)


def test_a_dict_without_labels_is_no_data_set():
    with pytest.raises(BadValue, match="a dict of entries with labels"):
        load_data(entries())


def test_splits_may_be_padded_to_other_lengths_but_must_have_the_same_names():
    short = {key: part[:, :2] for key, part in entries().items()}
    assert load_data(((entries(), Y), (short, Y))).test.x["input_ids"].shape == (20, 2)
    with pytest.raises(BadData, match="one type and shape"):
        load_data(((entries(), Y), ({"input_ids": IDS}, Y)))


@pytest.mark.parametrize("name", ["input_ids", "attention_mask", "token_type_ids"])
def test_the_fingerprint_sees_every_entry(name):
    """Fails if only the first entry, or no name, goes into the hash."""
    whole = {**entries(), "token_type_ids": torch.zeros(20, 3, dtype=torch.int64)}
    other = {key: part.clone() for key, part in whole.items()}
    other[name][3, 0] += 1
    marks = {load_data(((x, Y), (ones_like(x), Y[:5]))).fingerprint for x in (whole, other)}
    renamed = {key if key != name else "position_ids": part for key, part in whole.items()}
    marks.add(load_data(((renamed, Y), (ones_like(renamed), Y[:5]))).fingerprint)
    assert len(marks) == 3


def ones_like(x):
    return {key: torch.ones_like(part[:5]) for key, part in x.items()}


def test_the_fingerprint_of_one_tensor_is_what_it_was():
    """Runs on disk hold it."""
    split = Samples.of(IDS.float(), Y)
    data = DataSet("tensor", split, split, ("0", "1"))
    seen = hashlib.blake2b(digest_size=16)
    for part in (IDS.float(), Y) * 2:
        seen.update(f"{part.dtype}{tuple(part.shape)}".encode() + part.numpy().tobytes())
    assert data.fingerprint == seen.hexdigest()


def test_rows_of_all_entries_stay_together():
    chosen = Samples.of(entries(), Y).take(torch.tensor([5, 2]))
    assert torch.equal(chosen.x["input_ids"], IDS[[5, 2]])
    assert torch.equal(chosen.x["attention_mask"], MASK[[5, 2]])
    assert (count(chosen.x), len(chosen)) == (2, 2)


def test_trial_rows_hold_the_extremes():
    ids = torch.randint(3, 9, (30, 4), generator=torch.Generator().manual_seed(0))
    ids[17, 2], ids[23, 0] = 99, 0
    few = trial_rows({"input_ids": ids, "weights": torch.rand(30, 2)})
    assert (int(few["input_ids"].max()), int(few["input_ids"].min())) == (99, 0)
    assert count(few) == 4
    assert count(trial_rows(ids[:1])) == 1


def test_what_takes_one_tensor_says_so(tmp_path):
    import undertow as ut

    with pytest.raises(BadData, match=r"one tensor, got entries by name \(input_ids, attention_mask\)"):
        _ = Samples.of(entries(), Y).tensor
    np.savez(tmp_path / "texts.npz", input_ids=IDS.numpy(), y=Y.numpy())
    with pytest.raises(BadData, match="one tensor"):
        ut.train(ut.TrainConfig("mlp:8", data=str(tmp_path / "texts.npz"), epochs=1), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_order_of_entries_is_no_other_data():
    turned = dict(reversed(entries().items()))
    first, second = (load_data(((x, Y), (x, Y))).fingerprint for x in (entries(), turned))
    assert first == second


def test_maps_by_name_must_have_one_shape_in_both_splits():
    """Only rows of tokens may be padded to another length."""
    train, test = ({"pixel_values": torch.zeros(len(Y), channels, 8, 8)} for channels in (3, 1))
    with pytest.raises(BadData, match="wanted train and test samples of one type and shape"):
        load_data(((train, Y), (test, Y)))
