"""What paper 001 says of probes, on made-up rows: each sentence holds where it should, and fails where it should."""

from __future__ import annotations

import pandas as pd

from undertow.studies.catalogue import find_study
from undertow.studies.findings import row
from undertow.studies.outcome import StudyOutcome

LAYERS = {"MLP": ("layer1", "layer2", "layer3"), "CNN": ("flatten", "fc1", "fc3")}
TIMES = (0, 4, 20)
"""Before training, at the model's peak, at the end."""
MODEL = (0.1, 0.9, 0.5)
LOW, MIDDLE, HIGH = (0.3, 0.8, 0.55), (0.3, 0.85, 0.65), (0.3, 0.9, 0.75)


def made_up(net, degree, *, seeds=3, fit=1.0, model=MODEL, **probes):
    """Rows of a net at a degree; a probe's numbers are of all layers, or of the first, the middle and the last."""
    rows = []
    names = LAYERS[net[:3]]
    for seed in range(seeds):
        found = [row("train_fit", fit, split="train")]
        found += _over_time("model", "output", model)
        for probe, numbers in probes.items():
            each = numbers if isinstance(numbers[0], tuple) else (numbers,) * len(names)
            for layer, values in zip(names, each, strict=True):
                found += _over_time(probe, layer, values)
        rows += [{"case": f"{net} {degree:g}", "seed": seed, **one} for one in found]
    return rows


def _over_time(probe, layer, values):
    return [
        row("accuracy", value, checkpoint=at, probe=probe, layer=layer, split="test", n=1000)
        for at, value in zip(TIMES, values, strict=True)
    ]


def verdicts(name, *cases, scale="laptop"):
    rows = pd.DataFrame([one for case in cases for one in case])
    found = StudyOutcome.of(find_study(f"latent/{name}"), scale, rows).verdicts()
    return [verdict.holds for _, verdict in found]


def nets(kinds, degrees=(0.2, 0.4, 0.6, 0.8), **probes):
    return [made_up(net, degree, **probes) for net in kinds for degree in degrees]


BOTH_MLPS = ("MLP-MNIST", "MLP-CIFAR10")


def test_layers_keep_what_the_model_loses():
    good = nets(BOTH_MLPS, masc=HIGH, velpic=HIGH)
    below = nets(BOTH_MLPS, model=(0.3, 0.9, 0.9), masc=(0.1, 0.5, 0.4), velpic=(0.1, 0.5, 0.4))
    assert verdicts("masc-dynamics", *good)[:4] == [True] * 4
    assert verdicts("masc-dynamics", *below)[:4] == [False] * 4
    assert verdicts("velpic-dynamics", *good)[:3] == [True] * 3  # the model's fall is told once
    assert verdicts("velpic-dynamics", *below)[:3] == [False] * 3


def test_the_widest_layers_are_read_best():
    """Of an MLP 128-512-512-512 any but the first, of a CNN the flattened maps."""
    fine = [*nets(BOTH_MLPS, masc=(LOW, LOW, HIGH)), *nets(("CNN-FashionMNIST",), masc=(HIGH, LOW, LOW))]
    turned = [*nets(BOTH_MLPS, masc=(HIGH, LOW, LOW)), *nets(("CNN-FashionMNIST",), masc=(LOW, LOW, HIGH))]
    assert verdicts("masc-dynamics", *fine)[4] is True
    assert verdicts("masc-dynamics", *turned)[4] is False


def test_vectors_plateau_higher_by_more_than_scatter():
    for last, said in ((0.75, True), (0.66, False)):
        rows = nets(BOTH_MLPS, masc=MIDDLE, velpic=(0.3, 0.9, last))
        assert verdicts("velpic-dynamics", *rows)[3] is said


def test_networks_that_did_not_memorise_are_left_out():
    """A network at 34 % of its labels once refuted the paper; now it says nothing, whatever its numbers."""
    rows = nets(BOTH_MLPS, fit=0.34, model=(0.1, 0.9, 0.95), masc=LOW)
    assert verdicts("masc-dynamics", *rows)[:2] == [None, None]


