"""What a session knows of a checkpoint, so that a repair makes no pass that another verb made.

known = SharedPass(session, 20)
known.fits(["layer1"]); known.before(); known.after("layer1")      # heads; answers on held-out samples
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from undertow.repairing.head_fits import HeadFitAt, HeadFitGauge, OutputsGauge
from undertow.session.answers import AnswersGauge
from undertow.session.samples import TRAIN
from undertow.session.session import Session


class SharedPass:
    """What a session knows of a checkpoint, from passes that other verbs share."""

    def __init__(self, session: Session, at: int) -> None:
        self.session, self.at = session, at

    def fits(self, layers: Sequence[str]) -> dict[str, HeadFitAt]:
        """VeLPIC heads at these layers."""
        gauges = {layer: HeadFitGauge(layer, self.at) for layer in layers}
        self.session.visit([OutputsGauge(self.at), *gauges.values()], [self.at])
        found = {layer: self.session.value(gauge, self.at) for layer, gauge in gauges.items()}
        return {layer: fit for layer, fit in found.items() if fit is not None}

    def said(self) -> Tensor | None:
        """(N,) classes that the model answers on training samples, if another verb asked."""
        found = self.session.value(AnswersGauge(self.session.samples), self.at)
        return None if found is None or found.reason else torch.from_numpy(found.said[TRAIN]).long()

    def before(self) -> Tensor | None:
        """What the model answers on held-out samples (N, C)."""
        found = self.session.value(OutputsGauge(self.at), self.at)
        return None if found is None else torch.from_numpy(found.outputs)

    def after(self, layer: str) -> Tensor | None:
        """What a VeLPIC head on the layer answers on held-out samples (N, C)."""
        found = self.session.value(HeadFitGauge(layer, self.at), self.at)
        return None if found is None or found.scores is None else torch.from_numpy(found.scores)
