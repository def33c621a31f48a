"""docs/errors.md quotes messages that undertow really gives; docs/api.md has every public name."""

from __future__ import annotations

import ast
import re

from reader import ROOT

import undertow as ut

ANY = "\N{HORIZONTAL ELLIPSIS}"


def said() -> list[str]:
    """All texts in the source, with an ellipsis for what is put into them."""
    texts: list[str] = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(one.value) if isinstance(one, ast.Constant) else ANY for one in node.values)
                texts.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return texts


def quoted(page: str) -> list[str]:
    """The first cell of each row, where it quotes."""
    return re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE)


def is_said(message: str, texts: list[str]) -> bool:
    """Whether some text has each part of the message, between what differs from case to case."""
    parts = [part.strip(" '") for part in message.split(ANY) if part.strip(" ',")]
    return all(any(part in text for text in texts) for part in parts)


def test_messages_are_those_of_the_source():
    messages, texts = quoted((ROOT / "docs" / "errors.md").read_text(encoding="utf-8")), said()
    assert len(messages) > 20
    assert [message for message in messages if not is_said(message, texts)] == []
    assert not is_said("wanted the moon, got a stone", texts)


def test_every_public_name_is_in_the_reference():
    """Fails if a name is added that nobody can look up; names that are gone stop the site from building."""
    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    rooms = {"data", "labels", "latent", "richness", "studies", "temporal", "__version__"}
    assert set(ut.__all__) - rooms - {one.rpartition(".")[2] for one in listed} == set()
