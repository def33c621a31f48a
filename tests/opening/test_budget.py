"""What an audit looks at by default: as much as fits into the time, said before, and the same the next time."""

from __future__ import annotations

import io

import undertow as ut
from undertow.auditing import budget
from undertow.session.progress import TextBar

from . import worlds

x, given, true, x2, y2 = worlds.digits(0.4)


def test_a_budget_thins_and_full_takes_all(plain, tmp_path, monkeypatch):
    """With no time at all the last rung of the ladder is taken."""
    run = ut.open_run(plain, model=worlds.plain_net)
    settings = {"lenses": ["latent"], "probes": ["velpic"]}
    monkeypatch.setattr(budget, "SECONDS", 1e-6)
    told = io.StringIO()
    found = ut.audit(run, (x, given, true), (x2, y2), out=tmp_path, progress=TextBar(told), **settings)
    assert set(found.table["checkpoint"]) == {1, 10, 60}
    assert found.about["data"]["train"] == 300
    first = told.getvalue().splitlines()[0]
    assert first.startswith(
        "Looking at 3 of 4 checkpoints and at most 300 samples of each split (there are 1,297)"
    )
    assert first in found.about["settings"]["notes"]
    assert "100 % |########################| " in told.getvalue()
    monkeypatch.setattr(budget, "SECONDS", 1e9)
    again = ut.audit(run, (x, given, true), (x2, y2), out=tmp_path, progress=False, **settings)
    assert again.measures == found.measures, "the choice of the last time stays"
    whole = ut.audit(run, (x, given, true), (x2, y2), out=tmp_path, progress=False, full=True, **settings)
    assert set(whole.table["checkpoint"]) == {1, 3, 10, 60}
    assert whole.about["data"]["train"] == len(x)


def test_the_first_rung_that_fits_is_taken():
    """Where a checkpoint takes a second for 1,000 samples, 120 s are 31 checkpoints of about 3,800 samples at most."""
    rungs = list(budget.ladder(31, 20_000))
    assert rungs[0] == (31, 5000)
    assert rungs == sorted(rungs, reverse=True)
    assert all(one <= 31 for one, _ in budget.ladder(31, 100))
