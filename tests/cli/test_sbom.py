"""The list of packages and licences."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from undertow.cli import main


def test_every_package_has_a_version_and_nearly_all_a_licence(tmp_path: Path):
    assert main(["sbom", "--out", str(tmp_path / "sbom.json")]) == 0
    told = json.loads((tmp_path / "sbom.json").read_text())
    assert (told["bomFormat"], told["metadata"]["component"]["name"]) == ("CycloneDX", "undertow")
    found = {own["name"].lower(): own for own in told["components"]}
    assert {"torch", "numpy", "pyarrow", "safetensors", "msgspec"} <= found.keys()
    assert found["numpy"]["version"] == version("numpy")
    assert sum(bool(own["licenses"]) for own in found.values()) > 0.9 * len(found)


def test_what_is_named_is_listed(capsys):
    """Fails if an edge leads to a package that is not in the list."""
    assert main(["sbom"]) == 0
    told = json.loads(capsys.readouterr().out)
    listed = {own["bom-ref"] for own in told["components"]}
    edges = {ref for own in told["dependencies"] for ref in own["dependsOn"]}
    assert edges <= listed | {own["ref"] for own in told["dependencies"]}
    assert len(edges) > 20
