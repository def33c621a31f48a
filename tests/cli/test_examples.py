"""Every --help ends with command lines that work as they are."""

from __future__ import annotations

import shlex

import pytest

from undertow.cli import main
from undertow.cli.app import COMMANDS, DATA_COMMANDS, EXAMPLES, STUDY_COMMANDS, app

EVERY = [
    *COMMANDS,
    *(f"data {name}" for name in DATA_COMMANDS),
    *(f"study {name}" for name in STUDY_COMMANDS),
]


def test_every_command_has_examples_and_no_other():
    assert set(EXAMPLES) == set(EVERY)


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_are_understood(line: str):
    app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("command", ["audit", "study run"])
def test_help_shows_them(command: str, capsys: pytest.CaptureFixture[str]):
    assert main([*command.split(), "--help"]) == 0
    assert EXAMPLES[command][0] in capsys.readouterr().out


def test_completion_and_version(capsys: pytest.CaptureFixture[str]):
    for shell in ("bash", "zsh", "fish"):
        assert "audit" in app.generate_completion(shell=shell)
    assert main(["-V"]) == 0
    assert capsys.readouterr().out.strip()
