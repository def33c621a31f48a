"""`undertow repair`: a head that is a probe of the model's own features, if held-out samples say it helps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from undertow.cli.flags import FLAGS
from undertow.cli.given_run import Theirs, files_of, load_given, open_given
from undertow.cli.progress import ProgressBar
from undertow.cli.screen import console, print_json
from undertow.outputs import check_outputs
from undertow.repairing.settings import RepairConfig

if TYPE_CHECKING:
    from undertow.repairing import Repair


def repair(
    run: Path,
    *,
    out: Path,
    checkpoint: int = -1,
    config: Annotated[RepairConfig, FLAGS] = RepairConfig(),  # noqa: B008  (frozen)
    theirs: Annotated[Theirs, FLAGS] = Theirs(),  # noqa: B008
    onnx: Path | None = None,
    json: bool = False,
) -> int:
    """Give a run's model a head that is a probe of its features, if the test samples say that it helps.

    Exit code 1 if it does not help: nothing is written then.

    Args:
        run: The run's folder, or any folder of checkpoints with --model and --data.
        out: The repaired model's file (.safetensors); a .json beside it says what it is.
        checkpoint: The epoch to repair; the last one when not given.
        config: What to repair and how.
        theirs: What other programs' checkpoints do not say.
        onnx: Write the repaired model to this ONNX file too.
        json: Print one JSON object.
    """
    from undertow.repairing.export import pair_of
    from undertow.repairing.repair_model import repair as mend

    opened = open_given(run, theirs)
    pair = [("--out", one) for one in pair_of(out)]
    check_outputs("repair", [*pair, ("--onnx", onnx)], used=files_of(opened, theirs))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="repair: cannot tell")  # printed below, with the rest
        fixed = mend(
            opened, load_given(opened, theirs, config.scaling), checkpoint=checkpoint, config=config,
            progress=ProgressBar(quiet=json),
        )  # fmt: skip
    written = _write(fixed, out, onnx) if fixed.accepted else []
    if json:
        print_json({**facts_of(fixed), "written": [str(path) for path in written]})
    else:
        places = f"Written: {', '.join(map(str, written))}" if written else "Nothing was written."
        console().print(f"{fixed}\n{places}", markup=False)
    return 0 if fixed.accepted else 1


def _write(fixed: Repair, out: Path, onnx: Path | None) -> list[Path]:
    from undertow.repairing import export_onnx

    written = list(fixed.save(out))
    return [*written, export_onnx(fixed.model, onnx, fixed.example)] if onnx else written


def facts_of(fixed: Repair) -> dict[str, Any]:
    """A repair in plain values."""
    found, own = fixed.judgement, fixed.calibration
    return {
        "accepted": fixed.accepted, "verdict": found.verdict, "reason": found.reason, "layer": fixed.layer,
        "probe": fixed.probe, "before": found.before, "after": found.after, "gain": found.gain, "low": found.low,
        "high": found.high, "samples": found.count, "temperature": own.temperature if own else None,
        "calibration_before": own.before if own else None, "calibration_after": own.after if own else None,
        "notes": list(fixed.notes),
    }  # fmt: skip
