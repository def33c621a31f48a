"""What was found of the labels of a run: scores, proposals, the noise, and labels to train on.

found = label_errors(run)                        # a LabelErrors
found.table                                      # sample, given, proposed, score, confidence
found.suspects(50)
found.clean("relabel").to_parquet(path)          # for `undertow train --labels`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadValue, unknown
from undertow.labels.belief_sums import given_counts
from undertow.labels.noise_model import NoiseShape

if TYPE_CHECKING:
    import pandas as pd

CleanWay = Literal["relabel", "drop"]
CLEAN_WAYS: tuple[CleanWay, ...] = ("relabel", "drop")


@dataclass(frozen=True, eq=False, repr=False)
class LabelErrors:
    """What was found of the labels; row i is training sample i."""

    given: Tensor  # (N,)
    beliefs: Tensor  # (N, C) float64: P(true class | features, given label)
    pred_probs: NDArray[np.float64]  # (N, C): P(true class | features), out of fold
    noise: NoiseShape
    noise_rate: float
    noise_low: float
    noise_high: float
    noise_matrix: NDArray[np.float64]  # (C, C): row k says how labels that are truly k are given
    early_beliefs: Tensor  # (N, C) float64: of checkpoints that had learned few wrong labels by heart
    rates: dict[int, float]  # epoch -> the share of wrong labels as its layers see it
    knowledge: dict[tuple[int, str], float]  # (epoch, layer) -> VeLPIC's accuracy on it, by the early beliefs
    layers: tuple[str, ...]
    classes: tuple[str, ...]
    true: Tensor | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def scores(self) -> Tensor:
        """(N,): the belief that a label is wrong, 0 to 1."""
        return 1 - self.beliefs.gather(1, self.given[:, None])[:, 0]

    @property
    def table(self) -> pd.DataFrame:
        """One row per sample: sample, given, proposed, score, confidence and, where known, true."""
        import pandas as pd

        confidence, proposed = self.beliefs.max(1)
        columns = {
            "sample": np.arange(len(self.given)), "given": self.given.numpy(), "proposed": proposed.numpy(),
            "score": self.scores.numpy(), "confidence": confidence.numpy(),
        }  # fmt: skip
        return pd.DataFrame(columns | ({} if self.true is None else {"true": self.true.numpy()}))

    def clean(self, way: CleanWay = "relabel", *, above: float = 0.5) -> pd.DataFrame:
        """Labels to train on, as `undertow train --labels` reads them: sample, label.

        Args:
            way: "relabel" gives suspects the proposed label, "drop" leaves them out.
            above: samples with a higher score are suspected.
        """
        if way not in CLEAN_WAYS:
            raise unknown("way to clean labels", way, CLEAN_WAYS)
        if not 0 <= above <= 1:
            raise BadValue("clean(above=...)", "a score from 0 to 1", above)
        import pandas as pd

        suspected = self.scores > above
        labels = torch.where(suspected, self.beliefs.argmax(1), self.given)
        kept = torch.arange(len(labels)) if way == "relabel" else (~suspected).nonzero()[:, 0]
        return pd.DataFrame({"sample": kept.numpy(), "label": labels[kept].numpy()})

    def suspects(self, count: int) -> pd.DataFrame:
        """The `count` most suspicious samples that have another label proposed, most suspicious first."""
        other = (self.beliefs.argmax(1) != self.given).nonzero()[:, 0]
        order = self.scores[other].argsort(descending=True, stable=True)
        return self.table.iloc[other[order[:count]].numpy()]

    def __repr__(self) -> str:
        return f"<LabelErrors: {len(self.given)} samples, {self.noise_rate:.1%} wrong>"

    def __str__(self) -> str:
        lines = [
            f"{100 * self.noise_rate:.1f} % of {len(self.given):,} labels look wrong "
            f"({100 * self.noise_low:.1f} to {100 * self.noise_high:.1f} %), {_shape_words(self)}."
        ]
        return "\n".join([*lines, *self.notes])


def _shape_words(found: LabelErrors) -> str:
    if found.noise == "even":
        return "every wrong class about as likely"
    away = given_counts(found.beliefs, found.given).fill_diagonal_(0)
    true, given = divmod(int(away.argmax()), len(away))
    share = found.noise_matrix[true, given]
    return f"most often {found.classes[true]} given as {found.classes[given]} ({100 * share:.0f} % of it)"
