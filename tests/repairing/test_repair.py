"""Repairing a model that has memorised wrong labels, with and without evidence."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

import undertow
from undertow.data import to_inputs
from undertow.errors import BadData, BadValue, UnknownName
from undertow.features import Tap
from undertow.latent import MASC, VeLPIC
from undertow.repairing import Graft, load_repaired, repair

from .nets import LogSoftmax, TimmLike, images, seeded


@pytest.fixture(scope="module")
def data(noisy_run):
    return noisy_run.data()


@pytest.fixture(scope="module")
def inputs(data):
    """Training and test inputs as the network sees them, given labels and true test labels."""
    return (to_inputs(data.train.x, "half"), data.train.y), (to_inputs(data.test.x, "half"), data.test.y)


def bits(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_head_of_a_run(noisy_run, inputs):
    """The head answers as VeLPIC of the last layer, and better than the model did."""
    (x, y), (x2, y2) = inputs
    fixed = repair(noisy_run)
    assert fixed.accepted
    assert fixed.layer == "head"
    model = noisy_run.model()
    with Tap(model, "layer3") as tap:
        probe = VeLPIC().fit(tap(x)[1]["layer3"], y)
        outputs, features = tap(x2)
    said = fixed.model(x2).argmax(1)
    assert torch.equal(said, probe.predict(features["layer3"]))
    assert fixed.after == float((said == y2).double().mean())
    assert fixed.before == float((outputs.argmax(1) == y2).double().mean())
    assert fixed.after > fixed.before + 0.05
    assert fixed.calibration.after < fixed.calibration.before
    torch.testing.assert_close(
        fixed.model.head.weight * fixed.calibration.temperature, probe.vectors_, rtol=1e-4, atol=1e-5
    )
    plain = repair(noisy_run, calibrate=False)
    assert torch.equal(plain.model.head.weight, torch.as_tensor(probe.vectors_).float())
    assert torch.equal(plain.model(x2).argmax(1), said)
    for word in ("velpic at 'head'", "% before", "Calibration error"):
        assert word in str(fixed)


@pytest.mark.parametrize("probe", [VeLPIC, MASC])
def test_graft_from_layer_2_gives_it_back(noisy_run, inputs, probe):
    (x, y), (x2, _) = inputs
    fixed = repair(noisy_run, layer="layer2", probe=probe.__name__.lower())
    with Tap(noisy_run.model(), "layer2") as tap:
        known = probe().fit(tap(x)[1]["layer2"], y)
        rows = tap(x2)[1]["layer2"]
    assert isinstance(fixed.model, Graft)
    assert torch.equal(fixed.model(x2).argmax(1), known.predict(rows))
    assert fixed.before < 0.75
    assert fixed.after > 0.85
    assert fixed.judgement.low > 0.1
    assert fixed.calibration.after < 0.1


def test_best_layer_is_chosen_and_judged_apart(noisy_run, data):
    fixed = repair(noisy_run, layer="best")
    assert fixed.layer in ("layer1", "layer2")
    assert fixed.judgement.count == len(data.test) // 2
    assert "chosen on 250 of the held-out samples" in fixed.notes[-1]
    with pytest.raises(BadValue, match="held-out samples to choose by"):
        repair(noisy_run.model(), train=data.train, layer="best", scaling="half")


def test_masc_on_what_enters_the_head(noisy_run, inputs):
    (x, y), (x2, _) = inputs
    fixed = repair(noisy_run, probe="masc")
    with Tap(noisy_run.model(), "layer3") as tap:
        known, rows = MASC().fit(tap(x)[1]["layer3"], y), tap(x2)[1]["layer3"]
    assert torch.equal(fixed.model(x2).argmax(1), known.predict(rows))


def test_noisy_evidence_says_the_same(noisy_run, data):
    """The gate needs no clean label: held-out labels with even noise, of known and of unknown rate."""
    random = torch.Generator().manual_seed(3)
    replaced = torch.rand(len(data.test), generator=random) < 0.4
    given = torch.where(replaced, torch.randint(0, 10, replaced.shape, generator=random), data.test.y)
    clean = repair(noisy_run, layer="layer2")
    known = repair(noisy_run, layer="layer2", test=(data.test.x, given), test_noise=0.4)
    assert known.accepted
    assert known.before == pytest.approx(clean.before, abs=0.08)
    assert known.after == pytest.approx(clean.after, abs=0.08)
    assert known.calibration.temperature == pytest.approx(clean.calibration.temperature, rel=0.5)
    blind = repair(noisy_run, layer="layer2", test=(data.test.x, given), test_noise=None)
    assert blind.accepted
    assert blind.calibration is None
    assert "cannot be calibrated" in " ".join(blind.notes)


def test_training_samples_are_no_evidence(noisy_run, data):
    """Fails if the gate took what the model has learned by heart for evidence."""
    model = noisy_run.model()
    before = bits(model)
    with pytest.warns(UserWarning, match="cannot tell"):
        fixed = repair(model, train=data.train, scaling="half")
    assert not fixed.accepted
    assert fixed.model is model
    assert fixed.reason.startswith("cannot tell")
    with pytest.warns(UserWarning, match="cannot tell"):
        fixed = repair(model, train=data.train, test=(data.train.x[:300], data.train.y[:300]), scaling="half")
    assert "300 of 300 held-out samples are training samples too" in fixed.notes[0]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    forced = repair(model, train=data.train, scaling="half", gate=False)
    assert forced.accepted
    assert forced.calibration is None
    assert forced.before is None


def test_the_first_checkpoint_and_a_good_model_are_left_alone(noisy_run, inputs):
    """A repair that does not help is refused, and the reason has the numbers."""
    (x, _), (x2, y2) = inputs
    good = repair(noisy_run, layer="layer2", gate=False).model
    fixed = repair(
        noisy_run.model(0),
        train=(x, noisy_run.data().train.y),
        test=(x2, y2),
        probe="logistic",
        least=0.9,
    )
    assert not fixed.accepted
    assert fixed.reason.startswith("not worth it: ")
    assert "+90.0 wanted" in fixed.reason
    assert "no more than chance" in " ".join(fixed.notes)  # it was never trained on these labels
    with pytest.raises(BadValue, match="an accepted repair"):
        fixed.save("nowhere.safetensors")
    again = repair(good, train=(x, noisy_run.data().train.y), test=(x2, y2))
    assert again.model is good
    assert again.judgement.gain == 0  # its head is that probe already


def test_in_place_and_undone_bit_for_bit(noisy_run, inputs):
    (x, y), held = inputs
    model = noisy_run.model()
    before = bits(model)
    copied = repair(model, train=(x, y), test=held)
    assert copied.model is not model
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert copied.undo() is model

    fixed = repair(model, train=(x, y), test=held, in_place=True)
    assert fixed.model is model
    assert not torch.equal(model.head.weight, before["head.weight"])
    assert fixed.undo() is model
    assert not fixed.accepted
    fixed.undo()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())

    refused = repair(model, train=(x, y), test=held, in_place=True, least=0.9)
    assert not refused.accepted
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    with pytest.raises(BadValue, match="A graft is always a model of its own"):
        repair(model, train=(x, y), test=held, in_place=True, layer="layer2")


def test_an_error_on_the_way_puts_an_in_place_edit_back(noisy_run, inputs, monkeypatch):
    (x, y), held = inputs
    model = noisy_run.model()
    before = bits(model)

    def broken(*_args, **_kwargs):
        raise RuntimeError("broken")

    monkeypatch.setattr("undertow.repairing.repair_model.judge", broken)
    with pytest.raises(RuntimeError, match="broken"):
        repair(model, train=(x, y), test=held, in_place=True)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("layer", [None, "layer2"])
def test_saved_and_loaded_without_the_run(noisy_run, inputs, tmp_path, layer):
    fixed = repair(noisy_run, layer=layer)
    path, _ = fixed.save(tmp_path / "fixed.safetensors")
    x2 = inputs[1][0]
    assert torch.equal(load_repaired(path)(x2), fixed.model(x2))


def test_data_in_other_forms(noisy_run, data, inputs):
    (x, y), (x2, y2) = inputs
    plain = repair(noisy_run)
    for train, held in (
        ((x.numpy(), y.numpy()), (x2.numpy(), y2.tolist())),
        (TensorDataset(x, y), TensorDataset(x2, y2)),
    ):
        other = repair(noisy_run.model(), train=train, test=held)
        assert (other.before, other.after) == (plain.before, plain.after)
    other = repair(noisy_run.model(), train=data)
    assert (other.before, other.after) == (plain.before, plain.after)


class TwoInputs(torch.nn.Module):
    """Is called with two tensors by position."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = torch.nn.Linear(64, 16), torch.nn.Linear(16, 10)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(torch.cat([left, right], 1))))


