"""Writes docs/results.md, the ledger of what was found: python docs/results.py [studies ...]

Each folder is the --out of `undertow study run`. What its outcomes at laptop or paper scale say goes into
docs/results.json, in place of what was there for the same study and scale; the page is made from that file, the
recipes and the list of what the papers show. An entry that another recipe made says so and is not counted. Nothing in
the page is written by hand: run the command again instead of editing it.
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from undertow.errors import NotThere
from undertow.report.study import SavedStudy, ranged, read_studies
from undertow.studies.catalogue import STUDIES, find_study
from undertow.studies.papers import ITEMS, PAPERS
from undertow.words import number

HERE = Path(__file__).parent
MOST_BYTES = 40_000
WIDTHS = (900, 750, 600, 450)
MARKS = {"holds": "holds", "does not hold": "**does not hold**", "cannot tell": "*cannot tell*"}
NOT_RUN = "not run yet at these settings"
FEWEST = 5
"""So many cases that all agree are the fewest that a sign test can decide by."""
MOST_WORDS = 140
"""Letters of a reason in a table; the study's own section has it whole."""
Entry = dict[str, Any]


def main(folders: Sequence[str], target: Path = HERE / "results.md") -> None:
    kept = target.with_suffix(".json")
    ledger: dict[str, Entry] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    studies = [own for folder in folders for own in read_studies(folder) if own.scale != "smoke"]
    if folders and not studies:
        raise NotThere(
            f"{folders[0]}: wanted outcomes at laptop or paper scale, got smoke only, which says nothing about claims. "
            f"`undertow study run NAME --scale laptop --out {folders[0]}` makes one."
        )
    for own in studies:
        ledger[f"{own.name} {own.scale}"] = {**entry(own), "picture": picture(own, target.parent)}
    ledger = {key: ledger[key] for key in sorted(ledger) if ledger[key]["study"] in STUDIES}
    kept.write_text(json.dumps(ledger, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    target.write_text(page(ledger), encoding="utf-8")
    print(f"Written: {target} ({len(ledger)} outcomes, {len(studies)} of them new)")


def entry(own: SavedStudy) -> Entry:
    """What the ledger keeps of an outcome: everything the page says, and nothing of this machine."""
    place = f"{own.path.resolve().parents[2]}/"
    facts, rows = own.facts, own.path / "rows.parquet"
    done = pd.read_parquet(rows, columns=["seed"])["seed"].nunique() if rows.is_file() else own.seeds
    return {
        "study": own.name, "scale": own.scale, "command": own.command, "seeds": own.seeds,
        "seeds_done": done,
        "minutes": round(own.minutes, 1), "rows": facts.get("rows", ""), "recipe": facts.get("recipe", ""),
        "unfinished": facts.get("unfinished", 0), "claims": own.claims,
        "numbers": [_number(line) for line in own.compared.to_dict("records")],
        "failures": [str(one).replace(place, "") for one in facts.get("failures") or []],
    }  # fmt: skip


def _number(line: Mapping[str, Any]) -> Entry:
    names = ("case", "measure", "where", "paper", "ours", "low", "high", "seeds", "tolerance", "cause")
    told = {name: line.get(name, "") for name in names}
    flags = {name: str(line.get(name, True)) == "True" for name in ("within", "reachable")}
    return {**told, **flags, "seeds": int(line["seeds"])}


# --------------------------------------------------------------------------------------------------- the page


def page(ledger: Mapping[str, Entry]) -> str:
    """The whole page."""
    parts = [
        "# Results",
        "What the studies found, against what the papers say. A claim is judged as the paper words it: in every case, "
        "in most (a sign test over the cases decides, at .05) or in some; a network that did not reach the state that "
        "a claim presupposes is left out, and \"cannot tell\" has a reason. Tolerances are fixed in the recipes. At "
        "laptop scale networks and sets are smaller ([how](studies.md)), so accuracies of full-size networks are out "
        "of reach there and counted apart. Written by `python docs/results.py`; `undertow study run --all --scale "
        "laptop` makes everything again.",
        _table(["paper", "claims", "numbers within reach", "out of reach"], [_total(room, ledger) for room in PAPERS]),
    ]  # fmt: skip
    for room, paper in PAPERS.items():
        parts += [f"## Paper {paper.number}: {paper.title}", *_paper(room, ledger)]
    parts += ["## Studies", *(section(name, ledger) for name in STUDIES)]
    return "\n\n".join(parts) + "\n"


def current(name: str, ledger: Mapping[str, Entry]) -> list[Entry]:
    """The entries of a study that its recipe as it stands made."""
    found = [ledger[key] for key in (f"{name} laptop", f"{name} paper") if key in ledger]
    study = find_study(name)
    kept = [one for one in found if one["recipe"] == study.at(one["scale"]).mark]
    # What a scale can reach is said in the recipe, also after a run.
    reach = {(one.case, one.measure, one.place): one.reachable_at for one in study.published}
    for own in kept:
        for one in own["numbers"]:
            one["reachable"] = own["scale"] in reach.get(
                (one["case"], one["measure"], one["where"]), (own["scale"],)
            )
    return kept


def _total(room: str, ledger: Mapping[str, Entry]) -> list[str]:
    names = [name for name in STUDIES if name.startswith(f"{room}/")]
    claims = [one for name in names for one in _claims(name, ledger) if not one["ours"]]
    count = Counter(one["verdict"] for one in claims)
    words = [f"{count[word]} {word}" for word in (*MARKS, NOT_RUN) if count[word]]
    early = sum(one["entry"] is not None and one["entry"]["unfinished"] > 0 for one in claims)
    words += [f"so far: {early} are of studies that are unfinished"] if early else []
    numbers = [one for name in names for own in current(name, ledger) for one in own["numbers"]]
    near = [one for one in numbers if one["reachable"]]
    return [
        PAPERS[room].number, f"{len(claims)}: {', '.join(words)}",
        f"{sum(one['within'] for one in near)} of {len(near)}" if near else "none measured yet",
        str(len(numbers) - len(near)),
    ]  # fmt: skip


def _claims(name: str, ledger: Mapping[str, Entry]) -> list[Entry]:
    """Every claim of a study's recipe with its last verdict, of the largest scale that ran."""
    own = current(name, ledger)
    told = {one["claim"]: {**one, "entry": entry} for entry in own for one in entry["claims"]}
    empty = {"verdict": NOT_RUN, "numbers": "", "entry": None}
    return [
        {**empty, **told.get(claim.text, {}), "claim": claim.text, "ours": claim.ours, "place": claim.place,
         "cause": claim.cause, "study": name}
        for claim in find_study(name).claims
    ]  # fmt: skip


def _paper(room: str, ledger: Mapping[str, Entry]) -> list[str]:
    names = [name for name in STUDIES if name.startswith(f"{room}/")]
    claims = [one for name in names for one in _claims(name, ledger)]
    theirs, ours = ([one for one in claims if one["ours"] == flag] for flag in (False, True))
    columns = ["the paper says", "where", "ours", "scale, seeds", "verdict", "study"]
    parts = [_table(columns, map(_claim_line, theirs))]
    if ours:
        parts += ["Beyond the paper; these claims are ours:", _table(columns, map(_claim_line, ours))]
    numbers = [(name, own, one) for name in names for own in current(name, ledger) for one in own["numbers"]]
    if numbers:
        columns = ["number", "paper", "ours (range over seeds)", "tolerance", "scale", "verdict", "study"]
        parts.append(
            _folded(
                f"The paper's {len(numbers)} numbers beside ours", _table(columns, map(_number_line, numbers))
            )
        )
    shown = [[item.what, _link(item.study) if item.study else "none", item.note] for item in ITEMS[room]]
    parts.append(_folded("Every figure, table and theorem", _table(["the paper's", "study", "note"], shown)))
    return parts


def _claim_line(one: Entry) -> list[str]:
    entry = one["entry"]
    if entry is None:
        return [one["claim"], one["place"], "", "", NOT_RUN, _link(one["study"])]
    counted = "" if one.get("of") in (None, 0) else f"{one['agree']} of {one['of']}"
    tested = "" if one.get("p") is None else f", p = {number(one['p'])}"
    reason = one["cause"] if one["verdict"] == "does not hold" else _why(one)
    marked = MARKS[one["verdict"]] + (f" ({reason})" if reason else "")
    seeds = entry.get("seeds_done", entry["seeds"])
    partly = f" of {entry['seeds']} (unfinished)" if entry["unfinished"] else ""
    return [
        one["claim"], one["place"], counted + tested or "see study", f"{entry['scale']}, {seeds}{partly}",
        marked, _link(one["study"]),
    ]  # fmt: skip


def _why(one: Entry) -> str:
    """Why a claim cannot be told, short enough for a table: too few cases to test, or the first thing that was said."""
    if one["verdict"] != "cannot tell":
        return ""
    if one.get("p") is not None and one.get("of"):
        many = one["of"] < FEWEST
        return f"too few cases for a test, {FEWEST} can decide" if many else "as chance may have it"
    words = _plain(one["numbers"].rpartition("cannot tell of ")[2]).split("; ")[0]
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS].rpartition(' ')[0]} ..."


