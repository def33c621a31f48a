"""Richness of a run: the numbers of the audit, and those of the plain functions."""

from __future__ import annotations

import pytest
import torch

import undertow as ut
from undertow.data import to_inputs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("rich") / "run"
    return ut.train(
        "mlp:32-24", data="digits", epochs=3, lr=0.003, checkpoints="0,3", device="cpu", out=place
    )


def test_a_run_is_measured_as_its_features_are(run):
    """Against D_LR of features taken by hand; after an audit on the same session it costs no pass."""
    session = ut.Session(run)
    audited = ut.audit(session, lenses="richness")
    passes = session.passed.total()
    found = ut.richness.measure_run(session)
    assert session.passed.total() == passes
    data = run.data()
    with torch.no_grad(), ut.Tap(run.model(3), ["layer2"]) as tap:
        outputs, rows = tap(to_inputs(data.test.x, data.scaling))
    assert found.at[3].found.d_lr.value == pytest.approx(ut.d_lr(rows["layer2"], outputs), abs=1e-6)
    assert audited.measures["d_lr"] == found.at[3].found.d_lr.value
    again = ut.richness.measure_run(run)
    assert [row.value for row in again.rows()] == [row.value for row in found.rows()]
