"""Files under a checkpoint's name that never were one: what they are is said, not that they are damaged."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from torch import nn

import undertow as ut
from undertow.errors import RunProblem

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4cd1\nsize 132\n"
TEXTS = {
    "page": b"<!doctype html><html>404</html>",
    "answer": b'{"error": "Repository not found"}',
    "marked": "\N{ZERO WIDTH NO-BREAK SPACE}<html>".encode(),
    "long": "Zugriff verweigert f\N{LATIN SMALL LETTER U WITH DIAERESIS}r Sie. ".encode() * 60,
}


def opened(folder: Path, ending: str, content: bytes) -> None:
    (folder / f"epoch_1{ending}").write_bytes(content)
    ut.open_run(folder, model=lambda: nn.Linear(3, 2)).model(1)


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_pointer_of_git_lfs_names_the_command_that_brings_the_file(tmp_path: Path, ending: str):
    """Fails if it is called damaged or cut off."""
    with pytest.raises(RunProblem, match=rf"epoch_1{ending}: .*pointer of git-lfs.* Run `git lfs pull`"):
        opened(tmp_path, ending, POINTER)


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
@pytest.mark.parametrize("name", TEXTS)
def test_text_is_called_text(tmp_path: Path, ending: str, name: str):
    """Fails if a web page must run code to be read, or is damaged."""
    with pytest.raises(RunProblem, match=rf"epoch_1{ending}: it is text, not a checkpoint .*fetch the file"):
        opened(tmp_path, ending, TEXTS[name])


@pytest.mark.parametrize(
    ("ending", "content", "reason"),
    [
        (".pt", pickle.dumps(Path.cwd, 0), "must run code"),
        (".pt", b"PK\x03\x04" + b"\0" * 50, "damaged or cut off"),
        (".safetensors", b"\x85{} no text", "damaged or cut off"),
    ],
    ids=["oldest pickle", "torn archive", "torn header"],
)
def test_what_is_no_text_keeps_its_reason(tmp_path: Path, ending: str, content: bytes, reason: str):
    """Fails if the oldest pickles, which are letters, or torn bytes are called text."""
    with pytest.raises(RunProblem, match=reason):
        opened(tmp_path, ending, content)
