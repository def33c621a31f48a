"""Samples that stream: the numbers of samples in memory, from every kind of source, in memory that does not grow."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import threading
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import undertow as ut
from undertow.data.streamed import MapReader, SampleStream, open_reader
from undertow.errors import BadData, RunProblem
from undertow.features.stream import Batch
from undertow.latent.layer import PROBES
from undertow.latent.probes_streamed import SumsTally
from undertow.session import Session
from undertow.session.splits import Split

from .nets import TEST, TRAIN, held_samples, train_samples

KEYS = [
    "lens",
    "measure",
    "checkpoint",
    "layer",
    "split",
    "probe",
    "fit",
    "labels",
    "position",
    "sample",
    "shallow",
]


class Mapped(Dataset):
    def __init__(self, samples):
        self.x, self.y = samples.x, samples.y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row], int(self.y[row])


class Iterated(IterableDataset):
    def __init__(self, samples, shuffled=False):
        self.x, self.y, self.shuffled = samples.x, samples.y, shuffled

    def __iter__(self):
        order = torch.randperm(len(self.x)) if self.shuffled else torch.arange(len(self.x))
        return ((self.x[row], int(self.y[row])) for row in order)


def tar_folder(samples, folder: Path) -> Path:
    folder.mkdir()
    for shard, rows in enumerate(torch.arange(len(samples.x)).split(170)):
        with tarfile.open(folder / f"part-{shard:03d}.tar", "w") as tar:
            for row in rows.tolist():
                array = io.BytesIO()
                np.save(array, samples.x[row].numpy())
                for ending, content in (
                    (".npy", array.getvalue()),
                    (".cls", str(int(samples.y[row])).encode()),
                ):
                    about = tarfile.TarInfo(f"{row:06d}{ending}")
                    about.size = len(content)
                    tar.addfile(about, io.BytesIO(content))
    return folder


def parquet_folder(samples, folder: Path) -> Path:
    folder.mkdir()
    for shard, rows in enumerate(torch.arange(len(samples.x)).split(250)):
        table = pa.table({"features": samples.x[rows].tolist(), "label": samples.y[rows].tolist()})
        pq.write_table(table, folder / f"part-{shard}.parquet", row_group_size=100)
    return folder


def hub(samples, *, streaming: bool):
    datasets = pytest.importorskip("datasets")
    found = datasets.Dataset.from_dict({"x": samples.x.tolist(), "label": samples.y.tolist()})
    return found.to_iterable_dataset() if streaming else found


SOURCES = {
    "dataset": lambda samples, folder: Mapped(samples),
    "iterable": lambda samples, folder: Iterated(samples),
    "loader": lambda samples, folder: DataLoader(Mapped(samples), batch_size=50, shuffle=True),
    "loader with workers": lambda samples, folder: DataLoader(Mapped(samples), batch_size=50, num_workers=2),
    "loader of an iterable": lambda samples, folder: DataLoader(Iterated(samples), batch_size=70),
    "hub": lambda samples, folder: hub(samples, streaming=False),
    "streaming hub": lambda samples, folder: hub(samples, streaming=True),
    "tar": lambda samples, folder: str(tar_folder(samples, folder / "tars")),
    "parquet": lambda samples, folder: parquet_folder(samples, folder / "tables"),
}


def streamed(source, where="train") -> Split:
    x = SampleStream(open_reader(source), where)
    return Split(x, x.labels)


def test_a_tar_that_is_damaged_in_the_middle_is_not_taken_for_a_shorter_one(tmp_path):
    """Fails with some of the samples and not a word: Python's reader takes damage for the end."""
    folder = tar_folder(train_samples(), tmp_path / "tars")
    path = sorted(folder.iterdir())[1]
    content = bytearray(path.read_bytes())
    content[40 * 1024] ^= 1  # the first letter of a header
    path.write_bytes(bytes(content))
    with pytest.raises(BadData, match=rf"{path.name}: .*damaged at byte 40,960"):
        open_reader(str(folder))


