"""Repaired models on disk: a pair of files that loads without the run, an ONNX file, an exported program.

    save_repaired(graft, "fixed.safetensors", model=run.facts.model)     # and fixed.json beside it
    load_repaired("fixed.safetensors")                          # rebuilt from what fixed.json says of the model
    load_repaired("fixed.safetensors", model=build_model)       # a model that undertow cannot build itself
    export_onnx(graft, "fixed.onnx")                         # runs without torch
    export_program(graft, "fixed.pt2")                       # torch.export.load reads it, without undertow

Only tensors that the graft uses are written. The JSON has a digest of the tensors' file, so that two files
of different repairs are not read as one. Exported forms take any number of samples.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from undertow._version import __version__
from undertow.errors import BadFile, BadValue, NotThere, RunProblem
from undertow.features.tap import Inputs, call, main_tensor
from undertow.files import aside, together
from undertow.outputs import as_path, check_outputs
from undertow.repairing.graft import Graft, Stopped, SubspaceHead, cut_body
from undertow.stored.documents import RepairDocument
from undertow.stored.door import document_text, read_document
from undertow.stored.seals import file_hash
from undertow.stored.tensors import write_tensors_part
from undertow.training.foreign import load_weights, read_weights
from undertow.training.prepare import build_from_facts

FORMAT = RepairDocument.newest
GRAFT_FIELDS = ("layer", "entering", "conv", "tokens", "head")


def save_repaired(
    repaired: nn.Module,
    path: str | Path,
    *,
    model: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
) -> tuple[Path, Path]:
    """Write a graft, or a whole model with a new head, as `path` (.safetensors) and a .json beside it.

    Args:
        repaired: what to save.
        path: the tensors' file; the ending is added where it is missing.
        model: what builds the original model: `run.facts.model`. Without it, loading asks for the model.
        about: anything else that the JSON should say.
    """
    target, beside = pair_of(path)
    check_outputs("save_repaired", [("path", target), ("path", beside)])
    left_out = _unused(repaired) if isinstance(repaired, Graft) else set[str]()
    tensors = {
        name: value.detach().to("cpu", copy=True).contiguous()
        for name, value in repaired.state_dict().items()
        if name not in left_out
    }
    said = {
        "format": FORMAT, "undertow": __version__, "model": None if model is None else dict(model),
        **_describe(repaired), "left_out": sorted(left_out), **(about or {}),
    }  # fmt: skip
    _write_pair(target, tensors, said)
    return target, beside


def pair_of(path: str | Path) -> tuple[Path, Path]:
    """The two files of a saved repair: the ending of the tensors' file is added where it is missing."""
    target = as_path(path, "save_repaired")
    if target.suffix != ".safetensors" and target.name:
        target = target.with_name(f"{target.name}.safetensors")
    return target, target.with_suffix(".json") if target.name else target


def _write_pair(target: Path, tensors: dict[str, Tensor], said: Mapping[str, Any]) -> None:
    """Both files are written before either takes its place: who is killed on the way leaves a pair, old or new."""
    with together(target.parent), aside(target.with_suffix(".json")) as facts, aside(target) as part:
        write_tensors_part(part, tensors)
        facts.write_text(document_text({**said, "tensors": file_hash(part)}), encoding="utf-8")


def load_repaired(path: str | Path, model: Callable[[], nn.Module] | None = None) -> nn.Module:
    """What `save_repaired` wrote: a `Graft`, or the whole model with its new head, in evaluation mode.

    Args:
        path: the .safetensors file.
        model: gives an untrained model like the original; needed where undertow did not build that.
    """
    target = as_path(path, "load_repaired")
    facts = _read_facts(target)
    if model is None and facts["model"] is None:
        raise BadValue(
            f"{target}", f"a way to build its model ({facts['of']})", None,
            "Give load_repaired(path, model=function), where function() gives an untrained one.",
        )  # fmt: skip
    built = (model or build_from_facts(facts["model"]))()
    tensors = read_weights(target)
    if facts["kind"] == "model":
        load_weights(built, tensors, str(target))
        return built.eval()
    dtype = next(value.dtype for name, value in tensors.items() if name.startswith("head."))
    made = Graft(
        cut_body(built, facts["layer"], entering=facts["entering"]), _empty_head(facts["head"]).to(dtype),
        layer=facts["layer"], entering=facts["entering"], conv=facts["conv"], tokens=facts["tokens"],
    )  # fmt: skip
    whole = made.state_dict()
    load_weights(
        made, {**{name: whole[name] for name in facts["left_out"] if name in whole}, **tensors}, str(target)
    )
    return made.eval()


def export_onnx(repaired: nn.Module, path: str | Path, example: Inputs | None = None) -> Path:
    """Write an ONNX file; a graft brings its own example of inputs."""
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise NotThere("ONNX export wants the packages onnx and onnxscript: pip install onnx onnxscript.")
    target = as_path(path, "export_onnx")
    check_outputs("export_onnx", [("path", target)])
    with _quietly(), aside(target) as part:
        program = torch.onnx.export(_exported(repaired, example), (), dynamo=True, verbose=False)
        assert program is not None
        program.save(part, external_data=False)
    return target


