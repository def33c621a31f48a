"""Configuration, schedules and random streams: everything before the first batch."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from undertow.errors import BadValue, UnknownName
from undertow.training.config import TrainConfig
from undertow.training.schedule import CheckpointSchedule
from undertow.training.seeds import global_stream, number, stream


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": -1}, "epochs: wanted a number of at least 0, got -1"),
        ({"lr": math.nan}, "lr: wanted a number of at least 0.0, got nan"),
        ({"batch_size": 0}, "batch-size: wanted a number of at least 1"),
        ({"alpha": 0.0, "loss": "mse"}, "alpha: wanted a number above 0"),
        ({"alpha": 0.5}, "alpha: wanted 1 with cross-entropy, got 0.5. Add --loss mse."),
        ({"target": "scalar"}, "Add --loss mse"),
        ({"schedule": "step"}, "at least one --milestones"),
        ({"milestones": (3,)}, "none unless --schedule step"),
        ({"greedy": True, "last_layer_only": True}, "one of last-layer-only, freeze and greedy"),
        ({"checkpoints": "often"}, "paper, every:K, log:N"),
        ({"stop_at": 1.5}, "stop-at: wanted a number from 0.0 to 1.0, got 1.5"),
        ({"train_size": 0}, "train-size"),
        ({"seed_init": -2}, "seed-init"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, message):
    with pytest.raises(BadValue) as caught:
        TrainConfig(**settings)
    assert message in str(caught.value)


def test_config_survives_json():
    config = TrainConfig("cnn", schedule="step", milestones=(10, 20), noise="pairwise:0.3", seed=4)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_unknown_stored_setting_is_answered_with_near_names():
    with pytest.raises(UnknownName, match="Did you mean 'epochs'"):
        TrainConfig.from_dict({"epoch": 3})


def test_seed_fills_only_the_seeds_that_are_not_given():
    """Fails if a seed given as 0 counts as not given."""
    config = TrainConfig(seed=5, seed_noise=0)
    assert (config.init_seed, config.batch_seed, config.noise_seed) == (5, 5, 0)
    swept = replace(config, seed=6)
    assert (swept.init_seed, swept.batch_seed, swept.noise_seed) == (6, 6, 0), (
        "a sweep over seeds must change them"
    )


def test_learning_rates():
    step = TrainConfig(schedule="step", milestones=(2, 4), gamma=0.5, lr=1.0)
    assert [step.learning_rate(epoch) for epoch in range(1, 7)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    cosine = TrainConfig(schedule="cosine", epochs=10, lr=2.0)
    assert cosine.learning_rate(1) == 2.0
    assert cosine.learning_rate(6) == pytest.approx(1.0)
    assert 0 < cosine.learning_rate(10) < 0.1


def test_a_schedule_that_restarts_begins_again():
    step = TrainConfig(schedule="step", milestones=(2,), gamma=0.5, lr=1.0, restart=3, epochs=6)
    assert [step.learning_rate(epoch) for epoch in range(1, 7)] == [1, 1, 0.5, 1, 1, 0.5]
    cosine = TrainConfig(schedule="cosine", lr=1.0, restart=4, epochs=8)
    assert cosine.learning_rate(5) == cosine.learning_rate(1) == 1.0
    with pytest.raises(BadValue, match="restart: wanted none unless"):
        TrainConfig(restart=3)
    with pytest.raises(BadValue, match="restart"):
        TrainConfig(schedule="cosine", restart=0)


def test_changes_are_what_differs_from_the_defaults():
    assert TrainConfig().changes() == {}
    config = TrainConfig(model="mlp:8", lr=0.5, milestones=(3,), schedule="step")
    assert config.changes() == {"model": "mlp:8", "lr": 0.5, "milestones": (3,), "schedule": "step"}
    assert TrainConfig.from_dict(config.changes()) == config


@pytest.mark.parametrize(
    ("text", "last", "kept"),
    [
        ("paper", 32, {0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 25, 30, 32}),
        ("paper", 0, {0}),
        ("every:4", 10, {0, 4, 8, 10}),
        ("log:4", 1000, {0, 1, 10, 100, 1000}),
        ("log:1", 7, {0, 7}),
        ("3,1,1", 5, {1, 3, 5}),
        ("0, 100 steps", 50, {0, 50}),
    ],
)
def test_schedules_keep_what_they_say_and_the_last(text, last, kept):
    assert CheckpointSchedule.parse(text).moments(last) == kept


def test_steps_are_a_unit_of_their_own():
    assert CheckpointSchedule.parse("every:100steps").unit == "step"
    assert CheckpointSchedule.parse("every:100").unit == "epoch"


@pytest.mark.parametrize("text", ["", "every:0", "every:", "log:1,2", "-1", "paper steps", "every:2.5"])
def test_bad_schedules(text):
    with pytest.raises(BadValue, match="checkpoints: wanted paper"):
        CheckpointSchedule.parse(text)


def test_streams_depend_on_seed_purpose_and_epoch_only():
    first = torch.rand(3, generator=stream(1, "order", 2))
    torch.rand(100)
    assert torch.equal(first, torch.rand(3, generator=stream(1, "order", 2)))
    others = {number(1, "order", 3), number(2, "order", 2), number(1, "augment", 2), number(1, "order", 2)}
    assert len(others) == 4


def test_global_stream_gives_back_the_global_state():
    before = torch.get_rng_state()
    with global_stream(0, "dropout", 1, torch.device("cpu")):
        torch.rand(5)
    assert torch.equal(before, torch.get_rng_state())
