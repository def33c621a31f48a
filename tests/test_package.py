"""The package as a whole: quick to import, every public name there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import undertow


def modules_after(code: str) -> set[str]:
    """Names of all modules loaded in a fresh interpreter after `code`."""
    listing = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import undertow",
        "import undertow.data, undertow.models, undertow.training",
        "import undertow.cli.app",
        "from undertow.training.config import TrainConfig; TrainConfig(model='mlp')",
    ],
)
def test_no_torch_until_it_is_needed(code: str):
    """`import undertow` under 0.3 s and `undertow --help` under 0.5 s rest on this."""
    loaded = modules_after(code)
    assert not loaded & {"torch", "numpy", "pandas", "scipy", "sklearn", "matplotlib"}


def test_the_guard_notices_torch():
    assert "torch" in modules_after("import undertow; undertow.Run")


@pytest.mark.parametrize("name", undertow.__all__)
def test_every_public_name_is_there(name: str):
    assert getattr(undertow, name) is not None
    assert name in dir(undertow)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no_such_name"):
        undertow.no_such_name  # noqa: B018


@pytest.mark.parametrize("verb", ["audit", "train", "repair", "label_errors", "open_run", "write_report"])
@pytest.mark.parametrize(
    "first", ["", "import undertow.training.loop, undertow.auditing, undertow.repairing"]
)
def test_verbs_are_plain_functions(verb: str, first: str):
    """Fails if a room of the same name hides a function, so that editors and help() show no signature."""
    code = f"{first}\nimport inspect, undertow\nassert inspect.isfunction(undertow.{verb})"
    assert "undertow" in modules_after(f"{code}\nassert inspect.signature(undertow.{verb}).parameters")


def test_the_stub_names_everything_once():
    """Fails if the stub, which editors and the lazy loader both read, names a thing twice."""
    assert len(undertow.__all__) == len(set(undertow.__all__))
