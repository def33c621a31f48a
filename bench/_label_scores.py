"""How others find wrong labels: a score for each training sample, higher where the label is rather wrong.

trace = Trace.of(run, data)                      # one pass over every checkpoint
for name, (score, seconds) in cheap_scores(trace, seed=0).items(): ...
for name, (score, seconds) in crossvalidated_scores(config, data, seed=0).items(): ...
ranking_quality(score, wrong)                    # average precision and AUROC

Seconds are of one core's CPU. A method that looks at the run's checkpoints pays for the passes that it needs; those
that share them each pay in full.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor, nn
from torch.nn import functional

import undertow as ut
from _label_cells import fit_network, read
from undertow.data.inputs import to_inputs
from undertow.latent import VeLPIC

Array = NDArray[np.float64]
Scores = dict[str, tuple[Array, float]]

FOLDS, NEIGHBOURS, DATALAB_NEIGHBOURS = 5, 25, 10
HELD_BACK = 0.01
SHARPNESS, SKETCH_CHECKPOINTS = 30.0, 7
NETWORK_COST = "network, 5-fold"
"""The name under which the cost of cross-validating the network is kept."""


@dataclass(frozen=True)
class Trace:
    """What a run's checkpoints say of its training samples; the untrained network is left out."""

    data: ut.DataSet
    epochs: tuple[int, ...]
    outputs: Tensor  # (T, N, C) logits
    features: tuple[dict[str, Tensor], ...]  # per checkpoint, layer -> (N, D)
    seconds: float  # of one checkpoint's pass, its share

    @classmethod
    def of(cls, run: ut.Run, data: ut.DataSet) -> Trace:
        epochs = tuple(epoch for epoch in run.epochs if epoch)
        began = time.process_time()
        seen = [read(run.model(epoch), data.train.x, data.scaling) for epoch in epochs]
        seconds = (time.process_time() - began) / len(epochs)
        outputs = torch.stack([one for one, _ in seen]).double()
        return cls(data, epochs, outputs, tuple(features for _, features in seen), seconds)

    @property
    def given(self) -> Tensor:
        return self.data.train.y

    @property
    def last(self) -> Tensor:
        """(N, D), what enters the head at the end."""
        return list(self.features[-1].values())[-1]


def ranking_quality(score: Array, wrong: NDArray[np.bool_]) -> dict[str, float]:
    if not np.isfinite(score).all():
        raise ValueError(f"{int((~np.isfinite(score)).sum())} scores are not finite")
    return {"ap": float(average_precision_score(wrong, score)), "auroc": float(roc_auc_score(wrong, score))}


def cheap_scores(trace: Trace, seed: int) -> Scores:
    """Everything that trains no further network."""
    passes = len(trace.epochs)
    pixels = to_inputs(trace.data.train.x, trace.data.scaling).flatten(1)
    found: Scores = {}

    def score(name: str, method: Callable[[], Array], passes: int) -> None:
        began = time.process_time()
        value = method()
        found[name] = value, time.process_time() - began + passes * trace.seconds

    score("loss at the end", lambda: losses(trace)[-1].numpy(), 1)
    score("mean loss", lambda: losses(trace).mean(0).numpy(), passes)
    score("AUM", lambda: -margins(trace).mean(0).numpy(), passes)
    score("kNN 25, features", lambda: strangers(trace.last, trace.given, NEIGHBOURS), 1)
    score("kNN 25, pixels", lambda: strangers(pixels, trace.given, NEIGHBOURS), 0)
    score("cleanlab, own probabilities", lambda: own_probabilities(trace), 1)
    score("Datalab, features", lambda: datalab_features(trace.last, trace.given), 1)
    score("sketch of five-fold VeLPIC", lambda: sketch(trace, seed), SKETCH_CHECKPOINTS)
    for where, rows, cost in (("features", trace.last, trace.seconds), ("pixels", pixels, 0.0)):
        began = time.process_time()
        likely = logistic_probabilities(rows, trace.given, seed)
        seconds = time.process_time() - began + cost
        for name, value in cleanlab_scores(likely, trace.given).items():
            found[f"cleanlab, logistic on {where}, {name}"] = value, seconds
    return found


def regularised_scores(trace: Trace, seed: int) -> Scores:
    """The same logistic regression, held back: by default it learns wrong labels by heart too."""
    pixels = to_inputs(trace.data.train.x, trace.data.scaling).flatten(1)
    found: Scores = {}
    for where, rows, cost in (("features", trace.last, trace.seconds), ("pixels", pixels, 0.0)):
        began = time.process_time()
        likely = logistic_probabilities(rows, trace.given, seed, C=HELD_BACK)
        seconds = time.process_time() - began + cost
        score = 1 - get_label_quality_scores(trace.given.numpy(), likely, method="self_confidence")
        found[f"cleanlab, logistic C={HELD_BACK:g} on {where}, self-confidence"] = score, seconds
    return found


