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
        "import undertow.data, undertow.models, undertow.train",
        "import undertow.cli.app",
        "from undertow.train.config import TrainConfig; TrainConfig(model='mlp')",
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
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        undertow.no_such_name  # noqa: B018


@pytest.mark.parametrize("first", ["import undertow.train", "import undertow.train.loop", ""])
def test_a_room_and_its_verb_share_a_name(first: str):
    """Fails if importing the room hides the function, or the other way round."""
    code = f"{first}\nimport undertow\nassert callable(undertow.train)\nfrom undertow.train.loop import train"
    code += "\nassert undertow.train.train is train"
    assert "undertow.train.loop" in modules_after(code)
