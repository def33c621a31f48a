"""Verdicts on runs whose story is known, and every rule's edge on evidence made by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import undertow as ut
from undertow.auditing import Audit, Context, Evidence, judge, make_audit
from undertow.auditing.finding import MEANINGS, RULES

from .made import composites, latent, probe, repairs, richness, story, swap, window, wrong

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
    best, last = (100 * result.measures[name] for name in ("accuracy_best", "accuracy"))
    assert result.headline.startswith(
        f"It memorised wrong labels after epoch 20: test accuracy fell from {best:.1f} to {last:.1f} %."
    )
    assert result.verdict.topic("memorising").numbers["since"] == 30
    assert result.verdict.topic("memorising").numbers["before"] == 20
    assert result.verdict.topic("checkpoint").numbers["use"] == 12
    assert result.verdict.topic("checkpoint").short == "epoch 12"
    assert str(result.verdict).startswith(f"{result.headline}\n\ntraining    yes")
    told = {one.topic: one.meaning for one in result.verdict}
    assert (told["memorising"], told["noise"], told["knowledge"], told["richness"]) == (
        "bad", "bad", "good", "unknown"
    )  # fmt: skip
    assert str(result) == str(result.verdict)
    assert result.measures["memorised_low"] > 0.2
    assert result.measures["noise"] == pytest.approx(458 / 1297)


def test_the_headline_offers_what_does_best(audited):
    """Fails if it offers a repair where an earlier epoch, as it is, does better: they would contradict each other."""
    result = audited("memorising")
    seen = result.evidence
    repaired = max(one.after for _, one in seen.worthwhile_repairs().values())
    assert seen.accuracy(12).value > repaired
    assert seen.ahead_of_repair() == 12
    assert result.headline.endswith(" Use epoch 12.")
    assert "Epoch 12 as it is does better" in result.verdict.topic("repair").sentence

    only_late = replace(seen, answers=replace(seen.answers, at={30: seen.answers.at[30]}))
    assert only_late.ahead_of_repair() is None


def test_a_clean_run(audited):
    result = audited("clean")
    found = answers(result)
    no = ["memorising", "knowledge", "repair", "place", "noise"]
    assert [found[topic] for topic in no] == ["no"] * len(no)
    assert found["training"] == "yes"
    assert result.headline.startswith("No sign of memorising: 9")
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
    assert result.verdict.topic("training").sentence.endswith("We can say nothing else.")
    assert len(result.headline.split()) <= 20
    assert result.measures == {"broken": 1.0}


# ---------------------------------------------------------------------- evidence made by hand

CONTEXT = Context("made", "epoch", "clean", 10, 10, None)
BASE = story((0, 0.1, 0.1), (10, 0.7, 0.9))


def said(seen: Evidence, topic: str) -> tuple[str, str]:
    found = next(one for one in judge(seen) if one.topic == topic)
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
    assert said(Evidence(CONTEXT, story(*scores)), "memorising")[0] == answer


def test_noisy_labels_that_were_not_memorised_are_fitted_less():
    """Fails if a training accuracy below the test accuracy is said to be some minus points higher."""
    answer, sentence = said(
        Evidence(CONTEXT, story((0, 0.1, 0.1), (5, 0.85, 0.7), (10, 0.86, 0.73))), "memorising"
    )
    assert answer == "no"
    assert sentence.endswith("Training accuracy is 13.0 points lower.")


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (
            [(0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.7, 0.6)],
            "fell by 20.0 points (15.8 to 24.1), but training accuracy did not rise meanwhile: 90.0 % at epoch 5, "
            "60.0 % at epoch 10.",
        ),
        ([(0, 0.1, 0.1), (5, 0.7, 0.9), (10, 0.7, 1.0)], "did not clearly fall: 0.0 points"),
        ([(0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.7, 1.0)], "Yes, after epoch 5: test accuracy fell by 20.0 points"),
    ],
)  # fmt: skip
def test_a_fall_is_called_a_fall(scores, words):
    """Fails if every case that cannot be told is said to be one without a clear fall."""
    assert words in said(Evidence(CONTEXT, story(*scores)), "memorising")[1]


@pytest.mark.parametrize(
    ("last", "answer", "short", "words"),
    [
        ((10, 0.7, 1.0), "yes", "layer2", "Memorisation entered in layer2. 20.0 of the 26.0 lost points"),
        (
            (10, 0.7, 0.6),
            "cannot tell",
            "?",
            "Accuracy was lost in layer2; we cannot tell whether by memorising. 20.0 of",
        ),
    ],
)
def test_a_place_claims_memorisation_only_where_there_is_some(last, answer, short, words):
    seen = Evidence(CONTEXT, story((0, 0.1, 0.1), (5, 0.9, 0.9), last), composites=composites(swap=swap()))
    found = next(one for one in judge(seen) if one.topic == "place")
    assert (found.answer, found.short) == (answer, short)
    assert found.sentence.startswith(words)


def test_a_run_that_does_not_memorise_has_nothing_to_place():
    clean = replace(CONTEXT, wrong_labels=(0, 1000))
    scores = story((0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.7, 1.0))
    seen = Evidence(clean, scores, composites=composites(swap=swap()))
    assert said(seen, "memorising")[0] == "no"
    answer, sentence = said(seen, "place")
    assert answer == "no"
    assert sentence.startswith("There is no memorisation to place, but accuracy was lost in layer2. 20.0 of")


@pytest.mark.parametrize(("n", "answer"), [(50, "cannot tell"), (5000, "yes")])
def test_few_samples_cannot_tell_what_many_can(n, answer):
    """The same numbers: only the intervals differ."""
    scores = story((0, 0.1, 0.1), (5, 0.9, 0.9), (10, 0.8, 0.99), n=n)
    assert said(Evidence(CONTEXT, scores), "memorising")[0] == answer


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
    shares = {0: 0.01, 5: repeated, 10: repeated}
    scores = story((0, 0.6, 0.5), (5, 0.85, 0.8), (10, 0.85, 0.9), memorised=shares)
    seen = Evidence(replace(CONTEXT, classes=classes, wrong_labels=(400, 1000)), scores)
    assert said(seen, "memorising")[0] == answer
    if answer == "yes":
        assert said(seen, "memorising")[1].startswith("Yes, between epoch 0 and 5: it repeats 50.0 %")


@pytest.mark.parametrize(
    ("scores", "answer", "words"),
    [
        ([(0, 0.1, 0.1), (10, 0.11, 0.1)], "no", "not clearly better than chance"),
        ([(0, 0.1, 0.1), (5, 0.5, 0.5), (10, 0.7, 0.7)], "no", "still rises"),
        ([(0, 0.1, 0.1), (7, 0.9, 0.9), (10, 0.905, 0.9)], "yes", "no longer clearly rises"),
        ([(10, 0.9, 0.9)], "cannot tell", "One checkpoint cannot show whether that still rises"),
    ],
)
def test_training(scores, answer, words):
    found = said(Evidence(CONTEXT, story(*scores)), "training")
    assert found[0] == answer
    assert words in found[1]


def test_knowledge():
    def told(*probes: Any) -> tuple[str, str]:
        return said(Evidence(CONTEXT, BASE, latent=latent(*probes)), "knowledge")

    assert said(Evidence(CONTEXT, BASE), "knowledge")[0] == told()[0] == "cannot tell"
    assert told(probe(0.71))[0] == "no"
    assert told(probe(0.73))[0] == "cannot tell"
    answer, sentence = told(probe(0.8, "layer2"), probe(0.75))
    assert answer == "yes"
    assert sentence.startswith("layer2 still knows more than the model says. VeLPIC reads 80.0 % at layer2")
    assert told(probe(0.8, "4"))[1].startswith("layer 4 still knows")


def test_pixels_and_controls_are_no_knowledge_of_the_model():
    """Fails if a probe of the input, or one fitted with true or shuffled labels, is taken for a layer's."""
    probes = [probe(0.99, "input"), probe(0.99, fit="true"), probe(0.99, split="train"), probe(0.7)]
    assert said(Evidence(CONTEXT, BASE, latent=latent(*probes)), "knowledge")[0] == "no"


