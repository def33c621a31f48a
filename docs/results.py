"""Writes docs/results.md from the outcomes of studies: python docs/results.py studies

`studies` is the --out folder of `undertow study run`. Every study at laptop or paper scale in it gets a section
with its command, time, seeds, claims and numbers; studies that are not in it are named as not run. A few figures go
to docs/pictures, small. Nothing in the page is written by hand: run the command again instead of editing it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from undertow.errors import NotThere
from undertow.report.study import SavedStudy, claim_words, ranged, read_studies
from undertow.studies.catalogue import STUDIES
from undertow.words import number

HERE = Path(__file__).parent
PICTURED = (
    "latent/masc-dynamics", "latent/resnet18-modes", "latent/transfer", "richness/target-scale",
    "richness/grokking", "temporal/memory", "temporal/label-noise",
)  # fmt: skip
"""Studies whose figure is shown; bytes in a repository stay for ever."""
MOST_BYTES = 60_000
WIDTHS = (1000, 850, 700, 550)
MARKS = {"holds": "holds", "does not hold": "**does not hold**", "cannot tell": "*cannot tell*"}


def main(folder: str, target: Path = HERE / "results.md") -> None:
    studies = [own for own in read_studies(folder) if own.scale != "smoke"]
    if not studies:
        raise NotThere(
            f"{folder}: wanted outcomes at laptop or paper scale, got smoke only, which says nothing about claims. "
            f"`undertow study run NAME --scale laptop --out {folder}` makes one."
        )
    pictures = {own.name: picture(own, target.parent) for own in studies if own.name in PICTURED}
    target.write_text(page(studies, pictures), encoding="utf-8")
    print(f"Written: {target} ({len(studies)} outcomes)")


def page(studies: Sequence[SavedStudy], pictures: dict[str, str] | None = None) -> str:
    """The whole page."""
    holds, claims, rest = claim_words(studies)
    compared, within = sum(len(own.compared) for own in studies), sum(own.within for own in studies)
    missing = [name for name in STUDIES if name not in {own.name for own in studies}]
    parts = [
        "# Results",
        "What the studies found at laptop scale, written by `python docs/results.py studies` from the rows that "
        "`undertow study run` saved. Networks and sets are smaller than the papers' ([studies](studies.md) says how), "
        "so the papers' numbers are seldom met; claims are what to look at. Laptop settings were tried until networks "
        "memorised their wrong labels, which the claims about falling accuracy presuppose "
        "([what was tried](studies.md#laptop-settings-of-the-latent-studies), on seed 0; a command with --first-seed "
        "ran on fresh ones). Every study that ran is listed, with "
        "what failed. Times are those of all tasks, added up, for one core each; "
        "a network that several studies share counts where it was trained.",
        f"Outcomes: {len(studies)}, of {len(STUDIES)} studies that there are. Claims: {holds} of {claims} hold "
        f"({rest}). Numbers of the papers: {within} of {compared} are met within their tolerance. "
        f"Made {_machines(studies)}.",
        _table(
            ["study", "scale", "claims that hold", "numbers within", "seeds", "minutes", "verdict"],
            [_overview(own) for own in studies],
        ),
    ]
    if missing:
        parts.append(f"Not run here: {', '.join(missing)}.")
    parts += [section(own, (pictures or {}).get(own.name, "")) for own in studies]
    return "\n\n".join(parts) + "\n"


def section(own: SavedStudy, shown: str = "") -> str:
    """One study."""
    about = f"{own.facts.get('title', '')}. {str(own.facts.get('source', '')).capitalize()}."
    seeds = f"{own.seeds} seed{'s' * (own.seeds != 1)}"
    parts = [
        f"## {own.name}", about, f"```bash\n{own.command}\n```",
        f"{_capital(own.scale)} scale, {seeds}, {own.minutes:.1f} minutes. Verdict: {verdict(own)}.",
        "\n".join(f"- {MARKS[one['verdict']]}: {one['claim']}. {_plain(one['numbers'])}" for one in own.claims),
    ]  # fmt: skip
    if shown:
        parts.append(f"![The figure of {own.name}]({shown})")
    if len(own.compared):
        lines = [
            [
                line["case"], f"{line['measure']} {line['where']}".strip(), number(line["paper"]),
                ranged(line["ours"], line["low"], line["high"], line["seeds"]),
                "yes" if str(line["within"]) == "True" else "no",
            ]
            for line in own.compared.to_dict("records")
        ]  # fmt: skip
        parts.append(_table(["case", "measure", "paper", "ours", "within"], lines))
    changes = own.facts.get("changes") or []
    if changes:
        parts.append("Changed from the paper: " + "; ".join(map(_plain, changes)) + ".")
    place = f"{own.path.resolve().parents[2]}/"  # of this machine only: it tells a reader nothing
    parts += [
        f"A task failed: {_plain(str(failure).replace(place, ''))}."
        for failure in own.facts.get("failures") or []
    ]
    return "\n\n".join(parts)


def verdict(own: SavedStudy) -> str:
    """All claims together, in words that claim no more than they do."""
    count = own.verdicts
    told = count["holds"] + count["does not hold"]
    if own.facts.get("failures"):
        return "incomplete: tasks failed"
    if not told:
        return "cannot tell"
    if count["holds"] == count.total():
        return "holds"
    return "does not hold" if not count["holds"] else "holds in part"


def picture(own: SavedStudy, folder: Path) -> str:
    """The study's figure, small; where it lies, seen from the page, or nothing where it cannot be made small."""
    source = own.path / "figure.png"
    if not source.is_file():
        return ""
    whole = Image.open(source).convert("RGB")
    for width in WIDTHS:
        small = whole.resize((width, round(whole.height * width / whole.width)), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        small.quantize(32).save(written, "PNG", optimize=True)
        if written.tell() <= MOST_BYTES:
            name = f"pictures/study-{own.name.replace('/', '-')}.png"
            (folder / "pictures").mkdir(exist_ok=True)
            (folder / name).write_bytes(written.getvalue())
            return name
    return ""


def _overview(own: SavedStudy) -> list[str]:
    holds, claims, _ = claim_words([own])
    within = f"{own.within} of {len(own.compared)}" if len(own.compared) else "–"
    return [
        f"[{own.name}](#{own.name.replace('/', '')})", own.scale, f"{holds} of {claims}", within, str(own.seeds),
        f"{own.minutes:.1f}", verdict(own),
    ]  # fmt: skip


def _machines(studies: Iterable[SavedStudy]) -> str:
    found = [own.facts["machine"] for own in studies if isinstance(own.facts.get("machine"), dict)]
    words = dict.fromkeys(f"on {one['cores']} cores with torch {one['torch']}" for one in found)
    return " and ".join(words) or "on a machine that was not written down"


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
    main(*sys.argv[1:2])
