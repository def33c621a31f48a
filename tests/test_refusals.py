"""Values and files that nobody can mean: one sentence, before any work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import undertow as ut
from undertow.auditing.settings import AuditConfig
from undertow.cli import main
from undertow.errors import BadValue, RunProblem, UndertowError
from undertow.labels.settings import LabelConfig
from undertow.repairing import RepairConfig, load_repaired
from undertow.report.server import make_server
from undertow.session.settings import SessionConfig
from undertow.sizes import EXACT, parse_size
from undertow.studies.catalogue import find_study
from undertow.training.config import TrainConfig
from undertow.training.prepare import find_device


def net() -> nn.Module:
    return nn.Linear(3, 2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with ut.Recorder(tmp_path / "run") as recorder:
        recorder.save(net(), 1)
    return tmp_path / "run"


def strange_weights() -> dict[str, torch.Tensor]:
    """A weight of (2, 3) in each of the ways that torch keeps one otherwise than dense."""
    dense = torch.eye(2, 3)
    return {
        "without its numbers": torch.empty(2, 3, device="meta"),
        "sparse coo": dense.to_sparse(),
        "sparse csr": dense.to_sparse_csr(),
        "nested": torch.nested.nested_tensor([torch.ones(3), torch.ones(3)]),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["without its numbers", "sparse coo", "sparse csr", "nested"])
def test_tensors_that_are_not_dense_are_refused_by_name(kind: str):
    """Fails if torch's own error comes from the middle of copying."""
    weights = {"weight": strange_weights()[kind], "bias": torch.zeros(2)}
    from undertow.training.foreign import load_weights

    with pytest.raises(RunProblem, match=f"x.pt: wanted the weights of Linear, got weight {kind}"):
        load_weights(net(), weights, "x.pt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["without its numbers", "sparse coo", "sparse csr"])
def test_such_tensors_in_a_checkpoint_of_others(tmp_path: Path, kind: str):
    torch.save({"weight": strange_weights()[kind], "bias": torch.zeros(2)}, tmp_path / "epoch_1.pt")
    with pytest.raises(RunProblem, match=r"epoch_1\.pt"):
        ut.open_run(tmp_path, model=net).model(1)


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_is_not_built_yet(tmp_path: Path):
    save_file(net().state_dict(), tmp_path / "epoch_1.safetensors")
    with pytest.raises(
        RunProblem, match="wanted a model that is built, got one whose weight has no shape yet"
    ):
        ut.open_run(tmp_path, model=lambda: nn.LazyLinear(2)).model(1)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the file is empty"), (b"\x85hello there\n", r"damaged or cut off \(.+\)")],
)
def test_a_checkpoint_that_is_none_is_told_with_a_reason(tmp_path: Path, content: bytes, message: str):
    """Fails if the reason is an empty pair of brackets."""
    (tmp_path / "epoch_1.pt").write_bytes(content)
    with pytest.raises(RunProblem, match=message):
        ut.open_run(tmp_path, model=net).model(1)


def test_epochs_that_no_table_can_hold(tmp_path: Path, run: Path):
    """Fails if they are refused by the table, after all the work."""
    for folder, name in ((tmp_path / "a", f"epoch_{10**30}"), (tmp_path / "b", f"epoch_{EXACT + 1}")):
        folder.mkdir()
        save_file(net().state_dict(), folder / f"{name}.safetensors")
        for place in (folder, folder / f"{name}.safetensors"):
            with pytest.raises(RunProblem, match=r"wanted epochs up to 9,007,199,254,740,992"):
                ut.open_run(place, model=net)
    save_file(net().state_dict(), tmp_path / f"epoch_{EXACT}.safetensors")
    assert ut.open_run(tmp_path / f"epoch_{EXACT}.safetensors", model=net).epochs == (EXACT,)
    with ut.Recorder(run) as recorder, pytest.raises(BadValue, match="a number from 0 to 9,007"):
        recorder.save(net(), epoch=2**63)


