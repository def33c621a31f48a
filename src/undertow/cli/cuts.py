"""`undertow cuts`: where a network can be split into a shallow and a deep part."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from undertow.cli.flags import FLAGS, BadUsage
from undertow.cli.given_run import Theirs, is_given_run, load_given, open_given
from undertow.cli.layers import from_spec
from undertow.cli.screen import console, print_json, table, thousands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from undertow.data.entries import SampleInputs
    from undertow.training.run import Run

SAMPLES = 8


def cuts(
    source: str,
    *,
    theirs: Annotated[Theirs, FLAGS] = Theirs(),  # noqa: B008  (frozen)
    all: bool = False,
    json: bool = False,
) -> None:
    """List the modules where a network can be cut: all information passes through their output.

    Args:
        source: A model spec such as resnet20, or a run's folder.
        theirs: The data whose shape a model spec gets, or what other programs' checkpoints do not say.
        all: List every module, with the reason why it is not a cut.
        json: Print one JSON object per module.
    """
    built, x = _from_run(Path(source), theirs) if is_given_run(source) else _random(source, theirs.data)
    found = _explained(built, x)
    shown = [row for row in found if all or row["valid"]]
    if json:
        for row in shown:
            print_json(row)
        return
    columns = ["cut after", "output", "numbers", "shallow parameters", "default", *["why not"] * all]
    body = _cells(shown, getattr(built, "cuts", ()), all)
    console().print(table("", columns, body, right=["output", "numbers", "shallow parameters"]))
    rest = "" if all else " --all says why the others are not."
    valid = sum(bool(row["valid"]) for row in found)
    console().print(f"{valid} of {len(found)} modules are different cuts.{rest}")


def _explained(model: nn.Module, x: SampleInputs) -> list[dict[str, Any]]:
    """Every module: whether it is a cut, why not, and what runs up to it."""
    from undertow.models import layers_of
    from undertow.temporal.cuts import explain_cuts
    from undertow.temporal.cuts_trace import trace

    line = trace(model, x)
    shapes = {layer.name: layer.shape or () for layer in layers_of(model, x)}
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    rows: list[dict[str, Any]] = []
    for name, reason in explain_cuts(model, x).items():
        before = line.shallow(name) if name in line.calls else None
        count = None if before is None else sum(sizes.get(weight, 0) for weight in before)
        rows.append(
            {"name": name, "valid": not reason, "reason": reason, "shallow_parameters": count, "shape": shapes[name]}
        )  # fmt: skip
    return rows


def _cells(rows: list[dict[str, Any]], default: tuple[str, ...], reasons: bool) -> Iterator[list[str]]:
    for row in rows:
        shape, count = row["shape"], row["shallow_parameters"]
        yield [
            row["name"], "×".join(map(str, shape)) or "–", thousands(prod(shape)) if shape else "–",
            "–" if count is None else thousands(count), "yes" * (row["name"] in default),
            *([row["reason"]] if reasons else []),
        ]  # fmt: skip


def _from_run(path: Path, theirs: Theirs) -> tuple[nn.Module, SampleInputs]:
    """The last checkpoint with a few of its own test samples, or random ones of that shape."""
    from undertow.data.entries import rows_of
    from undertow.data.inputs import scaled
    from undertow.errors import NotThere

    run = open_given(path, theirs)
    try:
        found = load_given(run, theirs, None) or run.data()
    except NotThere:
        return run.model(), _noise(_shape_of(run), bool((run.facts.model or {}).get("vocabulary")))
    scaling = run.facts.data["scaling"] if run.facts.data else found.scaling
    return run.model(), scaled(rows_of(found.test.x, slice(0, SAMPLES)), scaling)


def _shape_of(run: Run) -> tuple[int, ...]:
    shape = tuple((run.facts.model or {}).get("shape", ()))
    if not shape:
        raise BadUsage(f"{run.path} does not say the shape of its samples. Name the data with --data.")
    return shape


def _random(spec: str, data: str | None) -> tuple[nn.Module, Tensor]:
    built, example = from_spec(spec, data)
    return built, _noise(tuple(example.shape[1:]), not example.is_floating_point())


def _noise(shape: tuple[int, ...], tokens: bool) -> Tensor:
    import torch

    draw = torch.Generator().manual_seed(0)
    if tokens:
        return torch.randint(0, 2, (SAMPLES, *shape), generator=draw)  # in every vocabulary
    return torch.randn(SAMPLES, *shape, generator=draw)