def test_too_few_cases_cannot_decide_what_most_do():
    assert verdicts("masc-dynamics", *nets(("MLP-MNIST",), seeds=1, masc=HIGH))[1:3] == [None, None]


def test_vectors_against_subspaces():
    """As the paper has it: subspaces win late in MLPs and early in CNNs, vectors in CNN-CIFAR-10."""
    rows = []
    for degree in (0.2, 0.4, 0.6, 0.8):
        lead = tuple(one + 0.1 * degree for one in MIDDLE)
        rows += [made_up(net, degree, masc=(LOW, LOW, HIGH), velpic=(lead, lead, lead)) for net in BOTH_MLPS]
        rows.append(
            made_up("CNN-FashionMNIST", degree, masc=(HIGH, HIGH, LOW), velpic=(lead, lead, lead)),
        )
        rows.append(made_up("CNN-CIFAR10", degree, masc=LOW, velpic=(lead, lead, lead)))
    assert verdicts("velpic-minus-masc", *rows, scale="paper") == [True] * 6
    assert verdicts("velpic-minus-masc", *rows)[2:4] == [True, True]  # of .4 and .6, three seeds each
    few = nets(BOTH_MLPS, (0.2, 0.8), masc=(LOW, LOW, HIGH), velpic=MIDDLE)
    assert verdicts("velpic-minus-masc", *few)[2] is None  # 200 pictures a class, layers of 512 units
    turned = []
    for degree in (0.2, 0.4, 0.6, 0.8):
        less = tuple(one - 0.1 * degree for one in LOW)
        turned += nets(BOTH_MLPS, (degree,), masc=(HIGH, HIGH, less), velpic=(less, less, HIGH))
        turned.append(made_up("CNN-FashionMNIST", degree, masc=(less, HIGH, HIGH), velpic=(HIGH, less, less)))
        turned.append(made_up("CNN-CIFAR10", degree, masc=HIGH, velpic=(less, less, less)))
    assert verdicts("velpic-minus-masc", *turned, scale="paper")[2:] == [False] * 4


def test_our_layers_stand_above_the_model_by_more_than_scatter():
    """Whether the model fell is no part of the sentence: one that ends at its peak once refuted it."""
    model = (0.1, 0.4, 0.5)
    nets_of_ours = ("MLP-digits", "MLP-MNIST1D")

    def told(last):
        rows = nets(nets_of_ours, model=model, masc=(0.3, 0.9, last), velpic=(0.3, 0.9, last))
        return verdicts("no-download", *rows)[1:3]

    assert told(0.6) == [True, True]
    assert told(0.4) == [False, False]
    assert told(0.51) == [None, None]


def test_leads_that_test_samples_cannot_tell_apart_say_nothing():
    """Half a point more lead at .8 than at .2, of 3,000 answers; eight layers once told so by the toss of coins."""
    rows = []
    for degree in (0.2, 0.8):
        lead = tuple(one + 0.01 * degree for one in MIDDLE)
        rows += nets(BOTH_MLPS, (degree,), masc=LOW, velpic=lead)
    assert verdicts("velpic-minus-masc", *rows)[1] is None


def test_a_case_less_apart_than_scatter_is_no_example_and_no_refutation():
    """Of some: MASC .76 against VeLPIC .75 on 1,000 test pictures tells nothing; more seeds do."""
    few, many = (
        nets(("MLP-MNIST",), (0.4, 0.6), seeds=seeds, masc=(0.3, 0.9, 0.77), velpic=HIGH) for seeds in (1, 12)
    )
    assert verdicts("velpic-minus-masc", *few)[2] is None
    assert verdicts("velpic-minus-masc", *many)[2] is True