def test_several_inputs_by_position(inputs):
    """Fails if they are read as one array, as data sets are."""
    (x, y), (x2, y2) = inputs
    train, held = ((one.flatten(1)[:, :30], one.flatten(1)[:, 30:]) for one in (x, x2))
    model = seeded(TwoInputs)
    fixed = repair(model, train=(train, y), test=(held, y2), gate=False)
    with torch.no_grad():
        rows, others = (torch.relu(model.body(one.flatten(1))) for one in (x, x2))
    probe = VeLPIC().fit(rows, y)
    assert torch.equal(fixed.model(*held).argmax(1), probe.predict(others))
    assert fixed.after == float((probe.predict(others) == y2).double().mean())


def test_a_convolutional_model_with_log_probabilities():
    """A model of another maker, whose head is not defined last, from a named layer and at its own head."""
    model = LogSoftmax(seeded(TimmLike))
    train, held = images(300), images(150, seed=1)
    own = repair(model, train=train, test=held, gate=False)
    assert own.layer == "inner.head.fc"
    graft = repair(model, train=train, test=held, gate=False, layer="inner.block", conv="mean")
    assert graft.model(held[0]).shape == (150, 3)


def test_small_memory_changes_nothing(noisy_run, inputs):
    """The route by moments gives the same repair as features held in memory."""
    x2 = inputs[1][0]
    held, moved = repair(noisy_run), repair(noisy_run, memory="2MB", batch_size=100)
    assert torch.equal(held.model(x2).argmax(1), moved.model(x2).argmax(1))


