"""Giving a model back what its layers still know: new heads, grafts, and the evidence for them.

    from undertow.repair import repair, load_graft

    fixed = repair(model, train=(x, y), validation=(x2, y2))       # VeLPIC's vectors in the last linear layer
    fixed = repair(run, layer="best", probe="masc")                # a shorter model with a head on that layer
    print(fixed); fixed.accepted, fixed.before, fixed.after
    fixed.save("fixed.safetensors"); load_graft("fixed.safetensors")

    found = label_errors(run); found.table, found.noise_rate       # which labels are wrong
    choose_checkpoint(run).epoch                                   # which checkpoint to use, without clean labels

The room can be called: `undertow.repair(...)` is `undertow.repair.repair(...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy, make_callable

if TYPE_CHECKING:
    from undertow.repair.calibrate import Calibration, calibration_error, fit_temperature
    from undertow.repair.choice import Choice, choose_checkpoint
    from undertow.repair.export import export_onnx, export_program, load_graft, save_graft
    from undertow.repair.gate import Judgement, clean_accuracy, judge
    from undertow.repair.graft import Graft, make_graft
    from undertow.repair.head import Head, HeadEdit, find_head, write_head
    from undertow.repair.label_findings import LabelErrors
    from undertow.repair.labels import LabelConfig, label_errors
    from undertow.repair.mend import repair
    from undertow.repair.outcome import Repair, RepairConfig
    from undertow.repair.transfer import write_probe_into_head

__all__ = [
    "Calibration",
    "Choice",
    "Graft",
    "Head",
    "HeadEdit",
    "Judgement",
    "LabelConfig",
    "LabelErrors",
    "Repair",
    "RepairConfig",
    "calibration_error",
    "choose_checkpoint",
    "clean_accuracy",
    "export_onnx",
    "export_program",
    "find_head",
    "fit_temperature",
    "judge",
    "label_errors",
    "load_graft",
    "make_graft",
    "repair",
    "save_graft",
    "write_head",
    "write_probe_into_head",
]

_HOMES = {
    "calibrate": ("Calibration", "calibration_error", "fit_temperature"),
    "choice": ("Choice", "choose_checkpoint"),
    "export": ("export_onnx", "export_program", "load_graft", "save_graft"),
    "gate": ("Judgement", "clean_accuracy", "judge"),
    "graft": ("Graft", "make_graft"),
    "head": ("Head", "HeadEdit", "find_head", "write_head"),
    "label_findings": ("LabelErrors",),
    "labels": ("LabelConfig", "label_errors"),
    "mend": ("repair",),
    "outcome": ("Repair", "RepairConfig"),
    "transfer": ("write_probe_into_head",),
}

make_callable(__name__)
__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
