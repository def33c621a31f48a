"""How often samples pass through a model: once, whoever asks; counted by the session and by the model itself."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

import undertow as ut
from undertow.session import Session
from undertow.session.progress import NoProgress

from .nets import EPOCHS, FIRST_TEST, TEST, TRAIN, Counted

TRIED = 256
"""So many samples of a split at most are tried beforehand, to time a batch and to find widths, heads and cuts."""
LAST = EPOCHS[-1]


@pytest.fixture(autouse=True)
def from_nothing():
    Counted.seen.clear()


def counts(at: int, first: int, total: int) -> list[int]:
    """How often each sample entered the model of a checkpoint, without those that are tried."""
    tried = (
        TRIED if at in (0, LAST) else 8
    )  # the first and the last model are tried; others show their head on 8 held-out samples
    return [Counted.seen[at, number] for number in range(first + tried, first + total)]


def test_a_whole_audit_passes_each_sample_once(opened):
    """Fails if any lens makes a pass of its own."""
    session = opened()
    ut.audit(session, lenses=["latent", "richness", "repair"])
    assert session.passed == {
        (at, split): n for at in EPOCHS for split, n in {"train": TRAIN, "test": TEST}.items()
    }
    for at in EPOCHS:
        assert set(counts(at, 0, TRAIN)) == {1}, at
        assert set(counts(at, FIRST_TEST, TEST)) == {1}, at


def test_more_workers_than_checkpoints_share_the_gauges_of_one(opened, monkeypatch):
    """On a cluster each of them makes a pass of its own; what is found, and told, is the same."""
    tables, told = [], []
    for hands in (1, 4 * len(EPOCHS)):
        monkeypatch.setattr(Session, "hands", hands)
        session, progress = opened(str(hands)), Told()
        tables.append(ut.audit(session, probes=["velpic", "mean"], progress=progress).table)
        told.append(progress.steps)
        assert (session.passed[LAST, "train"] > TRAIN) == (hands > 1)
    pd.testing.assert_frame_equal(*tables)
    assert told[0] == pytest.approx(told[1])


class Told(NoProgress):
    """How much of the work is done."""

    steps = 0.0

    def step(self, what: str, share: float) -> None:
        self.steps += share


def test_composites_need_held_out_samples_only(opened):
    """With them each held-out sample passes once more through each model and through parts; no training sample."""
    session = opened()
    result = ut.audit(session)
    assert set(result.table["lens"]) == {"model", "latent", "richness", "temporal", "repair"}
    assert set(session.passed.values()) == {TRAIN, TEST}
    for at in EPOCHS:
        assert set(counts(at, 0, TRAIN)) == {1}, at
        assert min(counts(at, FIRST_TEST, TEST)) > 1, at


def test_labels_and_repair_after_an_audit_cost_no_pass_over_training_samples(opened):
    session = opened()
    ut.audit(session)
    before = Counted.seen.copy()
    found = ut.label_errors(session)
    fixed, best = ut.repair(session), ut.repair(session, layer="best")
    more = {key: n - before[key] for key, n in Counted.seen.items() if n > before[key]}
    assert all(number < TRIED or number >= FIRST_TEST for _, number in more), (
        "no training sample beyond trials"
    )
    assert session.passed[LAST, "train"] == TRAIN
    alone = ut.repair(session.run, session.samples.source.train, session.samples.source.test)
    assert (fixed.before, fixed.after, fixed.judgement.low) == pytest.approx(
        (alone.before, alone.after, alone.judgement.low)
    )
    assert best.judgement.count == TEST // 2
    apart = ut.label_errors(opened("apart"))
    pd.testing.assert_frame_equal(found.table, apart.table)


def test_a_grid_after_an_audit_costs_nothing(opened):
    session = opened()
    ut.audit(session, lenses="latent", probes="velpic", fits="given")
    passed = session.passed.copy()
    table = ut.probe_grid(session, probes="velpic", fits="given")
    assert session.passed == passed
    assert set(table["checkpoint"]) == set(EPOCHS)


# ---------------------------------------------------------------------- memory

KEYS = [
    "lens",
    "measure",
    "checkpoint",
    "layer",
    "split",
    "probe",
    "fit",
    "labels",
    "shallow",
    "position",
    "sample",
]
LIGHT = {"probes": ["velpic", "mean"], "fits": ["given", "true"]}


def compared(one: pd.DataFrame, other: pd.DataFrame) -> None:
    one, other = (table.sort_values(KEYS, kind="stable").reset_index(drop=True) for table in (one, other))
    pd.testing.assert_frame_equal(one, other, rtol=1e-6, atol=1e-6)


def test_rounds_give_the_rows_of_one_pass(opened):
    """A third of 720 KB holds one layer of 64 features over 900 samples, not two."""
    whole, parted = opened("whole"), opened("parted", memory="720KB")
    compared(ut.audit(whole, **LIGHT).table, ut.audit(parted, **LIGHT).table)
    assert {n // TRAIN for (_, split), n in parted.passed.items() if split == "train"} == {3}
    assert {n % TRAIN for (_, split), n in parted.passed.items() if split == "train"} == {0}


def test_streams_give_the_rows_of_one_pass(opened):
    """A third of 600 KB holds no layer of 64 features: they go by moments."""
    whole, streamed = opened("whole"), opened("streamed", memory="600KB")
    lenses = {**LIGHT, "lenses": ["latent", "richness", "temporal"]}
    compared(ut.audit(whole, **lenses).table, ut.audit(streamed, **lenses).table)
    assert streamed.passed[LAST, "train"] > 3 * TRAIN


def test_what_enters_the_head_is_measured_even_where_it_fits_no_round(opened):
    """Fails if the gauge looks for features that no round could hold."""
    whole, scarce = (ut.audit(opened(name, **more), lenses="richness") for name, more in
                     {"whole": {}, "scarce": {"memory": "60KB"}}.items())  # fmt: skip
    for name in ("d_lr", "effective_dimension", "nc1", "initial_kernel_alignment"):
        assert scarce.measures[name] == pytest.approx(whole.measures[name], rel=1e-6), name


def test_the_counter_of_the_model_counts(run: ut.Run):
    """The net of these tests tells how often a sample came, and at which checkpoint."""
    model = run.model(2)
    with torch.no_grad():
        model(torch.tensor([[7 / FIRST_TEST] + [0.0] * 15, [(FIRST_TEST + 3) / FIRST_TEST] + [0.0] * 15]))
    assert Counted.seen == {(2, 7): 1, (2, FIRST_TEST + 3): 1}
    assert isinstance(Session(run, test=torch.zeros(4, 16)), Session)


def test_data_and_checkpoints_are_hashed_once(tmp_path, monkeypatch):
    """Fails if a verb reads the same pixels or weights again to know whose numbers these are."""
    import hashlib

    from undertow.data import samples

    run = ut.train("mlp:8", data="digits", epochs=2, checkpoints="0,1,2", device="cpu", out=tmp_path / "run")
    hashed, opened = [], []
    plain, digest = samples.hash_inputs, hashlib.file_digest
    monkeypatch.setattr(samples, "hash_inputs", lambda seen, x: (hashed.append(x), plain(seen, x))[1])
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, to: (opened.append(file.name), digest(file, to))[1]
    )
    session = ut.Session(ut.open_run(run.path))
    ut.audit(session, probes="velpic", fits="given")
    ut.label_errors(session)
    ut.repair(session)
    pixels = [x for x in hashed if x.ndim == 4]
    assert len(pixels) == 2, "the training and the test pictures, once each"
    assert sorted(opened) == sorted(set(opened)), "every checkpoint once"
