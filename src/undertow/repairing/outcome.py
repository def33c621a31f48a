"""What came of a repair.

fixed.model, fixed.accepted, fixed.reason                # a `Repair`, as `repair(...)` gives it
fixed.before, fixed.after, fixed.judgement, fixed.calibration, fixed.notes
fixed.undo(); fixed.save("fixed.safetensors"); print(fixed)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from undertow.errors import BadValue
from undertow.features.layers import unwrap
from undertow.features.tap import Inputs
from undertow.repairing.calibrate import Calibration
from undertow.repairing.export import save_repaired
from undertow.repairing.gate import Judgement
from undertow.repairing.head_edit import HeadEdit


@dataclass(eq=False, repr=False)
class Repair:
    """What came of a repair; `model` is the repaired model if it was accepted, else the one that came."""

    model: nn.Module
    judgement: Judgement
    layer: str
    probe: str
    calibration: Calibration | None
    notes: tuple[str, ...]
    original: nn.Module
    edit: HeadEdit | None = None
    facts: dict[str, Any] | None = None  # what builds the original model
    scaling: str | None = None
    example: Inputs | None = None  # a few inputs of the model, for exports
    undone: bool = False

    @property
    def accepted(self) -> bool:
        """Whether `model` is the repaired one."""
        return self.judgement.accepted and not self.undone

    @property
    def reason(self) -> str:
        """Why, with the numbers."""
        return self.judgement.reason

    @property
    def before(self) -> float | None:
        """Held-out accuracy of the model that came; None without evidence."""
        return self.judgement.before

    @property
    def after(self) -> float | None:
        """Held-out accuracy of the repaired model, also where it was not accepted."""
        return self.judgement.after

    def undo(self) -> nn.Module:
        """Make `model` the one that came, bit for bit, and return it."""
        if self.edit is not None and self.edit.model is self.original:
            self.edit.undo()
        self.model, self.undone = self.original, True
        return self.model

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Write the repaired model as a .safetensors and a .json file; see `load_repaired`."""
        if not self.accepted:
            why = "it was undone" if self.undone else self.reason
            raise BadValue("save", "an accepted repair", why, "gate=False makes it in any case.")
        about = {
            "probe": self.probe, "scaling": self.scaling, "reason": self.reason, "before": self.before,
            "after": self.after, "temperature": self.calibration.temperature if self.calibration else None,
        }  # fmt: skip
        return save_repaired(unwrap(self.model), path, model=self.facts, about=about)

    def __repr__(self) -> str:
        return f"<Repair: {self.probe} at {self.layer!r}, {'undone' if self.undone else self.reason}>"

    def __str__(self) -> str:
        lines = [f"{self.probe} at {self.layer!r}: {self.reason}."]
        if self.calibration is not None:
            own = self.calibration
            lines.append(
                f"Calibration error {own.before:.3f} before, {own.after:.3f} after (temperature {own.temperature:.3g})."
            )
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join([*lines, *(["Undone."] if self.undone else [])])
