"""Verdicts on runs whose story is known, and every rule's edge on rows made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import undertow as ut
from undertow.auditing import Context, Evidence, judge, make_audit
from undertow.auditing.rows import row
from undertow.auditing.rules import RULES

TOPICS = [
    "training", "memorising", "knowledge", "repair", "richness", "window", "place", "noise", "checkpoint"
]  # fmt: skip


def answers(result: Any) -> dict[str, str]:
    return {one.topic: one.answer for one in result.verdict}


# ---------------------------------------------------------------------- runs


def test_a_memorising_run(audited):
    result = audited("memorising")
    found = answers(result)
    assert list(found) == TOPICS
    yes = ["training", "memorising", "knowledge", "repair", "noise", "checkpoint"]
    assert [found[topic] for topic in yes] == ["yes"] * len(yes)
    assert result.headline.startswith("It learns wrong labels by heart, beginning between epoch 20 and 30: ")
    assert "at its best kept checkpoint, epoch 12, to" in result.headline
    assert result.verdict.topic("memorising").numbers["since"] == 30
    assert result.verdict.topic("memorising").numbers["before"] == 20
    assert result.verdict.topic("checkpoint").numbers["use"] == 12
    assert result.verdict.topic("checkpoint").short == "epoch 12"
    assert str(result.verdict).startswith(f"{result.headline}\n\ntraining    yes")
    assert str(result) == str(result.verdict)
    assert result.measures["memorised_low"] > 0.2
    assert result.measures["noise"] == pytest.approx(458 / 1297)


def test_a_clean_run(audited):
    result = audited("clean")
    found = answers(result)
    no = ["memorising", "knowledge", "repair", "place", "noise"]
    assert [found[topic] for topic in no] == ["no"] * len(no)
    assert found["training"] == "yes"
    assert result.headline.startswith("No sign of memorising: it scores 9")
    assert result.verdict.topic("checkpoint").numbers["use"] == 12


def test_a_lazy_run(audited):
    result = audited("lazy")
    assert answers(result)["richness"] == "no"
    assert result.verdict.topic("richness").short == "lazy"
    assert result.measures["initial_kernel_alignment"] > 0.999
    assert result.verdict.topic("richness").sentence.startswith("Lazy: ")


def test_an_under_trained_run(audited):
    result = audited("under-trained")
    assert answers(result)["training"] == "no"
    assert result.headline.startswith("Under-trained: its head fits")


def silence(model: Any) -> None:
    """All outputs are the bias of class 3."""
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
        model.head.bias[3] = 1.0


def test_a_collapsed_run(spoiled):
    data = ut.load_data("digits")
    result = ut.audit(spoiled(lambda model: None, silence), data, probes="velpic", fits="given")
    assert answers(result)["training"] == "no"
    assert result.headline == "Collapsed: at epoch 1 the model gives one answer to all 500 test samples."
    assert result.measures["answered"] == 1
    assert answers(result)["richness"] == "cannot tell"


def poison(model: Any) -> None:
    with torch.no_grad():
        model.layer2.linear.weight[0, 0] = float("nan")


def test_a_broken_run(spoiled):
    """NaN from checkpoint 2 on: said first, and everything else is about the checkpoints before."""
    run = spoiled(lambda model: None, lambda model: None, poison, lambda model: None)
    result = ut.audit(run, ut.load_data("digits"), probes="velpic", fits="given")
    assert answers(result)["training"] == "no"
    assert result.headline.startswith("Broken: at epoch 2 and 1 later checkpoint the model gives no numbers")
    assert "layer2.linear.weight" in result.headline
    assert result.measures["broken"] == 2
    known = result.table[result.table["value"].notna()]
    assert set(known["checkpoint"]) == {0, 1}


def test_nothing_but_broken(spoiled):
    result = ut.audit(spoiled(poison), ut.load_data("digits"))
    assert [one.topic for one in result.verdict] == ["training"]
    assert result.headline.endswith("Nothing else can be said.")
    assert result.measures == {"broken": 1.0}


# ---------------------------------------------------------------------- rows

CONTEXT = Context("made", "epoch", "clean test labels", 10, None)


def accuracy(at: int, value: float, split: str = "test", n: int = 1000, **more: Any) -> dict[str, Any]:
    where = {"split": split, "labels": "true" if split == "test" else "given", **more}
    return row("model", "accuracy", at, "output", value, n=n, **where)


def story(*scores: tuple[int, float, float], n: int = 1000) -> list[dict[str, Any]]:
    """Rows of checkpoints with their test and training accuracy."""
    made = []
    for at, test, train in scores:
        made += [row("model", "answered", at, "output", 10, n=n, split="test")]
        made += [accuracy(at, test, n=n), accuracy(at, train, "train", n=n)]
    return made


def said(rows: list[dict[str, Any]], topic: str, context: Context = CONTEXT) -> tuple[str, str]:
    found = next(one for one in judge(Evidence(rows, context)) if one.topic == topic)
    return found.answer, found.sentence


@pytest.mark.parametrize(
    ("scores", "answer"),
    [
        ([(0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.7, 1.0)], "yes"),  # fell while the fit rose
        (
            [(0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.7, 0.6)],
            "cannot tell",
        ),  # fell, but forgot the training set too
        ([(0, 0.1, 0.1), (5, 0.9, 0.92), (10, 0.9, 0.95)], "no"),
        ([(0, 0.1, 0.1), (5, 0.7, 0.9), (10, 0.7, 1.0)], "cannot tell"),  # a gap without a fall
        ([(0, 0.1, 0.1), (5, 0.90, 0.9), (10, 0.88, 0.94)], "no"),  # a fall that may be luck
    ],
)
def test_memorising_without_known_wrong_labels(scores, answer):
    assert said(story(*scores), "memorising")[0] == answer


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (
            [(0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.7, 0.6)],
            "fell by 20.0 points (15.8 to 24.1), but training accuracy did not rise meanwhile: 90.0 % at epoch 5, "
            "60.0 % at epoch 10.",
        ),
        ([(0, 0.1, 0.1), (5, 0.7, 0.9), (10, 0.7, 1.0)], "did not clearly fall (0.0 points"),
        ([(0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.7, 1.0)], "Yes, after epoch 5: test accuracy fell by 20.0 points"),
    ],
)  # fmt: skip
def test_a_fall_is_called_a_fall(scores, words):
    """Fails if every case that cannot be told is said to be one without a clear fall."""
    assert words in said(story(*scores), "memorising")[1]


def swapped(note: str, *scores: tuple[int, float, float]) -> list[dict[str, Any]]:
    rows = story(*scores)
    return [*rows, row("temporal", "swap_early", 10, "layer1", 0.9, shallow=5, n=1000, note=note)]


@pytest.mark.parametrize(
    ("last", "answer", "short", "words"),
    [
        ((10, 0.7, 1.0), "yes", "layer2, layer3", "Memorisation entered in layer2 and layer3: 20 of 26"),
        (
            (10, 0.7, 0.6),
            "cannot tell",
            "?",
            "Cannot tell whether it is memorisation, but accuracy was lost in layer2",
        ),
    ],
)
def test_a_place_claims_memorisation_only_where_there_is_some(last, answer, short, words):
    rows = swapped("Entered in layer2 and layer3: 20 of 26.", (0, 0.1, 0.1), (5, 0.9, 0.9), last)
    found = next(one for one in judge(Evidence(rows, CONTEXT)) if one.topic == "place")
    assert (found.answer, found.short) == (answer, short)
    assert found.sentence.startswith(words)


def test_a_run_that_does_not_memorise_has_nothing_to_place():
    rows = swapped("Entered in layer2: 20 of 26.", (0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.7, 1.0))
    clean = Context("made", "epoch", "clean test labels", 10, (0, 1000))
    assert said(rows, "memorising", clean)[0] == "no"
    assert said(rows, "place", clean) == (
        "no",
        "No memorisation to place; accuracy was lost in layer2: 20 of 26.",
    )


@pytest.mark.parametrize(("n", "answer"), [(50, "cannot tell"), (5000, "yes")])
def test_few_samples_cannot_tell_what_many_can(n, answer):
    """The same numbers: only the intervals differ."""
    rows = story((0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.8, 0.99), n=n)
    assert said(rows, "memorising")[0] == answer


@pytest.mark.parametrize(
    ("repeated", "classes", "answer"),
    [
        (0.5, 10, "yes"),
        (0.21, 10, "cannot tell"),
        (0.05, 10, "no"),
        (0.35, 2, "cannot tell"),
        (0.5, 2, "yes"),
    ],
)
def test_memorising_from_wrong_labels(repeated, classes, answer):
    """With two classes every mistake repeats a wrong label: the level must rise with the errors."""
    rows = story((0, 0.6, 0.5), (5, 0.85, 0.8), (10, 0.85, 0.9))
    for at, share in ((0, 0.01), (5, repeated), (10, repeated)):
        rows.append(row("model", "memorised", at, "output", share, n=400, split="train", labels="given"))
    context = Context("made", "epoch", "clean test labels", classes, (400, 1000))
    assert said(rows, "memorising", context)[0] == answer
    if answer == "yes":
        assert "beginning between epoch 0 and 5" in said(rows, "memorising", context)[1]


@pytest.mark.parametrize(
    ("scores", "answer", "words"),
    [
        ([(0, 0.1, 0.1), (10, 0.11, 0.1)], "no", "not clearly better than chance"),
        ([(0, 0.1, 0.1), (5, 0.5, 0.5), (10, 0.7, 0.7)], "no", "still rises"),
        ([(0, 0.1, 0.1), (7, 0.9, 0.9), (10, 0.905, 0.9)], "yes", "no longer clearly rises"),
        ([(10, 0.9, 0.9)], "cannot tell", "one checkpoint cannot tell"),
    ],
)
def test_training(scores, answer, words):
    found = said(story(*scores), "training")
    assert found[0] == answer
    assert words in found[1]


def probe(value: float, layer: str = "layer1", name: str = "velpic", **where: Any) -> dict[str, Any]:
    wanted = {"split": "test", "labels": "true", "fit": "given", "n": 1000, **where}
    return row("latent", "accuracy", 10, layer, value, probe=name, **wanted)


def test_knowledge():
    rows = story((0, 0.1, 0.1), (10, 0.7, 0.9))
    assert said(rows, "knowledge")[0] == "cannot tell"
    assert said([*rows, probe(0.71)], "knowledge")[0] == "no"
    assert said([*rows, probe(0.73)], "knowledge")[0] == "cannot tell"
    answer, sentence = said([*rows, probe(0.8, "layer2"), probe(0.75)], "knowledge")
    assert answer == "yes"
    assert sentence.startswith("layer2 still knows more than the model says: VeLPIC reads 80.0 % at layer2")
    assert said([*rows, probe(0.8, "4")], "knowledge")[1].startswith("layer 4 still knows")


def test_pixels_and_controls_are_no_knowledge_of_the_model():
    """Fails if a probe of the input, or one fitted with true or shuffled labels, is taken for a layer's."""
    rows = story((0, 0.1, 0.1), (10, 0.7, 0.9))
    rows += [probe(0.99, "input"), probe(0.99, fit="true"), probe(0.99, split="train"), probe(0.7)]
    assert said(rows, "knowledge")[0] == "no"


