"""Which checkpoint to use, and which layer to graft a head on, when no clean label is at hand.

    choice = choose_checkpoint(run)                    # or choose_checkpoint(session), or with errors=found
    choice.epoch, choice.reason                        # the model to use, and what decided
    choice.table                                       # agreement of every checkpoint; `score` is what decided
    choice.graft                                       # (epoch, layer) for `repair(run, checkpoint=, layer=)`
    choice.grafts                                      # all of them, with what they promise
    choose_checkpoint(run, test=(x2, y2))              # with samples it was not trained on, as noisy as the others

Rule: with held-out samples, whose labels may be as noisy as those of training, the checkpoints within a standard
error of the best one on them, counted on the samples on which the two differ; without, all. Among these the one whose
answers on the training samples agree best with what is believed to be the true labels (`label_errors`): the mean of the
agreement on all samples and of that on suspects. While a network learns, both rise. When it memorises, right labels
still raise the first; on suspects, where it must answer otherwise than the label, memorising can only lose. The first
alone chose too late on networks that memorise, the second too early on those that do not.

The layer to graft on is the one whose VeLPIC vectors, learned from the other folds, name most often what is believed;
what enters the head is one too, and stands for a new head of the model itself. Whether a graft is worth it, and better
than the chosen checkpoint as it is, held-out samples must say: `repair` asks them, and `undertow labels --choose` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undertow.errors import BadValue
from undertow.labels.findings import LabelErrors
from undertow.labels.search import LabelSearch, label_errors, search_config
from undertow.labels.settings import LabelConfig
from undertow.session.answers import AnswersAt, AnswersGauge
from undertow.session.samples import TEST, TRAIN
from undertow.session.session import Session, session_of
from undertow.training.run import Opened, as_run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen checkpoint and what spoke for it."""

    epoch: int
    reason: str
    table: (
        pd.DataFrame
    )  # epoch, agreement, on_suspects, score; with held-out samples held_out and held_out_error
    errors: LabelErrors
    promises: dict[tuple[int, str], float]
    """The expected accuracy of a VeLPIC head by epoch and layer, what enters the head among them."""

    @property
    def graft(self) -> tuple[int, str]:
        """Epoch and layer whose VeLPIC head promises most."""
        return max(self.promises, key=lambda place: self.promises[place])

    @property
    def grafts(self) -> pd.DataFrame:
        """epoch, layer and `promise`, the expected accuracy of a VeLPIC head there; the best first."""
        import pandas as pd

        rows = [(*place, promise) for place, promise in self.promises.items()]
        table = pd.DataFrame(rows, columns=["epoch", "layer", "promise"])
        return table.sort_values("promise", ascending=False, ignore_index=True)


def choose_checkpoint(
    run: Opened | Session,
    train: Any = None,
    test: Any = None,
    *,
    errors: LabelErrors | None = None,
    config: LabelConfig | None = None,
    **settings: Any,
) -> Choice:
    """Choose the checkpoint of a run without a clean label.

    Args:
        run: checkpoints, ours or anyone's, or a session of them.
        train: as for `label_errors`.
        test: samples that it was not trained on, with labels as noisy as those: (x, y) or the like. A run's own test
            labels are not looked at unless the session says that they are noisy.
        errors: what `label_errors` found, if it was asked before.
        config: of `label_errors`; or give its fields as `settings`.
        settings: fields of `LabelConfig`.
    """
    import pandas as pd

    chosen = LabelConfig.chosen(config, settings)
    noisy = "noisy" if test is not None else chosen.labels
    if not isinstance(run, Session):
        run = as_run(run, "choose_checkpoint")
        train = run.data().train if train is None and test is not None else train
    session = session_of(run, train, test, replace(search_config(chosen), labels=noisy))
    found = errors or label_errors(session, config=chosen)
    _check_same(found, session)
    gauge = AnswersGauge(session.samples)
    session.visit([gauge])
    held_out = session.config.labels == "noisy" and session.samples.test is not None
    rows = [_row(at, one, found, held_out=held_out) for at, one in session.values(gauge).items()]
    unsure = found.rate.value is None
    for row in rows:
        row["score"] = (row["agreement"] + row["on_suspects"]) / 2
    compared = held_out and "held_out" in rows[0]
    near = _near(rows, session.values(gauge), session.samples.split(TEST).y) if compared else rows
    reason = _reason(held_out=held_out, unsure=unsure)
    best = max(near, key=lambda row: row["score"])
    promises = {**found.knowledge, **LabelSearch(session, chosen).entering_knowledge(found.found)}
    return Choice(int(best["epoch"]), reason, pd.DataFrame(rows), found, promises)


def _reason(*, held_out: bool, unsure: bool) -> str:
    if held_out:
        return "held-out labels, and agreement with what is believed"
    if unsure:
        return "agreement with what is believed; the rate is unknown, so held-out samples choose better"
    return "agreement with what is believed"


def _check_same(found: LabelErrors, session: Session) -> None:
    if session.unread:
        hint = f"That is so: {session.unread}."
        raise BadValue("choose_checkpoint", "a model whose outputs name classes", "one output", hint)
    given = session.samples.split(TRAIN).y
    if not found.given.equal(given):
        several = f"{len(found.given)} " if len(found.given) != len(given) else ""
        wanted = f"those of these {len(given)} samples and labels"
        raise BadValue("choose_checkpoint(errors=...)", wanted, f"those of {several}others")
    if missing := int((given < 0).sum()):
        hint = "Leave those samples out."
        raise BadValue("choose_checkpoint", "a label for every sample", f"{missing} without one", hint)


def _near(
    rows: list[dict[str, float]], answers: Mapping[int, AnswersAt], labels: Tensor
) -> list[dict[str, float]]:
    """Checkpoints that held-out samples cannot tell from the best one.

    By pairs: samples on which two checkpoints are both right, or both wrong, say nothing of which is better. An
    error of each one's own share would call checkpoints alike that differ on few samples, always for the worse.
    """
    best = max(rows, key=lambda row: row["held_out"])
    right = {at: torch.from_numpy(one.said[TEST]).long() == labels for at, one in answers.items()}
    first, found = right[int(best["epoch"])].double(), []
    for row in rows:
        behind = first - right[int(row["epoch"])].double()  # 1, 0 or -1
        row["held_out_error"] = float(behind.std() / len(behind) ** 0.5)
        if float(behind.mean()) <= row["held_out_error"]:
            found.append(row)
    return found


def _row(at: int, answers: AnswersAt, found: LabelErrors, *, held_out: bool) -> dict[str, float]:
    said = torch.from_numpy(answers.said[TRAIN]).long()
    believed, wrong = found.found.belief_in(said), 1 - found.found.belief_in(found.given)
    row = {
        "epoch": at, "agreement": float(believed.mean()),
        "on_suspects": float(believed[said != found.given].sum() / wrong.sum()) if bool(wrong.sum() > 0) else 0.0,
    }  # fmt: skip
    share = answers.accuracy(TEST, "given") if held_out else None
    return row if share is None else {**row, "held_out": share.value}
