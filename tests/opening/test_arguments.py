"""What people pass where a run, samples or labels are expected."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import undertow as ut
from undertow.cli import main
from undertow.errors import BadValue
from undertow.session.samples import gather_samples
from undertow.session.settings import SessionConfig

from . import worlds

x, given, true, x2, y2 = worlds.digits(0.4)
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def samples(train, test=None, run=None, **settings):
    return gather_samples(run, train, test, SessionConfig.of(**settings))


def memorised(plain):
    return ut.open_run(plain, model=worlds.plain_net).model()


def test_a_path_and_a_model_are_runs(plain, tmp_path):
    """One model alone gives the numbers that the run's last checkpoint gives."""
    model = memorised(plain)
    settings = {"lenses": ["latent", "repair"], "progress": False}
    found = ut.audit(model, (x, given, true), (x2, y2), **settings)
    with torch.no_grad():
        right = float((model(x2).argmax(1) == y2).double().mean())
    assert found.measures["accuracy"] == pytest.approx(right)
    assert found.folder is None
    assert found.context.name == "Sequential"
    assert found.verdict.topic("memorising").answer == "yes"
    assert "this checkpoint" not in found.headline
    assert found.to_html(tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(BadValue, match="a run, the path of one, or a model, got 'int'"):
        ut.audit(3, (x, given))


def test_one_model_is_never_cleared_against_the_evidence(plain):
    """A memorising model, of which the truth is not known: labels and repair know better than a gap alone."""
    model = memorised(plain)
    found = ut.audit(model, (x, given), (x2, y2), progress=False)
    assert found.verdict.topic("memorising").answer != "no"
    assert "No sign" not in str(found.verdict)
    assert found.verdict.topic("checkpoint").answer == "cannot tell"


def test_labels_of_one_model(plain):
    found = ut.label_errors(memorised(plain), (x, given, true), test=(x2, y2), progress=None)
    wrong = given != true
    assert float((wrong & found.flagged).sum() / found.flagged.sum()) > 0.6
    assert any("one checkpoint only (this checkpoint)" in note for note in found.notes)


def test_loaders_stand_for_their_samples():
    """In the order of the Dataset, however they shuffle; a part where they draw from a part."""
    data = TensorDataset(x, given)
    plain = samples((x, given), (x2, y2))
    found = samples(DataLoader(data, 32, shuffle=True), DataLoader(TensorDataset(x2, y2), 7))
    assert torch.equal(found.train.x, plain.train.x)
    assert torch.equal(found.train.given, plain.train.given)
    part = samples(DataLoader(data, 32, sampler=SubsetRandomSampler([5, 3, 9])), None)
    assert torch.equal(part.train.x, x[[3, 5, 9]])

    def padded(items):
        rows, labels = zip(*items, strict=True)
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor(labels)

    ragged = [(torch.arange(1, 2 + at % 3), at % 2) for at in range(10)]
    collated = samples(DataLoader(ragged, 2, collate_fn=padded), None)
    assert collated.train.x.shape == (10, 3)


def test_true_labels_and_names():
    found = samples((x, given, true), (x2, y2))
    assert torch.equal(found.train.given, given)
    assert torch.equal(found.train.true, true)
    assert found.wrong_labels() == (int((given != true).sum()), len(x))
    named = samples((x, [NAMES[at] for at in given]), (x2, np.array(NAMES)[y2.numpy()]))
    order = sorted(NAMES)
    assert named.classes == tuple(order)
    assert [order[at] for at in named.train.given.tolist()] == [NAMES[at] for at in given.tolist()]
    assert "numbered by the alphabet (eight 0, five 1" in named.note


def test_names_are_numbered_as_the_run_names_them(bert):
    """The model calls class 0 fewer and class 1 more; the alphabet would agree, so the names are turned round."""
    run = ut.open_run(bert)
    texts = worlds.Texts(60, 3)
    names = [("fewer", "more")[at] for at in texts.labels]
    found = samples(({"input_ids": texts.ids, "attention_mask": texts.mask}, names), None, run)
    assert torch.equal(found.train.given, texts.labels)
    assert found.note == ""
    object.__setattr__(run, "class_names", ("more", "fewer"))
    turned = samples(({"input_ids": texts.ids, "attention_mask": texts.mask}, names), None, run)
    assert torch.equal(turned.train.given, 1 - texts.labels)


def test_bytes_are_asked_about(plain):
    """Never fed as 0 to 255 in silence."""
    pixels = (x * 255).round().to(torch.uint8), (x2 * 255).round().to(torch.uint8)
    run = ut.open_run(plain, model=worlds.plain_net)
    for train, test in (((pixels[0], given), (pixels[1], y2)), ((pixels[0], given), None), (None, pixels[1])):
        with pytest.raises(BadValue, match=r"how the model was fed.*scaling='unit'"):
            samples(train, test, run)
    assert samples((pixels[0], given), (pixels[1], y2), run, scaling="unit").scaling == "unit"


def test_overlap_is_reported(plain):
    both = torch.cat([x2, x[:30]]), torch.cat([y2, true[:30]])
    found = ut.audit(
        ut.open_run(plain, model=worlds.plain_net), (x, given), both, lenses=["latent"], checkpoints="last",
        probes=["velpic"], progress=False,
    )  # fmt: skip
    assert any(note.startswith("30 of the") for note in found.about["settings"]["notes"])


def test_a_first_epoch_called_zero_is_a_trained_one(lightning, plain):
    """Lightning saves epoch=0 when it is done: it has seen the labels, and is not the model before training."""
    run = ut.open_run(lightning, model=worlds.lit_class())
    session = ut.Session(run, (x, true), (x2, y2))
    assert session.initial is None
    assert [session.epochs_trained(at) for at in run.epochs] == [1, 2, 3]
    fresh = worlds.plain_net()
    torch.save(fresh.state_dict(), plain / "epoch_0.pt")
    try:
        other = ut.Session(ut.open_run(plain, model=worlds.plain_net), (x, given), (x2, y2))
        assert other.initial == 0
        assert other.epochs_trained(3) == 3
    finally:
        (plain / "epoch_0.pt").unlink()


@pytest.fixture
def foreign(plain, tmp_path, monkeypatch):
    """A folder of checkpoints, the module of its model, and its data in a file."""
    (tmp_path / "somenet.py").write_text(
        "from torch import nn\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))\n"
    )
    shutil.copytree(plain, tmp_path / "ck")
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=given, x_test=x2, y_test=y2)
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys, *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    return code, *capsys.readouterr()