def test_bad_input(noisy_run, inputs):
    (x, y), held = inputs
    model = noisy_run.model()
    with pytest.raises(UnknownName, match="Did you mean 'masc'"):
        repair(noisy_run, probe="mask")
    with pytest.raises(UnknownName, match="Did you mean 'layer2'"):
        repair(noisy_run, layer="layr2")
    with pytest.raises(BadValue, match="one layer"):
        repair(noisy_run, layer="layer*")
    with pytest.raises(BadValue, match="repairs no model"):
        repair(noisy_run, layer="input")
    with pytest.raises(BadValue, match="was trained on"):
        repair(model)
    with pytest.raises(BadValue, match=r"train: wanted \(x, y\), Samples"):
        repair(model, train=3)
    with pytest.raises(BadData, match="test labels: wanted class numbers 0 to 9"):
        repair(model, train=(x, y), test=(held[0], held[1] + 5))
    with pytest.raises(BadData, match="NaN"):
        repair(model, train=(x * torch.nan, y), test=held)
    with pytest.raises(BadValue, match="test_noise"):
        repair(noisy_run, test_noise=40)
    with pytest.raises(BadValue, match="kept checkpoint"):
        repair(noisy_run, checkpoint=17)
    with pytest.raises(BadValue, match=r"one output per class .N, C."):
        repair(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1)), train=(x, y), layer="1")


def test_the_front_door_is_the_same_function():
    """Fails if a module of the room hid a function of the same name."""
    assert undertow.repair is repair
