"""`undertow repair`: a head that is a probe of the model's own features, if held-out samples say it helps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.cli.feeding import load_given
from undertow.cli.opening import open_given
from undertow.cli.screen import console, print_json

if TYPE_CHECKING:
    from undertow.repairing import Repair


def repair(
    run: Path,
    *,
    out: Path,
    checkpoint: int = -1,
    layer: str | None = None,
    probe: str = "velpic",
    gate: bool = True,
    least: float = 0.0,
    calibrate: bool = True,
    onnx: Path | None = None,
    conv: str = "flatten",
    tokens: str = "mean",
    memory: str = "2GB",
    seed: int = 0,
    device: str | None = None,
    model: str | None = None,
    data: str | None = None,
    scaling: str | None = None,
    json: bool = False,
) -> int:
    """Give a run's model a head that is a probe of its features, if the test samples say that it helps.

    Exit code 1 if it does not help: nothing is written then.

    Args:
        run: the run's folder, or any folder of checkpoints with --model and --data.
        out: the repaired model's file (.safetensors); what it is goes to a .json beside it.
        checkpoint: the epoch to repair; the last one when not given.
        layer: the layer to graft a head on, or best; the model's own head when not given.
        probe: velpic, masc or logistic.
        gate: let the test samples decide; --no-gate writes in any case.
        least: the gain of accuracy that the lower end of the interval must exceed.
        calibrate: put the scores on a scale that the softmax can use.
        onnx: write the repaired model to this ONNX file too.
        conv: convolutional maps of a grafted layer: flatten, mean or max.
        tokens: token outputs of a grafted layer: mean, first, last or flatten.
        memory: how much memory features may take.
        seed: of the bootstrap, and of the halves that best is chosen and judged on.
        device: cpu, cuda, ...; where the model is when not given.
        model: package.module:function that gives an untrained model, for checkpoints that are not undertow's.
        data: the data of such checkpoints: a name or a path.
        scaling: how such a model was fed: none (as the data is), unit, half, cifar, imagenet; without it floats are fed
            as they are and bytes as pixels from 0 to 1.
        json: one JSON object.
    """
    from undertow.repairing import RepairConfig
    from undertow.repairing.repair_model import repair as mend

    config = RepairConfig(
        layer=layer, probe=probe, gate=gate, least=least, calibrate=calibrate, conv=conv, tokens=tokens,  # pyright: ignore
        memory=memory, seed=seed, device=device,
    )  # fmt: skip
    opened = open_given(run, model=model, data=data, needs=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="repair: cannot tell")  # printed below, with the rest
        fixed = mend(opened, load_given(opened, data, scaling), checkpoint=checkpoint, config=config)
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