def test_a_claim_on_one_net_is_decided_by_its_seeds():
    """Four degrees alone cannot reject chance (1/16); three seeds of each can, and one seed of each cannot."""
    many, few = (nets(("CNN-CIFAR10",), seeds=seeds, masc=LOW, velpic=HIGH, logistic=LOW) for seeds in (3, 1))
    assert verdicts("velpic-minus-masc", *many, scale="paper")[4] is True
    assert verdicts("velpic-minus-masc", *few, scale="paper")[4] is None
    assert verdicts("velpic-minus-masc", *many)[4] is True  # of .4 and .6, 300 pictures a class, 256 features
    wide = nets(("CNN-CIFAR10",), (0.2, 0.8), masc=LOW, velpic=HIGH)
    assert verdicts("velpic-minus-masc", *wide)[4] is None  # 100 pictures a class, 1,024 features


def test_a_narrow_cnn_has_fewer_features():
    """3,000 pictures for 288 features can tell, 1,000 for 576 cannot."""
    rows = nets(("CNN-FashionMNIST", "CNN-MNIST"), masc=(HIGH, LOW, LOW), velpic=LOW)
    told = dict(zip("abcdef", verdicts("velpic-minus-masc", *rows), strict=True))
    assert told["d"] is True
    few = nets(("CNN-FashionMNIST",), (0.2, 0.8), masc=(HIGH, LOW, LOW), velpic=LOW)
    assert verdicts("velpic-minus-masc", *few)[3] is None


def test_the_logistic_probe_follows_the_model_down():
    good = nets(BOTH_MLPS, logistic=MODEL, masc=HIGH, velpic=HIGH)
    assert verdicts("logistic-dynamics", *good) == [True, True]
    assert verdicts("velpic-minus-logistic", *good) == [True, True]
    bad = nets(BOTH_MLPS, logistic=HIGH, masc=MIDDLE, velpic=LOW)
    assert verdicts("logistic-dynamics", *bad) == [False, False]
    assert verdicts("velpic-minus-logistic", *bad) == [False, False]


def test_subspaces_against_logistic_depend_on_net_and_depth():
    rows = [
        *nets(BOTH_MLPS, masc=(LOW, LOW, HIGH), logistic=(HIGH, LOW, LOW)),
        *nets(("CNN-FashionMNIST",), masc=(HIGH, LOW, LOW), logistic=(LOW, LOW, HIGH)),
    ]
    assert verdicts("masc-minus-logistic", *rows, scale="paper") == [True] * 4
    assert verdicts("masc-minus-logistic", *rows) == [True] * 4
    few = nets(BOTH_MLPS, (0.2, 0.8), masc=(LOW, LOW, HIGH), logistic=(HIGH, LOW, LOW))
    assert verdicts("masc-minus-logistic", *few)[:2] == [None, None]  # too few pictures for MLPs
    turned = [
        *nets(BOTH_MLPS, masc=HIGH, logistic=LOW),
        *nets(("CNN-FashionMNIST",), masc=LOW, logistic=HIGH),
    ]
    assert verdicts("masc-minus-logistic", *turned, scale="paper") == [False, True, False, True]


def test_random_features_against_trained_ones():
    """At 80 % the paper's own MLPs are read better by MASC before training."""
    rose, fell = (0.3, 0.8, 0.7), (0.6, 0.8, 0.4)
    low = nets(BOTH_MLPS, (0.2, 0.4), masc=rose, velpic=rose)
    high = [*nets(BOTH_MLPS, (0.8,), masc=fell, velpic=rose), *nets(("CNN-CIFAR10", "CNN-FashionMNIST"), (0.6, 0.8),
            masc=rose, velpic=rose)]  # fmt: skip
    assert verdicts("init-vs-trained", *low, *high, scale="paper") == [True] * 4
    assert verdicts("init-vs-trained", *low, *high) == [True, True, True, None]  # at .8 too few pictures
    turned = [
        *nets(BOTH_MLPS, (0.2, 0.4), masc=fell, velpic=fell),
        *nets((*BOTH_MLPS, "CNN-CIFAR10"), (0.6, 0.8), masc=rose, velpic=fell),
    ]
    assert verdicts("init-vs-trained", *turned) == [False] * 4


