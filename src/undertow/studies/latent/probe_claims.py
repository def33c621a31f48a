"""What paper 001 says of probes, each sentence as a test over nets, degrees of corruption and layers.

    peak_and_fall(found); ends_above("masc")(found); above_chance("masc")(found)
    wins("velpic", "masc", "last", nets=MLPS)(found)
    over_cases(some_layer_follows)(found)

Depth is told as the paper does: the early layers are the first hidden one, the later ones the last. Where the paper
says most, every seed's networks are cases of their own; else numbers are means over seeds, at each seed's own end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from undertow.studies.claims import CaseVerdict, ClaimVerdict, Share, each_seed
from undertow.studies.findings import Findings, number
from undertow.studies.latent.probe_curves import (
    TEST,
    best_layer,
    corrupted,
    degree_of,
    end,
    hidden,
    model_curve,
    model_end,
    net_of,
    probe_curve,
)
from undertow.words import probe_name

if TYPE_CHECKING:
    from undertow.training.config import TrainConfig

Check = Callable[[Findings], ClaimVerdict]
Judge = Callable[[Findings, str], tuple[bool | None, str]]
Depth = Callable[[Sequence[str]], Sequence[str]]

HIGH = 0.5
"""Degrees of corruption from here on count as high."""
FALL = 0.02
"""By so much a peak must stand above the end to be one."""
NEAR = 0.05
"""Two accuracies that differ by no more follow each other."""
SURE = 3.0
"""Standard deviations above chance that no guessing reaches."""
AT_DEPTH: Mapping[str, Depth] = {
    "first": lambda names: names[:1],
    "last": lambda names: names[-1:],
    "every": lambda names: names,
}
PAPERS_MLP = ("128", "512", "2048", "2048")
PAPERS_WIDTH = 16
"""Of the CNNs' first stage; their widest probed layer grows with it."""
FEATURES = {
    "MLP-MNIST": 2048, "MLP-CIFAR10": 2048, "CNN-MNIST": 576, "CNN-FashionMNIST": 576, "CNN-CIFAR10": 1024,
}  # fmt: skip
"""Of the widest probed layer, where the paper has more pictures of a class."""
MLPS, CNNS = ("MLP-MNIST", "MLP-CIFAR10"), ("CNN-MNIST", "CNN-FashionMNIST")


def over_cases(
    judge: Judge, share: Share = "most", *, nets: Sequence[str] = (), above: float = 0.0, below: float = 1.0,
    without: Sequence[str] = (), before: str = "",
) -> Check:  # fmt: skip
    """A check over corrupted cases of some nets (all when none is named) with a degree between two bounds."""

    def check(found: Findings) -> ClaimVerdict:
        own = [case for case in corrupted(found) if above < degree_of(case) < below]
        chosen = [case for case in own if (not nets or net_of(case) in nets) and case not in without]
        return ClaimVerdict.of_cases(
            (CaseVerdict(case, *judge(found, case)) for case in chosen), share, before
        )

    return each_seed(check, share, before) if share == "most" else check


def peak_and_fall(found: Findings, case: str) -> tuple[bool | None, str]:
    """The model's test accuracy stands higher somewhere before the end, by more than test samples scatter."""
    peak, last = float(model_curve(found, case).mean[:-1].max()), model_end(found, case)
    return _clearly(
        peak - last, FALL, scatter(found, case, peak, last), f"peak {number(peak)}, end {number(last)}"
    )


def scatter(found: Findings, case: str, *accuracies: float) -> float:
    """Two standard errors of a difference of accuracies on the case's test samples, over its seeds."""
    rows = found.of(case, "accuracy", checkpoint="last", probe="model", **TEST)
    many = float(rows["n"].iloc[0]) * rows["seed"].nunique()
    return 2 * math.sqrt(sum(one * (1 - one) for one in accuracies) / many)


def _clearly(lead: float, wanted: float, unsure: float, words: str) -> tuple[bool | None, str]:
    """Whether a lead is there; where test samples allow both, that cannot be told."""
    if lead > max(wanted, unsure):
        return True, words
    if lead + unsure >= wanted:
        return None, f"{words}, less apart than test samples scatter ({number(unsure)})"
    return False, words


