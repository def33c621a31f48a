"""Which checkpoint to use, and which layer to graft a head on, when no clean label is at hand.

    choice = choose_checkpoint(run)                    # or choose_checkpoint(run, train=(x, y), errors=found)
    choice.epoch                                       # the model to use
    choice.table                                       # agreement of every checkpoint; `score` is what decided
    choice.graft                                       # (epoch, layer) for `repair(run, checkpoint=, layer=)`
    choose_checkpoint(run, held_out=(x2, y2))          # with samples it was not trained on, as noisy as the others

Rule: take the checkpoint whose answers on the training samples agree best with what the layers believe the true
labels to be (`label_errors`), those of checkpoints that had learned few wrong labels by heart. While a network learns,
agreement rises; when it learns wrong labels by heart it falls, since these beliefs do not follow. Right labels learned
by heart raise it too. That does no harm where the layers know the wrong ones well; where they are unsure (the interval
of the noise rate is wide), only suspected samples count, on which learning by heart can only lose.
With noisy held-out samples, the best of those whose held-out accuracy is within a standard error of the best one.

The layer to graft on is the one whose VeLPIC vectors, learned from the other folds, name most often what is believed:
out of fold, right labels learned by heart do not count, and the same beliefs as above judge all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undertow.errors import BadValue
from undertow.labels.findings import LabelErrors
from undertow.labels.search import LabelConfig, label_errors, material
from undertow.session.reader import Reader
from undertow.session.splits import Split, read_split
from undertow.training.prepare import find_device
from undertow.training.run import Run

if TYPE_CHECKING:
    import pandas as pd


UNSURE = 0.2
"""Width of the interval of the noise rate from which the layers do not know the wrong labels well."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen checkpoint and what spoke for it."""

    epoch: int
    table: pd.DataFrame  # epoch, agreement, on_suspects, score and, with held-out samples, held_out
    errors: LabelErrors

    @property
    def graft(self) -> tuple[int, str]:
        """Epoch and layer whose VeLPIC head promises most."""
        return max(self.errors.knowledge, key=lambda place: self.errors.knowledge[place])

    @property
    def grafts(self) -> pd.DataFrame:
        """epoch, layer and `promise`, the expected accuracy of a VeLPIC head there; the best first."""
        import pandas as pd

        rows = [(*place, promise) for place, promise in self.errors.knowledge.items()]
        table = pd.DataFrame(rows, columns=["epoch", "layer", "promise"])
        return table.sort_values("promise", ascending=False, ignore_index=True)


def choose_checkpoint(
    run: Run,
    train: Any = None,
    *,
    held_out: Any = None,
    errors: LabelErrors | None = None,
    config: LabelConfig | None = None,
    **settings: Any,
) -> Choice:
    """Choose the checkpoint of a run by its agreement with what the layers believe.

    Args:
        run: checkpoints, ours or anyone's.
        train: as for `label_errors`.
        held_out: samples that it was not trained on, with labels as noisy as those: (x, y) or the like.
        errors: what `label_errors` found, if it was asked before.
        config: of `label_errors`; or give its fields as `settings`.
        settings: fields of `LabelConfig`.
    """
    import pandas as pd

    chosen = config or LabelConfig(**settings)
    split, _, _, scaling = material(run, train, chosen)
    found = errors or label_errors(run, train, config=chosen)
    if not found.given.equal(split.y):
        raise BadValue(
            "choose_checkpoint(errors=...)", f"those of these {len(split.y)} samples and labels",
            f"those of {len(found.given)} others" if len(found.given) != len(split.y) else "those of others",
        )  # fmt: skip
    fresh = None if held_out is None else read_split(held_out, "held out")
    unsure = found.noise_high - found.noise_low > UNSURE
    rows = [_row(run, epoch, split, fresh, found, chosen, scaling) for epoch in run.epochs]
    for row in rows:
        row["score"] = row["on_suspects" if unsure else "agreement"]
    return Choice(int(max(_near(rows), key=lambda row: row["score"])["epoch"]), pd.DataFrame(rows), found)


def _near(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Checkpoints that held-out samples cannot tell from the best one; all of them without such samples."""
    if "held_out" not in rows[0]:
        return rows
    best = max(rows, key=lambda row: row["held_out"])
    return [row for row in rows if row["held_out"] >= best["held_out"] - best["held_out_error"]]


def _row(
    run: Run, epoch: int, split: Split, fresh: Split | None, found: LabelErrors, config: LabelConfig,
    scaling: str | None,
) -> dict[str, float]:  # fmt: skip
    model = run.model(epoch)
    if config.device is not None:
        model = model.to(find_device(config.device))
    reader = Reader(model, scaling=scaling, batch_size=config.batch_size)
    said = reader.answers(split.x).argmax(1)
    beliefs = found.early_beliefs
    believed = beliefs.gather(1, said[:, None])[:, 0]
    wrong = 1 - beliefs.gather(1, found.given[:, None])[:, 0]
    row = {
        "epoch": epoch, "agreement": float(believed.mean()),
        "on_suspects": float(believed[said != found.given].sum() / wrong.sum()) if bool(wrong.sum() > 0) else 0.0,
    }  # fmt: skip
    if fresh is None:
        return row
    share = float((reader.answers(fresh.x).argmax(1) == fresh.y).double().mean())
    return {**row, "held_out": share, "held_out_error": (share * (1 - share) / len(fresh.y)) ** 0.5}
