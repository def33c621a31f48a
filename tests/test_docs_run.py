"""Python in the documentation runs: each page's blocks in order, in one namespace and an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXECUTED = ("start.md", "while-training.md")
COMPILED_ONLY = {
    "README.md", "cluster.md", "labels.md", "lenses.md", "probes.md", "repair.md", "run-folder.md", "studies.md",
    "temporal.md", "own-runs.md", "trust.md",
}  # fmt: skip
"""Their blocks name things that a reader has (a model, a cluster); tests/test_docs.py compiles them."""


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_every_page_with_python_is_known():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    having = {page.name for page in pages if blocks(page)}
    assert having <= {*EXECUTED, *COMPILED_ONLY}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXECUTED)
def test_the_blocks_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    page, space = ROOT / "docs" / name, {"__name__": "__docs__"}
    for place, block in enumerate(blocks(page)):
        exec(compile(block, f"{name}, block {place}", "exec"), space)
    assert len(space) > 5