def test_model_and_data_are_remembered(foreign, capsys, monkeypatch):
    """After the first command the others need the folder only, from anywhere; one checkpoint likewise."""
    quick = ["--lenses", "latent", "--probes", "velpic", "--checkpoints", "last", "--no-report", "--json"]
    code, _, error = told(capsys, "audit", "ck", *quick)
    assert code == 2
    assert "Add --model package.module:function" in error
    code, first, _ = told(capsys, "audit", "ck", "--model", "somenet:build", "--data", "mine.npz", *quick)
    assert code == 0
    monkeypatch.chdir("/")
    sys.modules.pop("somenet")
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(foreign))])
    code, second, _ = told(capsys, "audit", str(foreign / "ck"), *quick)
    assert code == 0
    assert json.loads(second)["measures"] == json.loads(first)["measures"]
    one = str(foreign / "ck" / "epoch_60.pt")
    monkeypatch.chdir(foreign)
    code, third, _ = told(capsys, "audit", one, "--model", "somenet:build", "--data", "mine.npz", *quick)
    assert code == 0
    assert json.loads(third)["measures"]["accuracy"] == json.loads(first)["measures"]["accuracy"]
    assert (foreign / "ck" / "epoch_60-undertow" / "audit.json").is_file()
    assert told(capsys, "audit", one, *quick)[0] == 0


