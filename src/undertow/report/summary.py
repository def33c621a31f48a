"""The numbers at the head of the page, and what made the run: plain text, ready for a template.

tiles(saved)         # [Tile("Test accuracy", "66.4 %", "best 94.8 % at epoch 12"), ...]
about(saved)         # "digits · mlp:256-256-256 · 60 epochs"
facts(saved)         # groups of (name, value) for the last section
reproduce(saved)     # the command that trains the same run again; "" for a loop that is not ours
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.report import views
from undertow.report.saved import Saved
from undertow.report.tables import Curve, plain
from undertow.words import layer_name, probe_name

WIDE = 90
"""Letters in a line of a command."""
FIRST, FEW = 12, 15
"""Lines shown of a group of facts; up to FEW are all shown, the rest of more can be opened."""
SAME = 1e-6
"""Two accuracies nearer than this are the same number."""


@dataclass(frozen=True)
class Group:
    """Facts under one title: those shown, and those that can be opened."""

    title: str
    pairs: list[tuple[str, str]]

    @property
    def first(self) -> list[tuple[str, str]]:
        """The lines that are always shown."""
        return self.pairs if len(self.pairs) <= FEW else self.pairs[:FIRST]

    @property
    def rest(self) -> list[tuple[str, str]]:
        """The lines behind them."""
        return self.pairs[len(self.first) :]


@dataclass(frozen=True)
class Tile:
    """One number with its name and a line about it."""

    label: str
    value: str
    detail: str = ""


def percent(share: float | None) -> str:
    """A share as a percentage; a dash where there is none."""
    return "–" if share is None or share != share else f"{100 * share:.1f}\u00a0%"


def tied(text: str) -> str:
    """A sentence in which percent signs and "epoch" stay with their numbers at the end of a line."""
    return re.sub(r"(?<=\d) (?=%)|(?<=\bepoch) (?=\d)|(?<=\bstep) (?=\d)", "\u00a0", text)


def tiles(saved: Saved) -> list[Tile]:
    """The headline numbers that the rows can give."""
    return [
        tile for tile in (_test(saved), _latent(saved), _repair(saved), _fitted(saved), _rich(saved)) if tile
    ]


def _test(saved: Saved) -> Tile | None:
    curve = views.test_curve(saved)
    if curve is None:
        return None
    best = int(curve.mean.argmax())
    when = f"at {saved.unit} {curve.x[best]:g}".replace(" ", "\u00a0")
    detail = f"best {percent(float(curve.mean[best]))} {when}"
    return Tile("Test accuracy", percent(float(curve.mean[-1])), detail)


def _latent(saved: Saved) -> Tile | None:
    best = max(views.best_layers(saved), key=lambda curve: float(curve.mean[-1]), default=None)
    if best is None:
        return None
    who = f"{probe_name(best.tags.get('probe', ''))} at {layer_name(best.tags.get('layer', ''))}"
    return Tile("Best layer knows", percent(float(best.mean[-1])), who + _range(_sure(saved, best), percent))


def _sure(saved: Saved, best: Curve) -> Curve:
    """The best layer with the verdict's interval at its end: wider than its row's, for the best of many was picked."""
    measures: dict[str, Any] = saved.audit.get("measures") or {}
    known: list[Any] = [measures.get(f"latent_accuracy{end}") for end in ("", "_low", "_high")]
    if not all(isinstance(own, float) for own in known) or abs(known[0] - float(best.mean[-1])) > SAME:
        return best
    _, low, high = known
    edges = (np.append(own[:-1], end) for own, end in ((best.low, low), (best.high, high)))
    return Curve(best.tags, best.x, best.mean, *edges)


def _repair(saved: Saved) -> Tile | None:
    best = max(views.repairs(saved), key=lambda row: row["after"], default=None)
    if best is None:
        return None
    # Another base than the whole test split's: the best layer was chosen on the other half of the samples.
    where = f"on {best['count']:,} test samples{_share_of_test(saved, best['count'])}"
    detail = f"from {percent(best['before'])} {where}: {best['name']} at {layer_name(best['layer'])}"
    return Tile("After repair", percent(best["after"]), detail)


def _share_of_test(saved: Saved, count: int) -> str:
    """Why the numbers differ from the test accuracy's: the other samples chose what to repair."""
    whole = (saved.audit.get("data") or {}).get("test")
    if not isinstance(whole, int) or count >= whole:
        return ""
    others = "the other half" if abs(2 * count - whole) <= 2 else f"the other {whole - count:,}"
    return f" ({others} chose the head)"


