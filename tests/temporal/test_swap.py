"""The swap profile: accuracies and drops by hand, its finding by the rules, and runs whose answer is known."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from undertow.data import load_data
from undertow.errors import BadData
from undertow.temporal import AFTER_LAST, swap_profile
from undertow.training.config import TrainConfig
from undertow.training.loop import train

CUTS = ["layer1", "layer2", "layer3"]


def shares(*values, n=2000):
    """Right answers with these shares; the samples of smaller shares lie within those of larger ones."""
    return np.array([np.arange(n) < round(value * n) for value in values])


def profile(early_late, late_early, early, late, n=2000, cuts=CUTS, **options):
    return swap_profile(
        shares(*early_late, n=n), shares(*late_early, n=n), *shares(early, late, n=n), cuts, **options
    )


def test_accuracies_drops_and_paired_intervals():
    rng = np.random.default_rng(0)
    rows = rng.random((8, 300)) < rng.random(300)  # samples that are hard for all
    early, late, forth, back = rows[0], rows[1], rows[2:5], rows[5:]
    found = swap_profile(torch.from_numpy(forth), back, early, late, CUTS, resamples=400, seed=3)
    index = np.random.default_rng(3).integers(0, 300, (400, 300))

    def by_hand(values):
        drawn = [values[row].mean() for row in index]
        return (values.mean(), *np.percentile(drawn, [2.5, 97.5]))

    assert found.early == pytest.approx(by_hand(early.astype(float)), abs=1e-12)
    assert found.drop == pytest.approx(by_hand(1.0 * early - late), abs=1e-12)
    for k, cut in enumerate(found.cuts):
        assert cut.cut == CUTS[k]
        assert cut.early_late == pytest.approx(by_hand(1.0 * forth[k]), abs=1e-12)
        assert cut.late_early == pytest.approx(by_hand(1.0 * back[k]), abs=1e-12)
    below, above = [early, *back, late], [late, *forth, early]
    for k, part in enumerate(found.parts):
        assert part.from_below == pytest.approx(by_hand(1.0 * below[k] - below[k + 1]), abs=1e-12)
        assert part.from_above == pytest.approx(by_hand(1.0 * above[k + 1] - above[k]), abs=1e-12)
    for side in ("from_below", "from_above"):
        total = sum(getattr(part, side).value for part in found.parts)
        assert total == pytest.approx(found.drop.value, abs=1e-12)
    assert [part.name for part in found.parts] == [*CUTS, AFTER_LAST]
    assert found.count == 300


def test_the_sketch_of_noisy_digits():
    """Late features defeat even an early head, a late head still reads early ones: layers 2 and 3, not the head."""
    found = profile([0.85, 0.94, 0.94], [0.91, 0.84, 0.69], 0.94, 0.69)
    assert (found.finding, found.entered) == ("entered", ("layer2", "layer3"))
    assert (found.below, found.above) == (
        ("layer2", "layer3"),
        ("layer1", "layer2"),
    )  # late parts harm together
    assert (found.free, found.misfits) == ((AFTER_LAST,), ())
    assert found.cost == pytest.approx(0.22)


@pytest.mark.parametrize("place", range(4))
def test_one_part_is_named_whichever_it_is(place):
    """If only one part differs between the models, every composite is one of the two."""
    forth = [0.9 if k >= place else 0.6 for k in range(3)]
    back = [0.6 if k >= place else 0.9 for k in range(3)]
    found = profile(forth, back, 0.9, 0.6)
    assert found.entered == found.above == (found.parts[place].name,)
    assert found.cost == pytest.approx(found.drop.value) == pytest.approx(0.3)
    assert set(found.free) == {part.name for part in found.parts} - set(found.entered)


def test_two_parts_apart():
    found = profile([0.75, 0.75, 0.75], [0.75, 0.75, 0.75], 0.9, 0.6)
    assert found.entered == ("layer1", AFTER_LAST)
    assert found.cost == pytest.approx(0.3)
    assert found.free == ("layer2", "layer3")


@pytest.mark.parametrize(
    ("numbers", "finding", "misfits", "below", "above"),
    [
        (([0.8] * 3, [0.8] * 3, 0.80, 0.80), "not clearly worse", (), (), ()),
        (([0.8] * 3, [0.8] * 3, 0.7, 0.8), "nothing lost", (), (), ()),
        (
            ([0.3, 0.8, 0.8], [0.8, 0.7, 0.7], 0.8, 0.6),
            "misfit", ("layer1",), ("layer2", AFTER_LAST), ("layer2",),
        ),
        (([0.9] * 3, [0.9] * 3, 0.9, 0.6), "ways disagree", (), (AFTER_LAST,), ("layer1",)),
    ],
)  # fmt: skip
def test_what_nobody_can_tell(numbers, finding, misfits, below, above):
    """No drop; parts that do not fit; parts that do harm only together."""
    found = profile(*numbers)
    assert (found.finding, found.misfits) == (finding, misfits)
    assert (found.below, found.above) == (below, above)
    assert found.entered == ()


def test_a_spread_out_drop():
    names = [f"layer{k}" for k in range(1, 9)]
    steps = np.linspace(0.9, 0.6, 10)
    found = profile(steps[1:-1][::-1], steps[1:-1], 0.9, 0.6, cuts=names)
    assert (found.finding, found.below, found.entered) == ("spread out", (), ())


def test_few_samples_cannot_tell():
    """The same shares on 40 samples, as far as possible on different ones: the intervals are wide."""
    rng = np.random.default_rng(0)
    rows = [rng.permutation(40) < round(40 * share) for share in (0.9, 0.8, *([0.9] * 3), *([0.8] * 3))]
    found = swap_profile(np.array(rows[2:5]), np.array(rows[5:]), rows[0], rows[1], CUTS)
    assert found.finding == "not clearly worse"


def test_a_large_drop_that_may_be_chance_is_not_named():
    """Nine of 40 samples more are wrong, but three others right: a quarter of the drop, and its interval holds 0."""
    early, late = shares(0.9, 0.3, n=40)
    first = early.copy()
    first[:9], first[-3:] = False, True
    found = swap_profile(np.array([late, late, early]), np.array([first, early, late]), early, late, CUTS)
    drop = found.parts[0].from_below
    assert drop.low <= 0 < 0.2 * found.drop.value < drop.value
    assert found.entered == ("layer3",)
    assert found.free == ("layer2", AFTER_LAST)


def test_bad_answers_are_refused():
    right = shares(0.5, 0.5, 0.5, n=10)
    with pytest.raises(BadData, match="Compare predictions with labels"):
        swap_profile(right, right, np.arange(10), right[0], CUTS)
    with pytest.raises(BadData, match=r"late_early: wanted right answers of shape \(3, 10\)"):
        swap_profile(right, right[:2], right[0], right[0], CUTS)
    with pytest.raises(BadData, match=r"shape \(0, 10\)"):
        swap_profile(right[:0], right[:0], right[0], right[0], [])


# Runs in which only one part was trained on noise


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """A small network that learned digits with their true labels, and the data."""
    folder = tmp_path_factory.mktemp("swap")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERTOW_CACHE", str(folder / "cache"))
        config = TrainConfig(
            "mlp:32-32-32", data="digits", epochs=12, device="cpu", checkpoints="12", lr=3e-3
        )
        run = train(config, folder / "clean")
        return run.model(12), load_data("digits")


def trained_on(model, data, *blocks, noise=0.6, steps=250):
    """A copy of which only `blocks` went on learning, with random labels for a share of the samples."""
    net = copy.deepcopy(model)
    rng = torch.Generator().manual_seed(0)
    x, y = data.train.x.float() * 2 - 1, data.train.y.clone()
    wrong = torch.rand(len(y), generator=rng) < noise
    y[wrong] = torch.randint(0, 10, (int(wrong.sum()),), generator=rng)
    optimiser = torch.optim.Adam(
        [w for block in blocks for w in net.get_submodule(block).parameters()], lr=1e-2
    )
    for _ in range(steps):
        rows = torch.randint(0, len(x), (128,), generator=rng)
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimiser.step()
    return net.eval()


def composite(model, shallow, deep, cut):
    """Weights of the blocks up to `cut` from `shallow`, the others from `deep`."""
    blocks = list(dict(model.named_children()))
    early_blocks = blocks[: blocks.index(cut) + 1]
    merged = {
        name: (shallow if name.split(".")[0] in early_blocks else deep).state_dict()[name]
        for name in model.state_dict()
    }
    net = copy.deepcopy(model)
    net.load_state_dict(merged)
    return net


def profile_of(early, late, data):
    x, y = data.test.x.float() * 2 - 1, data.test.y

    def right(net):
        with torch.no_grad():
            return (net(x).argmax(1) == y).numpy()

    forth = np.array([right(composite(early, early, late, cut)) for cut in CUTS])
    back = np.array([right(composite(early, late, early, cut)) for cut in CUTS])
    return swap_profile(forth, back, right(early), right(late), CUTS)


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("layer1", "layer1"),
        ("layer2", "layer2"),
        ("layer3", "layer3"),
        ("head", AFTER_LAST),
    ],
)
def test_the_part_trained_on_noise_is_named(clean, block, place):
    early, data = clean
    found = profile_of(early, trained_on(early, data, block), data)
    assert found.early.value > 0.9
    assert found.entered == (place,)
    assert found.finding == "entered"


def test_two_parts_trained_on_noise_are_placed_within_them(clean):
    """What moved together may be named together or not at all, but no part that stood still is named."""
    early, data = clean
    found = profile_of(early, trained_on(early, data, "layer2", "layer3"), data)
    still = (found.parts[0], found.parts[3])
    assert all(part.from_below.value == part.from_above.value == 0 for part in still)
    assert not {part.name for part in still} & set(found.entered)
    assert found.drop.low > 0


@pytest.mark.parametrize("block", ["layer2", "head"])
def test_training_on_true_labels_names_nothing(clean, block):
    """The control: the same training of the same part without noise."""
    early, data = clean
    found = profile_of(early, trained_on(early, data, block, noise=0.0), data)
    assert found.entered == ()
    assert found.finding != "entered"
