"""How others find wrong labels, on the material of a cell; each in every setting named here.

peers(held).scores                        # name -> (N,): higher is more suspicious; unlabelled samples are left out
best_by_family(average_precisions)        # the best setting of each family, with hindsight
"""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch
from cleanlab import Datalab
from cleanlab.rank import get_label_quality_scores
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor
from torch.nn import functional

from _label_cells import Material
from undertow.labels.views import Plan
from undertow.labels.voters import direction_votes

FAMILIES = {
    "AUM": "AUM", "mean loss": "mean loss", "counted wrong": "counted wrong", "kNN in": "kNN 25, inputs",
    "kNN feat": "kNN 25, last", "SimiFeat": "SimiFeat", "Datalab": "Datalab", "means": "class means", "LDA": "LDA",
    "sketch": "sketch", "cl logistic": "cleanlab, logistic", "cl own": "cleanlab, own",
    "cl network": "cleanlab, cross-validated",
}  # fmt: skip
"""Columns: the best of all settings whose name begins so."""
FOLDS = 5
NARROW = 600
"""Wider rows are turned to 300 columns: LDA on all 1,280 of EfficientNet was .05 to .1 behind that on 300."""


@dataclass(eq=False)
class Peers:
    """What others say."""

    y: Tensor
    true: Tensor
    classes: int
    scores: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    discriminants: list[Tensor] = field(default_factory=list[Tensor])  # (N, C): for proposals

    @property
    def wrong(self) -> np.ndarray:
        return (self.y != self.true).numpy()

    def right_by_discriminant(self) -> float | None:
        """The share of wrong labels for which the best other class of LDA is the true one, on its better view."""
        wrong = torch.from_numpy(self.wrong)
        if not self.discriminants or not bool(wrong.any()):
            return None
        named = [one.scatter(1, self.y[:, None], -torch.inf).argmax(1) for one in self.discriminants]
        return max(float((one == self.true)[wrong].float().mean()) for one in named)