def test_the_best_of_many_must_win_more_clearly():
    """Fails if the number of probes that were tried is not allowed for."""
    rows = story((0, 0.1, 0.1), (10, 0.7, 0.9))
    many = [probe(0.6, f"layer{place}") for place in range(50)]
    assert said([*rows, probe(0.745)], "knowledge")[0] == "yes"
    assert said([*rows, probe(0.745), *many], "knowledge")[0] == "cannot tell"


@pytest.mark.parametrize(
    ("value", "low", "high", "kept", "answer"),
    [
        (0.1, 0.05, 0.15, 0.3, "yes"), (0.1, 0.05, 0.25, 0.3, "cannot tell"), (0.5, 0.45, 0.6, 0.3, "no"),
        (0.5, 0.35, 0.6, 0.3, "cannot tell"), (0.1, 0.05, 0.15, 0.99, "no"), (0.1, None, None, 0.3, "cannot tell"),
    ],
)  # fmt: skip
def test_richness(value, low, high, kept, answer):
    rows = story((0, 0.1, 0.1), (10, 0.7, 0.9))
    rows.append(row("richness", "d_lr", 10, "head", value, low=low, high=high, n=500, split="test"))
    rows.append(row("richness", "initial_kernel_alignment", 10, "head", kept, n=500, split="test"))
    assert said(rows, "richness")[0] == answer


