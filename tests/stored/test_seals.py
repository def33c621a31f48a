"""What undertow wrote is noticed when it changes; what others wrote is read as it is."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import undertow as ut
from undertow.errors import BadFile, ChangedFile, NotThere, RunProblem
from undertow.stored.archives import check_archive, seal_archive
from undertow.stored.documents import RunDocument
from undertow.stored.door import document_text, read_document, write_document
from undertow.stored.tables import METRICS, read_rows, write_table
from undertow.stored.tensors import read_tensors, write_tensors


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    config = ut.TrainConfig(
        "mlp:12-12", data="digits", noise="0.4", epochs=3, checkpoints="every:1", train_size=100, test_size=50
    )
    ut.train(config, folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def checkpoint(run: Path, epoch: int) -> Path:
    return run / "checkpoints" / f"epoch-{epoch:06d}.safetensors"


def test_exchanged_checkpoints_are_noticed(run: Path):
    """Fails if the file's name alone decides: two exchanged files once turned a verdict round."""
    one, other = checkpoint(run, 1), checkpoint(run, 3)
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    opened = ut.open_run(run)
    with pytest.raises(
        ChangedFile, match=r"epoch-000001.*wanted the weights of epoch 1, got those of epoch 3"
    ):
        opened.weights(1)
    with pytest.raises(ChangedFile, match="got those of epoch 1"):
        opened.model(3)
    assert opened.weights(2)


def test_a_checkpoint_of_another_run_is_noticed(run: Path, tmp_path: Path):
    other = ut.train("mlp:12-12", tmp_path / "other", data="digits", epochs=1, train_size=100, test_size=50)
    shutil.copy(other.checkpoint(1).path, checkpoint(run, 1))
    with pytest.raises(ChangedFile, match="belongs to another run"):
        ut.open_run(run).weights(1)


def test_every_single_flipped_byte_of_a_checkpoint_is_noticed(run: Path):
    path, rng = checkpoint(run, 2), random.Random(0)
    content = path.read_bytes()
    for place in [*rng.sample(range(len(content)), 150), 0, 7, 8, len(content) - 1]:
        path.write_bytes(
            content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
        )
        with pytest.raises((BadFile, NotThere)):
            ut.open_run(run).weights(2)
    path.write_bytes(content)
    assert ut.open_run(run).weights(2)


@pytest.mark.parametrize("words", [True, False], ids=["header kept", "header lost"])
def test_weights_saved_again_in_another_type_are_noticed(run: Path, words: bool):
    from safetensors import safe_open

    path = checkpoint(run, 3)
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    save_file(
        {name: own.to(torch.int8) for name, own in load_file(path).items()}, path, header if words else None
    )
    with pytest.raises(ChangedFile):
        ut.open_run(run).model(3)


def test_whole_numbers_for_weights_are_refused_in_foreign_files_too(tmp_path: Path):
    weights = nn.Linear(3, 2).state_dict()
    save_file({name: own.to(torch.int8) for name, own in weights.items()}, tmp_path / "epoch_1.safetensors")
    with pytest.raises(RunProblem, match="weight in int8 instead of float32"):
        ut.open_run(tmp_path, model=lambda: nn.Linear(3, 2)).model(1)
    save_file({name: own.half() for name, own in weights.items()}, tmp_path / "epoch_1.safetensors")
    assert ut.open_run(tmp_path, model=lambda: nn.Linear(3, 2)).model(1)


@pytest.mark.parametrize("name", ["metrics.parquet", "labels.parquet"])
@pytest.mark.parametrize("way", ["flipped", "written anew"])
def test_changed_tables_are_noticed(run: Path, name: str, way: str):
    import pandas as pd

    path = run / name
    if way == "written anew":
        table = pd.read_parquet(path)
        table.iloc[0, 1] += 1
        table.to_parquet(path, index=False)
    else:
        content = bytearray(path.read_bytes())
        content[40] ^= 4
        path.write_bytes(bytes(content))
    opened = ut.open_run(run)
    with pytest.raises(BadFile, match=name):
        _ = opened.metrics if name.startswith("metrics") else opened.labels


def test_a_changed_setting_is_noticed_and_a_new_layout_is_none(run: Path):
    path = run / "run.json"
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text)))
    assert ut.open_run(run).config.lr == 1e-3
    path.write_text(text.replace('"lr": 0.001', '"lr": 0.002'))
    with pytest.raises(ChangedFile, match=r"run.json: its content has changed.*undertow seal"):
        ut.open_run(run)


def test_a_flipped_state_resumes_to_nothing_else(run: Path):
    """Fails on flipped tensors: torch's own reader checks no sums."""
    path, rng = run / "state.pt", random.Random(1)
    content, config = path.read_bytes(), ut.open_run(run).config
    for place in rng.sample(range(len(content)), 40):
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        with pytest.raises(RunProblem, match="Delete it to train this run anew"):
            ut.train(config, run, resume=True)


@pytest.mark.parametrize(
    "name", ["run.json", "metrics.parquet", "labels.parquet", "checkpoints/epoch-000001.safetensors"]
)
def test_a_disk_that_gives_up_is_told(run: Path, name: str):
    """A regular file, which the system then refuses to read, as a broken disk does."""
    memory = Path("/proc/self/mem")
    if not memory.exists():
        pytest.skip("this system has no such file")
    (run / name).unlink()
    (run / name).symlink_to(memory)
    with pytest.raises(BadFile, match=name):
        _ = ut.open_run(run).metrics, ut.open_run(run).labels, ut.open_run(run).weights(1)


