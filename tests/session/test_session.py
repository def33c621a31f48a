"""A session: what it refuses, what is measured once, what goes on after an interruption, and anyone's own lens."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import pandas as pd
import pytest
import torch

import undertow as ut
from undertow.auditing import AuditConfig, parse_condition
from undertow.errors import BadData, BadValue, UnknownName
from undertow.labels.settings import LabelConfig
from undertow.latent.settings import GridConfig
from undertow.repairing.settings import RepairConfig
from undertow.session import Gauge, Session, SessionConfig, Sight
from undertow.session.reader import ENTERING
from undertow.training.seal_again import seal_again

from .nets import CLASSES, DIM, EPOCHS, FIRST_TEST, TEST, TRAIN, Counted, held_samples, train_samples

LIGHT: dict[str, Any] = {"lenses": ["latent"], "probes": "mean", "fits": "given"}


@dataclass(frozen=True)
class MeanAt:
    value: float


class Mean(Gauge[MeanAt]):
    """The mean of a layer's features; may fail at a checkpoint."""

    kind = MeanAt

    def __init__(
        self, *layers: str, fails_at: int | None = None, error: type[Exception] = RuntimeError
    ) -> None:
        self.layers, self.name = layers, f"mean {','.join(layers)}"
        self.fails_at, self.error, self.measured = fails_at, error, list[int]()

    def needs(self) -> dict[str, tuple[str, ...]]:
        return {"test": self.layers}

    def measure(self, sight: Sight, kept: MeanAt | None) -> MeanAt:
        if sight.at == self.fails_at:
            raise self.error("on purpose")
        self.measured.append(sight.at)
        return MeanAt(float(sight.features("test", self.layers[0]).double().mean()))


def by_hand(run: ut.Run, at: int) -> float:
    with torch.no_grad():
        return float(run.model(at).layer1(held_samples().x).double().mean())


# ---------------------------------------------------------------------- visits


def test_a_gauge_sees_the_features_of_each_checkpoint(opened, run):
    session, gauge = opened(), Mean("layer1")
    session.visit([gauge])
    assert {at: one.value for at, one in session.values(gauge).items()} == pytest.approx(
        {at: by_hand(run, at) for at in EPOCHS}
    )
    session.visit([gauge])
    assert gauge.measured == list(EPOCHS), "nothing is measured twice"
    again = Mean("layer1")
    other = opened()
    other.visit([again])
    assert not again.measured, "nor by another session of the same samples"
    assert other.value(again, 2) == session.value(gauge, 2)


def test_an_interrupted_visit_goes_on_where_it_stopped(opened):
    """Fails if values are kept only at the end, or if the first checkpoints are visited again."""
    stopping, third = Mean("layer1", fails_at=EPOCHS[2]), EPOCHS[2]
    with pytest.raises(RuntimeError, match="on purpose"):
        opened().visit([stopping, Mean("layer2")])
    assert stopping.measured == list(EPOCHS[:2])
    Counted.seen.clear()
    session, first, second = opened(), Mean("layer1"), Mean("layer2")
    session.visit([first, second])
    assert first.measured == list(EPOCHS[2:])
    assert set(session.passed) == {(at, "test") for at in EPOCHS[2:]}
    beyond_trials = {at for at, number in Counted.seen if number >= FIRST_TEST + 8}
    assert beyond_trials == {third, EPOCHS[3]}


def test_what_a_gauge_cannot_do_is_noted_and_the_others_go_on(opened):
    session, odd, good = opened(), Mean("layer1", fails_at=1, error=BadData), Mean("layer2")
    session.visit([odd, good])
    assert {name: str(reason) for name, reason in session.refused.items()} == {odd.name: "on purpose"}
    assert good.measured == list(EPOCHS)


def test_layers_that_do_not_fit_together_are_a_reason(opened):
    """Fails if a gauge that waits for two layers, each in a round of its own, is forgotten without a word."""
    session, both = opened(memory="240KB"), Mean("layer1", "layer2")
    session.visit([both, Mean("layer1")])
    assert list(session.refused) == [both.name]
    assert "do not fit into the memory together" in str(session.refused[both.name])
    roomy = opened("roomy")
    roomy.visit([Mean("layer1", "layer2")])
    assert len(roomy.values(both)) == len(EPOCHS)


