"""The site builds offline, with every builder that is installed, and fetches nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from reader import ROOT

BUILDERS = {"mkdocs": ["build", "--strict", "-q"], "zensical": ["build"]}


@pytest.mark.parametrize("builder", BUILDERS)
def test_the_site_builds_and_needs_no_network(builder: str, tmp_path: Path):
    """Fails for a link that leads nowhere, a name in api.md that moved, or a font or script of another host."""
    if find_spec(builder) is None:
        pytest.skip(f"{builder} is not installed")
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    subprocess.run([sys.executable, "-m", builder, *BUILDERS[builder]], cwd=tmp_path, check=True)
    reference = (tmp_path / "site" / "api" / "index.html").read_text(encoding="utf-8")
    assert "UndertowCallback" in reference
    assert "::: undertow" not in reference
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(
            r'<(?:script|img)[^>]+src="(https?:[^"]+)"|<link[^>]+rel="stylesheet"[^>]+href="(https?:[^"]+)"',
            text,
        )
        assert loaded == [], page