def test_the_best_of_many_must_win_more_clearly():
    """Fails if the number of probes that were tried is not allowed for."""
    many = [probe(0.6, f"layer{place}") for place in range(50)]
    assert said(Evidence(CONTEXT, BASE, latent=latent(probe(0.745))), "knowledge")[0] == "yes"
    seen = Evidence(CONTEXT, BASE, latent=latent(probe(0.745), *many))
    assert said(seen, "knowledge")[0] == "cannot tell"


@pytest.mark.parametrize(
    ("value", "low", "high", "kept", "answer"),
    [
        (0.1, 0.05, 0.15, 0.3, "yes"), (0.1, 0.05, 0.25, 0.3, "cannot tell"), (0.5, 0.45, 0.6, 0.3, "no"),
        (0.5, 0.35, 0.6, 0.3, "cannot tell"), (0.1, 0.05, 0.15, 0.99, "no"), (0.1, None, None, 0.3, "cannot tell"),
    ],
)  # fmt: skip
def test_richness(value, low, high, kept, answer):
    seen = Evidence(CONTEXT, BASE, richness=richness(value, low, high, kept))
    assert said(seen, "richness")[0] == answer


@pytest.mark.parametrize(
    ("spans", "answer"),
    [
        ([(8, 6, 9), (9, 7, 10)], "yes"),
        ([(3, 2, 4), (9, 9, 9)], "no"),
        ([(5, 3, 7), (9, 9, 9)], "cannot tell"),
    ],
)
def test_window(spans, answer):
    cuts = {f"layer{place}": window(f"layer{place}", *one) for place, one in enumerate(spans)}
    found = said(Evidence(CONTEXT, BASE, composites=composites(cuts)), "window")
    assert found[0] == answer
    assert (
        f"stay the same with layer0 up to {spans[0][0]} epochs back, layer1 up to 9 epochs back." in found[1]
    )