@pytest.mark.parametrize(
    ("spans", "answer"),
    [
        ([(8, 6, 9), (9, 7, 10)], "yes"),
        ([(3, 2, 4), (9, 9, 9)], "no"),
        ([(5, 3, 7), (9, 9, 9)], "cannot tell"),
    ],
)
def test_window(spans, answer):
    rows = story((0, 0.1, 0.1), (10, 0.7, 0.9))
    for place, (value, low, high) in enumerate(spans):
        rows.append(row("temporal", "window", 10, f"layer{place}", value, low=low, high=high, n=500))
    found = said(rows, "window")
    assert found[0] == answer
    assert (
        f"with layer0 from up to {spans[0][0]} epochs earlier, layer1 from up to 9 epochs earlier ("
        in found[1]
    )


def test_noise_from_probes_is_that_of_the_formula():
    """A probe that is right in 95 % agrees with .95 (1 - q) + .05 q / 9 of labels of which q are wrong."""
    rows, q = story((0, 0.1, 0.1), (10, 0.7, 0.9)), 0.36
    agreed = 0.95 * (1 - q) + 0.05 * q / 9
    rows += [probe(0.95), probe(agreed, split="train", labels="given")]
    number, how = Evidence(rows, CONTEXT).noise()
    assert how == "estimated"
    assert number.value == pytest.approx(q)
    assert number.low < q < number.high
    assert said(rows, "noise")[0] == "yes"


