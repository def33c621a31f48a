"""What a run with wrong labels can still give: test accuracy of its repairs, and of choosing a checkpoint.

grafts(run, data, validation)        # last checkpoint, edited head, grafts
retrained(run, data, table)          # trained anew on what `label_errors` proposes
stopping(run, data, validation)      # checkpoints chosen by noisy validation labels, or in hindsight
chosen(run, validation, errors)      # the checkpoint that `choose_checkpoint` names
places(run, data, validation, errors) # the layer and checkpoint to graft on: as it says, by noisy validation, the best
"""

from __future__ import annotations

import time

import pandas as pd
import torch

import undertow as ut
from _label_cells import accuracy, fit_network, read
from undertow.labels.choice import choose_checkpoint
from undertow.labels.findings import LabelErrors
from undertow.latent import MASC, VeLPIC

PROBES = {"VeLPIC": VeLPIC, "MASC": MASC}
OWN_CHOICE = "choose_checkpoint"
WRONG = 0.5
"""A sample whose score is above this is given the proposed label, or dropped."""

Rows = dict[str, dict[str, float]]


def test_accuracies(run: ut.Run) -> dict[int, float]:
    """Epoch -> test accuracy, of the kept checkpoints."""
    measured = run.metrics.set_index("epoch").test_accuracy
    return {epoch: float(measured[epoch]) for epoch in run.epochs}


def grafts(run: ut.Run, data: ut.DataSet, validation: ut.Samples) -> Rows:
    """The last checkpoint with other heads; what is chosen, is chosen by noisy validation labels."""
    began = time.process_time()
    edited = ut.repair(run, train=data, gate=False)
    edit_seconds = time.process_time() - began
    model = run.model()
    _, train = read(model, data.train.x, data.scaling)
    _, test = read(model, data.test.x, data.scaling)
    _, held = read(model, validation.x, data.scaling)
    rows: Rows = {}
    by_validation: dict[str, float] = {}
    for layer in train:
        for name, kind in PROBES.items():
            probe = kind().fit(train[layer], data.train.y)
            rows[f"graft: {name} at {layer}"] = {"accuracy": probe.score(test[layer], data.test.y)}
            by_validation[f"graft: {name} at {layer}"] = probe.score(held[layer], validation.y)
    best = max(row["accuracy"] for row in rows.values())
    picked = rows[max(by_validation, key=lambda name: by_validation[name])]
    assert edited.after is not None
    return rows | {
        "last checkpoint": {"accuracy": test_accuracies(run)[run.epochs[-1]]},
        "edited head": {"accuracy": edited.after, "seconds": edit_seconds},
        "best graft, hindsight": {"accuracy": best},
        "graft by noisy validation": picked,
    }


def retrained(run: ut.Run, data: ut.DataSet, table: pd.DataFrame) -> Rows:
    """The same network trained anew: suspects with the proposed label, or without them."""
    assert run.config is not None
    suspect = torch.from_numpy((table["score"] > WRONG).to_numpy(copy=True))
    proposed = torch.from_numpy(table["proposed"].to_numpy("int64", copy=True))
    given, everyone = data.train.y, torch.arange(len(data.train))
    kept = everyone[~suspect]
    true = data.train.true
    assert true is not None
    rows: Rows = {}
    for name, rows_used, labels in (
        ("retrained, relabelled", everyone, torch.where(suspect, proposed, given)),
        ("retrained, dropped", kept, given[kept]),
    ):
        began = time.process_time()
        network = fit_network(run.config, data, rows_used, labels)
        rows[name] = {
            "accuracy": accuracy(network, data.test, data.scaling),
            "seconds": time.process_time() - began,
            "samples": len(rows_used),
            "wrong": float((labels != true[rows_used]).double().mean()),
        }
    return rows


def stopping(run: ut.Run, data: ut.DataSet, validation: ut.Samples) -> Rows:
    """The checkpoint that validation labels as noisy as those of training choose, and the best in hindsight."""
    test = test_accuracies(run)
    held = {
        epoch: accuracy(run.model(epoch), ut.Samples.of(validation.x, validation.y), data.scaling)
        for epoch in run.epochs
    }
    picked, best = (max(shares, key=lambda epoch: shares[epoch]) for shares in (held, test))
    return {
        "last checkpoint": {"epoch": run.epochs[-1], "accuracy": test[run.epochs[-1]]},
        "noisy validation": {"epoch": picked, "accuracy": test[picked]},
        "best checkpoint, hindsight": {"epoch": best, "accuracy": test[best]},
    }


def chosen(run: ut.Run, validation: ut.Samples, found: LabelErrors) -> Rows:
    """The checkpoint that undertow chooses, without further samples and with the noisy ones."""
    held = (validation.x, validation.y)
    rows: Rows = {}
    for name, extra in ((OWN_CHOICE, None), (f"{OWN_CHOICE} and noisy validation", held)):
        began = time.process_time()
        epoch = int(choose_checkpoint(run, held_out=extra, errors=found).epoch)
        seconds = time.process_time() - began
        rows[name] = {"epoch": epoch, "accuracy": test_accuracies(run)[epoch], "seconds": seconds}
    return rows


def places(run: ut.Run, data: ut.DataSet, validation: ut.Samples, found: LabelErrors) -> Rows:
    """VeLPIC heads on every layer of the checkpoints that were asked, and ways to choose one of them."""
    test: dict[tuple[int, str], float] = {}
    held: dict[tuple[int, str], float] = {}
    for epoch in dict.fromkeys(epoch for epoch, _ in found.knowledge):
        model = run.model(epoch)
        train, new, fresh = (
            read(model, x, data.scaling)[1] for x in (data.train.x, data.test.x, validation.x)
        )
        for layer in found.layers:
            probe = VeLPIC().fit(train[layer], data.train.y)
            test[epoch, layer] = probe.score(new[layer], data.test.y)
            held[epoch, layer] = probe.score(fresh[layer], validation.y)
    picks = {
        "last layer of the last checkpoint": list(test)[-1],
        "place by noisy validation": max(held, key=lambda place: held[place]),
        "place by label_errors": max(found.knowledge, key=lambda place: found.knowledge[place]),
        "best place, hindsight": max(test, key=lambda place: test[place]),
    }
    return {
        name: {"epoch": epoch, "depth": found.layers.index(layer) + 1, "accuracy": test[epoch, layer]}
        for name, (epoch, layer) in picks.items()
    }