def ends_above(probe: str) -> Judge:
    """The best hidden layer ends above the model, and lost less from the model's peak on."""

    def judge(found: Findings, case: str) -> tuple[bool, str]:
        layer, best = best_layer(found, case, probe)
        curve, last = model_curve(found, case), model_end(found, case)
        at = int(curve.mean.argmax())
        seen = probe_curve(found, case, probe, layer)
        lost = float(seen.mean[at]) - best
        words = f"{layer} {number(best)}, model {number(last)}"
        return best > last and lost < float(curve.mean[at]) - last, words

    return judge


def stands_above(probe: str) -> Judge:
    """The best hidden layer ends above the model, by more than test samples scatter."""

    def judge(found: Findings, case: str) -> tuple[bool | None, str]:
        layer, best = best_layer(found, case, probe)
        last = model_end(found, case)
        words, unsure = f"{layer} {number(best)}, model {number(last)}", scatter(found, case, best, last)
        if abs(best - last) <= unsure:
            return None, f"{words}, less apart than test samples scatter ({number(unsure)})"
        return best > last, words

    return judge


def rises_with_model(probe: str) -> Judge:
    """At the model's peak the best hidden layer is read better than before training, and about as well as the model."""

    def judge(found: Findings, case: str) -> tuple[bool, str]:
        curve = model_curve(found, case)
        at = int(curve.mean.argmax())
        read = max(float(probe_curve(found, case, probe, layer).mean[at]) for layer in hidden(found, case))
        _, start = best_layer(found, case, probe, "first")
        words = f"best layer {number(start)} to {number(read)}, model {number(float(curve.mean[at]))}"
        return read > start and abs(read - float(curve.mean[at])) < 2 * NEAR, words

    return judge


def above_chance(probe: str) -> Judge:
    """Untrained, the best hidden layer is read better than guessing could, and the model answers about by chance."""

    def judge(found: Findings, case: str) -> tuple[bool, str]:
        layer, start = best_layer(found, case, probe, "first")
        rows = found.of(case, "accuracy", checkpoint="first", probe="model", **TEST)
        model, many = model_end(found, case, "first"), float(rows["n"].iloc[0])
        chance = 1 / classes_of(found, case)
        sure = chance + SURE * math.sqrt(chance * (1 - chance) / many)
        words = f"{layer} {number(start)}, model {number(model)}, chance {number(chance)}"
        return start > sure and abs(model - chance) < chance, words

    return judge


def classes_of(found: Findings, case: str) -> int:
    """How many classes the case's data has."""
    from undertow.data.catalogue import DATA

    return DATA[_trained(found, case).data.partition(":")[0]].classes


def with_pictures(check: Check) -> Check:
    """The same check without networks whose classes have fewer pictures than their widest layer has features.

    The paper's have three to ten times as many. With fewer, a class's subspace is as small as its pictures are few,
    whatever their labels: of 2,000 pictures MASC reads 128 units better than a logistic probe (.75 against .62), of
    10,000 worse (.74 against .82), as in the paper.
    """

    def checked(found: Findings) -> ClaimVerdict:
        own = [case for case in corrupted(found) if net_of(case) in FEATURES]
        few = [case for case in own if pictures_of_class(found, case) < widest_layer(found, case)]
        verdict = check(replace(found, rows=found.rows[~found.rows["case"].isin(few)]))
        words = "{:g} pictures a class, fewer than the widest layer's {:g} features"
        unmet = [
            CaseVerdict(case, None, words.format(pictures_of_class(found, case), widest_layer(found, case)))
            for case in few
        ]
        return (verdict if verdict.of else ClaimVerdict(None, "", of=0)).beside(unmet)

    return checked


def pictures_of_class(found: Findings, case: str) -> float:
    """Training pictures of a class, on average; the whole set where the case takes no part of it."""
    from undertow.data.catalogue import DATA

    config = _trained(found, case)
    return (config.train_size or DATA[config.data.partition(":")[0]].train) / classes_of(found, case)


