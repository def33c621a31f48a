"""Files under a checkpoint's name that are something else: a pointer that git-lfs left, a page saved in its place.

    if (other := taken_for(path)) is not None:
        raise other                        # which says what the file is, and how to get the one that was meant

Asked only of a file that could not be read: what torch wrote long ago may begin with letters, too.
"""

from __future__ import annotations

from pathlib import Path

from undertow.errors import BadFile

LFS = b"version https://git-lfs.github.com"
HEAD, QUOTED = 512, 40
"""Bytes that are looked at, and letters of them that are told."""


def is_pointer(path: Path) -> bool:
    """Whether a file is what git leaves of a large one until git-lfs brings it."""
    return _head(path).startswith(LFS)


def taken_for(path: Path) -> BadFile | None:
    """The error for a file that never was a checkpoint; None for one that may be a damaged one."""
    head = _head(path)
    if head.startswith(LFS):
        return BadFile(
            path, "", "wanted a checkpoint, got a pointer of git-lfs to it", "Run `git lfs pull` in its repository."
        )  # fmt: skip
    text = _as_text(head)
    if text is None:
        return None
    return BadFile(
        path, "", f"it is text, not a checkpoint (it begins with {text!r})",
        "Often a web page was saved in its place: fetch the file again.",
    )  # fmt: skip


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError:
        return b""


def _as_text(head: bytes) -> str | None:
    """The first line of what reads as text; None where it is none."""
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(head) < HEAD or error.start < len(head) - 3:  # not just a letter cut in two
            return None
        text = head[: error.start].decode()
    text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").strip()
    if not text or not all(letter.isprintable() or letter.isspace() for letter in text):
        return None
    line = text.splitlines()[0].strip()
    return line if len(line) <= QUOTED else f"{line[:QUOTED]}\N{HORIZONTAL ELLIPSIS}"
