"""What people install: sdist and wheel, built from this tree and put into an empty environment, do their work.

Needs the packages build and hatchling, no network: the environment sees the libraries that are installed here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

SMOKE = """
import pathlib, sys, undertow as ut
assert pathlib.Path(ut.__file__).is_relative_to(sys.prefix), ut.__file__
run = ut.train("mlp:16", "first", data="digits", noise=0.4, epochs=3, checkpoints="every:1")
result = ut.audit(run, quick=True)
page = result.to_html("report.html")
assert "</html>" in pathlib.Path(page).read_text(encoding="utf-8")
print(result.verdict.headline)
"""


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=clean | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both: the wheel is made from the sdist, so that nothing can be missing there."""
    if not (find_spec("build") and find_spec("hatchling")):
        pytest.skip("build and hatchling are not installed")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


def empty_environment(folder: Path) -> Path:
    """A Python that sees the libraries of this one behind its own, but no undertow."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    own = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=folder).strip()
    )
    own.joinpath("libraries.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return python


@pytest.mark.slow
def test_what_is_in_them(built: Path):
    """Fails if types, templates or scripts of the page are left out, or if tests and data come along."""
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {"undertow/py.typed", "undertow/__init__.pyi"} <= inside
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src/undertow").rglob("*")
        if path.is_file()
    }
    assert {name for name in source if "__pycache__" not in name} <= inside
    assert all(name.startswith(("undertow/", "undertow-")) for name in inside)
    with tarfile.open(sdist) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    assert {"README.md", "LICENSE", "constraints.txt", "pyproject.toml"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_installs_into_an_empty_environment_and_works(built: Path, kind: str, tmp_path: Path):
    (package,) = built.glob(kind)
    python = empty_environment(tmp_path / "env")
    no_build = ["--no-build-isolation"] if kind == "*.tar.gz" else []
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", *no_build, package, cwd=tmp_path)
    assert run(python, "-c", SMOKE, cwd=tmp_path).strip()
    script = tmp_path / "env" / "bin" / "undertow"
    assert run(script, "-V", cwd=tmp_path).strip() in package.name
    assert "epoch" in run(script, "show", "first", cwd=tmp_path)


def test_every_extra_has_something_behind_it():
    """Fails for an extra whose library no module, test or page uses."""
    used = "".join(
        path.read_text(encoding="utf-8")
        for place in ("src", "docs", "mkdocs.yml")
        for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*.py"))
    )
    imports = {
        "mlflow-skinny": "mlflow",
        "mkdocs-material": "material",
        "mkdocstrings[python]": "mkdocstrings",
    }
    for extra, needs in PROJECT["optional-dependencies"].items():
        for need in needs if extra != "dev" else ():
            name = need.split(">=")[0]
            assert imports.get(name, name.split("[")[0]) in used, f"{extra}: {name}"


def test_pythons_are_those_that_were_tried():
    """CI has 3.11 alone: a newer one may be installed with, but is promised by no classifier."""
    named = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text}
    assert named == {"3.11"}
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