def test_runs_of_before_the_seals_are_read(run: Path):
    """A folder without an id needs no seal anywhere."""
    facts = json.loads((run / "run.json").read_text())
    del facts["seal"], facts["id"]
    (run / "run.json").write_text(json.dumps(facts))
    save_file(load_file(checkpoint(run, 1)), checkpoint(run, 1), {"epoch": "1"})
    opened = ut.open_run(run)
    assert opened.weights(1)
    assert len(opened.metrics) == 4


def test_seals_of_each_kind_of_file(tmp_path: Path):
    table, tensors, archive = tmp_path / "t.parquet", tmp_path / "t.safetensors", tmp_path / "t.npz"
    write_table(table, [{"epoch": 1, "loss": 0.5}])
    assert read_rows(table, METRICS, need_seal=True) == [{"epoch": 1, "loss": 0.5}]
    write_tensors(tensors, {"w": torch.arange(3)}, {"epoch": "1"})
    assert read_tensors(tensors, need_seal=True)["w"].tolist() == [0, 1, 2]
    assert load_file(tensors)["w"].tolist() == [0, 1, 2], "others read it too"
    np.savez_compressed(archive, a=np.arange(3))
    seal_archive(archive)
    check_archive(archive, 10_000, need=True)
    assert np.load(archive)["a"].tolist() == [0, 1, 2]
    with pytest.raises(BadFile, match="unpacks to"):
        check_archive(archive, 10)


MINE, OTHERS = "a" * 32, "b" * 32


def marked(path: Path, owner: str) -> None:
    """Write a table or an archive with a mark."""
    if path.suffix == ".parquet":
        write_table(path, [{"epoch": 1, "loss": 0.5}], owner)
    else:
        np.savez(path, a=np.arange(3))
        seal_archive(path, owner)


def read_as(path: Path, owner: str) -> None:
    if path.suffix == ".parquet":
        assert read_rows(path, METRICS, need_seal=True, owner=owner) == [{"epoch": 1, "loss": 0.5}]
    else:
        check_archive(path, 10_000, need=True, owner=owner)


@pytest.mark.parametrize("name", ["t.parquet", "t.npz"])
def test_a_mark_is_compared_where_both_sides_have_one(tmp_path: Path, name: str):
    """Fails if a file without a mark, or a reader that knows none, is refused; or if two marks are not compared."""
    path = tmp_path / name
    for told, wanted in ((MINE, MINE), (MINE, ""), ("", MINE), ("", "")):
        marked(path, told)
        read_as(path, wanted)
    marked(path, OTHERS)
    with pytest.raises(ChangedFile, match="belongs to another run"):
        read_as(path, MINE)


@pytest.mark.parametrize("name", ["t.parquet", "t.npz"])
def test_a_mark_is_under_the_seal(tmp_path: Path, name: str):
    """Fails if the mark of another run can be overwritten without a new seal."""
    path = tmp_path / name
    marked(path, OTHERS)
    path.write_bytes(path.read_bytes().replace(OTHERS.encode(), MINE.encode()))
    with pytest.raises(ChangedFile, match="its content has changed"):
        read_as(path, MINE)


def test_a_table_that_is_written_anew_has_the_new_mark_alone(tmp_path: Path):
    """Fails if the marks that a table was read with are written beside the new ones."""
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    marked(path, OTHERS)
    write_table(path, pq.read_table(path), MINE)
    read_as(path, MINE)
    assert OTHERS.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "one"}, "format: wanted int, got str"),
        ({"model": {"spec": "mlp", "shape": [-3], "outputs": 2}}, r"model.shape\[0\]: wanted int >= 1"),
        ({"model": {"spec": "mlp", "shape": [3]}}, "model.outputs: wanted a value, but there is none"),
        ({"versions": {"torch": 2}}, r"versions\[...\]: wanted str, got int"),
        ({"frmat": 1}, "frmat: undertow knows no such field"),
        ({"config": 3}, r"config: wanted object \| null, got int"),
    ],
)
def test_a_strange_field_is_named(tmp_path: Path, change: dict, message: str):
    write_document(tmp_path / "run.json", {"format": 1, **change})
    with pytest.raises(BadFile, match=f"run.json: {message}"):
        read_document(tmp_path / "run.json", RunDocument)


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 1e400}',
        '{"format": NaN}',
        "[" * 200_000,
        '{"a": ' * 900,
        '{"made": "\\ud800"}',
        "\xff",
        "",
        "3",
    ],
    ids=[
        "too large",
        "no number",
        "deep",
        "deep and torn",
        "half a letter",
        "no text",
        "nothing",
        "no object",
    ],
)
def test_text_that_is_no_document_is_refused(tmp_path: Path, text: str):
    (tmp_path / "run.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadFile, match=r"run\.json"):
        read_document(tmp_path / "run.json", RunDocument)


def test_odd_text_can_be_written_and_read_again(tmp_path: Path):
    """A file name that is no UTF-8 comes as lone surrogates, which no JSON may hold."""
    (tmp_path / "run.json").write_text(document_text({"format": 1, "made": "caf\udce9 [/x] \x1b[31m"}))
    assert read_document(tmp_path / "run.json", RunDocument)["made"] == "caf\\udce9 [/x] \x1b[31m"