@pytest.mark.parametrize(
    ("found", "answer", "words"),
    [
        (wrong(0.36, 0.3, 0.4), "yes", "About 36.0 % (30.0 to 40.0) of the training labels are wrong."),
        (wrong(0.03, 0.021, 0.06), "yes", "About 3.0 %"),
        (wrong(0.03, 0.019, 0.051), "cannot tell", "About 3.0 %"),
        (wrong(0.01, 0.0, 0.049), "no", "About 1.0 %"),
        (wrong(None, 0.1, 0.4), "cannot tell", "We cannot tell: between 10.0 % and 40.0 % of the labels are"),
        (wrong(None, 0.0, 0.04), "no", "We cannot tell: between 0.0 % and 4.0 %"),
        (None, "cannot tell", "We cannot tell here how many labels are wrong."),
    ],
)  # fmt: skip
def test_noise(found, answer, words):
    seen = Evidence(CONTEXT, BASE, wrong=found)
    told = said(seen, "noise")
    assert told[0] == answer
    assert told[1].startswith(words)
    known = found is not None and found.rate.value is not None
    assert ("noise" in seen.measures()) == known, "what is only possible is no number for a gate"


def test_noise_that_is_known_is_not_estimated():
    seen = Evidence(replace(CONTEXT, wrong_labels=(38, 150)), BASE, wrong=wrong(0.9, 0.8, 1.0))
    assert said(seen, "noise") == ("yes", "25.3 % of the 150 training labels are wrong (measured).")