def test_samples_of_several_shapes_are_told(tmp_path):
    class Ragged(Mapped):
        def __getitem__(self, row):
            x, y = super().__getitem__(row)
            return x[: 5 + row // 100], y

    with pytest.raises(BadData, match=r"wanted all of one shape, got others .*collate_fn"):
        SampleStream(open_reader(Ragged(train_samples())), "train")


class Lost(Mapped):
    """A worker process never brings the sample 300: it dies, or waits for ever."""

    def __init__(self, samples, way: str) -> None:
        super().__init__(samples)
        self.way, self.reader = way, os.getpid()

    def __getitem__(self, row):
        if row == 300 and os.getpid() != self.reader:
            os._exit(3) if self.way == "dies" else threading.Event().wait()
        return super().__getitem__(row)


@pytest.mark.parametrize(("way", "said"), [("dies", r"gave up \(.*\)"), ("waits", "timed out")])
def test_samples_that_workers_do_not_bring_are_read_here(way, said):
    """Fails (for ever, with a worker that waits) where workers are relied on, and with words of a dead one at the end.

    On a busy machine a worker may be given up before it is seen to be dead.
    """
    samples = train_samples()
    reader = MapReader(Lost(samples, way), workers=2, patience=2.0)
    with pytest.warns(UserWarning, match=said):
        parts = list(reader.read(0, None, 50))
    assert torch.equal(torch.cat([x for x, _ in parts]), samples.x)
    assert torch.equal(torch.cat([y for _, y in parts]), samples.y)
    assert sum(len(x) for x, _ in reader.read(0, None, 50)) == TRAIN  # by this process alone, without a word


def test_an_error_of_a_sample_is_told_with_its_number(tmp_path):
    """In our sentence, as where samples are held; what the Dataset raised is the cause."""

    class Broken(Mapped):
        def __getitem__(self, row):
            return super().__getitem__(row) if row != 300 else {}["no such picture"]

    with pytest.raises(
        BadData, match=r"Broken: sample 300 cannot be read \(KeyError: 'no such picture'\)"
    ) as told:
        list(MapReader(Broken(train_samples()), workers=2).read(0, None, 50))
    assert isinstance(told.value.__cause__, KeyError)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_samples_in_their_order(kind, tmp_path):
    if "hub" in kind and find_spec("datasets") is None:
        pytest.skip("needs datasets: pip install 'undertow[hub]'")
    samples = train_samples()
    x = SampleStream(open_reader(SOURCES[kind](samples, tmp_path)), "train")
    assert len(x) == TRAIN
    assert torch.equal(x.labels, samples.y)
    assert torch.equal(torch.cat(list(x.batches(128))), samples.x)
    assert torch.equal(torch.cat(list(x.batches(64, slice(100, 333)))), samples.x[100:333])
    rows = torch.tensor([599, 3, 550, 3])
    assert torch.equal(x.take(rows), samples.x[rows])
    again = SampleStream(open_reader(Mapped(samples)), "train")
    assert x.fingerprint == again.fingerprint
    assert "SampleStream" not in str(type(x.few))


def table(found, lenses):
    rows = found[found["lens"].isin(lenses)].dropna(subset=["value"])
    return rows.set_index(KEYS)[["value"]].sort_index()


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr("undertow.session.adding.SHARD", 128)


def test_an_audit_of_streams_gives_the_numbers_of_samples_in_memory(run, tmp_path, small_shards):
    settings = {"probes": ("masc", "velpic", "mean", "lda"), "lenses": ("latent", "richness", "temporal")}
    data = train_samples(), held_samples()
    whole = ut.audit(run, (data[0].x, data[0].y), (data[1].x, data[1].y), out=tmp_path / "whole", **settings)
    parts = streamed(Mapped(data[0])), streamed(Iterated(data[1]), "test")
    found = ut.audit(run, *parts, out=tmp_path / "parts", **settings)
    own, there = (table(one.table, ["model", "latent", "temporal"]) for one in (found, whole))
    assert own.index.equals(there.index)
    off = (own["value"] - there["value"]).abs()
    shares = own.index.get_level_values("measure").isin(["accuracy", "memorised"])
    assert off[shares].max() < 1.5 / TEST  # a sample on the border may fall to either side in float32
    assert (off[shares] > 0).mean() < 0.05
    np.testing.assert_allclose(own["value"][~shares], there["value"][~shares], rtol=1e-3, atol=1e-5)
    rich = table(found.table, ["richness"])
    both = rich.join(table(whole.table, ["richness"]), suffixes=("_parts", ""), how="inner").reset_index()
    assert {"d_lr", "nc1", "nc2_etf", "effective_dimension", "intensity"} <= set(both["measure"])
    exact = both[~both["measure"].isin(["quality", "utilisation", "intensity"])]
    np.testing.assert_allclose(exact["value_parts"], exact["value"], rtol=1e-4, atol=1e-6)
    assert found.headline == whole.headline


@pytest.mark.parametrize("kind", SOURCES)
def test_probes_and_labels_of_every_source_are_those_of_samples_in_memory(kind, run, tmp_path, small_shards):
    """A third of the memory holds neither layer of 64 features: their votes are read from a file."""
    if "hub" in kind and find_spec("datasets") is None:
        pytest.skip("needs datasets: pip install 'undertow[hub]'")
    train, test = train_samples(), held_samples()
    streams = streamed(SOURCES[kind](train, tmp_path)), streamed(Mapped(test), "test")
    parts = Session(run, *streams, out=tmp_path / "parts", memory="400KB")
    whole = Session(run, (train.x, train.y), (test.x, test.y), out=tmp_path / "whole")
    probes = {"probes": ("mean", "lda", "logistic"), "fits": "given"}
    own, there = (ut.probe_grid(one, **probes) for one in (parts, whole))
    untold = own[own["value"].isna()]
    assert set(untold["layer"]) == {"layer1", "layer2"}
    assert set(untold["probe"]) <= {"logistic", "lda"}
    told = own.dropna(subset=["value"]).set_index(KEYS)["value"]
    there = there.set_index(KEYS)["value"]
    assert {"mean", "logistic"} <= set(told.index.get_level_values("probe"))
    assert (told - there[told.index]).abs().max() < 1.5 / TEST  # one on the border, in float32
    own, there = (ut.label_errors(one) for one in (parts, whole))
    np.testing.assert_allclose(own.found.scores, there.found.scores, atol=1e-4)
    assert (own.found.rate.low, own.found.rate.high) == pytest.approx(
        (there.found.rate.low, there.found.rate.high), abs=1e-3
    )
    assert [(one.name, one.kind) for one in own.found.voters] == [
        (one.name, one.kind) for one in there.found.voters
    ]


def test_a_view_for_which_the_disk_has_no_room_is_told_and_the_others_vote(run, tmp_path, monkeypatch):
    def full(self, count, columns):
        raise RunProblem("labels: wanted 10 TB on disk.")

    parts = streamed(Mapped(train_samples())), streamed(Mapped(held_samples()), "test")
    monkeypatch.setattr("undertow.labels.shelf.Shelf.filed", full)
    found = ut.label_errors(Session(run, *parts, out=tmp_path, memory="400KB"))
    assert any("layer1 has no vote: its features do not fit" in note for note in found.notes), found.notes
    assert found.found.voters  # inputs and the narrow layer


def test_checkpoints_that_are_spread_together_keep_apart(run, tmp_path, small_shards, monkeypatch):
    """As on a cluster with more workers than a checkpoint has shards; one checkpoint gives no numbers."""
    bad = run.epochs[1]
    whole = ut.Session.model

    def torn(self, at, into=None):
        model = whole(self, at, into)
        if at == bad:
            next(model.parameters()).data.fill_(torch.nan)
        return model

    monkeypatch.setattr(ut.Session, "model", torn)
    found = []
    for hands in (1, 20):
        monkeypatch.setattr(ut.Session, "hands", hands)
        parts = streamed(Mapped(train_samples())), streamed(Mapped(held_samples()), "test")
        session = Session(run, *parts, out=tmp_path / str(hands))
        found.append(ut.audit(session, probes=("mean", "lda"), lenses=("latent", "richness")))
        assert set(session.broken) == {bad}
    assert {bad} < set(run.epochs)
    pd.testing.assert_frame_equal(found[0].table, found[1].table)


def test_many_classes_go_by_sums_and_sketches():
    """Means and LDA are exact; MASC's and VeLPIC's directions too where the classes' rows fill a small space."""
    draw = torch.Generator().manual_seed(0)
    classes, dim = 30, 24
    y = torch.randint(classes, (3000,), generator=draw)
    spans = torch.randn(classes, 3, dim, generator=draw)
    x = torch.einsum("nk,nkd->nd", torch.randn(3000, 3, generator=draw) + 2, spans[y])
    session = SimpleNamespace(held=lambda key, make: {"given": y})
    whole = None
    for start in range(0, 3000, 1000):
        tally = SumsTally("layer", ("given",), classes, dim, ("masc",), room=10**6)
        for rows in (slice(at, at + 250) for at in range(start, start + 1000, 250)):
            tally.take(session, "train", Batch(rows, x[rows], {"layer": x[rows]}))
        sent = pickle.loads(pickle.dumps(tally))  # as from a worker
        whole = sent if whole is None else whole
        if whole is not sent:
            whole.merge(sent)
    found, notes = whole.fitted(("masc", "velpic", "mean", "lda", "logistic"), 10**9)
    for name in ("masc", "velpic", "mean", "lda"):
        alone = PROBES[name]().fit(x, y).predict(x)
        assert float((found["given", name].predict(x) == alone).float().mean()) > 0.995, name
    assert "needs the layer's features in memory" in found["given", "logistic"]
    assert set(notes) == {("given", "masc"), ("given", "velpic")}
    assert notes["given", "masc"].startswith("by sketches of ")


def test_too_little_memory_says_what_would_do():
    with pytest.raises(ut.UndertowError, match=r"wanted at least .* for 1,000 classes of 2,048 features"):
        SumsTally("layer", ("given",), 1000, 2048, ("masc",), room=10**7)


def test_what_is_too_large_for_the_memory_streams_and_what_is_not_is_held(run, tmp_path):
    data = Mapped(train_samples()), Mapped(held_samples())
    held = Session(run, *data, out=tmp_path)
    assert not held.samples.stream
    assert isinstance(held.samples.train.x, torch.Tensor)
    large = Session(run, *data, out=tmp_path, memory="20KB")
    assert large.samples.train.streams
    assert large.samples.train.y.tolist() == held.samples.train.y.tolist()
    loader = Session(run, DataLoader(data[0], shuffle=True), DataLoader(data[1]), out=tmp_path)
    assert torch.equal(loader.samples.train.x, held.samples.train.x)


def test_a_source_that_changes_its_order_is_refused(run, tmp_path):
    with pytest.raises(BadData, match="got other samples than in the first pass, from sample 0 on"):
        ut.audit(run, streamed(Iterated(train_samples(), shuffled=True)), held_samples(), out=tmp_path)


def test_what_does_not_add_up_says_what_it_would_need(run, tmp_path):
    parts = streamed(Mapped(train_samples())), streamed(Mapped(held_samples()))
    found = ut.audit(run, *parts, out=tmp_path, lenses=("latent", "repair"), probes="mean", memory="190KB")
    notes = found.about["settings"]["notes"]
    assert any("of the train samples at once, a third of the memory is" in note for note in notes), notes
    with pytest.raises(BadData, match=r"it needs 7\.2 kB of the train samples at once"):
        ut.label_errors(Session(run, *parts, out=tmp_path / "tiny", memory="12KB"))  # votes of 3 classes


GROWTH = """
import json, re, sys, torch
from torch import nn
import undertow as ut
from torch.utils.data import Dataset

class Made(Dataset):
    def __init__(self, count, seed): self.count, self.seed = count, seed
    def __len__(self): return self.count
    def __getitem__(self, row):
        draw = torch.Generator().manual_seed(1_000_003 * self.seed + row)
        x = torch.rand(3, 24, 24, generator=draw)
        x[row % 3, 0] += 1
        return x, row % 3

def net():
    first = nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*first, nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 3))

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, verb, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.manual_seed(0)
    with ut.Recorder(folder) as recorder:
        recorder.save(net(), 1)
    run = ut.open_run(folder, model=net)
    session = ut.Session(run, Made(count, 1), Made(count // 5, 2), memory="8MB")
    assert session.samples.stream
    fits = {"probes": ("masc", "lda"), "fits": "given", "layers": "3"}
    if verb == "audit":
        ut.audit(session, lenses=("latent", "richness"), **fits)
    elif verb == "probe":
        ut.probe_grid(session, **fits)
    else:
        from undertow.labels import neighbours, shelf
        # As small beside these samples as they are beside a hundred thousand.
        shelf.BLOCK_CELLS = neighbours.BLOCK_CELLS = 400_000
        neighbours.MOST_REFERENCES = 1_000
        found = ut.label_errors(session, layers="3")
        assert {"inputs", "3 at epoch 1"} == {one.name for one in found.found.voters if one.kind == "directions"}, (
            [one.name for one in found.found.voters])
    # Of this process alone: getrusage's peak would begin with that of its parent.
    print(json.dumps(int(re.search("VmHWM:[^0-9]*([0-9]+)", open("/proc/self/status").read())[1])))
"""


@pytest.mark.parametrize(("verb", "count"), [("audit", 2_000), ("probe", 2_000), ("labels", 1_600)])
def test_memory_stays_flat_in_the_number_of_samples(verb, count, tmp_path):
    """Ten times the samples, 100 MB more of them at least; held they would show."""
    peaks = []
    for many in (count, 10 * count):
        command = [sys.executable, "-W", "ignore", "-c", GROWTH, str(tmp_path / str(many)), verb, str(many)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        peaks.append(json.loads(done.stdout.splitlines()[-1]) / 1024)
    assert peaks[1] - peaks[0] < 60, f"{peaks} MB"


KINDS = ("dataset", "iterable", "loader", "loader of an iterable", "streaming hub", "tar", "parquet")
PEAKS = """
import io, json, re, sys, tarfile
from importlib.util import find_spec
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from undertow.data.streamed import MapReader, SampleStream, open_reader
torch.set_num_threads(1)
WIDTH = 3072
folder, count = Path(sys.argv[1]), int(sys.argv[2])

BASE = np.random.default_rng(0).random(WIDTH, np.float32)
def made(row):
    return BASE + np.float32(row)

class Mapped(Dataset):
    def __len__(self): return count
    def __getitem__(self, row): return torch.from_numpy(made(row)), row % 3

class Iterated(IterableDataset):
    def __iter__(self): return (Mapped()[row] for row in range(count))

def tars():
    place = folder / "tars"
    place.mkdir(parents=True)
    for start in range(0, count, 500):
        with tarfile.open(place / f"{start:06d}.tar", "w") as tar:
            for row in range(start, start + 500):
                array = io.BytesIO()
                np.save(array, made(row))
                for ending, content in ((".npy", array.getvalue()), (".cls", str(row % 3).encode())):
                    about = tarfile.TarInfo(f"{row:06d}{ending}")
                    about.size = len(content)
                    tar.addfile(about, io.BytesIO(content))
    return str(place)

def tables():
    place = folder / "tables"
    place.mkdir(parents=True)
    for start in range(0, count, 500):
        rows = pa.array(np.concatenate([made(row) for row in range(start, start + 500)]))
        features = pa.FixedSizeListArray.from_arrays(rows, WIDTH)
        table = pa.table({"features": features, "label": [row % 3 for row in range(start, start + 500)]})
        pq.write_table(table, place / f"{start:06d}.parquet", row_group_size=100)
    return place

def hub():
    if find_spec("datasets") is None:
        return Iterated()
    from datasets import IterableDataset as Stream
    return Stream.from_generator(lambda: ({"x": made(row), "label": row % 3} for row in range(count)))

SOURCES = {
    "dataset": Mapped, "iterable": Iterated, "loader": lambda: DataLoader(Mapped(), batch_size=100),
    "loader of an iterable": lambda: DataLoader(Iterated(), batch_size=100), "streaming hub": hub, "tar": tars,
    "parquet": tables,
}
def peak():
    return int(re.search("VmHWM:[^0-9]*([0-9]+)", open("/proc/self/status").read())[1]) / 1024

found = {}
held = sys.argv[3:]  # what the test must notice
for kind, make in SOURCES.items():
    if held and kind not in held:
        continue
    x = SampleStream(open_reader(make()), "train")
    assert len(x) == count
    assert sum(len(part) for part in x.batches(256)) == count
    x.take(torch.tensor([count - 1, 600]))
    if held:
        kept = torch.cat(list(x.batches(256)))
    found[kind] = peak()
print(json.dumps(found))
"""


def peaks_of(folder: Path, count: int, *held: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-c", PEAKS, str(folder), str(count), *held]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_no_kind_of_stream_is_held(tmp_path):
    """Two passes and some samples by number; ten times as many are 108 MB more, which held ones show."""
    few = peaks_of(tmp_path / "few", 1_000)
    many = peaks_of(tmp_path / "many", 10_000)
    assert tuple(many) == KINDS
    assert {kind: peak for kind, peak in many.items() if peak - max(few.values()) > 40} == {}, (
        f"at first {few} MB"
    )
    assert peaks_of(tmp_path / "held", 10_000, "dataset")["dataset"] - few["dataset"] > 60
