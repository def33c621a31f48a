"""Damaged files beside a run: repairs, studies, answers of tasks, a watched training, both caches, cleaned labels.

    python tests/stored/test_fuzz_others.py 2000        # of each kind; 40 of each run with the tests

Allowed, as for the files of a run: an `UndertowError`, or the very same result; what can be made again, is.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from damage import changed
from safetensors.torch import save_file
from torch import nn

import undertow as ut
from undertow.data.cache import Decoded, cached
from undertow.data.streamed import SampleStream, open_reader
from undertow.engine.store import Store
from undertow.errors import UndertowError
from undertow.integrations.look import Look
from undertow.integrations.watch import Watch
from undertow.labels.given import read_features
from undertow.labels.given import read_labels as number_labels
from undertow.labels.given_files import GivenFiles
from undertow.repairing import load_repaired
from undertow.repairing.export import save_repaired
from undertow.report.study import read_study
from undertow.report.study_page import studies_text
from undertow.session.cache import Cache
from undertow.shares import Share
from undertow.studies import StudyOutcome, find_study
from undertow.studies.task import Task
from undertow.training.labels_file import LabelsFile

EACH = 40


@dataclass(frozen=True)
class Kind:
    """A kind of folder: how it is made, and how it is read."""

    make: Callable[[Path], None]
    read: Callable[[Path], object]
    sealed: bool = True  # else these are files of others: what fits is a value


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def make_repair(folder: Path) -> None:
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60) % 3
    with ut.Recorder(folder / "run") as recorder:
        recorder.save(network(), 0)
    run = ut.open_run(folder / "run", model=network)
    ut.repair(run, train=(x, y), test=(x, y), layer="0", probe="masc", gate=False).save(folder / "graft")
    save_repaired(network(), folder / "whole")
    shutil.rmtree(folder / "run")


def read_repair(folder: Path) -> object:
    found = []
    for name in ("graft", "whole"):
        own = load_repaired(folder / f"{name}.safetensors", network)
        found += [(key, value.tolist()) for key, value in own.state_dict().items()]
        found.append(own(torch.linspace(-1, 1, 12).reshape(2, 6)).tolist())
    return found


def make_study(folder: Path) -> None:
    rows = [
        {"case": case, "measure": "d_lr", "value": 0.1 * seed, "seed": seed, "checkpoint": 1}
        for case in ("a", "b") for seed in range(3)
    ]  # fmt: skip
    StudyOutcome.of(find_study("richness/target-scale"), "smoke", pd.DataFrame(rows), {}).save(folder)


TASKS = [Task("some:work", {"number": number}, f"work {number}") for number in range(2)]


def make_store(folder: Path) -> None:
    store = Store(folder)
    store.claim()
    store.keep(TASKS[0], [{"value": 1.0, "case": "a"}, {"value": 2.0}], 3.0)
    store.fail(TASKS[1], "no good")


def read_store(folder: Path) -> object:
    store = Store(folder)
    store.claim()
    return store.rows(TASKS).to_csv(), store.seconds(TASKS), store.failure(TASKS[1])


def make_watched(folder: Path) -> None:
    watch = Watch(folder, test=(torch.zeros(4, 6), torch.tensor([0, 1, 2, 0])))
    watch.looks = [Look(at, Share(at, 4), latent={"0": {"masc": 0.5}}, d_lr=0.1) for at in range(3)]
    watch.write_state()
    watch.recorder.close()
    for own in folder.iterdir():
        if own.name != "watch.json":
            shutil.rmtree(own) if own.is_dir() else own.unlink()


def read_watched(folder: Path) -> object:
    watch = Watch(folder, test=(torch.zeros(4, 6), torch.tensor([0, 1, 2, 0])))
    watch.resume(2)
    return watch.state_dict()


@dataclass(frozen=True)
class Value:
    """What a gauge may keep."""

    name: str
    numbers: np.ndarray


VALUE = Value("a", np.arange(20.0))


def read_cache(folder: Path) -> object:
    found = Cache(folder).get("probes", 3, "0123", Value)
    kept = Cache(folder).put("probes", 3, "0123", VALUE) if found is None else found  # measured again
    return kept.name, kept.numbers.tolist()


def decoded() -> Decoded:
    return Decoded({"train_x": torch.arange(50).reshape(5, 10)}, {"classes": "[]"})


def read_data_cache(folder: Path) -> object:
    os.environ["UNDERTOW_CACHE"] = str(folder)
    found = cached("f" * 64, decoded)
    return {name: own.tolist() for name, own in found.tensors.items()}, found.notes


def make_labels(folder: Path) -> None:
    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > 0).long()
    x += y[:, None]
    found = ut.label_errors(features=x, labels=torch.where(torch.arange(90) < 5, 1 - y, y))
    found.clean("relabel").write(folder / "cleaned.parquet", ())


def read_labels(folder: Path) -> object:
    return repr(LabelsFile.read(folder / "cleaned.parquet"))


def make_given(folder: Path) -> None:
    features = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.save(folder / "x.npy", features)
    np.savez_compressed(folder / "x.npz", a=features, b=features[:, :2])
    pd.DataFrame(features, columns=list("abcd")).to_parquet(folder / "x.parquet")
    labels = pd.DataFrame({"label": [*"cat"] * 10, "text": ['=1+"1"', "<b>", "a,b"] * 10})
    labels.to_csv(folder / "y.csv")
    labels.to_parquet(folder / "y.parquet")
    np.save(folder / "y.npy", np.arange(30) % 3)
    (folder / "y.txt").write_text("0\n1\n2\n" * 10)


def read_given(folder: Path) -> object:
    """As `undertow labels --features ... --labels ... --texts ...` does."""
    found = [
        GivenFiles(features=(str(folder / f"x.{kind}"),)).read_features()
        for kind in ("npy", "npz", "parquet")
    ]
    views = [(one.title, one.rows.tolist()) for given in found for one in read_features(given)]
    files = [GivenFiles(labels=folder / f"y.{kind}") for kind in ("csv", "parquet", "npy", "txt")]
    labels = [(own.labels.tolist(), own.names) for own in (number_labels(one.read_labels()) for one in files)]
    return views, labels, GivenFiles(texts=folder / "y.csv").read_shown(30).texts


def make_shards(folder: Path) -> None:
    features = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    for kind in ("tar", "parquet"):
        (folder / kind).mkdir()
    with tarfile.open(folder / "tar" / "a.tar", "w") as tar:
        for number, row in enumerate(features):
            array = io.BytesIO()
            np.save(array, row)
            for ending, content in ((".npy", array.getvalue()), (".cls", str(number % 3).encode())):
                about = tarfile.TarInfo(f"{number:03d}{ending}")
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
    table = pd.DataFrame({"features": features.tolist(), "label": np.arange(12) % 3})
    table.to_parquet(folder / "parquet" / "a.parquet", row_group_size=5)


def read_shards(folder: Path) -> object:
    found = [SampleStream(open_reader(folder / kind), "train") for kind in ("tar", "parquet")]
    return [(torch.cat(list(x)).tolist(), x.labels.tolist()) for x in found]


def make_foreign(folder: Path) -> None:
    """As torch, Lightning and transformers leave them."""
    weights = network().state_dict()
    parts = {f"model-0000{n}-of-00002.safetensors": f"{2 * n - 2}." for n in (1, 2)}
    index = {name: file for name in weights for file, start in parts.items() if name.startswith(start)}
    for kind in ("pt", "lightning", "saved"):
        (folder / kind).mkdir()
    for at in (1, 2):
        torch.save(weights, folder / "pt" / f"epoch_{at}.pt")
        named = {f"net.{name}": value for name, value in weights.items()}
        stored = {"state_dict": named, "epoch": at, "global_step": 10 * at}
        torch.save(stored, folder / "lightning" / f"epoch={at}-step={10 * at}.ckpt")
        save_file(weights, folder / "saved" / f"model_{at}.safetensors")
        own = folder / "trainer" / f"checkpoint-{at}0"
        own.mkdir(parents=True)
        for file in parts:
            save_file({name: weights[name] for name in weights if index[name] == file}, own / file)
        (own / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        history = [{"epoch": float(n), "step": 10 * n, "eval_loss": 1 / n} for n in (1, 2)]
        state = {"epoch": float(at), "global_step": 10 * at, "log_history": history}
        (own / "trainer_state.json").write_text(json.dumps(state))
        (own / "config.json").write_text(json.dumps({"model_type": "x", "id2label": {"0": "a", "1": "b"}}))
    (folder / "lightning" / "metrics.csv").write_text("epoch,step,val_acc\n0,9,0.5\n1,19,0.6\n")


def read_foreign(folder: Path) -> object:
    runs = [ut.open_run(folder / kind, model=network) for kind in ("pt", "lightning", "saved", "trainer")]
    weights = [
        own.tolist() for run in runs for at in run.epochs for own in run.model(at).state_dict().values()
    ]
    return weights, [(run.unit, run.epochs, run.metrics.to_csv()) for run in runs]


KINDS = {
    "repair": Kind(make_repair, read_repair),
    "study": Kind(make_study, lambda folder: studies_text([read_study(folder)], folder)),
    "tasks": Kind(make_store, read_store),
    "watch": Kind(make_watched, read_watched),
    "measured": Kind(read_cache, read_cache),
    "data": Kind(read_data_cache, read_data_cache),
    "labels": Kind(make_labels, read_labels),
    "foreign": Kind(make_foreign, read_foreign, sealed=False),
    "shards": Kind(make_shards, read_shards, sealed=False),
    "given": Kind(make_given, read_given, sealed=False),
}


def outcome(kind: Kind, folder: Path, number: int) -> tuple[str, str]:
    """What became of one change to one file of the folder."""
    rng, wanted = random.Random(number), kind.read(folder)
    path = rng.choice([one for one in sorted(folder.rglob("*")) if one.is_file()])
    content = path.read_bytes()
    new = changed(content, path.name, rng)
    path.write_bytes(new)
    try:
        found = kind.read(folder)
    except UndertowError:
        return "own error", ""
    except Exception as error:
        return "foreign", f"case {number}: {path.name}: {type(error).__name__}: {error}"
    finally:
        path.write_bytes(content)
    if found == wanted:
        return "same", ""
    unsealed = not kind.sealed or (path.suffix == ".json" and b'"seal"' not in new)
    return "unsealed" if unsealed else "silent", f"case {number}: {path.name}: another result"


def fuzz(name: str, place: Path, numbers: range) -> tuple[Counter[str], list[str]]:
    """How the cases of one kind ended, and a line for each that must not be."""
    place.mkdir()
    KINDS[name].make(place)
    ended, bad = Counter[str](), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in numbers:
            kind, words = outcome(KINDS[name], place, number)
            ended[kind] += 1
            bad += [words] if kind in ("foreign", "silent") else []
    return ended, bad


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    ended, bad = fuzz(name, tmp_path / name, range(EACH))
    assert not bad, "\n".join(bad[:10])
    assert ended["own error"] + ended["same"] + ended["unsealed"] == EACH


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder:
        for each in KINDS:
            began = time.monotonic()
            total, wrong = fuzz(each, Path(folder) / each, range(count))
            print(each, dict(total), f"{time.monotonic() - began:.0f} s", *wrong[:20], sep="\n  ")
