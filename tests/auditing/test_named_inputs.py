"""Hugging Face classifiers with input_ids and attention_mask through the whole product: Python and command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

import undertow as ut
from undertow.cli import main
from undertow.data.samples import Samples
from undertow.errors import BadData, BadValue, UnknownName
from undertow.latent.grid import probe_grid
from undertow.latent.probes_gauge import NO_INPUT
from undertow.latent.velpic import VeLPIC
from undertow.session import Session

transformers = pytest.importorskip("transformers")

FACTORIES = """
import transformers

def bert():
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=30, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=16, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ))

def gpt2():
    return transformers.GPT2ForSequenceClassification(transformers.GPT2Config(
        vocab_size=30, n_embd=24, n_layer=2, n_head=2, n_positions=16, num_labels=3, pad_token_id=0, bos_token_id=1,
        eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ))
"""
LIGHT = {"probes": ["velpic"], "fits": ["given"]}
EPOCHS = (0, 3, 24)
BLOCKS = {"bert": "bert.encoder.layer.*", "gpt2": "transformer.h.*"}


def texts(count: int, seed: int):
    """Three of the first tokens tell the class; lengths differ, and padding is 0."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    ids = torch.randint(5, 30, (count, 10), generator=draw)
    ids[:, :3] = labels[:, None] + 1
    mask = (torch.arange(10) < torch.randint(4, 11, (count, 1), generator=draw)).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, labels