def crossvalidated_scores(config: ut.TrainConfig, data: ut.DataSet, seed: int) -> Scores:
    """Scores by cleanlab of the probabilities that networks gave to samples they were not trained on.

    At the end of training, and at the epoch whose answers agree best with the held-out given labels.
    """
    began = time.process_time()
    likely = np.zeros((config.epochs, len(data.train), len(data.classes)))
    for rest, held in folds(data.train.y, seed):
        said: list[Array] = []

        def watch(model: nn.Module, held: Tensor = held, said: list[Array] = said) -> None:
            said.append(read(model, data.train.x[held], data.scaling)[0].double().softmax(1).numpy())

        fit_network(config, data, rest, data.train.y[rest], watch)
        likely[:, held.numpy()] = np.stack(said)
    agreement = (likely.argmax(2) == data.train.y.numpy()).mean(1)
    stopped = likely[int(agreement.argmax())]
    found = {
        **cleanlab_scores(likely[-1], data.train.y),
        "early-stopped, self-confidence": cleanlab_scores(stopped, data.train.y)["self-confidence"],
    }
    seconds = time.process_time() - began
    return {f"cleanlab, {NETWORK_COST}, {name}": (value, seconds) for name, value in found.items()}


def cleanlab_scores(likely: Array, given: Tensor) -> dict[str, Array]:
    """Self-confidence is cleanlab's default; what `find_label_issues` flags comes first in its own ranking."""
    labels = given.numpy()
    confidence = get_label_quality_scores(labels, likely, method="self_confidence")
    flagged = find_label_issues(labels, likely, n_jobs=1)
    return {
        "self-confidence": 1 - confidence,
        "margin": 1 - get_label_quality_scores(labels, likely, method="normalized_margin"),
        "adjusted margin": 1 - adjusted_margin(likely, given),
        "flagged first": flagged + (1 - confidence),
    }


def adjusted_margin(likely: Array, given: Tensor) -> Array:
    return get_label_quality_scores(
        given.numpy(), likely, method="normalized_margin", adjust_pred_probs=True
    )  # fmt: skip


def own_probabilities(trace: Trace) -> Array:
    """Confident learning with what the network says of samples that it was trained on."""
    return 1 - adjusted_margin(trace.outputs[-1].softmax(1).numpy(), trace.given)


def folds(given: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for rest, held in splitter.split(np.zeros(len(given)), given.numpy()):
        yield torch.from_numpy(rest), torch.from_numpy(held)


def losses(trace: Trace) -> Tensor:
    """Cross-entropy (T, N) of the given labels."""
    return -trace.outputs.log_softmax(2)[:, torch.arange(len(trace.given)), trace.given]


def margins(trace: Trace) -> Tensor:
    """(T, N): the given label's logit above the largest other."""
    own = functional.one_hot(trace.given, trace.outputs.shape[2]).bool()
    largest = trace.outputs.masked_fill(own, -torch.inf).amax(2)
    return trace.outputs[:, torch.arange(len(trace.given)), trace.given] - largest


def strangers(rows: Tensor, given: Tensor, count: int) -> Array:
    """The share of the nearest rows, by cosine, whose label is another."""
    unit = functional.normalize(rows, dim=1)
    shares: list[Tensor] = []
    for part in torch.arange(len(rows)).split(1000):
        near = unit[part] @ unit.T
        near[torch.arange(len(part)), part] = -torch.inf  # nobody is a neighbour of himself
        shares.append((given[near.topk(count, 1).indices] != given[part, None]).double().mean(1))
    return torch.cat(shares).numpy()


def datalab_features(rows: Tensor, given: Tensor) -> Array:
    """As cleanlab's Datalab does it with features and no probabilities: shares of the nearest by distance."""
    shares: list[Tensor] = []
    for part in torch.arange(len(rows)).split(1000):
        far = torch.cdist(rows[part], rows)
        far[torch.arange(len(part)), part] = torch.inf
        near = given[far.topk(DATALAB_NEIGHBOURS, 1, largest=False).indices]
        shares.append(functional.one_hot(near, int(given.max()) + 1).double().mean(1))
    return 1 - get_label_quality_scores(given.numpy(), torch.cat(shares).numpy())


def logistic_probabilities(rows: Tensor, given: Tensor, seed: int, C: float = 1.0) -> Array:
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # Iterations are limited as in a user's own call: the last ones change no ranking, and take most time.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cross_val_predict(
            LogisticRegression(C=C), rows.numpy(), given.numpy(), cv=splitter, method="predict_proba"
        )


def sketch(trace: Trace, seed: int) -> Array:
    """1 - mean over layers and checkpoints of softmax(30 cosine) of five-fold VeLPIC for the given label."""
    places = np.linspace(0, len(trace.epochs) - 1, SKETCH_CHECKPOINTS).round().astype(int)
    total, count = torch.zeros(len(trace.given), dtype=torch.float64), 0
    for place in dict.fromkeys(places.tolist()):
        for rows in trace.features[place].values():
            unit = functional.normalize(rows, dim=1)
            for rest, held in folds(trace.given, seed):
                probe = VeLPIC().fit(rows[rest], trace.given[rest])
                likely = (
                    SHARPNESS * unit[held].double() @ torch.as_tensor(probe.vectors_).double().T
                ).softmax(1)
                total[held] += likely[torch.arange(len(held)), trace.given[held]]
            count += 1
    return (1 - total / count).numpy()