def widest_layer(found: Findings, case: str) -> int:
    """Features of a network's widest probed layer; the paper's own where its name has no widths."""
    config, most = _trained(found, case), FEATURES[net_of(case)]
    if net_of(case) in MLPS:
        return max(map(int, re.findall(r"\d+", config.model.partition(":")[2])), default=most)
    width = re.search(r"width=(\d+)", config.model)
    return most * int(width[1]) // PAPERS_WIDTH if width else most


def _trained(found: Findings, case: str) -> TrainConfig:
    config = found.study.case(case).train
    assert config is not None  # every case of these studies is trained
    return config


def wins(
    one: str, other: str, depth: str, share: Share = "most", *, nets: Sequence[str] = (), above: float = 0.0,
    below: float = 1.0,
) -> Check:  # fmt: skip
    """At the end one probe reads a layer better than another: so many of so many layers at that depth."""

    def check(found: Findings) -> ClaimVerdict:
        own = [case for case in corrupted(found) if above < degree_of(case) < below]
        places = [
            (case, layer)
            for case in own
            if not nets or net_of(case) in nets
            for layer in AT_DEPTH[depth](hidden(found, case))
        ]
        return ClaimVerdict.of_cases((_won(found, *place, one, other) for place in places), share)

    return each_seed(check) if share == "most" else check


def _won(found: Findings, case: str, layer: str, one: str, other: str) -> CaseVerdict:
    a, b = (end(found, case, probe, layer) for probe in (one, other))
    words = f"{probe_name(one)} {number(a)}, {probe_name(other)} {number(b)}"
    return CaseVerdict(f"{case}, {layer}", a > b, words, case)


def often_not_always(found: Findings) -> ClaimVerdict:
    """In many layers VeLPIC is clearly ahead of MASC, in some MASC of VeLPIC."""
    often, other = clearly_above("velpic", "masc")(found), clearly_above("masc", "velpic", "some")(found)
    if often.holds is None or other.holds is None:
        return often
    words = f"VeLPIC clearly ahead in {often.numbers}; MASC in {other.agree} of {other.of}"
    return replace(often, holds=often.holds and other.holds, numbers=words)


def more_at_high_degrees(found: Findings) -> ClaimVerdict:
    """In a layer VeLPIC's lead over MASC is larger at the highest degree than at the lowest, or smaller.

    Leads that differ by no more than test samples scatter cannot tell.
    """
    judged: list[CaseVerdict] = []
    for alike in _alike_but_for_noise(found):
        net, own = net_of(alike[0]), sorted(alike, key=degree_of)
        for layer in hidden(found, own[0]) if len(own) > 1 else ():
            ends = [
                [end(found, case, probe, layer) for probe in ("velpic", "masc")] for case in (own[0], own[-1])
            ]
            low, high = (velpic - masc for velpic, masc in ends)
            unsure = scatter(found, own[-1], *ends[0], *ends[1])
            words = f"{number(low)} at {degree_of(own[0]):g}, {number(high)} at {degree_of(own[-1]):g}"
            alike = abs(high - low) <= unsure
            told = f", less apart than test samples scatter ({number(unsure)})" if alike else ""
            judged.append(CaseVerdict(f"{net}, {layer}", None if alike else high > low, words + told, net))
    return ClaimVerdict.of_cases(judged, "most")


def _alike_but_for_noise(found: Findings) -> list[list[str]]:
    """Cases of one net and recipe; a smaller scale may train some degrees with other widths or more pictures."""
    alike: dict[tuple[str, TrainConfig], list[str]] = {}
    for case in corrupted(found):
        recipe = replace(_trained(found, case), noise="0")
        alike.setdefault((net_of(case), recipe), []).append(case)
    return list(alike.values())


def best_is_widest(probe: str) -> Judge:
    """The layer that is read best at the end is one of those with the most features."""

    def judge(found: Findings, case: str) -> tuple[bool, str]:
        layer, best = best_layer(found, case, probe)
        wide = widest_layers(found, case)
        return layer in wide, f"{layer} {number(best)}, the widest {', '.join(wide)}"

    return judge


