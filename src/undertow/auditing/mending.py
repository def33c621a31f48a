"""What writing a probe back would give: VeLPIC in the model's own head, and a head on the best layer.

    mending_rows(run, material, config, at=60)         # lens "repair"

For each: accuracy_before, accuracy_after and difference, on held-out samples, with the paired bootstrap interval of
the difference. The best layer is chosen on one half of them and judged on the other. Noisy held-out labels give a
bound: the true difference is no smaller, if the noise is even.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from undertow.auditing.material import Material
from undertow.auditing.rows import Row, row
from undertow.auditing.settings import AuditConfig
from undertow.errors import BadData, BadValue
from undertow.repairing.outcome import BEST, Repair, RepairConfig
from undertow.repairing.repair_model import repair
from undertow.training.run import Run

PLACES: dict[str, str | None] = {"head": None, "graft": BEST}
"""What the note begins with -> the layer that `repair` is asked for."""
PROBE = "velpic"


def mending_rows(run: Run, material: Material, config: AuditConfig, at: int) -> Iterator[Row]:
    """Rows of both repairs at a checkpoint; a repair that cannot be made is a row with its reason."""
    for kind, layer in PLACES.items():
        chosen = RepairConfig(
            layer=layer, probe=PROBE, validation_noise=None if material.labels == "noisy" else 0.0,
            calibrate=False, memory=config.memory, batch_size=config.batch_size, seed=config.seed,
            device=config.device,
        )  # fmt: skip
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="repair: cannot tell")  # the note says it
                made = repair(run, material.data, checkpoint=at, config=chosen)
        except (BadData, BadValue) as reason:
            note = f"{kind}: {reason}"
            yield row("repair", "difference", at, layer or "head", None, split="test", probe=PROBE, note=note)
            continue
        yield from _rows(made, kind, material.test_labels, at)


def _rows(made: Repair, kind: str, labels: str, at: int) -> Iterator[Row]:
    found = made.judgement
    values = {"accuracy_before": found.before, "accuracy_after": found.after, "difference": found.gain}
    for measure, value in values.items():
        edges = {"low": found.low, "high": found.high} if measure == "difference" else {}
        yield row(
            "repair", measure, at, made.layer, value, **edges, n=found.count, split="test", labels=labels,
            probe=made.probe, fit="given", note=f"{kind}: {found.reason}",
        )  # fmt: skip
