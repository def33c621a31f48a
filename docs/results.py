"""Writes the ledger of what was found: python docs/results.py [studies ...]

    python docs/results.py OUT                  # takes the outcomes in OUT into results.json and writes the pages
    python docs/results.py                      # writes the pages again
    python docs/results.py --restore OUT        # puts the kept rows into OUT/tasks: the next run adds seeds to them

OUT is the --out of `undertow study run`. results.json has each study's claims and numbers, results-rows/ the rows
behind them, seed by seed. The pages are results.md, one table per paper, and results/PAPER.md, one section per study.
They come from these two files, the recipes and the list of what the papers show. Nothing in them is written by hand.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
from results_pictures import picture
from results_rows import keep_rows, restore_rows
from results_words import bash, capital, counted, cut, folded, link, named, ours_of, plain, table

from undertow.errors import NotThere
from undertow.report.study import SavedStudy, read_studies
from undertow.studies.catalogue import STUDIES, find_study
from undertow.studies.papers import ITEMS, PAPERS
from undertow.words import number

HERE = Path(__file__).parent
MARKS = {"holds": "holds", "does not hold": "**does not hold**", "cannot tell": "*cannot tell*"}
NOT_RUN = "not run yet"
BEYOND = "beyond"
"""The room of studies that no paper has."""
FEWEST = 5
"""So many cases that all agree are the fewest that a sign test can decide by."""
Entry = dict[str, Any]
Ledger = Mapping[str, Entry]


def main(folders: Sequence[str], target: Path = HERE / "results.md") -> None:
    if folders and folders[0] == "--restore":
        print(
            f"{restore_rows(target.with_name('results-rows'), folders[1])} answers are in {folders[1]}/tasks."
        )
        return
    kept = target.with_suffix(".json")
    ledger: dict[str, Entry] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    studies = [own for folder in folders for own in read_studies(folder) if own.scale != "smoke"]
    if folders and not studies:
        raise NotThere(
            f"{folders[0]}: wanted outcomes at laptop or paper scale, got smoke only, which says nothing about claims. "
            f"`undertow study run NAME --scale laptop --out {folders[0]}` makes one."
        )
    taken = [own for own in studies if take(own, ledger, target.parent)]
    ledger = {key: ledger[key] for key in sorted(ledger) if ledger[key]["study"] in STUDIES}
    kept.write_text(json.dumps(ledger, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for folder in folders:
        keep_rows(folder, target.with_name("results-rows"))
    write_pages(ledger, target)
    print(f"Written: {target} ({len(ledger)} outcomes, {len(taken)} of them new)")


def take(own: SavedStudy, ledger: dict[str, Entry], folder: Path) -> bool:
    """Take an outcome into the ledger, unless nothing ran, or what is there has more of the same recipe's networks."""
    key, new = f"{own.name} {own.scale}", entry(own)
    old = ledger.get(key)
    if not new["done"]:
        return False
    if old and old["recipe"] == new["recipe"] and old.get("done", 0) > new["done"]:
        print(f"{key}: kept as it was, with {old['done']} networks; {own.path} has {new['done']} of them.")
        return False
    ledger[key] = {**new, "picture": picture(own, folder)}
    return True