def widest_layers(found: Findings, case: str) -> Sequence[str]:
    """Hidden layers with the most features: a CNN's flattened maps, L0 and L1 of ResNet-18, fc1 and fc2 of AlexNet."""
    names, net = hidden(found, case), net_of(case)
    if net in MLPS:
        spec = re.findall(r"\d+", _trained(found, case).model.partition(":")[2]) or PAPERS_MLP
        widths = dict(zip((f"layer{at}" for at in range(1, len(spec) + 1)), map(int, spec), strict=True))
        return [name for name in names if widths[name] == max(widths.values())]
    return names[1:] if net.startswith("AlexNet") else names[: 1 if net.startswith("CNN") else 2]


def later_layers_too(found: Findings, case: str) -> tuple[bool, str]:
    """From the first hidden layer to the last VeLPIC loses less than MASC does."""
    names = hidden(found, case)
    lost = {
        probe: end(found, case, probe, names[0]) - end(found, case, probe, names[-1])
        for probe in ("velpic", "masc")
    }
    return lost["velpic"] < lost[
        "masc"
    ], f"VeLPIC loses {number(lost['velpic'])}, MASC {number(lost['masc'])}"


def some_layer_follows(found: Findings, case: str) -> tuple[bool, str]:
    """The logistic probe of some hidden layer ends near the model."""
    last = model_end(found, case)
    ends = {layer: end(found, case, "logistic", layer) for layer in hidden(found, case)}
    near = min(ends, key=lambda layer: abs(ends[layer] - last))
    return abs(ends[near] - last) <= NEAR, f"{near} {number(ends[near])}, model {number(last)}"


def clearly_above(
    one: str, other: str, share: Share = "many", depth: str = "every", *, nets: Sequence[str] = ()
) -> Check:
    """In so many layers at that depth one probe ends above another by more than test samples scatter.

    Of some layers those say nothing that are less apart; of many they count against it.
    """

    def check(found: Findings) -> ClaimVerdict:
        judged: list[CaseVerdict] = []
        for case in [case for case in corrupted(found) if not nets or net_of(case) in nets]:
            for layer in AT_DEPTH[depth](hidden(found, case)):
                a, b = (end(found, case, probe, layer) for probe in (one, other))
                words = f"{probe_name(one)} {number(a)}, {probe_name(other)} {number(b)}"
                unsure = scatter(found, case, a, b)
                told = None if share == "some" and abs(a - b) <= unsure else a - b > unsure
                judged.append(CaseVerdict(f"{case}, {layer}", told, words))
        return ClaimVerdict.of_cases(judged, share)

    return check


def logistic_behind_both(found: Findings) -> ClaimVerdict:
    """Many hidden layers where logistic is behind MASC and VeLPIC by more than test samples scatter."""

    def judged(case: str, layer: str) -> CaseVerdict:
        masc, velpic, logistic = (end(found, case, probe, layer) for probe in ("masc", "velpic", "logistic"))
        words = f"logistic {number(logistic)}, MASC {number(masc)}, VeLPIC {number(velpic)}"
        behind = min(masc, velpic) - logistic > scatter(found, case, min(masc, velpic), logistic)
        return CaseVerdict(f"{case}, {layer}", behind, words)

    places = [(case, layer) for case in corrupted(found) for layer in hidden(found, case)]
    return ClaimVerdict.of_cases((judged(*place) for place in places), "many")


def trained_beats_random(probe: str, *, reverse: bool = False) -> Judge:
    """The best hidden layer of the trained network is read better than that of the random one, or the reverse."""

    def judge(found: Findings, case: str) -> tuple[bool | None, str]:
        (_, start), (_, last) = (best_layer(found, case, probe, at) for at in ("first", "last"))
        words, unsure = f"random {number(start)}, trained {number(last)}", scatter(found, case, start, last)
        if abs(last - start) <= unsure:
            return None, f"{words}, less apart than test samples scatter ({number(unsure)})"
        return (last < start if reverse else last > start), words

    return judge
