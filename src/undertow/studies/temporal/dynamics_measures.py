"""What the studies of appendices A, C, D and of SGD noise over time measure on a trained run.

rows = step_equations(run, case="mlp", seed=0, checkpoints="50,100")     # equations 1 to 3 beside measured steps
rows = balances(run, case="mlp", seed=0, checkpoints="10,50,90")         # appendix C
rows = linearised(run, case="mlp", seed=0, samples=200)                  # appendix D
rows = anisotropy(run, case="mlp", seed=0, checkpoints="10,20,30")       # SGD noise beside consistency and window
rows = curves(run, case="mlp", seed=0)                                   # figure 19 and table 2
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor, nn

from undertow.data.corruptions import corrupt
from undertow.data.inputs import to_inputs
from undertow.data.samples import Samples
from undertow.errors import BadData
from undertow.session.checkpoints import choose
from undertow.studies.findings import row
from undertow.studies.task import Rows
from undertow.studies.temporal.balance import balance
from undertow.studies.temporal.composite_measures import pixels, some
from undertow.studies.temporal.feature_space_measures import cuts_of
from undertow.studies.temporal.isotropy import covariance_spectrum, isotropy_test
from undertow.studies.temporal.linearised import softmax_curvature, train_linearised
from undertow.studies.temporal.noise_measures import noise_at
from undertow.studies.temporal.step_equation import step_equation
from undertow.temporal.compose_split import capture, chain_after
from undertow.temporal.consistency import consistency_matrix
from undertow.temporal.cuts import find_cut
from undertow.temporal.matrix import composite_matrix
from undertow.temporal.window import memory_window
from undertow.training.prepare import objective_of
from undertow.training.run import Run
from undertow.training.seeds import stream


def step_equations(
    run: Run, *, case: str, seed: int, checkpoints: str = "last", batches: int = 64, inputs: int = 8,
    step_batch: int | None = None, small: float = 0.1,
) -> Rows:  # fmt: skip
    """How far equation 3, which is of small steps, is from the steps of SGD, at every cut.

    Options:
        step_batch: samples in the batch of a step; as in training when not given.
        small: measures called so are of steps that are this part of those of training.
    """
    data, config = run.data(), run.config
    assert config is not None  # a study's run has one
    objective, probes = objective_of(config, data), some(data.test, inputs)
    rows: Rows = []
    for at, cut, (name, part) in product(
        choose(run, checkpoints), cuts_of(run), (("", 1.0), ("_small", small))
    ):
        where = {"layer": cut, "checkpoint": at, "n": batches}
        try:
            found = step_equation(
                run.model(at), data.train.tensor, data.train.y, probes.tensor, cut=cut, batches=batches,
                batch_size=step_batch or config.batch_size, lr=part * config.learning_rate(max(1, at)),
                loss=objective.loss, generator=stream(seed, "mini-batches", at),
                prepare=lambda x: to_inputs(x, data.scaling),
            )  # fmt: skip
        except BadData as reason:
            rows.append(row(f"mean_error{name}", None, note=str(reason), **where))
            continue
        names = ("mean_error", "first_order_error", "covariance_error", "random_share", "bend_share")
        rows += [row(f"{one}{name}", getattr(found, one), **where) for one in names]
    return rows


def balances(
    run: Run, *, case: str, seed: int, checkpoints: str = "all", samples: int = 200, blur: int = 5
) -> Rows:
    """The two parts of the change of outputs from each checkpoint to the next recorded one, on three kinds of data."""
    data, cuts = run.data(), cuts_of(run)
    test = pixels(some(data.test, samples))
    blurred = Samples.of(corrupt(test.tensor, "gaussian_blur", blur), test.y, test.true)
    sets = {"train": some(data.train, samples), "test": test, "corrupted": blurred}
    rows: Rows = []
    for at in choose(run, checkpoints):
        later = next((one for one in run.epochs if one > at), None)
        if later is None:
            continue
        models = [run.model(at), run.model(later)]
        for split, part in sets.items():
            inputs = to_inputs(part.tensor, data.scaling)
            seen = [capture(model, inputs, cuts)[0] for model in models]
            for cut in cuts:
                parts = (models, [one[cut] for one in seen], cut, seed)
                rows += [
                    {**one, "checkpoint": at, "layer": cut, "split": split} for one in _balance_rows(*parts)
                ]
    return rows


def _balance_rows(models: list[nn.Module], features: list[Tensor], cut: str, seed: int) -> Rows:
    deep = [part for part in (chain_after(model, cut) for model in models) if part is not None]
    assert len(deep) == len(models)  # our own networks are chains
    before, after = (part.state_dict() for part in deep)
    found = balance(deep[0], features[0], features[1], before, after, seed=seed)
    rows = [row(f"{name}_part" if name != "change" else name, size) for name, size in found.sizes.items()]
    note = "" if found.flatness is not None else "flat everywhere: every probability is 0 or 1"
    return [*rows, row("flatness", found.flatness, note=note)]


def linearised(
    run: Run, *, case: str, seed: int, samples: int = 200, steps: int = 200, kept: int = 10
) -> Rows:
    """The network linearised where its training began, by full-batch gradient descent, with all its composites."""
    data, model = run.data(), run.model(run.epochs[0])
    part = some(data.train, samples)
    inputs, keep = to_inputs(part.tensor, data.scaling), np.linspace(0, steps, kept + 1).round().astype(int)
    rows: Rows = []
    for name in cuts_of(run):
        cut = find_cut(model, name, inputs[:4])
        shallow = {one for one, _ in model.named_parameters() if one in cut.shallow}
        found = train_linearised(model, inputs, part.y, shallow=shallow, steps=steps, keep=keep.tolist())
        where = {"layer": name, "n": len(part)}
        broken, losses = found.broken(), found.losses
        outputs = (found.start + found.shallow + found.deep).flatten(0, 1)
        rows += [
            row("broken", len(broken), pairs=found.pairs, **where),
            row("most_broken", max((more for *_, more in broken), default=0.0), **where),
            row("curvature", softmax_curvature(outputs), **where),
            row("linear_fit", found.accuracy, **where),
        ]
        rows += [
            row("linear_loss", float(losses[i, j]), shallow=s, checkpoint=t, **where)
            for i, s in enumerate(found.steps)
            for j, t in enumerate(found.steps)
        ]
    return rows


def anisotropy(
    run: Run,
    *,
    case: str,
    seed: int,
    checkpoints: str,
    batches: int = 64,
    inputs: int = 8,
    samples: int = 500,
    threshold: float = 0.8,
    back: int = 3,
) -> Rows:
    """At each checkpoint: how uneven one step's noise is, consistency with the `back` checkpoints before, the window.

    Args:
        run: a trained run.
        case: the study's case (unused).
        seed: the case's seed; of mini-batches here.
        checkpoints: epochs such as 10,20,30; window and consistency are over these.
        batches: mini-batches, each one step.
        inputs: test samples whose features are followed.
        samples: of training and test data for the composites.
        threshold: of the window.
        back: so many of the chosen checkpoints before t make its consistency.
    """
    times, rows = list(choose(run, checkpoints)), Rows()
    for at in times:
        for cut, delta in noise_at(run, at, batches=batches, inputs=inputs, seed=seed):
            rows += [{**one, "layer": cut, "checkpoint": at} for one in anisotropy_rows(delta)]
    for split in ("train", "test"):
        found = composite_matrix(
            run, some(getattr(run.data(), split), samples), split=split, checkpoints=times
        )
        for place, cut in enumerate(found.cuts):
            seen = consistency_matrix(found.predictions[place], found.deep)
            where = {"layer": cut, "split": split, "n": found.count}
            rows += [{**one, **where} for one in window_rows(seen.values, list(found.deep), threshold, back)]
    return rows


def anisotropy_rows(delta: Tensor) -> Rows:
    """How uneven the noise (B, M, D) is: means over the M inputs."""
    tests = [isotropy_test(delta[:, place], draws=99) for place in range(delta.shape[1])]
    tops = [covariance_spectrum(delta[:, place], draws=1).shares.sum() for place in range(delta.shape[1])]
    # A ratio of statistics, so its logarithm is what can be averaged; 0 is what isotropic noise has.
    strength = np.mean([math.log(one.statistic / one.expected) for one in tests])
    return [
        row("anisotropy", float(strength), n=len(tests)),
        row("top_share", float(np.mean(tops)), n=len(tests)),
    ]


def window_rows(consistency: Any, times: list[int], threshold: float, back: int) -> Rows:
    """Of each checkpoint with enough before it: mean consistency over these, and the window."""
    window = memory_window(consistency, times, threshold)
    return [
        one
        for place, at in enumerate(times)
        if place >= back
        for one in (
            row("consistency", float(consistency[place - back : place, place].mean()), checkpoint=at),
            row("window", float(window.span[place]), checkpoint=at, open=bool(window.open[place])),
        )
    ]


def curves(run: Run, *, case: str, seed: int) -> Rows:
    """Loss and accuracy of every epoch, and the settings of the paper's table 2."""
    config = run.config
    assert config is not None  # a study's run has one
    rows: Rows = []
    for line in run.metrics.to_dict("records"):
        for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
            if line[name] == line[name]:  # epoch 0 has no training loss
                rows.append(row(name, line[name], checkpoint=line["epoch"]))
    settings = {"lr": config.lr, "batch size": config.batch_size, "weight decay": config.weight_decay}
    if config.optimiser == "sgd":
        settings["momentum"] = config.momentum
    return rows + [row("setting", value, layer=name) for name, value in settings.items()]