def entry(own: SavedStudy) -> Entry:
    """What the ledger keeps of an outcome: everything the page says, and nothing of this machine."""
    place = f"{own.path.resolve().parents[2]}/"
    facts, rows = own.facts, own.path / "rows.parquet"
    there = pd.read_parquet(rows) if rows.is_file() else pd.DataFrame()
    done = there[["case", "seed"]].drop_duplicates() if len(there) else there
    return {
        "study": own.name, "scale": own.scale, "command": own.command, "seeds": own.seeds,
        "seeds_done": done["seed"].nunique() if len(done) else own.seeds, "done": len(done),
        "cases_done": done["case"].nunique() if len(done) else 0,
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


def current(name: str, ledger: Ledger) -> list[Entry]:
    """The entries of a study that its recipe as it stands made."""
    found = [ledger[key] for key in (f"{name} laptop", f"{name} paper") if key in ledger]
    study = find_study(name)
    kept = [one for one in found if one["recipe"] == study.at(one["scale"]).mark]
    # What a scale can reach, and why a number is off, is said in the recipe, also after a run.
    told = {(one.case, one.measure, one.place): one for one in study.published}
    for own in kept:
        for one in own["numbers"]:
            declared = told.get((one["case"], one["measure"], one["where"]))
            if declared is not None:
                one |= {"reachable": own["scale"] in declared.reachable_at, "cause": declared.cause}
    return kept


# -------------------------------------------------------------------------------------------------- the first page

INTRO = """\
What the studies found, against what the papers say.

- **holds**, **does not hold**: a claim is judged as the paper words it: in every case, in most (a sign test over
  networks decides, at .05), in many (a third) or in some. What is proved cannot fail; it checks our measures and is
  counted apart.
- **cannot tell** has a reason: too few networks, or one that did not reach the state that the claim presupposes.
- **within** means within the tolerance that the recipe fixed; a number that only full-size networks can reach is
  *out of reach* and counted apart.
- Seeds: 1 of 3 means that one of three has run so far. Its verdict may change.

The link of a row leads to the study: command, seeds, hash of the rows, figure and what the scale changes.
Written by `python docs/results.py`. `undertow study run --all --scale laptop` makes everything again."""


def write_pages(ledger: Ledger, target: Path) -> None:
    """The first page, and one page of studies for each paper."""
    target.write_text(page(ledger), encoding="utf-8")
    (target.parent / "results").mkdir(exist_ok=True)
    for room in (*PAPERS, BEYOND):
        (target.parent / "results" / f"{room}.md").write_text(studies_page(room, ledger), encoding="utf-8")


def page(ledger: Ledger) -> str:
    """The whole first page."""
    columns = [
        "paper",
        "claims",
        *MARKS,
        NOT_RUN,
        "theorems checked",
        "numbers within",
        "out of reach",
        "studies with all seeds",
    ]
    parts = [
        "# Results",
        INTRO,
        table(columns, [_total(room, ledger) for room in PAPERS]),
        *_against(ledger),
    ]
    for room, paper in PAPERS.items():
        parts += [f"## Paper {paper.number}: {paper.title}", *_paper(room, ledger)]
    own = [one for name in STUDIES for one in claims_of(name, ledger) if one["ours"]]
    parts += ["## Ours: claims that no paper makes", table(_columns("claim"), map(_claim_line, own))]
    return "\n\n".join(parts) + "\n"


def _against(ledger: Ledger) -> list[str]:
    """What does not hold and which numbers are off, of all papers, with the cause where it is known."""
    fails = [
        [PAPERS[room].number, one["claim"], _claim_line(one)[2], one["cause"] or "not known", link(name)]
        for room in PAPERS
        for name in names_in(room)
        for one in claims_of(name, ledger)
        if one["verdict"] == "does not hold" and not one["ours"]
    ]
    off = [
        [
            PAPERS[room].number, plain(named(one)), f"{ours_of(one)}, the paper {number(one['paper'])}",
            one["cause"] or "not known", link(name),
        ]
        for room in PAPERS
        for name, _, one in numbers_in(room, ledger)
        if one["reachable"] and not one["within"]
    ]  # fmt: skip
    columns = ("paper", "what it says", "ours", "cause", "study")
    title = f"## What does not agree: {counted(len(fails), 'claim')} and {counted(len(off), 'number')}"
    return [title, table(columns, [*fails, *off])] if fails or off else []


def names_in(room: str) -> list[str]:
    """The studies of a paper."""
    return [name for name in STUDIES if name.startswith(f"{room}/")]


def _total(room: str, ledger: Ledger) -> list[object]:
    told = [one for name in names_in(room) for one in claims_of(name, ledger) if not one["ours"]]
    claims, proved = ([one for one in told if one["proved"] is kind] for kind in (False, True))
    count = Counter(one["verdict"] for one in claims)
    numbers = [one for *_, one in numbers_in(room, ledger)]
    near = [one for one in numbers if one["reachable"]]
    whole = [name for name in names_in(room) if any(map(_is_whole, current(name, ledger)))]
    return [
        PAPERS[room].number, len(claims), *(count[word] for word in (*MARKS, NOT_RUN)),
        f"{sum(one['verdict'] == 'holds' for one in proved)} of {len(proved)}",
        f"{sum(one['within'] for one in near)} of {len(near)}", len(numbers) - len(near),
        f"{len(whole)} of {len(names_in(room))}",
    ]  # fmt: skip


def _is_whole(own: Entry) -> bool:
    """Every case ran with as many seeds as the recipe wants."""
    return not own["unfinished"] and own.get("seeds_done", own["seeds"]) >= find_study(own["study"]).seeds


def claims_of(name: str, ledger: Ledger) -> list[Entry]:
    """Every claim of a study's recipe with its verdict at the largest scale whose cases all ran."""
    own = current(name, ledger)
    told: dict[str, list[Entry]] = {}
    for entry in own:
        for one in entry["claims"]:
            told.setdefault(one["claim"], []).append({**one, "entry": entry})
    empty = {"verdict": NOT_RUN, "numbers": "", "entry": None}
    return [
        {**empty, **_decisive(told.get(claim.text, [])), "claim": claim.text, "ours": claim.ours,
         "proved": claim.proved, "place": claim.place or _source(name), "cause": claim.cause, "study": name}
        for claim in find_study(name).claims
    ]  # fmt: skip


def _source(name: str) -> str:
    """Where a study's paper has it, for claims that do not say more."""
    source = find_study(name).source
    return source.partition(", ")[2].partition(";")[0] if source.startswith("paper") else ""


def _decisive(told: Sequence[Entry]) -> Entry:
    """The verdict that counts, small scales first: a larger scale's, unless cases of it are missing or cannot tell."""
    if not told:
        return {}
    whole = [one for one in told if not _missing(one["entry"])] or told
    chosen = ([one for one in whole if one["verdict"] != "cannot tell"] or whole)[-1]
    others = (one for one in told if one["entry"]["rows"] != chosen["entry"]["rows"])
    return {**chosen, "beside": [one for one in others if one["verdict"] != "cannot tell"]}


def _missing(own: Entry) -> str:
    """`2 of 4 cases` where not all of a scale's cases have rows."""
    cases = len(find_study(own["study"]).at(own["scale"]).cases)
    there = own.get("cases_done", cases)
    return f"{there} of {cases} cases" if there < cases else ""


NUMBERS = ("number", "paper", "ours (range over seeds)", "tolerance", "scale, seeds", "verdict", "study")


def _columns(first: str) -> list[str]:
    return [first, "where", "ours", "scale, seeds", "verdict", "study"]


def _paper(room: str, ledger: Ledger) -> list[str]:
    claims = [one for name in names_in(room) for one in claims_of(name, ledger) if not one["ours"]]
    parts = [table(_columns("the paper says"), map(_claim_line, claims))]
    near = [one for one in numbers_in(room, ledger) if one[2]["reachable"]]
    if near:
        off = sum(not one["within"] for *_, one in near)
        title = (
            f"{len(near)} numbers of the paper that this scale can reach: {len(near) - off} within, {off} off"
        )
        parts.append(folded(title, table(NUMBERS, map(_number_line, near))))
    return parts


def numbers_in(room: str, ledger: Ledger) -> list[tuple[str, Entry, Entry]]:
    """The paper's numbers that have one of ours, each once, at the largest scale: study, outcome, number."""
    found: dict[tuple[str, ...], tuple[str, Entry, Entry]] = {}
    for name in names_in(room):
        for own in current(name, ledger):
            found |= {
                (name, one["case"], one["measure"], one["where"]): (name, own, one) for one in own["numbers"]
            }
    return list(found.values())


def _claim_line(one: Entry) -> list[str]:
    entry = one["entry"]
    if entry is None:
        return [one["claim"], one["place"], "", "", NOT_RUN, link(one["study"])]
    counted = "" if one.get("of") in (None, 0) else f"{one['agree']} of {one['of']}"
    tested = "" if one.get("p") is None else f", p = {number(one['p'])}"
    fails = one["verdict"] == "does not hold"
    reason = (one["cause"] or "cause not known") if fails else _why(one)
    proved = " (proved, counted apart)" * one["proved"]
    marked = MARKS[one["verdict"]] + proved + (f": {reason}" if reason else "")
    seen = counted + tested or ("" if one["verdict"] == "cannot tell" else cut(plain(one["numbers"])))
    also = "".join(
        f"; {_seeds(other['entry'])}: {MARKS[other['verdict']]}" for other in one.get("beside", ())
    )
    return [one["claim"], one["place"], seen, _seeds(entry), marked + also, link(one["study"])]


def _seeds(own: Entry) -> str:
    """`laptop, 3`, or `laptop, 1 of 3, 2 of 4 cases` where seeds or cases are missing."""
    wanted = max(own["seeds"], find_study(own["study"]).seeds)
    done = own.get("seeds_done", own["seeds"])
    partly = "not all cases with all" if own["unfinished"] and done >= wanted else ""
    told = (own["scale"], f"{done}" + f" of {wanted}" * (done < wanted), _missing(own) or partly)
    return ", ".join(filter(None, told))


def _why(one: Entry) -> str:
    """Why a claim cannot be told, short enough for a table: too few cases to test, or the first thing that was said."""
    if one["verdict"] != "cannot tell":
        return ""
    words = one["numbers"]
    if one["entry"]["unfinished"] and ("no row has" in words or words == "no case can tell"):
        return "its networks have not run yet"
    if one.get("p") is not None and one.get("of"):
        many = one["of"] < FEWEST
        so_far = " so far" if one["entry"]["unfinished"] else ""
        return f"too few networks{so_far}, {FEWEST} can decide" if many else "as chance may have it"
    return cut(plain(one["numbers"].rpartition("cannot tell of ")[2]).split("; ")[0])


def _number_line(found: tuple[str, Entry, Entry]) -> list[str]:
    name, own, one = found
    verdict = "within" if one["within"] else "**off**" if one["reachable"] else "out of reach"
    cause = one["cause"] or ("cause not known" if verdict == "**off**" else "")
    return [
        plain(named(one)), number(one["paper"]), ours_of(one), number(one["tolerance"]), _seeds(own),
        verdict + (f": {cause}" if cause else ""), link(name),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------- the pages of studies


def studies_page(room: str, ledger: Ledger) -> str:
    """All studies of a paper, each with what makes it again."""
    paper = PAPERS.get(room)
    title = f"Studies of paper {paper.number}: {paper.title}" if paper else "Studies of our own"
    parts = [f"# {title}", "The verdicts in one table per paper: [results](../results.md)."]
    if paper:
        shown = [[item.what, link(item.study) if item.study else "none", item.note] for item in ITEMS[room]]
        parts.append(
            folded("Every figure, table and theorem", table(("the paper's", "study", "note"), shown))
        )
    parts.append(folded("What a laptop changes", table(("studies", "at laptop scale"), _changes(room))))
    far = [one for one in numbers_in(room, ledger) if not one[2]["reachable"]]
    if far:
        parts.append(
            folded(f"{len(far)} numbers out of this scale's reach", table(NUMBERS, map(_number_line, far)))
        )
    text = "\n\n".join([*parts, *(section(name, ledger) for name in names_in(room))]) + "\n"
    return text.replace(f"(results/{room}.md#", "(#")


def _changes(room: str) -> list[list[str]]:
    """What a laptop changes in one sentence, and the studies that share it."""
    alike: dict[str, list[str]] = {}
    for name in names_in(room):
        alike.setdefault(_short(find_study(name).differences("laptop")), []).append(link(name))
    return [[", ".join(links), words] for words, links in alike.items()]


def section(name: str, ledger: Ledger) -> str:
    """One study: every scale that ran, with what makes it again."""
    study = find_study(name)
    parts = [f"## {name}", f"{study.title}. {study.source[:1].upper()}{study.source[1:]}."]
    found = [ledger[key] for key in (f"{name} laptop", f"{name} paper") if key in ledger]
    if not current(name, ledger):
        parts.append(capital(f"{NOT_RUN}{'; below is what an earlier recipe gave' if found else ''}."))
        parts += [] if found else [bash(f"undertow study run {name} --scale laptop --seeds {study.seeds}")]
    for own in found:
        parts += _scale(own, study.differences(own["scale"]), own in current(name, ledger))
    return "\n\n".join(parts)


def _scale(own: Entry, changes: Sequence[str], fresh: bool) -> list[str]:
    hashed = f" Rows {own['rows']}." if own["rows"] else ""
    unfinished = f" Unfinished: {own['unfinished']} tasks are not done yet." if own["unfinished"] else ""
    done = own.get("seeds_done", own["seeds"])
    seeds = f"{done} of {own['seeds']} seeds" if done < own["seeds"] else f"{done} seed{'s' * (done != 1)}"
    told = f"{capital(own['scale'])} scale, {seeds}, {own['minutes']:g} minutes.{hashed}{unfinished}"
    # A sentence that the recipe no longer has is no verdict of it; one that came later waits for the next run.
    said = {claim.text for claim in find_study(own["study"]).claims}
    shown = [one for one in own["claims"] if not fresh or one["claim"] in said]
    claims = "\n".join(
        f"- {MARKS[one['verdict']]}: {plain(one['claim'])}. {plain(one['numbers'])}" for one in shown
    )
    if fresh and (later := len(said) - len(shown)):
        claims += f"\n- {NOT_RUN}: {later} more, worded after this run"
    if not fresh:
        return [folded(f"An earlier recipe's verdicts. {told}", f"{bash(own['command'])}\n\n{claims}")]
    parts = [bash(own["command"]), told]
    if own.get("picture"):
        parts.append(f"![The figure of {own['study']}](../{own['picture']})")
    parts.append(claims)
    parts += [f"A task failed: {plain(one)}." for one in own["failures"]]
    if changes:
        words = plain(_short(changes))
        parts.append(folded(f"What {own['scale']} scale changes: {words}", "; ".join(map(plain, changes))))
    return parts


def _short(changes: Sequence[str]) -> str:
    """The recipe's own sentence where it has one: it comes last."""
    if not changes:
        return "nothing"
    return changes[-1] if "→" not in changes[-1] else f"{len(changes)} settings"


if __name__ == "__main__":
    main(sys.argv[1:])
