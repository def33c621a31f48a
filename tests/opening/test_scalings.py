"""Pictures in bytes: how they were scaled in training is asked of the model that was trained on them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

import undertow as ut
from undertow.cli import main
from undertow.data.inputs import to_inputs
from undertow.errors import BadValue
from undertow.session.scalings import likeliest_scaling, own_scaling

from . import worlds

NET = """from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)
    )
"""


def as_bytes(rows):
    return (255 * rows).round().byte()


@pytest.fixture(scope="module", params=["unit", "half", "own", "0.3/0.9"])
def scaled(request, tmp_path_factory):
    """A run that learned digits in one of four scalings, its digits as bytes, and its test accuracy."""
    folder, scaling = tmp_path_factory.mktemp("scaled"), request.param
    x, y, _, x2, y2 = worlds.digits(train=400)
    x, x2 = as_bytes(x), as_bytes(x2)
    scaling = own_scaling(x) if scaling == "own" else scaling
    torch.manual_seed(0)
    model = worlds.timm_net()
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for epoch in range(6):
        for part in torch.randperm(len(x)).split(50):
            optimiser.zero_grad()
            cross_entropy(model(to_inputs(x[part], scaling)), y[part]).backward()
            optimiser.step()
        if epoch > 3:
            torch.save(model.state_dict(), folder / f"epoch-{epoch}.pt")
    with torch.no_grad():
        right = float((model(to_inputs(x2, scaling)).argmax(1) == y2).float().mean())
    parts = {"x_train": x, "y_train": y, "x_test": x2, "y_test": y2}
    np.savez(folder / "digits.npz", **{name: part.numpy() for name, part in parts.items()})
    (folder / "scaled_net.py").write_text(NET)
    return folder, scaling, right


def test_the_command_line_takes_what_the_model_answers_to(scaled, capsys):
    """Fails if pictures are fed from 0 to 1 whatever the model learned, and the verdict is that it learned nothing."""
    folder, scaling, right = scaled
    own = ["--scaling", scaling] if scaling == "0.3/0.9" else []
    flags = ["--model", f"{folder / 'scaled_net.py'}:build", "--data", str(folder / "digits.npz"), "--quick"]
    assert main(["audit", str(folder), *flags, "--lenses", "richness", *own]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"(--scaling {scaling})" in out
    assert ("the model repeats" in out) == (scaling not in ("unit", "0.3/0.9"))
    table = pd.read_parquet(folder / "audit.parquet")
    last = table[(table.measure == "accuracy") & (table.split == "test") & (table.checkpoint == 5)]
    assert float(last.value.iloc[0]) == pytest.approx(right, abs=0.005)


def test_python_is_told_which(scaled):
    folder, scaling, _ = scaled
    held = np.load(folder / "digits.npz")
    run = ut.open_run(folder, model=worlds.timm_net)
    likely = {
        "unit": r"Say scaling='unit' \(0 to 1\)",
        "half": r"Say scaling='half': the model repeats \d+ %",
    }
    with pytest.raises(BadValue, match=likely.get(scaling, "Say scaling=")):
        ut.Session(run, train=(held["x_train"], held["y_train"])).samples  # noqa: B018


def test_own_means_and_deviations():
    x = torch.tensor([[[[0, 51], [102, 255]]]], dtype=torch.uint8)
    found = to_inputs(x.expand(1, 3, 2, 2), "0.2,0.2,0.4/0.5,0.25,0.5")
    torch.testing.assert_close(found[0, 1], (x[0, 0].float() / 255 - 0.2) / 0.25)
    for wrong in ("0.2/0", "0.2/0.1,0.2", "a/b", "/", "0.1/nan"):
        with pytest.raises(BadValue, match=r"means and deviations .* For example 0\.286/0\.353"):
            to_inputs(x, wrong)


def test_labels_that_nobody_repeats_change_nothing(scaled):
    """Labels drawn at random: no way is clearly better than the plain one."""
    folder, _, _ = scaled
    model = ut.open_run(folder, model=worlds.timm_net).model()
    x = torch.from_numpy(np.load(folder / "digits.npz")["x_train"])
    y = torch.randint(0, 10, (len(x),), generator=torch.Generator().manual_seed(1))
    assert likeliest_scaling(model, x, y, "unit").name == "unit"
    assert likeliest_scaling(model, x.float(), y, "none").repeated == {}  # 0 to 255 as floats: scaled already
