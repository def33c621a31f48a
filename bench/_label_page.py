"""The page of what was measured, from its csv: goals counted, fresh cells by set and noise, people's labels, losses.

    text = rewritten(page, table)         # what lies between the marks is made anew, the rest is left as it is

A part begins with `<!-- made: NAME -->` and ends with `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

ROLES = {"fresh": "fresh", "looked": "looked at", "chosen": "chosen"}
LEAST, BEHIND, LOST = -0.0005, -0.02, 0.03
KEPT = (
    "cell", "role", "samples", "wrong", "value", "low", "high", "told", "covered", "flagged", "seconds", "AP", "AUROC",
    "F1", "F1 at true rate", "right on flagged wrong", "best peer", "best peer AP", "LDA right on wrong",
)  # fmt: skip
"""Columns of the csv, with all that begin with "peer "."""


def stored(table: pd.DataFrame) -> pd.DataFrame:
    """The table as its csv holds it."""
    families = [name for name in table if str(name).startswith("peer ")]
    return table.reindex(columns=[*KEPT, *families])


def rewritten(page: str, table: pd.DataFrame) -> str:
    def made(found: re.Match[str]) -> str:
        return f"{found[1]}\n{PARTS[found[2]](table)}\n<!-- end -->"

    return re.sub(r"(<!-- made: (\w+) -->).*?<!-- end -->", made, page, flags=re.DOTALL)


def goals(table: pd.DataFrame) -> str:
    """Goals by what cells were to the method."""
    groups = {title: table[table["role"] == role] for role, title in ROLES.items()}
    head = ["goal", *(f"{title} ({len(part)})" for title, part in groups.items())]
    rows = {
        "1 rate: 9 of 10 intervals hold the truth": _intervals,
        "clean sets hold 0": _clean,
        "2 F1 at most .03 below that at the true rate": _decisions,
        "3 AP at least that of every peer on 80 %": _rankings,
        "never more than .02 behind": _behind,
        "4 proposals right on two thirds of flagged wrong labels where LDA is": _proposals,
        "5 CPU seconds, median and most": _seconds,
    }
    lines = [_line(head), "|" + "---|" * len(head)]
    return "\n".join(
        lines + [_line([goal, *(count(part) for part in groups.values())]) for goal, count in rows.items()]
    )


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _noisy(part: pd.DataFrame) -> pd.DataFrame:
    return part[part["wrong"] > 0]


def _beside(part: pd.DataFrame) -> pd.DataFrame:
    return part[part["best peer AP"].notna() & (part["wrong"] > 0)]


def _gap(part: pd.DataFrame) -> pd.Series:
    return part["AP"] - part["best peer AP"]


def _loss(part: pd.DataFrame) -> pd.Series:
    return part["F1 at true rate"] - part["F1"]


def _of(hits: int, count: int) -> str:
    return f"{hits} of {count}" + (f" ({100 * hits / count:.0f} %)" if count >= 10 else "")


def _intervals(part: pd.DataFrame) -> str:
    noisy = _noisy(part)
    told = noisy[noisy["told"]]
    return f"{_of(int(noisy['covered'].sum()), len(noisy))}; told in {len(told)}, {int(told['covered'].sum())} hold"


def _clean(part: pd.DataFrame) -> str:
    clean = part[part["wrong"] == 0]
    return _of(int(clean["covered"].sum()), len(clean))


def _decisions(part: pd.DataFrame) -> str:
    return _of(int((_loss(_noisy(part)) <= LOST).sum()), len(_noisy(part)))


def _rankings(part: pd.DataFrame) -> str:
    return _of(int((_gap(_beside(part)) >= LEAST).sum()), len(_beside(part)))


def _behind(part: pd.DataFrame) -> str:
    gap = _gap(_beside(part))
    return f"{int((gap < BEHIND).sum())} behind; worst {gap.min():+.3f}" if len(gap) else "no peers"


def _proposals(part: pd.DataFrame) -> str:
    able = _noisy(part)[_noisy(part)["LDA right on wrong"] >= 2 / 3]
    return _of(int((able["right on flagged wrong"] >= 2 / 3).sum()), len(able))


def _seconds(part: pd.DataFrame) -> str:
    return f"{part['seconds'].median():.1f}, {part['seconds'].max():.1f}"


def by_set(table: pd.DataFrame) -> str:
    """Fresh cells, one line for each set."""
    return _grouped(table, "set", 0)


def by_noise(table: pd.DataFrame) -> str:
    """Fresh cells, one line for each kind of noise."""
    return _grouped(table, "noise", 1)


def _grouped(table: pd.DataFrame, title: str, part: int) -> str:
    head = [title, "noisy cells", "intervals hold; told", "AP", "best peer", "at least level; worst gap"]
    head += ["F1 own / at true rate", "proposals right / LDA's", "clean: holds 0; flagged %"]
    fresh = table[table["role"] == "fresh"]
    names = fresh["cell"].str.split("-").str[part]
    lines = [_line(head), "|" + "---|" * len(head)]
    return "\n".join(lines + [_group(str(name), own) for name, own in fresh.groupby(names, sort=False)])


def _group(name: str, own: pd.DataFrame) -> str:
    noisy, clean = _noisy(own), own[own["wrong"] == 0]
    quiet = f"{_clean(own)}; {100 * clean['flagged'].mean():.0f}" if len(clean) else ""
    if not len(noisy):
        return _line([name, "0", *[""] * 6, quiet])
    gap, beside, mean = _gap(_beside(noisy)), _beside(noisy), noisy.mean(numeric_only=True)
    level = f"{(gap >= LEAST).sum()} of {len(gap)}; {gap.min():+.3f}" if len(gap) else "no peers"
    return _line([
        name, str(len(noisy)), f"{noisy['covered'].sum()}; {noisy['told'].sum()}",
        _three(beside["AP"].mean() if len(gap) else mean["AP"]), _three(beside["best peer AP"].mean()), level,
        _pair(mean.to_dict(), "F1", "F1 at true rate"),
        _pair(mean.to_dict(), "right on flagged wrong", "LDA right on wrong"), quiet,
    ])  # fmt: skip


def people(table: pd.DataFrame) -> str:
    """Labels that people or rules gave, one line each."""
    head = ["cell", "was", "wrong %", "answer %", "AP", "best peer", "F1 own / at true rate", "flagged %"]
    head += ["proposals right / LDA's"]
    given = table[table["cell"].str.split("-").str[1].str.startswith(("people", "weak"))]
    rows = [
        [cell[0], ROLES[str(one["role"])], *cell[1:]]
        for one in given.to_dict("records")
        for cell in [_cell(one)]
    ]
    return "\n".join([_line(head), "|" + "---|" * len(head), *map(_line, rows)])


def _cell(one: dict[str, object]) -> list[str]:
    number = {key: float(value) for key, value in one.items() if isinstance(value, int | float)}
    span = (
        f"{'told' if one['told'] else 'cannot tell'} {100 * number['low']:.0f} to {100 * number['high']:.0f}"
    )
    named = str(one["best peer"]).partition(",")[0]
    best = (
        f"{_three(number['best peer AP'])} {named}"
        if number["best peer AP"] == number["best peer AP"]
        else ""
    )
    ahead = best and number["best peer AP"] - number["AP"] > -LEAST
    return [
        str(one["cell"]), f"{100 * number['wrong']:.1f}", span if one["covered"] else f"**{span}**",
        _three(number["AP"]), f"**{best}**" if ahead else best, _pair(number, "F1", "F1 at true rate"),
        f"{100 * number['flagged']:.0f}", _pair(number, "right on flagged wrong", "LDA right on wrong"),
    ]  # fmt: skip


def _pair(number: dict[str, float], own: str, other: str) -> str:
    return " / ".join(filter(None, (_three(number[own]), _three(number[other]))))


def _three(value: float) -> str:
    return "" if value != value else f"{value:.3f}".removeprefix("0")


def losses(table: pd.DataFrame) -> str:
    """Where a goal is missed, all cells."""
    behind = _beside(table)[_gap(_beside(table)) < BEHIND]
    lost = _noisy(table)[_loss(_noisy(table)) > LOST]
    missed = table[~table["covered"]]
    told = {
        "Interval misses the truth": [str(one) for one in missed["cell"]],
        "AP more than .02 behind a peer": [
            f"{name} {gap:+.3f} ({str(peer).partition(',')[0]})"
            for name, gap, peer in zip(behind["cell"], _gap(behind), behind["best peer"], strict=True)
        ],
        "F1 more than .03 below that at the true rate": [
            f"{name} {-loss:+.3f}" for name, loss in zip(lost["cell"], _loss(lost), strict=True)
        ],
    }
    return "\n".join(f"- {what}: {', '.join(names) or 'none'}." for what, names in told.items())


PARTS: dict[str, Callable[[pd.DataFrame], str]] = {
    "goals": goals, "sets": by_set, "noise": by_noise, "people": people, "losses": losses,
}  # fmt: skip