def _fitted(saved: Saved) -> Tile | None:
    curve = views.memorised(saved)
    if curve is None:
        return None
    return Tile(
        "Wrong labels memorised", percent(float(curve.mean[-1])), "of the wrong training labels are repeated"
    )


def _rich(saved: Saved) -> Tile | None:
    found = [curve for curve in views.richness(saved) if curve.tags["measure"] == "d_lr"]
    if not found:
        return None
    curve = found[-1]
    return Tile("D_LR", f"{curve.mean[-1]:.2f}", "0 rich, 1 lazy" + _range(curve, lambda edge: f"{edge:.2f}"))


def _range(curve: Curve, shown: Any) -> str:
    if not curve.banded:
        return ""
    return f" ({shown(float(curve.low[-1]))} to {shown(float(curve.high[-1]))})"


def about(saved: Saved) -> str:
    """Data, model, noise and length on one line."""
    config, data = saved.facts.get("config") or {}, saved.audit.get("data") or saved.facts.get("data") or {}
    words = [str(data.get("name") or config.get("data") or ""), str(config.get("model") or "")]
    if isinstance(train := data.get("train"), int) and isinstance(test := data.get("test"), int):
        words.append(f"{train:,} training and {test:,} test samples")
    if config.get("epochs"):
        words.append(f"{config['epochs']} epochs")
    return " · ".join(word for word in words if word)


def facts(saved: Saved) -> list[Group]:
    """What made the run and its audit, in groups."""
    run, audit, data = (
        saved.facts,
        saved.audit,
        dict(saved.facts.get("data") or saved.audit.get("data") or {}),
    )
    if isinstance(classes := data.get("classes"), list):
        data["classes"] = (
            f"{len(classes)}: {', '.join(map(str, classes[:20]))}{', ...' * (len(classes) > 20)}"
        )
    groups: list[tuple[str, Any]] = [
        ("Data", data),
        ("Training", _seeded(run.get("config"))),
        ("Run", {name: run.get(name) for name in ("made", "finished", "ended", "machine", "interventions")}),
        ("Versions", {"undertow": run.get("undertow"), **(run.get("versions") or {})}),
        ("Audit", {name: audit.get(name) for name in ("made", "undertow", "situation", "quick")}),
        ("Audit settings", audit.get("settings")),
        ("Headline numbers", _ranged(plain(audit.get("measures"), 4))),
    ]
    shown = [Group(title, list(_pairs(found))) for title, found in groups if isinstance(found, dict)]
    return [group for group in shown if group.pairs]


def _seeded(config: Any) -> Any:
    """Settings in which a seed of -1 says what it means, and noise is what was asked for: fewer labels are wrong."""
    if not isinstance(config, dict):
        return None
    unset = {name: "as seed" for name, value in config.items() if name.startswith("seed_") and value == -1}
    return {"noise asked for" if name == "noise" else name: value for name, value in (config | unset).items()}


def _ranged(measures: Any) -> Any:
    """Each number with its interval on one line."""
    if not isinstance(measures, dict):
        return None
    ends = {name: [measures.get(f"{name}{end}") for end in ("_low", "_high")] for name in measures}
    inner = {f"{name}{end}" for name, own in ends.items() if None not in own for end in ("_low", "_high")}
    return {
        name: value if None in ends[name] else f"{value} ({ends[name][0]} to {ends[name][1]})"
        for name, value in measures.items()
        if name not in inner
    }


def _pairs(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if value is None or value == "" or value == [] or value == {}:
            continue
        yield str(name).replace("_", " "), _words(value)


def _words(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(_words(own) for own in value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def numbers(found: object) -> list[tuple[str, str]]:
    """The numbers behind a sentence of the verdict, for people."""
    return list(_pairs(plain(found, 4))) if isinstance(found, dict) else []


def reproduce(saved: Saved) -> str:
    """`undertow train` with every setting spelt out, so that later defaults do not change the run."""
    config = saved.facts.get("config")
    if not isinstance(config, dict) or "model" not in config:
        return ""
    options = [_flag(str(name).replace("_", "-"), value) for name, value in config.items() if name != "model"]
    words = [["undertow", "train", str(config["model"])], *options, ["--out", f"{saved.name}-again"]]
    lines = [""]
    for part in (shlex.join(own) for own in words if own):
        if len(lines[-1]) + len(part) > WIDE:
            lines.append("   ")
        lines[-1] += f"{' ' * bool(lines[-1])}{part}"
    return " \\\n".join(lines)


def _flag(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    values: list[Any] = value if isinstance(value, list) else [value]
    return [word for own in values for word in (f"--{name}", str(own))]
