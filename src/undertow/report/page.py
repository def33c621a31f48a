r"""The page: saved rows of one or several runs -> one self-contained HTML file.

    write_report(["runs/m40"], "runs/m40/report.html")      # the path written
    page_text([read_saved("runs/m40")])              # the same as text

Charts are drawn by our own small script (assets/*.js, about 60 kB) as SVG, not by a library: plotly alone would
weigh 4.8 MB of every page, and colours, keys, downloads and dark mode would have to be bent to fit.

Nothing from outside becomes markup. Templates escape what they show; numbers and names for the script travel as
JSON with <, > and & written as \u003c and so on, and the script puts them into text nodes only. A content
security policy allows this page's own script by its hash and no address at all: an injected script would not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow._version import __version__
from undertow.errors import BadData, BadValue
from undertow.files import write_text
from undertow.outputs import as_path, check_outputs
from undertow.report import summary
from undertow.report.charts import charts
from undertow.report.compare import differences, headline, note
from undertow.report.gallery import suspects
from undertow.report.saved import Saved, read_saved
from undertow.report.sections import SECTIONS, WORDS, Section
from undertow.report.views import own_measures
from undertow.words import MARKS, meaning_of

if TYPE_CHECKING:
    from jinja2 import Environment

PAGES = (".html", ".htm")
"""Endings of files that a report may replace."""
SELF, NOBODY = "'self'", "'none'"
SCRIPTS = (
    "base.js", "charts.js", "charts_more.js", "cards.js", "sections.js", "sections_time.js", "gallery.js", "theme.js",
    "live.js", "reading.js", "page.js",
)  # fmt: skip


def write_report(folders: Sequence[str | Path], out: str | Path) -> Path:
    """Write the report of the runs in `folders`, side by side, to the file `out`."""
    if not folders:
        raise BadData("report: name at least one run's folder.")
    path = as_path(out, "report")
    check_outputs("report", [("out", path)])
    if path.exists() and path.suffix.lower() not in PAGES:
        raise BadValue(
            "report", "a .html file or a new one", path, "What is there is no page and would be lost."
        )
    write_text(path, page_text([read_saved(folder) for folder in folders]))
    return path


def page_text(runs: Sequence[Saved], live: dict[str, str] | None = None) -> str:
    """The report as text; `live` ({"url", "stamp"}) makes it reload when the text at the address changes."""
    shaped = [_shaped(place, saved) for place, saved in enumerate(runs)]
    texts = [_texts(saved, own) for saved, own in zip(runs, shaped, strict=True)]
    several = len(runs) > 1
    return fill(
        "page.html",
        title=" · ".join([*(saved.name for saved in runs), "undertow"]),
        several=several,
        runs=texts,
        compare=_compare(texts),
        differences=differences(runs),
        note=note(runs),
        headline=headline(runs),
        sections=_sections(runs),
        words=WORDS,
        made=_made(runs),
        data={"runs": shaped, "live": live},
        live=live is not None,
    )


def _shaped(place: int, saved: Saved) -> dict[str, Any]:
    """Everything that the script draws of one run."""
    return {
        "id": place, "name": saved.name, "unit": saved.unit, "classes": saved.classes,
        "charts": [chart.json() for chart in charts(saved)],
        "suspects": suspects(saved.path, saved.classes, saved.owner),
    }  # fmt: skip


def fill(template: str, *, data: Any, live: bool, scripts: Iterable[str] = SCRIPTS, **values: Any) -> str:
    """A template with the look, a script and its data, under a policy that allows nothing else."""
    script = "(() => {\n" + "\n".join(asset(name) for name in scripts) + "\n})();"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src {NOBODY}; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {SELF if live else NOBODY}; base-uri {NOBODY}; form-action {NOBODY}"
    )
    from markupsafe import Markup

    own = {"css": Markup(asset("page.css")), "script": Markup(script), "data": Markup(safe_json(data))}
    return _templates().get_template(template).render(policy=policy, version=__version__, **own, **values)


def safe_json(value: Any) -> str:
    """JSON that can stand inside a script element: no character in it can end the element or open another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


@cache
def asset(name: str) -> str:
    """One of our own files."""
    return (files("undertow.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("undertow.report", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def _texts(saved: Saved, drawn: dict[str, Any]) -> dict[str, Any]:
    """Everything that the template writes of one run."""
    audit = saved.audit
    facts = summary.facts(saved)
    there = {chart["section"] for chart in drawn["charts"]}
    named = {"verdict": saved.findings, "facts": facts, "labels": drawn["suspects"]}
    there |= {name for name, found in named.items() if found}
    situation = audit.get("situation")
    told = f" This audit's situation: {situation}." if situation else ""
    return {
        "name": saved.name,
        "about": summary.about(saved),
        "headline": summary.tied(str(audit.get("headline") or saved.name)),
        "quick": bool(audit.get("quick")),
        "tiles": summary.tiles(saved),
        "verdict": [_finding(own) for own in saved.findings],
        "notes": [str(note) for note in (audit.get("settings") or {}).get("notes") or ()],
        "facts": facts,
        "section_notes": {"labels": audit.get("notes") or []},
        "reproduce": summary.reproduce(saved),
        "missing": {
            section.id: "" if section.id in there else section.missing(saved.path) + told * section.labels
            for section in SECTIONS
        },
    }


def _finding(own: dict[str, Any]) -> dict[str, Any]:
    """A finding, with its answer and what that means in a few words."""
    texts = {name: str(own.get(name) or "") for name in ("topic", "sentence", "answer", "short", "rule")}
    meaning, answer = meaning_of(own), texts["answer"]
    short = texts["short"] or answer if answer in ("yes", "no") else ""
    said = " · ".join(filter(None, [short, MARKS[meaning].word(answer)]))
    return {
        **texts,
        "meaning": meaning,
        "said": said
        if texts["topic"] == "place"
        else said[:1].upper() + said[1:],  # places are names of layers
        "sentence": summary.tied(texts["sentence"]),
        "numbers": summary.numbers(own.get("numbers")),
    }


def _sections(runs: Sequence[Saved]) -> list[Section]:
    """All sections, but for folders that say which they fill: a search of labels without a run has no layers."""
    filled = [saved.audit.get("sections") or [section.id for section in SECTIONS] for saved in runs]
    own_lenses = any(own_measures(saved) for saved in runs)
    return [
        section
        for section in SECTIONS
        if any(section.id in own for own in filled) and (own_lenses or not section.optional)
    ]


def _compare(texts: list[dict[str, Any]]) -> dict[str, Any]:
    """The head's table of several runs: their tiles, column by column."""
    columns = list(dict.fromkeys(tile.label for own in texts for tile in own["tiles"]))
    rows: list[dict[str, Any]] = []
    for own in texts:
        by_label = {tile.label: tile for tile in own["tiles"]}
        rows.append({**own, "tiles": [by_label.get(label) for label in columns]})
    return {"columns": columns, "rows": rows}


def _made(runs: Sequence[Saved]) -> str:
    """When the newest of the runs' numbers were made: the same rows give the same page."""
    times = [str(saved.audit.get("made") or saved.facts.get("made") or "") for saved in runs]
    return max(times)[:16].replace("T", " ")