TRUE = texts(150, 0)[1]
GIVEN = torch.where(torch.arange(150) % 4 == 1, (TRUE + 1) % 3, TRUE)  # a quarter is wrong
TRAIN, TEST = Samples.of(texts(150, 0)[0], GIVEN, TRUE), texts(90, 1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints of both models, an importable module that builds them, and the data as files."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "textnets.py").write_text(FACTORIES)
    sys.path.insert(0, str(folder))
    arrays = {f"{name}_train": part.numpy() for name, part in TRAIN.x.items()}
    arrays |= {f"{name}_test": part.numpy() for name, part in TEST[0].items()}
    np.savez(folder / "texts.npz", **arrays, y_train=GIVEN.numpy(), y_test=TEST[1].numpy())
    for kind in BLOCKS:
        train(kind, folder / kind)
    yield folder
    sys.path.remove(str(folder))


def factory(kind: str):
    import textnets  # pyright: ignore[reportMissingImports]

    return getattr(textnets, kind)


def train(kind: str, folder: Path) -> None:
    folder.mkdir()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = factory(kind)()
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        for epoch in range(EPOCHS[-1] + 1):
            if epoch in EPOCHS:
                state = {name: value.clone() for name, value in model.state_dict().items()}
                if kind == "bert":
                    save_file(state, folder / f"epoch_{epoch}.safetensors")
                else:
                    torch.save(state, folder / f"epoch_{epoch}.pt")
            for rows in torch.randperm(150).split(30):
                batch = {name: part[rows] for name, part in TRAIN.x.items()}
                model(**batch, labels=GIVEN[rows]).loss.backward()
                optimiser.step()
                optimiser.zero_grad()


@pytest.fixture
def opened(home: Path):
    return lambda kind: ut.open_run(home / kind, model=factory(kind))


@pytest.fixture(scope="module")
def audited(home: Path):
    made = {}

    def get(kind: str):
        if kind not in made:
            run = ut.open_run(home / kind, model=factory(kind))
            made[kind] = ut.audit(run, train=TRAIN, test=TEST, out=home / f"{kind}-audit", **LIGHT)
        return made[kind]

    return get


def hand_made(model, x, block: int):
    """Hidden states of a block, averaged over the real tokens by a loop."""
    with torch.no_grad():
        hidden = model(**x, output_hidden_states=True).hidden_states[block + 1].double()
    return torch.stack(
        [row[kept.bool()].mean(0) for row, kept in zip(hidden, x["attention_mask"], strict=True)]
    )


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_grid_reads_the_mean_of_real_tokens(opened, tmp_path, kind):
    """Fails if padding counts, if an entry is left out of the call, or if batches mix up rows."""
    run, last = opened(kind), EPOCHS[-1]
    table = probe_grid(
        run, train=TRAIN, test=TEST, layers=BLOCKS[kind].replace("*", "0"), out=tmp_path,
        checkpoints="last", batch_size=32, **LIGHT,
    )  # fmt: skip
    model = run.model(last)
    probe = VeLPIC().fit(hand_made(model, TRAIN.x, 0), GIVEN)
    right = probe.predict(hand_made(model, TEST[0], 0)) == TEST[1]
    found = table.query("probe == 'velpic' and split == 'test' and measure == 'accuracy'")
    assert found["value"].item() == pytest.approx(float(right.double().mean()), abs=1e-9)
    with torch.no_grad():
        own = float((model(**TEST[0]).logits.argmax(1) == TEST[1]).double().mean())
    assert table.query("probe == 'model' and split == 'test'")["value"].item() == pytest.approx(own, abs=1e-9)


def test_rows_are_kept_until_any_entry_changes(opened, tmp_path):
    """Fails if the identity of the data leaves out the mask."""
    other = {name: part.clone() for name, part in TRAIN.x.items()}
    other["attention_mask"][0] = 1
    passed = []
    for x in (TRAIN.x, TRAIN.x, other):
        session = Session(opened("bert"), (x, GIVEN), TEST, checkpoints="last", out=tmp_path)
        probe_grid(session, layers="bert.pooler", **LIGHT)
        passed.append(session.passed[EPOCHS[-1], "train"])
    assert passed == [150, 0, 150]


def test_the_layer_input_of_tokens_is_left_out_with_its_reason(opened, tmp_path):
    table = probe_grid(
        opened("gpt2"), train=TRAIN, test=TEST, layers=["input", "transformer.ln_f"], checkpoints="last",
        out=tmp_path, **LIGHT,
    )  # fmt: skip
    left = table[table["layer"] == "input"]
    assert left["note"].tolist() == [NO_INPUT]
    assert left["value"].isna().all()
    assert table.query("layer == 'transformer.ln_f' and split == 'test'")["value"].notna().all()


@pytest.mark.parametrize("kind", BLOCKS)
def test_an_audit_finds_what_was_planted(audited, kind):
    found = audited(kind)
    table = found.table
    assert set(table["lens"]) == {"model", "latent", "richness", "temporal", "repair"}
    assert found.context.wrong_labels == (38, 150)
    assert found.measures["noise"] == pytest.approx(38 / 150)
    assert found.measures["accuracy_best"] > 0.6, "twice chance; the classes are easy"
    assert found.measures["memorised"] > 0
    assert table[table["measure"] == "parameter_drift"]["value"].notna().all()
    assert set(table[table["measure"] == "feature_drift"]["checkpoint"]) == set(EPOCHS)
    repairs = table[(table["lens"] == "repair") & (table["measure"] == "difference")]
    assert len(repairs) == 2
    assert repairs["value"].notna().all()
    assert table[table["measure"] == "d_lr"]["value"].notna().all()


def test_where_a_network_cannot_be_cut_the_other_lenses_go_on(audited):
    """GPT-2 looks at its tokens again behind the last block, to find where each text ends."""
    notes = audited("gpt2").about["settings"]["notes"]
    assert any("no composites at transformer.h.0: 2 other values go round it" in note for note in notes)
    assert any("no composites, as the network can be cut at none" in note for note in notes)
    assert not (audited("gpt2").table["measure"] == "consistency").any()
    notes = audited("bert").about["settings"]["notes"]
    assert [note for note in notes if "no composites at bert.encoder.layer.0: " in note]
    cuts = audited("bert").table.query("measure == 'consistency'")["layer"]
    assert set(cuts) == {"bert.encoder.layer.1", "bert.pooler"}


def test_an_audit_is_kept_and_a_changed_mask_is_noticed(audited, opened, home):
    folder = home / "bert-audit" / "cache"
    audited("bert")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = ut.audit(opened("bert"), train=TRAIN, test=TEST, out=folder.parent, **LIGHT)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    pd.testing.assert_frame_equal(again.table, audited("bert").table)
    other = {name: part.clone() for name, part in TEST[0].items()}
    other["attention_mask"][0] = 1
    ut.audit(
        opened("bert"), train=TRAIN, test=(other, TEST[1]), out=folder.parent, lenses=["richness"], **LIGHT
    )
    changed = {path.name for path in folder.iterdir() if path.stat().st_mtime_ns != before.get(path.name)}
    kinds = {(name.rsplit("-", 2)[0], int(name.rsplit("-", 1)[1].removesuffix(".bin"))) for name in changed}
    assert kinds == {(kind, at) for kind in ("answers", "richness", "spectrum") for at in EPOCHS}


def test_inputs_without_labels(opened, tmp_path):
    found = ut.audit(opened("gpt2"), test=TEST[0], out=tmp_path, checkpoints="last", **LIGHT)
    assert found.context.situation == "no labels"
    assert found.table[found.table["measure"] == "d_lr"]["value"].notna().all()
    assert any("no probes without labels" in note for note in found.about["settings"]["notes"])


MISFITS = {
    "unknown": (
        {**TEST[0], "attention_masks": TEST[0]["attention_mask"]},
        UnknownName,
        "Did you mean 'attention_mask'",
    ),
    "vocabulary": (
        {**TEST[0], "input_ids": torch.where(torch.arange(90)[:, None] == 70, 40, TEST[0]["input_ids"])},
        BadData,
        r"ForSequenceClassification cannot take samples of shape input_ids \(10,\) and attention_mask \(10,\)",
    ),
    "unequal": (
        {**TEST[0], "attention_mask": TEST[0]["attention_mask"][:3]},
        BadData,
        "input_ids 90, attention_mask 3",
    ),
    "empty": ({}, BadData, "got an empty dict"),
}


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("case", MISFITS)
def test_inputs_that_do_not_fit_are_refused_at_once(opened, tmp_path, kind, case):
    x, error, words = MISFITS[case]
    # Both splits have the same names, else that is told first.
    more = {name: TRAIN.x["attention_mask"] for name in x if name not in TRAIN.x}
    train = ({**TRAIN.x, **more}, GIVEN)
    for work in (probe_grid, ut.audit):
        with pytest.raises(error, match=words) as told:
            work(opened(kind), train=train, test=(x, TEST[1]), out=tmp_path / "out", **LIGHT)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize("case", ["unknown", "vocabulary", "unequal"])
def test_repair_and_labels_refuse_them_too(opened, case):
    x, error, words = MISFITS[case]
    more = {name: TRAIN.x["attention_mask"] for name in x if name not in TRAIN.x}
    with pytest.raises(error, match=words):
        ut.repair(opened("gpt2"), train=({**TRAIN.x, **more}, GIVEN), test=(x, TEST[1]))
    with pytest.raises(error, match=words):
        ut.label_errors(opened("gpt2"), (x, TEST[1]))


def test_a_missing_label_is_named(opened, tmp_path):
    datasets = pytest.importorskip("datasets")
    columns = {name: part.tolist() for name, part in TEST[0].items()}
    bare = datasets.Dataset.from_dict(columns)
    with pytest.raises(
        BadData, match="wanted labels under label or labels, got only input_ids, attention_mask"
    ):
        ut.audit(opened("bert"), train=TRAIN, test=bare, out=tmp_path, **LIGHT)
    with pytest.raises(BadValue, match=r"got 'no test labels'.*a dict has its labels under label or labels"):
        probe_grid(opened("bert"), train=TRAIN, test=TEST[0], out=tmp_path, **LIGHT)
    full = datasets.Dataset.from_dict({**columns, "label": TEST[1].tolist()})
    fixed = ut.repair(opened("bert").model(), train=TRAIN, test=full, gate=False)
    assert fixed.model(**TEST[0]).logits.shape == (90, 3)


def test_repair_takes_entries_too(opened):
    """The graft pools by the mask that it is called with, and finds held-out samples that were trained on."""
    held = {name: torch.cat([part, TRAIN.x[name][:7]]) for name, part in TEST[0].items()}
    fixed = ut.repair(
        opened("gpt2"), train=TRAIN, test=(held, torch.cat([TEST[1], TRUE[:7]])), layer="transformer.h.0",
        gate=False,
    )  # fmt: skip
    known = set(map(tuple, TRAIN.x["input_ids"].tolist()))  # padding tells the mask here
    twice = sum(tuple(row) in known for row in held["input_ids"].tolist())
    assert 7 <= twice < 97, "some short texts are alike by chance"
    assert any(note.startswith(f"{twice} of 97 held-out samples are training") for note in fixed.notes)
    probe = VeLPIC().fit(hand_made(opened("gpt2").model(), TRAIN.x, 0), GIVEN)
    with torch.no_grad():
        said = fixed.model(**TEST[0]).argmax(1)
    assert torch.equal(said, probe.predict(hand_made(opened("gpt2").model(), TEST[0], 0)))


@pytest.fixture(scope="module")
def suspected(home: Path) -> tuple[np.ndarray, np.ndarray]:
    """Labels of BERT's training samples that are suspected, and those that are wrong."""
    run = ut.open_run(home / "bert", model=factory("bert"))
    flagged = ut.label_errors(run, TRAIN).table["flagged"].to_numpy()
    return flagged, (GIVEN != TRUE).numpy()


def test_label_errors_take_entries_too(suspected):
    """Tokens give no view that never saw a label but the untrained network: fails (25 of 38) if it does not vote."""
    flagged, wrong = suspected
    assert (flagged & wrong).sum() > 0.75 * wrong.sum()


def test_four_in_five_wrong_labels_of_texts_are_found(suspected):
    """Fails (30 of 38, 8 false) if layers that know wrong labels by heart are heard like honest ones."""
    flagged, wrong = suspected
    assert (flagged & wrong).sum() > 0.8 * wrong.sum()
    assert (flagged & ~wrong).sum() < 0.2 * wrong.sum()


def test_on_the_command_line(home, capsys, monkeypatch):
    monkeypatch.chdir(home)
    where = ["--model", "textnets:bert", "--data", "texts.npz"]
    code = main(
        ["audit", "bert", *where, "--out", "cli", "--lenses", "latent,temporal", "--fail-if", "broken > 0"]
    )
    seen = capsys.readouterr()
    assert (code, seen.err) == (0, "")
    assert "Note: temporal: no composites at bert.encoder.layer.0" in seen.out
    told = json.loads((home / "cli" / "audit.json").read_text())
    assert told["data"]["train"] == 150
    assert "<html" in (home / "cli" / "report.html").read_text(encoding="utf-8")
    code = main(
        [
            "probe",
            "bert",
            *where,
            "--layers",
            "input,bert.pooler",
            "--probes",
            "velpic",
            "--checkpoints",
            "last",
        ]
    )
    seen = capsys.readouterr()
    assert (code, seen.err) == (0, "")
    assert f"input: {NO_INPUT}." in seen.out.replace("\n", " ")
    assert main(["cuts", "bert", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["valid"]
    assert main(["labels", "bert", *where, "--top", "2"]) == 0
    assert main(["data", "show", "texts.npz"]) == 0
    assert "named input_ids (10,) and attention_mask (10,)" in capsys.readouterr().out


def test_what_is_wrong_is_one_line_on_the_command_line(home, capsys, monkeypatch):
    monkeypatch.chdir(home)
    with np.load("texts.npz") as stored:
        arrays = dict(stored)
    del arrays["y_test"]
    np.savez("unlabelled.npz", **arrays)
    code = main(["audit", "gpt2", "--model", "textnets:gpt2", "--data", "unlabelled.npz"])
    seen = capsys.readouterr()
    assert code == 1
    assert seen.err == (
        "undertow: unlabelled.npz: wanted labels y_test beside input_ids, attention_mask, got none. Add them.\n"
    )
    code = main(["train", "mlp:8", "--data", "texts.npz", "--epochs", "1", "--out", "no", "--quiet"])
    assert code == 1
    assert "one tensor, got entries by name" in capsys.readouterr().err
