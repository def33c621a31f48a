"""A room imports only the rooms above it."""

from __future__ import annotations

import ast
from pathlib import Path

import undertow

SOURCE = Path(undertow.__file__).parent
ROOMS = [
    "stored", "data", "models", "training", "features", "crew", "session", "latent", "richness", "temporal", "labels",
    "repairing", "auditing", "studies", "engine", "report", "integrations", "cli",
]  # fmt: skip


def imported_rooms(code: str) -> set[str]:
    """Rooms that a module imports, at its top or inside a function; type-checking imports count too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found |= {name.split(".")[1] for name in names if name.startswith("undertow.")}
    return found & set(ROOMS)


def forbidden(room: str, code: str) -> set[str]:
    return {other for other in imported_rooms(code) if ROOMS.index(other) > ROOMS.index(room)}


def test_a_room_imports_only_rooms_above_it():
    wrong = {}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        if room in ROOMS and (found := forbidden(room, path.read_text(encoding="utf-8"))):
            wrong[str(path.relative_to(SOURCE))] = found
    assert not wrong


def test_every_folder_is_a_known_room():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= set(ROOMS)


def test_ground_imports_no_room():
    """errors, files and the like may be used by all rooms, so they may use none (the lazy top excepted)."""
    for path in SOURCE.glob("*.py"):
        if path.name not in ("__init__.py", "__main__.py"):
            assert not imported_rooms(path.read_text(encoding="utf-8")), path.name


def test_the_guard_notices_planted_imports():
    assert forbidden("data", "from undertow.training.run import Run") == {"training"}
    assert forbidden("data", "def f():\n    import undertow.cli.app") == {"cli"}
    assert forbidden("models", "from undertow import latent") == {"latent"}
    assert forbidden("training", "from undertow.data import load_data") == set()