def test_repair_is_told_with_both_places():
    def told(head: tuple[float, float, float], graft: tuple[float, float, float]) -> tuple[str, str]:
        return said(Evidence(CONTEXT, BASE, repairs=repairs(head, graft)), "repair")

    answer, sentence = told((0.0, -0.01, 0.01), (0.1, 0.05, 0.15))
    assert answer == "yes"
    assert sentence == (
        "Writing VeLPIC into the head gives +0.0 points (-1.0 to +1.0) and a new head on layer1 gives +10.0 points "
        "(+5.0 to +15.0) on held-out samples."
    )
    assert told((-0.1, -0.2, -0.05), (0.0, -0.1, 0.1))[0] == "no"
    assert told((0.01, -0.01, 0.03), (0.0, -0.1, 0.1))[0] == "cannot tell"


# ---------------------------------------------------------------------- words


def test_every_topic_has_a_rule_and_the_documentation_has_it_too():
    """The rules in code, in audit.json and in docs/verdict.md are one text."""
    assert list(RULES) == list(MEANINGS) == TOPICS
    page = Path(__file__).parents[2] / "docs" / "verdict.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    for topic, rule in RULES.items():
        assert f"| {topic} | {rule} |" in text, topic


def test_rules_do_not_depend_on_docstrings():
    """Fails if rules are read from docstrings: `python -OO` has none."""
    code = (
        "from undertow.auditing.finding import RULES, Finding\n"
        "print(len(RULES), all(RULES.values()), bool(Finding('noise', 'x', 'yes').rule), __debug__)"
    )
    seen = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout.split() == [str(len(TOPICS)), "True", "True", "False"]


def sentences(text: str) -> list[str]:
    """Parts of a text that end with a full stop, a question mark or nothing; those of numbers are no ends."""
    return [part for part in text.replace("? ", ". ").split(". ") if part]


def too_long(result: Audit, most: int = 30) -> list[str]:
    return [part for one in result.verdict for part in sentences(one.sentence) if len(part.split()) > most]


@pytest.mark.parametrize("name", ["memorising", "clean", "lazy", "under-trained"])
def test_sentences_are_short_and_the_headline_has_twenty_words(audited: Callable[[str], Audit], name: str):
    result = audited(name)
    assert not too_long(result)
    assert len(result.headline.split()) <= 20
    assert too_long(result, most=5), "the guard notices long sentences"


def test_the_verdict_follows_from_the_results_alone(audited):
    """Fails if a rule looks at anything but the typed results of the lenses."""
    result = audited("memorising")
    again = make_audit(result.evidence, result.about)
    assert again.headline == result.headline
    assert [one.to_dict() for one in again.verdict] == [one.to_dict() for one in result.verdict]
    assert again.measures == result.measures


def test_measures_can_be_checked_from_the_saved_rows(audited):
    """Fails if a number of the verdict is another than the one in audit.parquet."""
    result = audited("memorising")
    table = pd.read_parquet(result.folder / "audit.parquet")
    own = table[(table["lens"] == "model") & (table["measure"] == "accuracy")]
    test = own[own["split"] == "test"].set_index("checkpoint")
    for end, name in {"value": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}.items():
        assert result.measures[name] == test.loc[30, end]
    assert result.measures["accuracy_best"] == test["value"].max()
    assert result.measures["best_checkpoint"] == test["value"].idxmax()
    given = own[(own["split"] == "train") & (own["labels"] == "given")].set_index("checkpoint")
    assert result.measures["train_accuracy"] == given.loc[30, "value"]
    probed = table.query("lens == 'latent' and measure == 'accuracy' and split == 'test' and fit == 'given'")
    probed = probed[(probed["checkpoint"] == 30) & (probed["layer"] != "input")]
    assert result.measures["latent_accuracy"] == probed["value"].max()
    for name in ("d_lr", "nc1", "effective_dimension", "initial_kernel_alignment", "memorised"):
        found = table[(table["measure"] == name) & (table["checkpoint"] == 30)]
        assert result.measures[name] == found["value"].item(), name
    windows = table[(table["measure"] == "window") & (table["checkpoint"] == 30)]
    assert result.measures["window"] == windows["value"].min()
    gains = table[(table["lens"] == "repair") & (table["measure"] == "difference")]["value"]
    assert [result.measures["head_gain"], result.measures["graft_gain"]] == gains.tolist()
