"""The page of studies: overview, then for each study its claims, the table paper / ours / within, and its figure.

render_studies(read_studies("studies"), "studies/report.html", "studies")
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undertow.errors import BadFile
from undertow.files import write_text
from undertow.report.page import asset, fill
from undertow.report.study import MEANINGS, SavedStudy, claim_words, ranged
from undertow.report.summary import Tile
from undertow.stored.study_folder import AGAIN
from undertow.words import number

SCRIPTS = ("base.js", "theme.js", "reading.js", "study.js")
MOST = 60
"""Rows of the table of all numbers; the rest is in rows.parquet."""
PAPERS = {"latent": "Latent generalisation", "richness": "Richness", "temporal": "Temporal consistency"}


def render_studies(studies: Sequence[SavedStudy], out: str | Path, folder: str = "") -> Path:
    """Write the page of the studies to the file `out`."""
    path = Path(out)
    write_text(path, studies_text(studies, folder))
    return path


def studies_text(studies: Sequence[SavedStudy], folder: str = "") -> str:
    """The page as text."""
    from markupsafe import Markup

    papers = [
        {
            "id": paper,
            "title": PAPERS.get(paper, paper.capitalize()),
            "studies": [_texts(own) for own in studies if own.paper == paper],
        }
        for paper in dict.fromkeys(own.paper for own in studies)
    ]
    return fill(
        "study.html", data={}, live=False, scripts=SCRIPTS, several=False, look=Markup(asset("study.css")),
        title=f"{folder or 'studies'} · undertow", folder=folder, tiles=_tiles(studies), papers=papers,
        smoke=any(own.scale == "smoke" for own in studies),
    )  # fmt: skip


def _tiles(studies: Sequence[SavedStudy]) -> list[Tile]:
    holds, claims, rest = claim_words(studies)
    compared, within = sum(len(own.compared) for own in studies), sum(own.within for own in studies)
    scales = dict.fromkeys(own.scale for own in studies)
    found = [
        Tile("Studies", str(len({own.name for own in studies})), f"at scale {' and '.join(scales)}"),
        Tile("Claims that hold", f"{holds} of {claims}", rest),
    ]
    if compared:
        found.append(
            Tile("Near the paper's number", f"{within} of {compared}", "within the stated tolerance")
        )
    return [*found, Tile("Work", _time(sum(own.minutes for own in studies)), "of all tasks, added up")]


def _texts(own: SavedStudy) -> dict[str, Any]:
    """Everything that the template writes of one study."""
    holds, claims, _ = claim_words([own])
    facts = own.facts
    ends = own.ends()
    return {
        "id": f"{own.name.replace('/', '-')}-{own.scale}",
        "name": own.name, "scale": own.scale, "title": str(facts.get("title", own.name)),
        "source": str(facts.get("source", "")),
        "seeds": own.seed_words, "time": _time(own.minutes),
        "claims": [{**claim, "meaning": MEANINGS.get(claim["verdict"], "unknown")} for claim in own.claims],
        "holds": f"{holds} of {claims}", "command": own.command,
        "within": f"{own.within} of {len(own.compared)}" if len(own.compared) else "–",
        "numbers": [_compared(line) for line in own.compared.to_dict("records")],
        "left_out": len(own.comparison) - len(own.compared),
        "ends": [_end(line) for line in ends.head(MOST).to_dict("records")], "more": max(0, len(ends) - MOST),
        "changes": _listed(facts.get("changes")), "notes": _listed(facts.get("notes")),
        "failures": _listed(facts.get("failures")), "figure": _figure(own.path / "figure.png"),
    }  # fmt: skip


def _compared(line: dict[Any, Any]) -> dict[str, str]:
    return {
        "case": str(line["case"]), "measure": f"{line['measure']} {line['where']}".strip(),
        "paper": number(line["paper"]), "tolerance": number(line["tolerance"]),
        "ours": ranged(line["ours"], line["low"], line["high"], line["seeds"]),
        "answer": "yes" if str(line["within"]) == "True" else "no", "source": str(line["source"]),
    }  # fmt: skip


def _end(line: dict[Any, Any]) -> dict[str, str]:
    value = ranged(line["mean"], line["low"], line["high"], line["seeds"])
    return {name: str(line[name]) for name in ("case", "measure", "where")} | {"value": value}


def _listed(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _time(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.0f}\u00a0s"
    return f"{minutes:.0f}\u00a0min" if minutes < 120 else f"{minutes / 60:.1f}\u00a0h"


def _figure(path: Path) -> dict[str, Any] | None:
    """The picture as an address that needs no file, with its size so that nothing jumps while the page loads."""
    if not path.is_file():
        return None
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            width, height = picture.size
    except (OSError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise BadFile(path, "", f"wanted a picture, but it cannot be read ({error})", AGAIN) from error
    text = base64.b64encode(path.read_bytes()).decode()
    return {"address": f"data:image/png;base64,{text}", "width": width, "height": height}