def test_a_model_without_a_head_refuses_what_enters_it(tmp_path):
    torch.save(torch.nn.LayerNorm(5).state_dict(), tmp_path / "epoch_1.pt")
    run = ut.open_run(tmp_path, model=lambda: torch.nn.LayerNorm(5))
    session, gauge = Session(run, test=torch.randn(20, 5)), Mean(ENTERING)
    session.visit([gauge])
    assert "linear layer" in str(session.refused[gauge.name])


def test_other_weights_or_samples_are_measured_anew(run, tmp_path):
    """Fails if a value is known by the number of its checkpoint only."""
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)

    def look(test: Any = None, **settings: Any) -> tuple[list[int], dict[int, MeanAt]]:
        session, gauge = (
            Session(ut.open_run(folder, model=Counted), test=test or held_samples(), **settings),
            Mean("layer1"),
        )
        session.visit([gauge])
        return gauge.measured, session.values(gauge)

    before = look()[1]
    assert look()[0] == []
    own = ut.open_run(folder, model=Counted)
    shutil.copy(own.checkpoint(1).path, own.checkpoint(5).path)
    seal_again(folder)  # the exchange is meant
    measured, after = look()
    assert measured == [5]
    assert after[5] == after[1] == before[1]
    x, y = held_samples().x.clone(), held_samples().y
    x[0, 3] += 1e-3
    assert look((x, y))[0] == list(EPOCHS)
    assert look((x, y.flip(0)))[0] == list(EPOCHS)
    assert look((x, y.flip(0)), samples=100)[0] == list(EPOCHS)


def test_a_damaged_file_is_measured_anew(opened):
    session, gauge = opened(), Mean("layer1")
    session.visit([gauge])
    file = next(path for path in session.cache.folder.iterdir() if path.name.endswith("-00000002.bin"))
    content = bytearray(file.read_bytes())
    content[-3] ^= 0xFF
    file.write_bytes(bytes(content))
    again = Mean("layer1")
    other = opened()
    other.visit([again])
    assert again.measured == [2]
    assert other.value(again, 2) == session.value(gauge, 2)


def test_broken_checkpoints_are_left_out_and_remembered(run, tmp_path):
    with ut.Recorder(tmp_path / "other") as recorder:
        for at, spoil in ((0, False), (1, True)):
            model = run.model(5)
            if spoil:
                model.head.bias.data[1] = float("nan")
            recorder.save(model, at)
    broken = ut.open_run(tmp_path / "other", model=Counted)
    for _ in range(2):
        session, gauge, told = Session(broken, test=held_samples()), Mean("layer1"), list[int]()
        session.visit([gauge], tell=told.append)
        assert told == [0, 1], "a bar moves on over broken checkpoints too"
        assert session.broken == {1: "NaN or infinity in head.bias"}
        assert session.sound == (0,)
        assert session.example == 0


# ---------------------------------------------------------------------- what is refused


def test_samples_and_settings_beside_a_session_are_refused(opened):
    session = opened(memory="1GB")
    for verb in (ut.audit, ut.probe_grid, ut.repair):
        with pytest.raises(BadValue, match=r"got 'train, test beside it'\. Give them to Session\(\.\.\.\)"):
            verb(session, train_samples(), held_samples())
        with pytest.raises(BadValue, match="got 'checkpoints, seed beside it'"):
            verb(session, checkpoints="last", seed=4)
    with pytest.raises(BadValue, match=r"audit\(quick=True\): wanted a run, got 'a session'"):
        ut.audit(session, quick=True)
    same = ut.audit(session, memory="1GB", **LIGHT)
    assert same.about["settings"]["memory"] == "1GB"
    assert ut.audit(session, **LIGHT).about["settings"]["memory"] == "1GB", "the session's settings are told"


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"memmory": "1GB"}, UnknownName, "There is no session setting 'memmory'. Did you mean 'memory'"),
        ({"checkpoint": "last"}, UnknownName, "Did you mean 'checkpoints'"),
        ({"labels": "dirty"}, BadValue, "clean, noisy or none"),
        ({"samples": 0}, BadValue, "samples: wanted a number from 1 on"),
        ({"batch_size": 0}, BadValue, "batch_size"),
        ({"seed": -1}, BadValue, "seed"),
        ({"memory": "much"}, BadValue, "much"),
        ({"checkpoints": [3]}, BadValue, "The nearest are"),
        ({"checkpoints": []}, BadValue, "checkpoints"),
    ],
)
def test_unknown_settings_are_answered_before_anything_is_run(opened, settings, error, words):
    Counted.seen.clear()
    with pytest.raises(error, match=words):
        opened(**settings)
    assert not Counted.seen