def _number_line(found: tuple[str, Entry, Entry]) -> list[str]:
    name, own, one = found
    verdict = "within" if one["within"] else "off" if one["reachable"] else "out of reach"
    return [
        f"{one['case']}: {one['measure']} {one['where']}", number(one["paper"]),
        ranged(one["ours"], one["low"], one["high"], one["seeds"]), number(one["tolerance"]), own["scale"],
        verdict + (f" ({one['cause']})" if one["cause"] else ""), _link(name),
    ]  # fmt: skip


def section(name: str, ledger: Mapping[str, Entry]) -> str:
    """One study: every scale that ran, with what makes it again."""
    study = find_study(name)
    parts = [f"### {name}", f"{study.title}. {study.source[:1].upper()}{study.source[1:]}."]
    found = [ledger[key] for key in (f"{name} laptop", f"{name} paper") if key in ledger]
    if not current(name, ledger):
        parts.append(_capital(f"{NOT_RUN}{'; below is what an earlier recipe gave' if found else ''}."))
    for own in found:
        parts += _scale(own, study.differences(own["scale"]), own in current(name, ledger))
    return "\n\n".join(parts)


def _scale(own: Entry, changes: Sequence[str], fresh: bool) -> list[str]:
    hashed = f" Rows {own['rows']}." if own["rows"] else ""
    unfinished = f" Unfinished: {own['unfinished']} tasks are not done yet." if own["unfinished"] else ""
    seeds = f"{own.get('seeds_done', own['seeds'])} of {own['seeds']}" if own["unfinished"] else own["seeds"]
    told = f"{_capital(own['scale'])} scale, {seeds} seeds, {own['minutes']:g} minutes.{hashed}{unfinished}"
    claims = "\n".join(
        f"- {MARKS[one['verdict']]}: {_plain(one['claim'])}. {_plain(one['numbers'])}"
        for one in own["claims"]
    )
    parts = [f"```bash\n{own['command']}\n```", told]
    parts.append(claims if fresh else _folded("An earlier recipe's verdicts", claims))
    if fresh and own.get("picture"):
        parts.append(f"![The figure of {own['study']}]({own['picture']})")
    parts += [f"A task failed: {_plain(one)}." for one in own["failures"]]
    if fresh and changes:
        parts.append(
            _folded(f"What {own['scale']} scale changes: {_short(changes)}", "; ".join(map(_plain, changes)))
        )
    return parts


def _short(changes: Sequence[str]) -> str:
    """The recipe's own sentence where it has one: it comes last."""
    return changes[-1] if "→" not in changes[-1] else f"{len(changes)} settings"


# ------------------------------------------------------------------------------------------------------ pieces


def picture(own: SavedStudy, folder: Path) -> str:
    """The study's figure, small; where it lies, seen from the page, or nothing where it cannot be made small."""
    source = own.path / "figure.png"
    if not source.is_file():
        return ""
    whole = Image.open(source).convert("RGB")
    for width in WIDTHS:
        small = whole.resize((width, round(whole.height * width / whole.width)), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        small.quantize(24).save(written, "PNG", optimize=True)
        if written.tell() <= MOST_BYTES:
            name = f"pictures/study-{own.name.replace('/', '-')}.png"
            (folder / "pictures").mkdir(exist_ok=True)
            (folder / name).write_bytes(written.getvalue())
            return name
    return ""


def _link(name: str) -> str:
    return f"[{name}](#{name.replace('/', '')})"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(_cell(str(cell)) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """Underscores and asterisks as they are, not as emphasis."""
    return text.replace("_", "\\_").replace("*", "\\*").rstrip(".")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    main(sys.argv[1:])