def test_noise_in_all_labels_has_an_upper_end_only():
    context = Context("made", "epoch", "noisy labels only", 10, None)
    rows = [one | {"labels": "given"} for one in story((0, 0.1, 0.1), (10, 0.5, 0.9))]
    rows.append(probe(0.6, labels="given"))
    answer, sentence = said(rows, "noise", context)
    assert answer == "cannot tell"
    assert sentence.startswith("At most about")


def test_repair_is_told_with_both_places():
    rows = story((0, 0.1, 0.1), (10, 0.7, 0.9))

    def gains(head: tuple[float, float, float], graft: tuple[float, float, float]) -> list[dict[str, Any]]:
        both = {"head": ("head", head), "graft": ("layer1", graft)}
        return rows + [
            row("repair", "difference", 10, layer, value, low=low, high=high, n=500, note=f"{kind}: why")
            for kind, (layer, (value, low, high)) in both.items()
        ]

    assert said(gains((0.0, -0.01, 0.01), (0.1, 0.05, 0.15)), "repair")[0] == "yes"
    assert said(gains((-0.1, -0.2, -0.05), (0.0, -0.1, 0.1)), "repair")[0] == "no"
    assert said(gains((0.01, -0.01, 0.03), (0.0, -0.1, 0.1)), "repair")[0] == "cannot tell"


# ---------------------------------------------------------------------- words


def test_every_topic_has_a_rule_and_the_documentation_has_it_too():
    """The rules in code, in audit.json and in docs/verdict.md are one text."""
    assert list(RULES) == TOPICS
    page = Path(__file__).parents[2] / "docs" / "verdict.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    for topic, rule in RULES.items():
        assert " ".join(rule.split()) in text, topic


def test_the_verdict_follows_from_saved_rows_alone(audited):
    """Fails if a rule looks at anything that audit.parquet does not hold."""
    import numpy as np

    result = audited("memorising")
    table = result.table.astype(object).replace({np.nan: None})
    again = make_audit(table.where(table.notna(), None).to_dict("records"), result.context, result.about)
    assert again.headline == result.headline
    assert [one.to_dict() for one in again.verdict] == [one.to_dict() for one in result.verdict]
    assert again.measures == result.measures
