"""The ledger's numbers and reasons in words, and pieces of its pages.

named({"case": "alpha 2", "measure": "d_lr", "where": "split test"})       # "alpha 2: D_LR, on test samples"
ours_of(number)                                                            # "0.097 (0.091 to 0.1)"
cut(plain(reason))                                                         # short enough for a table
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from undertow.report.study import ranged

MOST_LETTERS = 140
"""Of numbers or a reason in a table; the study's own section has all of it."""
WORDS = {
    "d_lr": "D_LR", "s_init_transposed": "S_init", "squared_parameter_norm": "squared norm of the weights",
    "nc1_stabilised_mean": "NC1", "trace_within_mean": "tr Sigma_W", "mce": "mCE", "used_dimension": "used dimensions",
    "effective_dimension_rest": "effective dimension", "parameter_drift": "drift of the weights",
    "split test": "on test samples", "split train": "on training samples", "checkpoint last": "at the end",
    "checkpoint first": "at the start", "layer all": "of all layers", "probe masc": "MASC", "probe velpic": "VeLPIC",
    "probe logistic": "logistic", "probe model": "the model",
}  # fmt: skip
"""Measures and places of the recipes in words; what is not here is plain enough."""


def named(one: Mapping[str, Any]) -> str:
    """What a number of the paper is, where and of which case."""
    places = [WORDS.get(part, part) for part in one["where"].split(", ") if part]
    measure = WORDS.get(one["measure"], one["measure"].replace("_", " "))
    return f"{one['case']}: {', '.join([measure, *places])}"


def ours_of(one: Mapping[str, Any]) -> str:
    """Ours, with the range over seeds."""
    return ranged(one["ours"], one["low"], one["high"], one["seeds"])


def plain(text: str) -> str:
    """Underscores and asterisks as they are, not as emphasis."""
    return text.replace("_", "\\_").replace("*", "\\*").rstrip(".")


def cut(words: str) -> str:
    """At most so many letters, up to a whole word."""
    return words if len(words) <= MOST_LETTERS else f"{words[:MOST_LETTERS].rpartition(' ')[0]} ..."


def bash(command: str) -> str:
    """A command that a reader may copy."""
    return f"```bash\n{command}\n```"


def folded(title: str, body: str) -> str:
    """What is shown when its title is clicked."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(_cell(str(cell)) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def link(name: str) -> str:
    """To the study's own section."""
    return f"[{name}](results/{name.partition('/')[0]}.md#{name.replace('/', '')})"


def capital(text: str) -> str:
    """A sentence's first letter."""
    return text[:1].upper() + text[1:]


def counted(number: int, what: str) -> str:
    """1 claim, 2 claims."""
    return f"{number} {what}{'s' * (number != 1)}"
