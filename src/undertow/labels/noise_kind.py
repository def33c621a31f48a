"""What kind of noise it looks like, and what follows for who is heard and how sharply.

    kind = NoiseKind.of(honest, commonest)       # counted on honest voters; None where there are none
    kind.directions                              # the say of class directions beside discriminants, 0 to 1
    kind.sharpness(matrix)                       # how much sharper true classes are than given labels let them look

Noise of classes (the share of wrong labels is the same among sure and unsure samples): coarse directions of classes
follow it least, and a matrix tells how labels go wrong. If each class goes wrong into one other, the matrix says most
and votes are taken as they are; else they are sharpened.

Noise that follows the input (few wrong labels look blind: most are the runner-up): only fine borders tell it from
overlap, so discriminants speak alone, and what counts is the distance to the best class, not the chance of the given
one among all: votes are sharpened more. In between, in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from undertow.labels.honest import HonestCounts, course, ramp, skill_of, trust_in
from undertow.labels.noise_model import peakedness
from undertow.labels.rate import FLAT

BLIND, LOOKED = 2.0, 4.0
"""Contradicted labels for each that looks given blindly: noise is blind below the first, follows the input from the
second on. They are also how much votes are sharpened: between them AP is best near that very number."""
SHALLOW, DEEP, DEEPER = 0.14, 0.21, 0.3
"""How far below the runner-up contradicted labels lie: up to the first they look like overlap, however steady their
share is; from the second on a steady share is noise of classes. With many classes overlap is steady too. Between the
second and the third margins lose their say: people's mistakes lie deep as well as at borders (.30 to .56 measured),
those of margin noise at borders alone (.10 to .18)."""
PEAKED, ALL_INTO_ONE = 0.45, 0.6
"""How far wrong labels of a class go into one other, from 0 (evenly) to 1 (all): from the first on the matrix tells
most, from the second on a steady share is noise of classes, however near the other one is."""


@dataclass(frozen=True)
class NoiseKind:
    """How wrong labels seem to come about."""

    of_classes: float = (
        0.0  # the trust in voters that contradict sure and unsure samples alike; 0 if they do not
    )
    looked: float = BLIND  # BLIND to LOOKED
    deep: float = 0.0  # 0 where wrong labels lie at borders alone, 1 where they lie deep too
    surely: float = 0.0  # the same as `of_classes` without the half that is believed of voters that differ

    @classmethod
    def of(cls, honest: HonestCounts | None, commonest: float) -> NoiseKind:
        """By what honest voters contradict; blind noise where there are none."""
        if honest is None:
            return cls()
        looked = honest.contradicted / max(honest.blind, 1e-6)
        trust = trust_in(skill_of(1 - honest.contradicted, commonest), honest.doubt)
        # Voters that differ still see whether sure and unsure samples are contradicted alike: half of it is believed.
        steady = max(ramp(honest.depth, SHALLOW, DEEP), ramp(honest.into_one, PEAKED, ALL_INTO_ONE))
        steady *= course(honest.sure) >= FLAT
        deep = ramp(honest.depth, DEEP, DEEPER)
        return cls((1 + trust) / 2 * steady, min(LOOKED, max(BLIND, looked)), deep, trust * steady)

    @property
    def directions(self) -> float:
        """The say of class directions beside discriminants."""
        return self._between(1.0, (LOOKED - self.looked) / (LOOKED - BLIND))

    def sharpness(self, matrix: Tensor) -> float:
        """The factor on votes that were scaled to foretell given labels."""
        return self._between(1.0 if peakedness(matrix) >= PEAKED else BLIND, self.looked)

    @property
    def margins(self) -> float:
        """The say of the margin to the likeliest class in the ranking, beside the chance of the given one: 0 to 1."""
        return (1 - self.deep) * (1 - self.surely) * (self.looked - BLIND) / (LOOKED - BLIND)

    def _between(self, of_classes: float, otherwise: float) -> float:
        return self.of_classes * of_classes + (1 - self.of_classes) * otherwise