def test_what_somebody_else_remembered_runs_no_code(foreign, capsys, monkeypatch):
    """opened.json names a module: in a folder that was sent, or changed since, it must not be imported."""
    flags = ["--lenses", "latent", "--probes", "velpic", "--checkpoints", "last", "--no-report", "--json"]
    assert told(capsys, "audit", "ck", "--model", "somenet:build", "--data", "mine.npz", *flags)[0] == 0
    kept = foreign / "ck" / "opened.json"
    (foreign / "evilnet.py").write_text("raise SystemExit('ran')\n")
    own = kept.read_text()
    kept.write_text(own.replace("somenet:build", "evilnet:build"))
    code, _, error = told(capsys, "audit", "ck", *flags)
    assert code == 2
    assert "Add --model package.module:function" in error
    kept.write_text(own)
    assert told(capsys, "audit", "ck", *flags)[0] == 0
    monkeypatch.setenv("UNDERTOW_CACHE", str(foreign / "of somebody else"))
    assert told(capsys, "audit", "ck", *flags)[0] == 2


LOUD = """
print("hello from the module")
from somenet import build as quiet
def build():
    print("hello from the function")
    return quiet()
def exits():
    raise SystemExit(3)
"""


def test_what_a_model_prints_is_no_part_of_the_answer(foreign, capsys, monkeypatch):
    """Fails if a function that prints makes the JSON unreadable."""
    monkeypatch.chdir(foreign)
    (foreign / "loudnet.py").write_text(LOUD)
    flags = ["--lenses", "latent", "--probes", "velpic", "--checkpoints", "last", "--no-report", "--json"]
    code, answer, beside = told(
        capsys, "audit", "ck", "--model", "loudnet:build", "--data", "mine.npz", *flags
    )
    assert code == 0
    assert json.loads(answer)["measures"]
    assert "hello from the module" in beside
    assert "hello from the function" in beside


@pytest.mark.parametrize(
    ("module", "said"),
    [("import sys; sys.exit(3)", "SystemExit: 3"), ("1 / 0", "ZeroDivisionError: division by zero")],
)
def test_a_module_that_cannot_be_loaded_is_told(foreign, capsys, monkeypatch, module, said):
    """Fails if it ends the command with the code of a gate, or with a traceback."""
    monkeypatch.chdir(foreign)
    name = f"deadnet{len(module)}"
    (foreign / f"{name}.py").write_text(module)
    code, _, error = told(capsys, "audit", "ck", "--model", f"{name}:build", "--data", "mine.npz")
    assert code == 2
    assert f"cannot be imported. Python says: {said}." in error


def test_no_code_of_ours_is_the_users(foreign, capsys, monkeypatch):
    """Fails if what ends the program somewhere else passes for a gate or for success."""
    monkeypatch.chdir(foreign)

    def ends(*_: object, **__: object) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("undertow.training.run.open_run", ends)
    code, _, error = told(capsys, "audit", "ck", "--model", "somenet:build", "--data", "mine.npz")
    assert code == 1
    assert "ended the program (SystemExit: 3)" in error


def test_one_checkpoint_in_every_command(foreign, capsys):
    """After one command was told of its model and data, the others need its path only."""
    one = "ck/epoch_60.pt"
    quick = ["--lenses", "latent", "--probes", "velpic", "--no-report"]
    assert told(capsys, "audit", one, "--model", "somenet:build", "--data", "mine.npz", *quick)[0] == 0
    for words in (["layers", one], ["cuts", one], ["report", one], ["show", one]):
        code, _, error = told(capsys, *words)
        assert code == 0, (words, error)
    assert (foreign / "ck" / "epoch_60-undertow" / "report.html").is_file()


def test_names_in_a_file(foreign):
    """By the order that the file gives, else by the alphabet, and then that is said."""
    names = np.array(NAMES)
    arrays = {"x_train": x.numpy(), "y_train": names[given], "x_test": x2.numpy(), "y_test": names[y2]}
    np.savez(foreign / "ordered.npz", **arrays, classes=names)
    found = ut.load_data(foreign / "ordered.npz")
    assert torch.equal(found.train.y, given)
    assert found.classes == tuple(NAMES)
    assert "alphabet" not in found.note
    np.savez(foreign / "named.npz", **arrays)
    other = ut.load_data(foreign / "named.npz")
    order = sorted(NAMES)
    assert [order[at] for at in other.test.y.tolist()] == [NAMES[at] for at in y2.tolist()]
    assert "numbered by the alphabet (eight 0" in other.note
