"""Tests of tests: small seeded changes to the code that matters most; a change that no test notices is a hole.

    python tests/tools/mutants.py 15                        # of each module; killed, survived, and where
    python tests/tools/mutants.py 40 --only moments --seed 3

A comparison, an operator, a constant or a condition is changed, or a statement dropped; words, types, defaults of
annotations and errors are left alone. The tests of the module run on the changed copy in a process that is forked off
after the imports, and stop at the first failure. A change that makes them hang is noticed too. One that survives and
changes no result (no_result.py says why) is counted apart.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from no_result import lost, reason_for

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "tests/latent/test_contract.py"


@dataclass(frozen=True)
class Target:
    """Code to change, the tests that should notice, and which of these (an expression of pytest's -k)."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    only: str = ""


def _probe(file: str, *more: str) -> Target:
    """A probe's own tests, and its lines of the contract that all probes keep."""
    name = Path(file).stem
    return Target((file, *more), (f"tests/latent/test_{name}.py", CONTRACT), name)


MODULES = {
    "masc": _probe("latent/masc.py", "latent/subspace.py"),
    "velpic": _probe("latent/velpic.py"),
    "logistic": _probe("latent/logistic.py"),
    "lda": Target(
        ("latent/discriminant.py",), ("tests/latent/test_discriminant.py", CONTRACT), "discriminant or lda"
    ),
    "nearest": Target(
        ("latent/nearest.py",), ("tests/latent/test_nearest.py", CONTRACT), "nearest or knn or mean"
    ),
    "moments": Target(("features/moments.py",), ("tests/features/test_moments.py",)),
    "d_lr": Target(
        ("richness/alignment.py",), ("tests/richness/test_low_rank.py", "tests/richness/test_measure.py")
    ),
    "composer": Target(
        ("temporal/compose_split.py", "temporal/compose_merge.py", "temporal/batchnorm.py"),
        ("tests/temporal/test_compose.py",),
    ),
    "noise model": Target(
        ("labels/noise_model.py", "labels/judge.py", "labels/pool.py", "labels/rate.py"),
        (
            "tests/labels/test_pool.py",
            "tests/labels/test_noise_model.py",
            "tests/labels/test_rate.py",
            "tests/labels/test_judge.py",
        ),
    ),
    "session": Target(
        ("session/session.py",),
        ("tests/session/test_session.py", "tests/session/test_passes.py", "tests/session/test_cache.py"),
    ),
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
SLOWEST = 5.0
"""Times the undisturbed tests after which a changed one counts as hung, and at least a minute."""


def spots(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Nodes that can be changed, with the way."""
    for node in walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, "comparison"
        elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
            yield node, "operator"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node, "constant"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield node, "sign"
        elif isinstance(node, ast.If | ast.IfExp):
            yield node, "condition"
        elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(
            node, ast.AugAssign
        ):
            yield node, "dropped"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of words, types, errors and imports that only types need."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for own in value if isinstance(value, list) else [value]:
            if isinstance(own, ast.AST) and not _is_talk(own):
                yield from walk(own)


def _is_talk(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom)


def change(node: ast.AST, way: str) -> None:
    """Change the node in place."""
    match node:
        case ast.Compare():
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case ast.BinOp() | ast.BoolOp():
            node.op = SWAPS[type(node.op)]()
        case ast.AugAssign() if way == "operator":
            node.op = SWAPS[type(node.op)]()
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant():
            node.value = node.value + 1 if isinstance(node.value, int) else node.value * 2 + 0.1
        case ast.UnaryOp(op=ast.Not()):
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.UnaryOp():
            node.op = ast.UAdd()
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case _:
            node.__class__, node.__dict__ = ast.Pass, {"lineno": node.lineno, "col_offset": node.col_offset}


def mutants(path: Path) -> list[tuple[int, str, str]]:
    """Each change to a module: its line, which, and the changed source."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    count = len(list(spots(tree)))
    found: list[tuple[int, str, str]] = []
    for number in range(count):
        own = copy.deepcopy(tree)
        node, way = list(spots(own))[number]
        before = ast.unparse(node)[:70].splitlines()[0]
        change(node, way)
        after = ast.unparse(node)[:70].splitlines()[0]
        found.append(
            (
                node.lineno,
                f"{way}: {before} -> {after}",
                ast.unparse(ast.fix_missing_locations(own)),
            )
        )
    return found


def run_tests(source: Path, target: Target, within: float | None, tell: Path | None = None) -> str:
    """How the tests ended on the code in `source`: passed, failed or hung; `tell` gets the names of loaded modules."""
    child = os.fork()
    if not child:
        _be_pytest(source, target, tell)
    late = None if within is None else time.monotonic() + within
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return "passed" if os.waitstatus_to_exitcode(status) == 0 else "failed"
        if late is not None and time.monotonic() > late:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hung"
        time.sleep(0.02)


def _be_pytest(source: Path, target: Target, tell: Path | None) -> None:
    os.setsid()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.chdir(ROOT)
    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)
    import pytest

    code, which = 1, ["-k", target.only] if target.only else []
    fixed = ["-x", "-q", "-m", "not slow and not realdata", "-p", "no:cacheprovider"]
    fixed += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins that were loaded before
    try:
        code = int(pytest.main([*target.tests, *which, *fixed]))
        if tell is not None:
            tell.write_text("\n".join(sys.modules), encoding="utf-8")
    finally:
        os._exit(code)


def load_before(names: list[str]) -> None:
    """Load what the tests load, but for undertow and the tests, once and before the processes fork off."""
    for name in names:
        if name.partition(".")[0] not in ("undertow", "tests", "conftest", "__main__") and "test" not in name:
            with contextlib.suppress(BaseException), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)


def attack(name: str, many: int, seed: int, part: tuple[int, int], source: Path) -> dict[str, object]:
    """Change one module `many` times, of which this is one part of so many; what became of it."""
    target, seen = MODULES[name], source / "loaded.txt"
    if run_tests(source, target, None, seen) != "passed":
        return {"module": name, "error": "the tests fail on the unchanged code"}
    load_before(seen.read_text(encoding="utf-8").splitlines())
    began = time.monotonic()
    if run_tests(source, target, None) != "passed":
        return {"module": name, "error": "the tests fail where their libraries are loaded before"}
    within = max(60.0, SLOWEST * (time.monotonic() - began))
    every = [(path, *one) for path in target.files for one in mutants(source / "undertow" / path)]
    chosen = random.Random(f"{seed} {name}").sample(every, min(many, len(every)))[part[0] - 1 :: part[1]]
    survived: list[str] = []
    harmless = 0
    for path, line, which, text in chosen:
        where = f"{Path(path).name}:{line} {which}"
        changed = source / "undertow" / path
        whole = changed.read_text(encoding="utf-8")
        changed.write_text(text, encoding="utf-8")
        try:
            ended = run_tests(source, target, within)
        finally:
            changed.write_text(whole, encoding="utf-8")
        why = reason_for(source / "undertow", path, line, which) if ended == "passed" else ""
        print(
            f"{name}: {ended}: {where}{f' (changes no result: {why})' * bool(why)}",
            file=sys.stderr,
            flush=True,
        )
        harmless += bool(why)
        survived += [where] if ended == "passed" and not why else []
    return {
        "module": name, "of": len(every), "tried": len(chosen), "changes no result": harmless,
        "killed": len(chosen) - harmless - len(survived), "survived": survived,
    }  # fmt: skip


def main() -> None:
    """Change, test, tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("many", type=int, nargs="?", default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(MODULES))
    parser.add_argument(
        "--part", default="1/1", help="for several processes: 2/4 is every fourth change from the second on"
    )
    asked = parser.parse_args()
    import torch

    if gone := lost(ROOT / "src" / "undertow"):
        sys.exit(f"no_result.py: lines that are no longer there: {', '.join(gone)}")
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        shutil.copytree(
            ROOT / "src" / "undertow", Path(folder) / "undertow", ignore=shutil.ignore_patterns("__pycache__")
        )
        first, parts = map(int, asked.part.split("/"))
        for name in asked.only:
            told = attack(name, asked.many, asked.seed, (first, parts), Path(folder))
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
