"""The loop on real digits: what it learns, what it repeats to the bit, what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import undertow as ut
from undertow.errors import BadValue, RunProblem, UnknownName
from undertow.training.loop import Diverged

QUICK = ut.TrainConfig("mlp:32-32", data="digits", epochs=3, checkpoints="every:1", device="cpu")


def weights_of(run: ut.Run, at: int = -1) -> dict[str, torch.Tensor]:
    return run.weights(at)


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def test_it_learns_and_leaves_a_whole_run(tmp_path: Path):
    run = ut.train(replace(QUICK, epochs=12, noise="0.2", checkpoints="paper"), tmp_path / "run")
    metrics = run.metrics
    assert run.epochs == (0, 1, 2, 4, 6, 8, 10, 12)
    assert metrics["epoch"].tolist() == list(range(13))
    assert metrics["test_accuracy"].iloc[0] < 0.3 < 0.85 < metrics["test_accuracy"].iloc[-1]
    assert {path.name for path in run.path.iterdir()} == {
        "run.json", "checkpoints", "metrics.parquet", "labels.parquet", "state.pt",
    }  # fmt: skip
    assert run.facts.finished
    assert run.facts.ended == "12 epochs"
    assert run.labels is not None
    data = run.data()
    assert run.labels["given"].tolist() == data.train.y.tolist()
    assert run.labels["true"].tolist() == data.train.true.tolist()
    # An independent look at the stored weights gives the stored test accuracy.
    model = run.model(12)
    inputs = data.test.x.float() * 2 - 1
    with torch.no_grad():
        accuracy = (model(inputs).argmax(1) == data.test.y).double().mean().item()
    assert accuracy == pytest.approx(metrics["test_accuracy"].iloc[-1], abs=1e-12)


def test_same_seeds_same_bits_and_global_state_untouched(tmp_path: Path):
    config = replace(QUICK, model="mlp:32-32,dropout=0.3", noise="0.3")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = ut.train(config, tmp_path / "a")
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    second = ut.train(config, tmp_path / "b")
    assert same_bits(weights_of(first), weights_of(second))
    assert first.metrics.equals(second.metrics)


@pytest.mark.parametrize("seed", ["seed_init", "seed_batches", "seed_noise"])
def test_each_seed_changes_its_own_part(tmp_path: Path, seed: str):
    config = replace(QUICK, noise="0.3", epochs=1)
    first = ut.train(config, tmp_path / "a")
    second = ut.train(replace(config, **{seed: 7}), tmp_path / "b")
    assert not same_bits(weights_of(first), weights_of(second))
    assert same_bits(weights_of(first, 0), weights_of(second, 0)) == (seed != "seed_init")
    same_labels = first.labels["given"].equals(second.labels["given"])
    assert same_labels == (seed != "seed_noise")


def test_one_step_of_sgd_against_the_formula(tmp_path: Path):
    """One full batch: w - lr (gradient + decay w), recomputed in float64."""
    config = replace(
        QUICK, model="mlp:16", epochs=1, optimiser="sgd", lr=0.1, momentum=0.0, weight_decay=0.01,
        batch_size=2000, shuffle=False,
    )  # fmt: skip
    run = ut.train(config, tmp_path / "run")
    data = run.data()
    model = run.model(0).double()
    loss = nn.functional.cross_entropy(model(data.train.x.double() * 2 - 1), data.train.y)
    loss.backward()
    for name, value in model.named_parameters():
        expected = value - 0.1 * (value.grad + 0.01 * value)
        np.testing.assert_allclose(weights_of(run)[name], expected.detach(), rtol=0, atol=2e-6)


def test_squared_error_against_scaled_targets(tmp_path: Path):
    run = ut.train(replace(QUICK, loss="mse", alpha=0.5, epochs=8, lr=3e-3), tmp_path / "run")
    assert run.metrics["test_accuracy"].iloc[-1] > 0.8
    with torch.no_grad():
        data = run.data()
        top = run.model()(data.train.x * 2 - 1).max(1).values.mean()
    assert top > 1.2  # the targets are 2, not 1


def test_scalar_target(tmp_path: Path):
    config = replace(QUICK, data="heaviside", loss="mse", target="scalar", epochs=20, lr=3e-3)
    run = ut.train(config, tmp_path / "run")
    assert run.model()(torch.zeros(1, 1)).shape == (1, 1)
    assert run.metrics["test_accuracy"].iloc[-1] > 0.9


def test_tokens_train_a_transformer(tmp_path: Path):
    config = replace(QUICK, model="transformer", data="mod-division:p=11", epochs=1)
    assert ut.train(config, tmp_path / "run").metrics["train_loss"].iloc[-1] < 4


def test_stops_at_a_training_accuracy_and_keeps_that_epoch(tmp_path: Path):
    run = ut.train(replace(QUICK, epochs=60, stop_at=0.97, checkpoints="0,59"), tmp_path / "run")
    last = run.metrics.iloc[-1]
    assert 0 < last["epoch"] < 60
    assert last["train_fit"] >= 0.97
    assert run.epochs == (0, int(last["epoch"]))
    assert "training accuracy 0.97" in run.facts.ended


def test_a_goal_far_away_is_not_looked_at_and_not_missed(tmp_path: Path):
    """Fails if each epoch costs a pass over the training samples, or if the end comes later than with one."""
    config = replace(QUICK, model="mlp:256-256", noise="0.5", lr=2e-3, epochs=80, stop_at=0.9)
    sparse = ut.train(replace(config, checkpoints="0,80"), tmp_path / "sparse")
    often = ut.train(replace(config, checkpoints="every:1"), tmp_path / "often")
    assert sparse.epochs[-1] == often.epochs[-1] < 80
    looked = sparse.metrics["train_fit"].notna()
    assert not looked[1:4].any()
    assert sparse.metrics["train_fit"].iloc[-1] >= 0.9


def test_test_samples_can_wait_for_checkpoints_and_nothing_else_changes(tmp_path: Path):
    """Fails if a last epoch between two checkpoints stays untested, or if looking less often changes training."""
    often = ut.train(replace(QUICK, epochs=5, checkpoints="0,2"), tmp_path / "often")
    seldom = ut.train(replace(QUICK, epochs=5, checkpoints="0,2", test_at="checkpoints"), tmp_path / "seldom")
    assert seldom.metrics["epoch"][seldom.metrics["test_accuracy"].notna()].tolist() == [0, 2, 5]
    both = [run.metrics.set_index("epoch").loc[[0, 2, 5]] for run in (often, seldom)]
    pd.testing.assert_frame_equal(*both)
    assert often.metrics["train_loss"].equals(seldom.metrics["train_loss"])


def test_last_layer_only_and_frozen_prefix_leave_the_rest_bit_equal(tmp_path: Path):
    head_only = ut.train(replace(QUICK, last_layer_only=True, weight_decay=0.1), tmp_path / "head")
    start, end = weights_of(head_only, 0), weights_of(head_only)
    assert {name for name in start if not torch.equal(start[name], end[name])} == {"head.weight", "head.bias"}
    frozen = ut.train(replace(QUICK, freeze="layer1"), tmp_path / "frozen")
    start, end = weights_of(frozen, 0), weights_of(frozen)
    assert {name.split(".")[0] for name in start if not torch.equal(start[name], end[name])} == {
        "layer2",
        "head",
    }


def test_greedy_trains_one_layer_after_the_other(tmp_path: Path):
    run = ut.train(replace(QUICK, greedy=True, epochs=8, lr=4e-3), tmp_path / "run")
    start, middle, end = weights_of(run, 0), weights_of(run, 4), weights_of(run, 8)
    changed = {name.split(".")[0] for name in start if not torch.equal(start[name], middle[name])}
    assert changed == {"layer1"}
    changed = {name.split(".")[0] for name in start if not torch.equal(middle[name], end[name])}
    assert changed == {"layer2", "head"}
    assert run.metrics["test_accuracy"].iloc[-1] > 0.8


def test_gradient_clipping_bounds_the_step(tmp_path: Path):
    config = replace(
        QUICK, epochs=1, optimiser="sgd", momentum=0.0, lr=1.0, clip=1e-3, batch_size=2000, shuffle=False
    )
    run = ut.train(config, tmp_path / "run")
    start, end = weights_of(run, 0), weights_of(run)
    moved = torch.cat([(end[name] - start[name]).flatten() for name in start]).double().norm()
    assert float(moved) == pytest.approx(1e-3, rel=1e-3)


def test_checkpoints_by_step(tmp_path: Path):
    run = ut.train(replace(QUICK, epochs=1, checkpoints="every:8steps"), tmp_path / "run")
    assert (run.unit, run.epochs) == ("step", (0, 8, 16, 21))
    assert not same_bits(weights_of(run, 8), weights_of(run, 16))
    assert run.metrics["step"].tolist() == [0, 8, 16, 21]


def test_interventions_freeze_reinitialise_and_edit(tmp_path: Path):
    def fresh() -> nn.Module:
        return ut.build_model("mlp:32-32", (1, 8, 8), 10, seed=9)

    def zero_head(model: nn.Module) -> None:
        model.head.weight.zero_()

    config = replace(QUICK, epochs=4)
    plain = ut.train(config, tmp_path / "plain")
    frozen = ut.train(config, tmp_path / "frozen", interventions=[ut.FreezeAt(2, "layer1")])
    edited = ut.train(config, tmp_path / "edited", interventions=[ut.EditAt(2, zero_head)])
    renewed = ut.train(config, tmp_path / "renewed", interventions=[ut.ReinitialiseAt(3, "layer2", fresh)])
    for run in (frozen, edited, renewed):
        assert same_bits(weights_of(plain, 2), weights_of(run, 2)), "before the intervention nothing differs"
    assert torch.equal(
        weights_of(frozen, 2)["layer1.linear.weight"], weights_of(frozen, 4)["layer1.linear.weight"]
    )
    assert not same_bits(weights_of(plain, 3), weights_of(edited, 3))
    assert same_bits(weights_of(plain, 3), weights_of(renewed, 3))
    assert renewed.metrics["test_accuracy"].iloc[4] < plain.metrics["test_accuracy"].iloc[4]
    assert renewed.facts.interventions == ["ReinitialiseAt 3 layer2"]


def test_own_model_and_own_data(tmp_path: Path):
    data = ut.load_data("blobs:classes=3")
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
    run = ut.train(replace(QUICK, epochs=5, lr=0.01), tmp_path / "run", data=data, model=model)
    assert run.metrics["test_accuracy"].iloc[-1] > 0.8
    assert run.model().training is False
    assert run.model(0) is not run.model(5), "each checkpoint has a model of its own"
    assert not torch.equal(run.model(0)[0].weight, run.model(5)[0].weight)
    assert torch.equal(run.factory()[0].weight, run.model(0)[0].weight), (
        "the factory gives the untrained model"
    )
    again = ut.open_run(run.path)
    with pytest.raises(BadValue, match="Open it with open_run"):
        again.model()


def test_a_diverging_run_says_so_and_keeps_what_it_had(tmp_path: Path):
    with pytest.raises(Diverged, match=r"loss is (nan|inf) in epoch \d+.*smaller --lr"):
        ut.train(replace(QUICK, optimiser="sgd", lr=1e9, loss="mse"), tmp_path / "run")
    assert ut.open_run(tmp_path / "run").epochs[0] == 0


def test_a_folder_that_is_taken_is_refused(tmp_path: Path):
    ut.train(replace(QUICK, epochs=0), tmp_path / "run")
    with pytest.raises(RunProblem, match=r"holds a run already\. Add --resume"):
        ut.train(replace(QUICK, epochs=0), tmp_path / "run")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(RunProblem, match="is not empty and holds no run"):
        ut.train(QUICK, tmp_path / "notes")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunProblem, match="Cannot write"):
        ut.train(QUICK, tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "mine"


def test_unknown_names_and_missing_hardware(tmp_path: Path):
    with pytest.raises(UnknownName, match="Did you mean"):
        ut.train(replace(QUICK, model="mpl"), tmp_path / "run")
    with pytest.raises(UnknownName, match="Did you mean 'layer1'"):
        ut.train(replace(QUICK, freeze="layr1"), tmp_path / "run2")
    if not torch.cuda.is_available():
        with pytest.raises(BadValue, match="device: wanted a device of this machine, got 'cuda'"):
            ut.train(replace(QUICK, device="cuda"), tmp_path / "run3")
    with pytest.raises(BadValue, match="amp and compile: wanted a GPU"):
        ut.train(replace(QUICK, amp=True), tmp_path / "run4")


@pytest.mark.realdata
def test_real_mnist_trains_from_the_mirror(tmp_path: Path, real_data: Path):
    config = replace(QUICK, data="mnist", train_size=5000, test_size=1000, epochs=4)
    run = ut.train(config, tmp_path / "run")
    assert run.metrics["test_accuracy"].iloc[-1] > 0.85
    assert run.labels["index"].max() > 5000, "a balanced subset of all 60,000, by their numbers there"


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_fresh_layers_start_without_momentum(tmp_path: Path, optimiser: str):
    """Fused SGD fails where some parameters have momentum and others none; old momentum is not for new weights."""

    def fresh() -> nn.Module:
        return ut.build_model("mlp:32-32", (1, 8, 8), 10, seed=9)

    config = replace(QUICK, epochs=2, optimiser=optimiser, lr=1e-3, batch_size=2000)
    run = ut.train(config, tmp_path / "run", interventions=[ut.ReinitialiseAt(1, "head", fresh)])
    start, end = fresh().state_dict()["head.bias"], weights_of(run, 2)["head.bias"]
    if optimiser == "sgd":  # one full batch: the step is the gradient alone
        model, data = run.model(1), run.data()
        model.head.load_state_dict(fresh().head.state_dict())
        nn.functional.cross_entropy(model(data.train.x * 2 - 1), data.train.y).backward()
        assert torch.allclose(end, start - 1e-3 * model.head.bias.grad, atol=1e-7)
    else:  # a first step of Adam moves each number by the learning rate
        moved = (end - start).abs()
        assert torch.allclose(moved, torch.full_like(moved, 1e-3), atol=2e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (ut.FreezeAt(1, "layr1"), "Did you mean 'layer1'"),
        (ut.FreezeAt(3, "layer1"), "an epoch from 0 to 2"),
        (ut.EditAt(-1, print), "an epoch from 0 to 2"),
    ],
)
def test_interventions_that_cannot_act_are_refused_before_anything_is_written(
    tmp_path: Path, change, message
):
    with pytest.raises((BadValue, UnknownName), match=message):
        ut.train(QUICK, tmp_path / "run", interventions=[change])
    with pytest.raises(UnknownName):
        ut.train(replace(QUICK, freeze="layr1"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_stopping_looks_at_the_fit_itself_not_at_the_running_accuracy(tmp_path: Path):
    """With dropout the running accuracy stays far below the goal that the model has reached."""
    config = replace(QUICK, model="mlp:64,dropout=0.6", epochs=60, stop_at=0.97)
    sparse = ut.train(replace(config, checkpoints="0,60"), tmp_path / "sparse")
    often = ut.train(replace(config, checkpoints="every:1"), tmp_path / "often")
    assert sparse.epochs[-1] == often.epochs[-1] < 60