@pytest.mark.parametrize("kind", [SessionConfig, AuditConfig, GridConfig, RepairConfig, LabelConfig])
def test_types_of_settings_can_be_read_in_any_module(kind):
    """Fails if a verb's settings name types that only the module of the shared ones knows: commands ask for them."""
    assert {own.name for own in fields(kind)} <= get_type_hints(kind.__init__).keys()


def test_progress_given_with_a_session_is_told(opened):
    seen: list[str] = []

    class Told:
        def plan(self, words: str, steps: int) -> None: ...

        def step(self, label: str, share: float) -> None:
            seen.append(label)

        def close(self) -> None:
            seen.append("closed")

    ut.audit(opened(), progress=Told(), **LIGHT)
    assert seen == [*(f"passes, epoch {at}" for at in (0, 5, 1, 2)), "closed"]


@pytest.mark.parametrize("labels", ["noisy", "clean"])
def test_a_repair_knows_what_the_labels_of_its_session_are(opened, labels):
    """Fails if noisy held-out labels of a session are taken for clean ones."""
    fixed = ut.repair(opened(labels=labels), gate=False)
    assert ("unknown noise" in fixed.reason) == (labels == "noisy")
    assert (fixed.calibration is None) == (labels == "noisy")


# ---------------------------------------------------------------------- anyone's own lens

PAGE = Path(__file__).parents[2] / "docs" / "lenses.md"


@pytest.fixture
def example(run) -> Callable[[], dict[str, Any]]:
    """The code of docs/lenses.md, executed as it stands there but for the run's samples."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    def execute(session: Session) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "own_lens", "run": session}
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), names)
        return names

    return execute


def test_the_lens_of_the_documentation_works(example, opened, run, tmp_path):
    """Its rows are in the table, its measure in the gate, and it costs no pass of its own."""
    session = opened()
    made = example(session)
    result = made["result"]
    rows = result.table.query("lens == 'sparsity'")
    assert set(rows["layer"]) == {"layer1", "layer2", "layer3"}
    with torch.no_grad():
        x = held_samples().x
        wanted = {at: float((run.model(at).layer1(x) == 0).double().mean()) for at in EPOCHS}
    found = rows[rows["layer"] == "layer1"].set_index("checkpoint")
    assert found["value"].to_dict() == pytest.approx(wanted)
    assert set(rows["n"]) == {TEST}
    assert session.passed == {
        (at, split): n for at in EPOCHS for split, n in {"train": TRAIN, "test": TEST}.items()
    }
    last = rows[(rows["layer"] == "layer3") & (rows["checkpoint"] == 5)]["value"].item()
    assert result.measures["sparsity"] == last
    assert parse_condition("sparsity >= 0", own=True).holds(result.measures)
    with pytest.raises(UnknownName):
        parse_condition("sparsity >= 0")
    assert result.about["settings"]["lenses"] == ["latent", "sparsity"]
    stored = pd.read_parquet(result.folder / "audit.parquet")
    pd.testing.assert_frame_equal(stored[stored["lens"] == "sparsity"], rows)
    again = ut.audit(opened(), lenses=["latent", made["SparsityLens"]()])
    pd.testing.assert_frame_equal(again.table, result.table)


def test_a_plain_function_and_a_name_are_lenses_too(opened, tmp_path, monkeypatch):
    code = """
