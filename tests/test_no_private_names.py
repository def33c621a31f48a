"""Tests speak to what is public: a private name may change without anybody's leave."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent


def private_uses(code: str) -> list[str]:
    """Private names of undertow that `code` imports or reaches through a module that it imported."""
    tree, found = ast.parse(code), []
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("undertow"):
            found += [alias.name for alias in node.names if _private(alias.name)]
            modules |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {
                (a.asname or a.name).split(".")[0] for a in node.names if a.name.startswith("undertow")
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _private(node.attr):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in modules:
                found.append(node.attr)
    return found


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_version"


def test_no_test_uses_a_private_name():
    found = {
        str(path.relative_to(HERE)): own
        for path in HERE.rglob("*.py")
        if (own := private_uses(path.read_text()))
    }
    assert not found


def test_the_guard_notices():
    assert private_uses("from undertow.data import cache\ncache._warn_once()") == ["_warn_once"]
    assert private_uses("from undertow.report.server import _Handler") == ["_Handler"]
    assert private_uses("import undertow as ut\nut.files.aside(x)._thing") == []
