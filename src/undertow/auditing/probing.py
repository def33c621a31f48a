"""The latent lens of an audit: the probe grid's rows with the audit's columns.

    probe_rows(run, material, config, "0,10,60", out, watch)      # lens "latent"; kept in out / "probes.parquet"

The model's own rows are left out: lens "model" has them. The grid calls all held-out labels true; here they are called
given where the material says that they are noisy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undertow.auditing.material import Material
from undertow.auditing.rows import COORDINATES, Row, row
from undertow.auditing.settings import AuditConfig
from undertow.latent.grid import probe_grid
from undertow.latent.grid_config import GridConfig, GridWatcher
from undertow.training.run import Run

OWN = "model"


def probe_rows(
    run: Run, material: Material, config: AuditConfig, checkpoints: str, out: Path, watch: GridWatcher
) -> list[Row]:
    """Probes of all layers at the checkpoints, as far as they are not there yet."""
    grid = GridConfig(
        layers=config.layers, probes=config.probes, fits=config.fits, checkpoints=checkpoints, memory=config.memory,
        batch_size=config.batch_size, seed=config.seed, device=config.device,
    )  # fmt: skip
    table = probe_grid(run, material.data, config=grid, out=out / "probes.parquet", watch=watch)
    found: list[dict[str, Any]] = table.to_dict("records")  # pyright: ignore[reportAssignmentType]
    return [_row(one, material.test_labels) for one in found if one["probe"] != OWN]


def _row(one: dict[str, Any], test_labels: str) -> Row:
    plain: dict[str, Any] = {name: None if value != value else value for name, value in one.items()}
    where = {name: plain.get(name) or None for name in COORDINATES}
    if plain["split"] == "test" and where["labels"]:
        where["labels"] = test_labels
    return row(
        "latent", plain["measure"], int(plain["checkpoint"]), plain["layer"], plain["value"], low=plain["low"],
        high=plain["high"], n=int(plain["n"]), split=plain["split"], note=plain["note"], **where,
    )  # fmt: skip