def test_a_hash_in_a_name_is_no_epoch(tmp_path: Path):
    """Fails if digits that no rule chose refuse the whole folder."""
    for epoch in (1, 2):
        save_file(net().state_dict(), tmp_path / f"epoch_{epoch}-{10**30 + epoch}.safetensors")
    assert ut.open_run(tmp_path, model=net).epochs == (1, 2)


def test_meta_is_no_device_to_compute_on():
    with pytest.raises(BadValue, match="wanted a device that computes, got 'meta'"):
        find_device("meta")


@pytest.mark.parametrize("name", ["seed", "batch_size", "samples"])
@pytest.mark.parametrize("value", [EXACT + 1, 2**63 - 1, 2**64, 1.5, None, "3"])
def test_seeds_and_counts_are_bounded_at_construction(name: str, value: object):
    """Fails if audit.json refuses them after everything was computed."""
    if name == "samples" and value is None:
        return
    for kind in (SessionConfig, AuditConfig, LabelConfig, RepairConfig):
        with pytest.raises(BadValue, match=f"{name}: wanted a (whole )?number"):
            kind(**{name: value})
    if isinstance(value, int):
        with pytest.raises(BadValue, match="to 9,007,199,254,740,992, got"):
            SessionConfig(**{name: value})


def test_a_bound_of_training_that_was_passed_is_told():
    for name in ("seed", "batch_size", "seed_noise"):
        with pytest.raises(BadValue, match=f"to {EXACT}, got {2**64}"):
            TrainConfig(**{name: 2**64})
    with pytest.raises(BadValue, match="at least 0, got -1"):
        TrainConfig(seed=-1)


@pytest.mark.parametrize("text", ["9" * 400, "٣GB", "²GB", "1e400", "1GB ", "9999999TB", 10**40, None])
def test_sizes_that_nobody_means(text: object):
    if text == "1GB ":
        assert parse_size(text) == 10**9
        return
    with pytest.raises(BadValue, match="memory"):
        parse_size(text)


@pytest.mark.parametrize("port", [70_000, -1, "80"])
def test_ports_that_there_are_not(tmp_path: Path, port: object):
    with pytest.raises(BadValue, match="wanted a port from 0 to 65535"):
        make_server(tmp_path, port)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: AuditConfig(lenses=()), "at least one of latent"),
        (lambda: AuditConfig(full=True, quick=True), "one of full and quick"),
        (lambda: RepairConfig(least=float("nan")), "a gain of accuracy"),
        (lambda: RepairConfig(least=float("inf")), "a gain of accuracy"),
    ],
)
def test_settings_that_cannot_be_meant(config, message: str):
    with pytest.raises(BadValue, match=message):
        config()


@pytest.mark.parametrize("named", [":::", ":", "..a:b", "a b:c", "a:", ":a", "a:b:c"])
def test_lenses_that_are_no_names(run: Path, capsys, named: str):
    """Fails if Python's importer complains of an empty name."""
    data = (torch.randn(9, 3), torch.arange(9) % 2)
    with pytest.raises(UndertowError, match="lens"):
        ut.audit(ut.open_run(run, model=net), data, data, lenses=[named])


@pytest.mark.parametrize(
    "words",
    [
        "repair RUN --out=", "repair RUN --out ''", "audit RUN --out ''", "audit RUN --lenses ''", "runs ''",
        "labels RUN --out ''", "probe RUN --csv ''", "report RUN --out=", "study run x --out ''", "train --out ''",
    ],
)  # fmt: skip
def test_an_empty_word_is_no_path_and_no_list(run: Path, tmp_path: Path, capsys, monkeypatch, words: str):
    """Fails if the files land in the current folder."""
    monkeypatch.chdir(tmp_path)
    argv = [word.replace("RUN", str(run)).replace("''", "") for word in words.split()]
    assert main(argv) == 2
    assert "wanted a value, got '" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("pattern", [r"(\w+)", r"e(\d)?", 5, b"(1)"])