def _dropped(plain, with_dropout, degrees=(0.2, 0.4, 0.8)):
    return [
        *nets(("CNN-FashionMNIST",), degrees, **plain),
        *nets(("CNN-FashionMNIST with dropout",), degrees, **with_dropout),
    ]


def test_dropout_is_compared_with_its_twin():
    near = {"masc": HIGH, "velpic": HIGH}
    far_early = {"masc": (0.3, 0.4, 0.75), "velpic": HIGH}
    assert verdicts("dropout", *_dropped(near, far_early)) == [True, True, True, True]
    lower = {"masc": (0.3, 0.9, 0.4), "velpic": (0.3, 0.4, 0.4)}
    assert verdicts("dropout", *_dropped(near, lower)) == [False, False, False, False]


def test_a_fall_that_test_samples_cannot_tell_says_nothing():
    """1,000 pictures tell .03 of .3 apart no better than chance does; a fall of .1 they do, a rise refutes."""
    for model, said in (
        ((0.1, 0.3, 0.27), None),
        ((0.1, 0.4, 0.3), True),
        ((0.1, 0.3, 0.3), None),
        ((0.1, 0.3, 0.4), False),
    ):
        rows = made_up("MLP-CIFAR10", 0.2, seeds=1, model=model, masc=HIGH)
        assert verdicts("masc-dynamics", rows)[0] is said


def test_more_seeds_tell_smaller_differences():
    few, many = (made_up("MLP-MNIST", 0.8, seeds=seeds, masc=(0.40, 0.5, 0.37)) for seeds in (1, 5))
    assert verdicts("init-vs-trained", few)[2] is None
    assert verdicts("init-vs-trained", many)[2] is True


def _edited(before, at_once, degrees=(0.2, 0.4, 0.6, 0.8)):
    """A net left alone and edited at epoch 24; VeLPIC of the last layer is what the edited model says."""
    found = []
    for net in ("MLP-MNIST", "CNN-FashionMNIST"):
        for degree in degrees:
            for name in ("left alone", "edited"):
                where = {"case": f"{net}, {name} {degree:g}", "seed": 0, "split": "test"}
                for at in (0, 24, 60):
                    seen = {"checkpoint": at, "labels": "true", **where}
                    found.append({**row("accuracy", before), "probe": "model", "layer": "output", **seen})
                    for layer, value in (("layer1", 0.99), ("layer2", at_once)):
                        found.append({**row("accuracy", value), "probe": "velpic", "layer": layer, **seen})
    return found


def test_the_edit_is_judged_by_what_the_edited_model_says():
    """Not an epoch later, after more training on wrong labels, nor by another layer."""
    assert verdicts("intervention", _edited(0.6, 0.7))[0] is True
    assert verdicts("intervention", _edited(0.7, 0.6))[0] is False


def test_transfer_is_judged_at_every_checkpoint_of_the_latter_half():
    def curves(edited):
        rows = []
        for case in (f"{net} {degree}" for net in ("MLP-MNIST", "CNN-MNIST") for degree in (0.2, 0.4, 0.6)):
            where = {"case": case, "seed": 0}
            rows.append({**row("train_fit", 1.0), **where})
            for probe, values in (("model", (0.1, 0.5, 0.5)), ("edited", edited)):
                for at, value in zip((0, 10, 20), values, strict=True):
                    rows.append(
                        {**row("accuracy", value), **where, "probe": probe, "checkpoint": at, "split": "test"}
                    )
        return rows

    assert verdicts("transfer", curves((0.05, 0.6, 0.6)), scale="paper")[0] is True
    assert verdicts("transfer", curves((0.3, 0.4, 0.6)), scale="paper")[0] is False
