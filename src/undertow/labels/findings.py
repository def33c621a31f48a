"""What was found of the labels: scores, proposals, how many are wrong, and labels to train on.

found = label_errors(run)                        # a LabelErrors
found.table                                      # sample, given, proposed, score, confidence, flagged
print(found.rate)                                # 37.2 % of the labels are wrong (31.4 to 43.0 %; ...), or cannot tell
found.suspects(50)
found.clean("relabel").write(path)               # for `undertow train --labels`
found.export(to_labelstudio="tasks.json")        # labels to review, for other programs
found.reviewed("export.json").labels             # the labels with people's answers in their places
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undertow.errors import BadValue, unknown
from undertow.labels.judge import LabelBeliefs
from undertow.labels.rate import RateAnswer
from undertow.labels.review_order import spread
from undertow.labels.settings import CLEAN_WAYS, CleanWay
from undertow.training.labels_file import LabelsFile
from undertow.training.run import Run

if TYPE_CHECKING:
    import pandas as pd

    from undertow.labels.reviewed import Reviewed

NONE = -1
"""In place of a class: none is proposed, or none was given."""


@dataclass(frozen=True, eq=False, repr=False)
class LabelErrors:
    """What was found of the labels; row i is sample i."""

    found: LabelBeliefs
    classes: tuple[str, ...]
    true: Tensor | None = None
    knowledge: dict[tuple[int, str], float] = field(default_factory=dict[tuple[int, str], float])
    """(epoch, layer) -> the accuracy of a VeLPIC head there, by what is believed."""
    own_notes: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    run: Run | None = None  # whose training samples these are

    @property
    def given(self) -> Tensor:
        """(N,) int64: the labels that were judged; -1 where one is missing."""
        return self.found.labels

    @property
    def rate(self) -> RateAnswer:
        """The share of wrong labels with its interval, or only what is possible."""
        return self.found.rate

    @property
    def scores(self) -> Tensor:
        """(N,): the belief that a label is wrong, 0 to 1."""
        return self.found.scores

    @property
    def flagged(self) -> Tensor:
        """(N,) bool: the labels to suspect."""
        return self.found.flagged

    @property
    def proposed(self) -> Tensor:
        """(N,) int64: another class for flagged labels, a class for missing ones; -1 where none stands out."""
        return self.found.proposed

    @property
    def beliefs(self) -> Tensor:
        """(N, C): P(true class | features, given label)."""
        return self.found.beliefs

    @property
    def pred_probs(self) -> NDArray[np.float32]:
        """(N, C): P(true class | features), in cleanlab's shape, without the sample's own label."""
        return self.found.pred_probs.numpy()

    @property
    def noise_matrix(self) -> NDArray[np.float64]:
        """(C, C): row k says how labels that are truly k are given."""
        return self.found.matrix.numpy()

    def class_name(self, number: int) -> str:
        """What a class is called; nothing for none."""
        return "" if number == NONE else self.classes[number]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of the samples and of the run."""
        return (*self.own_notes, *self.found.notes)

    @property
    def table(self) -> pd.DataFrame:
        """One row per sample: sample, given, proposed, score, confidence, flagged and, where known, true."""
        import pandas as pd

        rows = torch.arange(len(self.given))
        likeliest = torch.cat([part.argmax(1) for _, part in self.found.believed()])
        named = torch.where(self.proposed == NONE, likeliest, self.proposed)
        columns = {
            "sample": rows.numpy(), "given": self.given.numpy(), "proposed": self.proposed.numpy(),
            "score": self.scores.numpy(), "confidence": self.found.belief_in(named).double().numpy(),
            "flagged": self.flagged.numpy(),
        }  # fmt: skip
        return pd.DataFrame(columns | ({} if self.true is None else {"true": self.true.numpy()}))

    def clean(self, way: CleanWay = "relabel", *, above: float | None = None) -> LabelsFile:
        """Labels to train on: `.write(path)` for `undertow train --labels`, `.table` to look at.

        Sample numbers are those of the training split as it is loaded, and the file knows which split that is.

        Args:
            way: "relabel" gives suspects the proposed label and leaves out those without a proposal; "drop" leaves
                all suspects out.
            above: suspect samples with a higher score, instead of the flagged ones.
        """
        if way not in CLEAN_WAYS:
            raise unknown("way to clean labels", way, CLEAN_WAYS)
        if above is not None and not 0 <= above <= 1:
            raise BadValue("clean(above=...)", "a score from 0 to 1", above)
        suspected = self.flagged if above is None else self.scores > above
        labels = torch.where(suspected | (self.given == NONE), self._instead(suspected), self.given)
        kept = (labels != NONE) & (torch.ones_like(suspected) if way == "relabel" else ~suspected)
        rows = kept.nonzero()[:, 0]
        if self.run is not None:
            return self.run.labels_file(rows, labels[rows])
        return LabelsFile.of(rows, labels[rows])

    def export(self, *, texts: Any = None, images: Any = None, **files: str | Path) -> list[Path]:
        """Write files for other programs; those written.

        Args:
            texts: (N,) texts of the samples, to show them.
            images: (N, C, H, W) pixels, or N paths of picture files.
            files: to_cleanlab (.csv or .parquet), to_labelstudio (.json), to_fiftyone (.jsonl), to_huggingface
                (.parquet).
        """
        from undertow.labels.exports import Exports
        from undertow.labels.given_files import Shown

        if unwanted := [name for name in files if name not in Exports.__dataclass_fields__]:
            raise unknown("kind of export", unwanted[0], Exports.__dataclass_fields__)
        chosen = Exports(**{name: Path(path) for name, path in files.items()})
        return chosen.write(self, Shown.of(texts, images).check(len(self.given)))

    def reviewed(self, path: str | Path) -> Reviewed:
        """People's answers in a .csv or .parquet table or in a Label Studio export, in their places."""
        from undertow.labels.given import GivenLabels
        from undertow.labels.reviewed import apply_review, read_review

        return apply_review(GivenLabels(self.given, self.classes), read_review(Path(path)), str(path))

    def _instead(self, suspected: Tensor) -> Tensor:
        """What suspects are called instead: the proposal, or the likeliest other class where they were not flagged."""
        given = self.given.clamp(min=0)[:, None]
        others = (part.scatter(1, given[rows], 0.0) for rows, part in self.found.believed())
        other = torch.cat([part.argmax(1) for part in others])
        return torch.where(suspected & ~self.flagged, other, self.proposed)

    def suspects(self, count: int) -> pd.DataFrame:
        """The `count` most suspicious samples, most suspicious first: flagged ones, or all where fewer are flagged."""
        order = torch.argsort(self.scores + self.flagged.double(), descending=True, stable=True)
        judged = order[self.found.judged[order]]
        return self.table.iloc[judged[:count].numpy()]

    def review_order(self, count: int) -> Tensor:
        """(count,) sample numbers in the order in which to review labels: flagged ones, spread, then by score."""
        order = torch.argsort(self.scores + self.flagged.double(), descending=True, stable=True)
        order = order[self.found.judged[order]]
        suspected = order[self.flagged[order]]
        return torch.cat([spread(suspected), order[len(suspected) :]])[:count]

    def _repr_html_(self) -> str:
        """How many are wrong, and the first ten to look at, for notebooks."""
        first = self.table.iloc[self.review_order(10).numpy()]
        rows = "".join(
            f"<tr><td>{int(one.sample)}</td><td>{escape(self.class_name(int(one.given)))}</td>"
            f"<td>{escape(self.class_name(int(one.proposed)))}</td><td>{one.score:.2f}</td></tr>"
            for one in first.itertuples()
        )
        head = "<tr><th>sample</th><th>given</th><th>proposed</th><th>wrong</th></tr>"
        return f"<p><b>{escape(f'{self.rate}.'.capitalize())}</b></p><table>{head}{rows}</table>"

    def __repr__(self) -> str:
        return f"<LabelErrors: {len(self.given)} samples, {self.rate}>"

    def __str__(self) -> str:
        return "\n".join([f"{self.rate}.".capitalize(), *self.notes])