def peers(held: Material) -> Peers:
    keep = held.given >= 0
    found = Peers(held.given[keep], held.true[keep], held.classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _by_rows(found, "inputs", held.inputs[keep].float())
        if held.outputs:
            _by_rows(found, "last features", list(held.features.values())[-1][keep].float())
            _by_outputs(found, torch.stack([one[keep] for one in held.outputs.values()]).double())
        _sketch(found, [one[keep].float() for one in (*held.features.values(),) or (held.inputs,)])
    return found


def best_by_family(precisions: dict[str, float]) -> dict[str, float | None]:
    return {
        name: max((ap for key, ap in precisions.items() if key.startswith(start)), default=None)
        for name, start in FAMILIES.items()
    }


def _margins(votes: Tensor, y: Tensor) -> Tensor:
    own = votes.gather(1, y[:, None])[:, 0]
    return own - votes.scatter(1, y[:, None], -torch.inf).amax(1)


def _quality(likely: np.ndarray, y: Tensor, method: str, *, adjust: bool = False) -> Tensor:
    scores = get_label_quality_scores(
        y.numpy(), np.asarray(likely, dtype=np.float64), method=method, adjust_pred_probs=adjust
    )
    return 1 - torch.from_numpy(np.asarray(scores))


def _datalab(y: Tensor, known: dict[str, np.ndarray]) -> Tensor:
    """Datalab's label score, as it comes with all its other checks."""
    lab = Datalab(data={"y": y.numpy()}, label_name="y", verbosity=0)
    with contextlib.redirect_stdout(io.StringIO()):
        lab.find_issues(**known)
    return 1 - torch.from_numpy(lab.get_issues("label")["label_score"].to_numpy().astype(np.float64))


def by_folds(likely: dict[int, Tensor], y: Tensor) -> dict[str, Tensor]:
    """Cleanlab on a network trained on the other folds, at each of its checkpoints (epoch -> (N, C))."""
    return {
        f"cleanlab, cross-validated epoch {epoch} {method}": _quality(one.softmax(1).numpy(), y, method)
        for epoch, one in likely.items()
        for method in ("self_confidence", "normalized_margin")
    }


def _by_outputs(found: Peers, every: Tensor) -> None:
    y = found.y
    own = y[None, :, None].expand(len(every), -1, 1)
    found.scores |= {
        "AUM": -torch.stack([_margins(one, y) for one in every]).mean(0),
        "mean loss": -every.log_softmax(2).gather(2, own).mean((0, 2)),
        "counted wrong": (every.argmax(2) != y).double().mean(0),
        "cleanlab, own": _quality(every[-1].softmax(1).numpy(), y, "normalized_margin", adjust=True),
    }


def _by_rows(found: Peers, name: str, rows: Tensor) -> None:
    y, near = found.y, _nearest(rows, 25)
    for count in (10, 25):
        soft = functional.one_hot(y[near[:, :count]], found.classes).float().mean(1)
        own = functional.normalize(soft, dim=1).gather(1, y[:, None])[:, 0]
        found.scores[f"SimiFeat votes of {count}, {name}"] = -own
    found.scores |= {
        f"kNN 25, {name}": (y[near] != y[:, None]).double().mean(1),
        f"Datalab features, {name}": _datalab(y, {"features": rows.numpy()}),
    }
    if int(y.bincount(minlength=found.classes).min()) < FOLDS:  # scikit-learn's folds need so many of a class
        return
    low = rows.numpy() if rows.shape[1] <= NARROW else PCA(300, random_state=0).fit_transform(rows.numpy())
    parts = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    for c in (1.0, 0.01):
        model = LogisticRegression(C=c, max_iter=60)
        likely = cross_val_predict(model, low, y.numpy(), cv=parts, method="predict_proba")
        for method in ("self_confidence", "normalized_margin"):
            found.scores[f"cleanlab, logistic C={c:g} {method}, {name}"] = _quality(likely, y, method)
        found.scores[f"Datalab probabilities C={c:g}, {name}"] = _datalab(y, {"pred_probs": likely})
    _by_means(found, name, torch.from_numpy(np.asarray(low)).float(), parts)


def _nearest(rows: Tensor, count: int) -> Tensor:
    unit = functional.normalize(rows, dim=1)
    found = []
    for block in torch.arange(len(unit)).split(1000):
        cosines = unit[block] @ unit.T
        cosines[torch.arange(len(block)), block] = -torch.inf
        found.append(cosines.topk(count, 1).indices)
    return torch.cat(found)


def _by_means(found: Peers, name: str, rows: Tensor, parts: StratifiedKFold) -> None:
    y, classes = found.y, found.classes
    means, lda = torch.full((len(y), classes), -1e9), torch.full((len(y), classes), -1e9)
    for rest, held in parts.split(rows.numpy(), y.numpy()):
        centres = torch.stack([rows[rest][y[rest] == one].mean(0) for one in range(classes)])
        means[held] = -torch.cdist(rows[held], centres)
        probe = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(
            rows[rest].numpy(), y[rest].numpy()
        )
        lda[held] = torch.from_numpy(probe.decision_function(rows[held].numpy())).float()
    found.scores |= {f"class means, {name}": -_margins(means, y), f"LDA, {name}": -_margins(lda, y)}
    found.discriminants.append(lda)


def _sketch(found: Peers, features: list[Tensor]) -> None:
    """Mean over layers and checkpoints (without a run, the inputs) of softmax(30 cosine) of five-fold VeLPIC."""
    plan = Plan.of(found.y, found.classes, FOLDS, 0)
    total = torch.stack([(30 * direction_votes(rows, plan)).softmax(1) for rows in features]).sum(0)
    found.scores["sketch"] = -total.gather(1, found.y[:, None])[:, 0].double()
