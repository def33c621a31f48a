"""Batches, objectives, evaluation and freezing, each against a direct computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from undertow.data.samples import Samples
from undertow.errors import BadValue, UnknownName
from undertow.models import build_model
from undertow.training.batches import Batches
from undertow.training.evaluate import evaluate
from undertow.training.freeze import freeze_all_but, freeze_up_to, set_training
from undertow.training.objective import Objective
from undertow.training.stages import Headed, run_up_to


def pixels(count: int, seed: int = 0) -> Samples:
    source = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=source)
    return Samples.of(x, torch.randint(0, 5, (count,), generator=source))


def test_every_sample_comes_once_an_epoch():
    samples = pixels(103)
    batches = Batches(samples, scaling="unit", batch_size=10)
    seen = torch.cat([x for x, _ in batches.epoch(1)]).flatten(1)
    assert len(seen) == 103
    assert torch.equal(seen.sum(1).sort().values, (samples.x / 255).flatten(1).sum(1).sort().values)


def test_a_last_batch_of_one_joins_the_one_before():
    """Fails on batch norm otherwise: it cannot train on a single value."""
    sizes = [len(y) for _, y in Batches(pixels(21), scaling="unit", batch_size=10).epoch(1)]
    assert sizes == [10, 11]
    assert [len(y) for _, y in Batches(pixels(1), scaling="unit", batch_size=10).epoch(1)] == [1]


def test_scaling_once_or_per_batch_gives_the_same_bits():
    samples = pixels(50)
    whole = Batches(samples, scaling="half", batch_size=16)
    late = Batches(samples, scaling="half", batch_size=16, float_budget=0)
    assert late.x.dtype == torch.uint8
    for (x, y), (x2, y2) in zip(whole.epoch(3), late.epoch(3), strict=True):
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)


def test_order_is_new_each_epoch_and_fixed_without_shuffling():
    batches = Batches(pixels(40), scaling="unit", batch_size=40)
    (first, _), (second, _), (again, _) = (next(batches.epoch(epoch)) for epoch in (1, 2, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    plain = Batches(pixels(40), scaling="unit", batch_size=40, shuffle=False)
    assert torch.equal(next(plain.epoch(1))[0], next(plain.in_order(40))[0])


def test_augmented_batches_crop_pixels_before_scaling():
    """The border of a crop is a black pixel, which 'half' scaling turns into -1, not 0."""
    samples = Samples.of(
        torch.full((64, 3, 8, 8), 255, dtype=torch.uint8), torch.zeros(64, dtype=torch.int64)
    )
    x, _ = next(Batches(samples, scaling="half", batch_size=64, augment=True).epoch(1))
    assert set(x.unique().tolist()) == {-1.0, 1.0}


def test_objectives_against_numpy():
    outputs = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    values = outputs.numpy()
    shares = np.exp(values) / np.exp(values).sum(1, keepdims=True)
    expected = -np.log(shares[np.arange(7), labels.numpy()]).mean()
    assert float(Objective("ce", 4).loss(outputs, labels)) == pytest.approx(expected, rel=1e-12)
    targets = np.eye(4)[labels.numpy()] / 0.2
    assert float(Objective("mse", 4, alpha=0.2).loss(outputs, labels)) == pytest.approx(
        ((values - targets) ** 2).mean(), rel=1e-12
    )


def test_a_scalar_is_right_within_one_half():
    objective = Objective("mse", 10, target="scalar")
    outputs = torch.tensor([[2.4], [2.6], [-0.4], [11.0]])
    assert objective.outputs == 1
    assert objective.predict(outputs).tolist() == [2, 3, 0, 11]
    assert float(objective.loss(outputs[:1], torch.tensor([2]))) == pytest.approx(0.16, rel=1e-5)


def test_evaluation_counts_given_true_and_wrong_labels():
    x = torch.eye(4)
    samples = Samples(x, torch.tensor([0, 1, 3, 3]), torch.tensor([0, 1, 2, 2]), torch.arange(4))
    model = nn.Identity()
    result = evaluate(model, Batches(samples, scaling="none", batch_size=2), Objective("ce", 4), samples)
    assert (result.given, result.true, result.wrong) == (0.75, 0.75, 0.5)
    clean = Samples.of(x, torch.arange(4))
    result = evaluate(model, Batches(clean, scaling="none", batch_size=2), Objective("ce", 4), clean)
    assert (result.given, result.true, result.wrong) == (1.0, None, None)


def test_evaluation_gives_back_every_module_its_mode():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    model[1].eval()
    samples = Samples.of(torch.eye(4), torch.arange(4))
    evaluate(model, Batches(samples, scaling="none", batch_size=2), Objective("ce", 4), samples)
    assert (model.training, model[0].training, model[1].training) == (True, True, False)


def test_freezing_a_prefix_stops_its_parameters_and_its_batch_norms():
    model = build_model("resnet8:width=4", (3, 8, 8), 5, seed=0)
    cut = model.cuts[0]
    freeze_up_to(model, cut)
    set_training(model)
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen
    assert any(name.startswith(f"{cut}.") for name in frozen)
    assert not any(name.startswith(f"{model.cuts[-1]}.") for name in frozen)
    modes = {
        module.training for module in model.get_submodule(cut).modules() if isinstance(module, nn.BatchNorm2d)
    }
    assert modes == {False}


def test_freezing_a_layer_without_parameters_freezes_all_before_it():
    model = build_model("cnn", (1, 28, 28), 10, seed=0)
    freeze_up_to(model, "flatten")
    learning = {name.split(".")[0] for name, value in model.named_parameters() if value.requires_grad}
    assert learning == {"fc1", "fc2", "fc3", "head"}


def test_freezing_everything_is_refused():
    model = build_model("mlp:8-8", (4,), 3, seed=0)
    with pytest.raises(BadValue, match="Nothing would learn"):
        freeze_up_to(model, "head")
    with pytest.raises(UnknownName, match="Did you mean 'layer1'"):
        freeze_up_to(model, "layr1")


def test_only_the_head_learns():
    model = build_model("mlp:8-8", (4,), 3, seed=0)
    freeze_all_but(model, "head")
    assert {name.split(".")[0] for name, value in model.named_parameters() if value.requires_grad} == {"head"}


def test_run_up_to_stops_behind_the_layer_and_leaves_no_hook():
    model = build_model("mlp:8-6", (4,), 3, seed=0).eval()
    model.head.register_forward_hook(lambda *_: pytest.fail("the head must not run"))
    assert run_up_to(model, "layer1", torch.randn(2, 4)).shape == (2, 8)
    assert not model.layer1._forward_hooks
    assert Headed(model, "layer2", 3, torch.randn(2, 4), seed=0)(torch.randn(5, 4)).shape == (5, 3)