from undertow.rows import Row

class Found:
    def rows(self):
        return [Row("own", "answer", at, "output", 42.0 + at) for at in (0, 5)]

    def measures(self):
        from undertow.shares import Number
        return {"answer_of_all": Number(42.0, 41.0, 43.0)}

def look(session):
    return Found()
"""
    (tmp_path / "my_lenses.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    named = ut.audit(opened(), lenses="my_lenses:look")
    import my_lenses  # pyright: ignore[reportMissingImports]

    function = ut.audit(opened(), lenses=my_lenses.look)
    for result in (named, function):
        assert result.table.query("lens == 'own'")["value"].tolist() == [42.0, 47.0]
        assert result.measures["answer_of_all_low"] == 41.0
        assert "answer" not in result.measures
    with pytest.raises(BadValue, match="that can be imported"):
        ut.audit(opened(), lenses="my_lenses:lok")
    with pytest.raises(UnknownName, match="Did you mean 'latent'"):
        ut.audit(opened(), lenses="latnt")


def test_a_lens_that_cannot_look_is_a_note(opened):
    def blind(session: Session) -> Any:
        raise BadData("there is no light.")

    result = ut.audit(opened(), lenses=["latent", blind], probes="mean", fits="given")
    assert "blind: there is no light." in result.about["settings"]["notes"]
    assert "latent" in set(result.table["lens"])


# ---------------------------------------------------------------------- how long a checkpoint was trained


def test_epochs_count_themselves(opened):
    assert [opened().epochs_trained(at) for at in (0, 5)] == [0, 5], (
        "checkpoint 0 knows nothing: it is untrained"
    )


def test_a_trained_checkpoint_0_had_seen_each_label_once(run, tmp_path):
    """Lightning and timm call the first epoch 0."""
    for name, at in (("epoch_0", 2), ("epoch_1", 5)):
        torch.save(run.model(at).state_dict(), tmp_path / f"{name}.pt")
    opened = ut.open_run(tmp_path, model=Counted)
    session = Session(opened, train_samples(), held_samples(), out=tmp_path / "out")
    assert [session.epochs_trained(at) for at in (0, 1)] == [1, 2]
    unlabelled = Session(opened, None, held_samples().x, out=tmp_path / "out")
    assert unlabelled.epochs_trained(1) == 1, "without labels nobody knows that it learned"


@pytest.mark.parametrize(("told", "each"), [(None, TRAIN / 64), (12, 12)])
def test_steps_are_epochs_by_the_log_or_by_batches_of_64(run, tmp_path, told: int | None, each: float):
    torch.save(run.model(5).state_dict(), tmp_path / "step_30.pt")
    if told:
        state = {"epoch": 2.5, "global_step": 30, "log_history": []}
        (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    session = Session(
        ut.open_run(tmp_path, model=Counted), train_samples(), held_samples(), out=tmp_path / "out"
    )
    assert session.run.unit == "step"
    assert session.epochs_trained(30) == pytest.approx(30 / each)


class Steps(torch.nn.Module):
    """Answers three rows of two numbers for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(DIM, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).view(-1, 3, 2)


def test_outputs_that_are_no_row_of_numbers_have_no_width(opened, tmp_path):
    assert opened().outputs == CLASSES
    assert Session(Steps(), None, held_samples().x, out=tmp_path).outputs == 0


class Swallowing(torch.nn.Module):
    """Takes any names and looks at one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(DIM, CLASSES)

    def forward(self, **entries: torch.Tensor) -> torch.Tensor:
        return self.layer(entries["x"])


def test_an_entry_that_the_model_never_looks_at_is_refused(tmp_path):
    """Fails if a misspelt mask goes unnoticed."""
    x = held_samples().x
    Session(Swallowing(), None, {"x": x}, out=tmp_path).check_fit()
    with pytest.raises(UnknownName, match="'mask'"):
        Session(Swallowing(), None, {"x": x, "mask": torch.ones(TEST, 1)}, out=tmp_path).check_fit()
