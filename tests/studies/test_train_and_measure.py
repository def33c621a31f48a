"""A task trains once, shares its run, and takes up what a kill left."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch

from undertow.engine.store import failure_words
from undertow.errors import BadValue, RunProblem
from undertow.studies.train_and_measure import run_name, train_and_measure, trained
from undertow.training.config import TrainConfig
from undertow.training.facts import RunFacts
from undertow.training.run import open_run
from undertow.training.seal_again import seal_again

CONFIG = TrainConfig(model="mlp:8-8", train_size=100, test_size=50, epochs=2, checkpoints="every:1")


def final_accuracy(run, *, case, seed, factor=1):
    return [{"measure": "accuracy", "value": factor * float(run.metrics["test_accuracy"].iloc[-1])}]


def test_rows_carry_case_and_seed_and_what_was_learned(tmp_path):
    row, fit, wrong = train_and_measure(
        case="plain", seed=3, config=replace(CONFIG, noise="0.4").to_dict(), actions=[],
        measure=f"{__name__}:final_accuracy", options={"factor": 2}, workspace=tmp_path,
    )  # fmt: skip
    run = trained(replace(CONFIG, noise="0.4"), [], tmp_path)
    assert (row["case"], row["seed"]) == ("plain", 3)
    assert row["value"] == pytest.approx(2 * float(run.metrics["test_accuracy"].iloc[-1]))
    last = run.metrics.iloc[-1]
    assert [one["measure"] for one in (fit, wrong)] == ["train_fit", "train_wrong_fit"]
    assert (fit["value"], wrong["value"]) == (last["train_fit"], last["train_wrong_fit"])
    assert fit["note"] == "2 epochs"


@pytest.mark.parametrize("taken", ["runs", "lock"])
def test_what_stands_in_the_place_of_a_run_is_named(tmp_path, taken):
    """Fails if a task tells the class of Python's error."""
    place = tmp_path / "runs"
    if taken == "runs":
        place.touch()
    else:
        place = place / f"{run_name(CONFIG, [])}.lock"
        place.mkdir(parents=True)
    with pytest.raises(RunProblem, match=rf"Cannot write {place}: .*\. Remove what is in its place") as told:
        trained(CONFIG, [], tmp_path)
    assert "Error" not in failure_words(told.value)


def test_the_same_training_is_done_once(tmp_path):
    run = trained(CONFIG, [], tmp_path)
    made = run.facts.finished
    before = run.checkpoint(-1).path.stat().st_mtime_ns
    assert trained(CONFIG, [], tmp_path).facts.finished == made
    assert run.checkpoint(-1).path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "left", [["checkpoints/.undertow-0123.part"], []], ids=["part of the first", "nothing"]
)
def test_a_kill_before_the_first_checkpoint_is_taken_up_too(tmp_path, left):
    """Fails where the run is opened to see whether it is finished: its task would fail for ever."""
    whole = trained(CONFIG, [], tmp_path / "whole")
    cut = trained(CONFIG, [], tmp_path / "cut").path
    facts = replace(RunFacts.read(cut), finished=None, ended="")
    shutil.rmtree(cut)
    facts.write(cut)
    for name in left:
        (cut / name).mkdir(parents=True)
    again = trained(CONFIG, [], tmp_path / "cut")
    for name, tensor in whole.weights(2).items():
        assert torch.equal(tensor, again.weights(2)[name])


def test_what_a_kill_left_is_taken_up_to_the_same_bits(tmp_path):
    whole = trained(CONFIG, [], tmp_path / "whole")
    cut = trained(CONFIG, [], tmp_path / "cut")
    facts = cut.path / "run.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "finished": None}))
    seal_again(cut.path)
    cut.checkpoint(2).path.unlink()
    (cut.path / "state.pt").unlink()
    again = trained(CONFIG, [], tmp_path / "cut")
    for name, tensor in whole.weights(2).items():
        assert torch.equal(tensor, again.weights(2)[name])


def test_actions_change_the_run_and_its_name(tmp_path):
    assert run_name(CONFIG, []) != run_name(CONFIG, ["freeze 1 layer1"])
    assert run_name(CONFIG, []) != run_name(replace(CONFIG, seed=1), [])
    frozen = trained(CONFIG, ["freeze 1 layer1"], tmp_path)
    one, two = frozen.weights(1), frozen.weights(2)
    still = [name for name in one if name.startswith("layer1") and torch.equal(one[name], two[name])]
    assert len(still) == 2
    fresh = trained(CONFIG, ["reinitialise 1 layer2"], tmp_path)
    assert open_run(fresh.path).facts.interventions == ["ReinitialiseAt 1 layer2"]
    with pytest.raises(BadValue, match="freeze, reinitialise or edit"):
        trained(CONFIG, ["melt 1 layer1"], tmp_path)