def export_program(repaired: nn.Module, path: str | Path, example: Inputs | None = None) -> Path:
    """Write a program for `torch.export.load`; a graft brings its own example of inputs."""
    target = as_path(path, "export_program")
    check_outputs("export_program", [("path", target)])
    with _quietly(), aside(target) as part, part.open("wb") as file:
        torch.export.save(_exported(repaired, example), file)
    return target


def _exported(repaired: nn.Module, example: Inputs | None) -> Any:
    inputs = example if example is not None else getattr(repaired, "example", None)
    if inputs is None:
        raise BadValue("export", "an example of the model's inputs", None, "Give example=x[:2].")
    names = None if not isinstance(inputs, Mapping) else list(inputs)
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs
    values: list[Any] = [inputs] if isinstance(inputs, Tensor) else list(parts)
    tensors = tuple(value[:1].repeat(2, *[1] * (value.ndim - 1)) for value in values)
    batch = torch.export.Dim("batch")
    # Parameters stay the module's: grad mode would only leave marks in the graph.
    with torch.no_grad():
        shapes = {"tensors": tuple({0: batch} for _ in tensors)}
        return torch.export.export(
            _Plain(repaired.eval(), names), tensors, dynamic_shapes=shapes, strict=False
        ).run_decompositions({})


class _Plain(nn.Module):
    """A module that takes tensors by position and gives one tensor."""

    def __init__(self, module: nn.Module, names: list[str] | None) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *tensors: Tensor) -> Tensor:
        if self.names is None:
            return main_tensor(self.module(*tensors))
        return main_tensor(self.module(**dict(zip(self.names, tensors, strict=True))))


@contextmanager
def _quietly() -> Generator[None]:
    """Without the exporter's remarks on packages that it does not need and on torch's own old names."""
    remarks = logging.getLogger("torch.onnx")
    level = remarks.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        remarks.setLevel(logging.ERROR)
        try:
            yield
        finally:
            remarks.setLevel(level)


def _describe(repaired: nn.Module) -> dict[str, Any]:
    if not isinstance(repaired, Graft):
        return {"kind": "model", "of": type(repaired).__name__}
    stopped, head = repaired.body, repaired.head
    chain = not isinstance(stopped, Stopped)
    parts: dict[str, Any] = {"kind": "linear", "bias": getattr(head, "bias", None) is not None}
    if isinstance(head, SubspaceHead):
        parts = {"kind": "subspace", "dim": head.basis.shape[0], "sizes": list(head.sizes)}
    elif isinstance(head, nn.Linear):
        parts |= {"dim": head.in_features, "classes": head.out_features}
    return {
        "kind": "graft", "of": "a chain of blocks" if chain else type(stopped.model).__name__,
        "layer": repaired.layer, "entering": repaired.entering, "conv": repaired.conv,
        "tokens": repaired.tokens, "head": parts,
    }  # fmt: skip


def _empty_head(parts: Mapping[str, Any]) -> nn.Module:
    if parts["kind"] == "subspace":
        return SubspaceHead(parts["dim"], tuple(parts["sizes"]))
    return nn.Linear(parts["dim"], parts["classes"], bias=parts["bias"])


def _unused(graft: Graft) -> set[str]:
    """Tensors that the graft never looks at: spoiling them leaves its answers as they are."""
    if not isinstance(graft.body, Stopped) or graft.example is None:
        return set()
    behind = {
        f"body.model.{name}.{own}" if name else f"body.model.{own}"
        for name, module in _never_entered(graft.body, graft.example)
        for own in module.state_dict()
    }
    spoilt = deepcopy(graft)
    with torch.no_grad():
        for name, value in spoilt.state_dict().items():
            if name in behind:
                value.fill_(float("nan") if value.is_floating_point() else 0)
        wanted, found = (call(one, graft.example) for one in (graft, spoilt))
    return behind if torch.equal(wanted, found) else set()


def _never_entered(body: Stopped, example: Inputs) -> Iterable[tuple[str, nn.Module]]:
    """Modules without children that are not called before the pass ends."""
    entered: set[nn.Module] = set()
    modules = list(body.model.named_modules())
    handles = [module.register_forward_pre_hook(lambda m, _: entered.add(m)) for _, module in modules]
    try:
        with torch.no_grad():
            call(body, example)
    finally:
        for handle in handles:
            handle.remove()
    return [(name, one) for name, one in modules if one not in entered and not list(one.children())]


def _read_facts(target: Path) -> dict[str, Any]:
    path = target.with_suffix(".json")
    for one in (target, path):
        if not one.is_file():
            raise NotThere(f"There is no {one}. A saved repair is a pair of files, .safetensors and .json.")
    facts = read_document(path, RepairDocument)
    missing = [name for name in GRAFT_FIELDS if facts.get(name) is None] if facts["kind"] == "graft" else []
    if missing:
        raise BadFile(path, missing[0], "wanted a value, but there is none")
    head = facts.get("head")
    if head and head["dim"] * (head.get("classes") or sum(head["sizes"])) > target.stat().st_size:
        raise BadFile(path, "head", f"wanted the head in {target.name}, got a larger one")
    if facts["tensors"] != file_hash(target):
        raise RunProblem(f"{path} describes another file than {target.name}. Keep the two files together.")
    return {"model": None, "of": "a model", "left_out": [], **facts}