def test_patterns_that_find_no_number(run: Path, pattern: object):
    with pytest.raises(BadValue, match="pattern: wanted"):
        ut.open_run(run, pattern=pattern)


@pytest.mark.parametrize("path", [5, None, b"run", "a\0b", ""])
def test_what_is_no_path(path: object):
    """Fails if pathlib or the system complains."""
    for work in (ut.open_run, ut.Recorder, load_repaired, lambda own: ut.compare([own, own])):
        with pytest.raises(BadValue):
            work(path)


@pytest.mark.parametrize("runs", [None, 5, "ab", b"ab", [], ["a"]])
def test_what_is_no_list_of_runs(runs: object):
    with pytest.raises(BadValue, match="compare: wanted two runs or more"):
        ut.compare(runs)


def test_a_thousand_seeds_are_the_most():
    """Fails if a billion tasks are listed before anything is said."""
    study = find_study("richness/target-scale")
    assert len(study.seeds_at("smoke", 1000)) == 1000
    assert len(study.seeds_at("smoke", range(7, 1007))) == 1000
    for seeds in (1001, 10**9, 10**30, range(5, 10**20)):
        with pytest.raises(BadValue, match="seeds: wanted at most 1,000"):
            study.seeds_at("smoke", seeds)


def test_what_undertow_keeps_in_a_run_is_no_run(tmp_path: Path, capsys):
    """Fails if a quick audit beside a full one is listed as a run without checkpoints."""
    ut.train("mlp:4", tmp_path / "a", data="digits", epochs=1, train_size=60, test_size=60)
    quick = ["audit", str(tmp_path / "a"), "--lenses", "latent", "--probes", "mean", "--no-report"]
    assert main(quick) == 0
    assert main([*quick, "--quick"]) == 0
    assert (tmp_path / "a" / "audit-quick" / "audit.json").is_file()
    ut.train(
        "mlp:4", tmp_path / "cache", data="digits", epochs=1, train_size=60, test_size=60
    )  # a name of one's own
    capsys.readouterr()
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_run_json_that_links_to_itself_is_damaged(run: Path, capsys):
    """Fails if the folder is said to be no run and to hold itself."""
    (run / "run.json").unlink()
    (run / "run.json").symlink_to("run.json")
    assert main(["show", str(run)]) == 1
    told = capsys.readouterr().err
    assert "run.json: it cannot be read" in told
    assert "but it holds one" not in told
    assert main(["runs", str(run.parent)]) == 0
    assert "damaged" in capsys.readouterr().out


@pytest.mark.parametrize("letter", ["\u202e", "\u2066", "\u200f", "\u061c", "\u2028"])
def test_no_name_turns_what_is_printed(tmp_path: Path, capsys, letter: str):
    """Fails if a name shows the rest of its line backwards, or begins another."""
    ut.train("mlp:4", tmp_path / f"a{letter}b", data="digits", epochs=1, train_size=60, test_size=60)
    assert main(["runs", str(tmp_path)]) == 0
    assert main(["show", str(tmp_path / f"no{letter}ne")]) == 2
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert letter not in text
        assert f"\\u{ord(letter):04x}" in text


def test_no_name_in_a_warning_steers_the_terminal(tmp_path: Path):
    """Fails if a file that is passed over is named as it is."""
    save_file(net().state_dict(), tmp_path / "epoch_1.safetensors")
    save_file(net().state_dict(), tmp_path / "we\u202e\x1b[31mird.safetensors")
    done = subprocess.run(
        [sys.executable, "-m", "undertow", "show", str(tmp_path)], capture_output=True, text=True, check=True
    )
    for text in (done.stdout, done.stderr):
        assert "we\\u202e\\x1b[31mird" in text
        assert not {"\u202e", "\x1b"} & set(text)
