"""What each layer still knows: the probe grid as a lens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from undertow.latent.grid import ProbeGrid, grid_gauges, read_grid
from undertow.latent.probes_gauge import ProbeCell, ProbesGauge
from undertow.rows import Row
from undertow.session.session import Session


@dataclass(frozen=True)
class LatentResult:
    """Probes by checkpoint and layer."""

    grid: ProbeGrid

    def rows(self) -> Iterator[Row]:
        """Of the probes; the model's own rows are another lens's."""
        for at, layers in self.grid.cells.items():
            yield from self.grid.probe_rows(at, layers)

    def cells(self, at: int, fit: str) -> Iterator[tuple[str, ProbeCell]]:
        """Layers and cells of one checkpoint, of the probes that were fitted with these labels."""
        for layer, found in self.grid.cells.get(at, {}).items():
            yield from ((layer, cell) for cell in found.cells if cell.fit == fit)


@dataclass(frozen=True)
class LatentLens:
    """Probes every layer."""

    layers: tuple[str, ...]
    probes: tuple[str, ...]
    fits: tuple[str, ...]
    name = "latent"

    def gauges(self, session: Session) -> Sequence[ProbesGauge]:
        """One for each layer."""
        return grid_gauges(session, self.layers, self.probes, self.fits)

    def __call__(self, session: Session) -> LatentResult:
        """All layers at all checkpoints."""
        gauges = self.gauges(session)
        session.visit(gauges)
        return LatentResult(read_grid(session, gauges, session.sound))
