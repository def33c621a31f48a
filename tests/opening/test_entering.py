"""What enters the head behind a functional ReLU, and the plain checkpoint, are there wherever heads are compared."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import undertow as ut
from undertow.cli import main
from undertow.session.reader import ENTERING

from . import worlds

x, given, true, x2, y2 = worlds.digits(0.4)
MODULE = """
from torch import nn
from torch.nn import functional


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.out = nn.Linear(64, 128), nn.Linear(128, 10)

    def forward(self, x):
        return self.out(functional.relu(self.fc1(x.flatten(1))))
"""


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """A folder with the module of a network that has its ReLU in forward, three checkpoints and its data."""
    place = tmp_path_factory.mktemp("hidden")
    (place / "hiddennet.py").write_text(MODULE)
    (place / "ck").mkdir()
    np.savez(place / "mine.npz", x_train=x, y_train=given, x_test=x2, y_test=y2)
    sys.path.insert(0, str(place))
    from hiddennet import Hidden  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    model = Hidden()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, 41):
        for part in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            functional.cross_entropy(model(x[part]), given[part]).backward()
            optimiser.step()
        if epoch in (2, 10, 40):
            torch.save(model.state_dict(), place / "ck" / f"epoch_{epoch}.pt")
    yield place, Hidden
    sys.path.remove(str(place))


def test_probes_read_what_enters_the_head(hidden):
    """Compared with VeLPIC fitted by hand on the rectified features: the layer alone gives those before the ReLU."""
    place, build = hidden
    run = ut.open_run(place / "ck", model=build)
    table = ut.probe_grid(
        run, (x, given), (x2, y2), probes=["velpic"], checkpoints="last", out=place / "grid"
    )
    kept = table[(table.measure == "accuracy") & (table.probe == "velpic") & (table.split == "test")]
    found = kept[kept.fit == "given"].set_index("layer")["value"]
    model = run.model()
    with torch.no_grad():
        rows = [functional.relu(model.fc1(part.flatten(1))) for part in (x, x2)]
    probe = ut.VeLPIC().fit(rows[0], given)
    right = float(np.mean(np.asarray(probe.predict(rows[1])) == y2.numpy()))
    assert found[ENTERING] == pytest.approx(right, abs=1e-9)
    assert found["fc1"] != found[ENTERING]


def test_nothing_is_added_where_a_layer_gives_it_out(plain, tmp_path):
    """A ReLU that is a module shows what enters the head: a second row of the same would be a second try."""
    run = ut.open_run(plain, model=worlds.plain_net)
    table = ut.probe_grid(run, (x, given), (x2, y2), probes=["velpic"], checkpoints="last", out=tmp_path)
    assert ENTERING not in set(table["layer"])


def test_the_best_layer_may_be_the_head_itself(hidden):
    """The note compares all of them, and the model as it is, on one half; the gate judges on the other."""
    place, build = hidden
    fixed = ut.repair(ut.open_run(place / "ck", model=build), (x, given), (x2, y2), layer="best")
    note = next(one for one in fixed.notes if "chosen on" in one)
    assert "(out " in note
    assert ", fc1 " in note
    assert "; the model as it is " in note
    named = ut.repair(ut.open_run(place / "ck", model=build), (x, given), (x2, y2), layer=ENTERING)
    plain = ut.repair(ut.open_run(place / "ck", model=build), (x, given), (x2, y2))
    assert torch.equal(named.model.out.weight, plain.model.out.weight)


def test_no_head_is_named_that_repair_would_refuse(hidden, capsys, monkeypatch):
    """Of --choose: a printed graft is accepted by the command it names, and is better than the checkpoint alone."""
    place, build = hidden
    monkeypatch.chdir(place)
    monkeypatch.setenv("UNDERTOW_CACHE", str(place / "cache"))
    flags = ["--model", "hiddennet:Hidden", "--data", "mine.npz", "--json"]
    assert main(["labels", "ck", "--choose", *flags]) == 0
    told = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    choice = ut.choose_checkpoint(ut.open_run("ck", model=build), (x, given))
    assert ENTERING in set(choice.grafts["layer"])
    epoch, layer = choice.graft
    fixed = ut.repair(ut.open_run("ck", model=build), (x, given), (x2, y2), checkpoint=epoch, layer=layer)
    with torch.no_grad():
        model = ut.open_run("ck", model=build).model(choice.epoch)
        alone = float((model(x2).argmax(1) == y2).double().mean())
    worth = fixed.accepted and fixed.after > alone
    assert told["checkpoint"] == choice.epoch
    assert told["graft"] == ({"checkpoint": epoch, "layer": layer} if worth else None)


def test_a_linear_model_has_nothing_to_add(tmp_path):
    """Its head reads the input, which is a layer already."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    table = ut.probe_grid(model, (x, given), (x2, y2), probes=["velpic"], out=tmp_path)
    assert ENTERING not in set(table["layer"])
