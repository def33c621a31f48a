"""The tables of the label bench, as markdown.

text = as_markdown(rows, ours="undertow")    # rows: one per cell and method, as `labels.results` gives them

A setting is data x noise and its numbers are means over seeds; a cell is one seed of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from _ratio import machine

SETTING = ["data", "noise"]
DETECTION = ("peers", "regularised", "network", "ours")
REPAIR_ORDER = (
    "last checkpoint", "edited head", "graft by noisy validation", "best graft, hindsight",
    "best checkpoint, hindsight", "retrained, dropped", "retrained, relabelled",
)  # fmt: skip
CHOICE_ORDER = (
    "choose_checkpoint", "noisy validation", "choose_checkpoint and noisy validation", "last checkpoint",
)  # fmt: skip

PLACE_ORDER = ("place by label_errors", "place by noisy validation", "last layer of the last checkpoint")


def as_markdown(rows: pd.DataFrame, ours: str) -> str:
    """Every table for which there are rows."""
    return "\n".join(_parts(rows, ours))


def _parts(rows: pd.DataFrame, ours: str) -> Iterator[str]:
    about = rows.iloc[0]
    seeds = rows.seed.nunique()
    yield f"# Wrong labels: {about.model}, {about.samples} samples, {about.epochs} epochs, {seeds} seeds\n"
    yield f"{machine()}\n"
    scores = rows[rows.part.isin(DETECTION)]
    if len(scores):
        yield _table("Average precision (mean over seeds)", _by_setting(scores, "ap"), "{:.3f}".format)
        yield _table("AUROC (mean over seeds)", _by_setting(scores, "auroc"), "{:.3f}".format)
        yield _costs(scores, ours)
    if ours in set(scores.name):
        yield _wins(scores, ours)
        yield _rates(scores[scores.name == ours])
    if len(repairs := _repairs(rows)):
        yield _table("Test accuracy in % (mean over seeds)", repairs, "{:.2f}".format)
    for what, parts, best, names in (
        ("checkpoint", ("stopping", "choice"), "best checkpoint, hindsight", CHOICE_ORDER),
        ("layer and checkpoint for a VeLPIC head", ("places",), "best place, hindsight", PLACE_ORDER),
    ):
        if len(regrets := _regrets(rows[rows.part.isin(parts)], best, names)):
            yield _table(
                f"Regret of choosing a {what}: points of test accuracy below the best (mean over seeds)",
                regrets, "{:.2f}".format,
            )  # fmt: skip


def _by_setting(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Settings down, methods across is too wide for a page: methods down."""
    table = rows.pivot_table(index="name", columns=SETTING, values=value, sort=False)
    table.columns = [f"{data} {noise}" for data, noise in table.columns]
    table["mean"] = table.mean(axis=1, skipna=False)
    table["cells"] = rows.groupby("name").size()
    return table.sort_values("mean", ascending=False)


def _costs(rows: pd.DataFrame, ours: str) -> str:
    seconds = rows.pivot_table(index="name", columns="data", values="seconds", sort=False)
    crossval = rows[rows.part == "network"].groupby("data").seconds.mean()
    text = _table("CPU seconds (mean)", seconds, "{:.1f}".format)
    if ours in seconds.index and len(crossval):
        ratios = crossval / seconds.loc[ours]
        told = ", ".join(f"{data} {ratio:.1f}x" for data, ratio in ratios.items())
        text += f"\nCross-validating the network costs, beside {ours}: {told}.\n"
    return text


def _wins(rows: pd.DataFrame, ours: str) -> str:
    """How often ours has the better average precision: differences of the same cells, then means of settings."""
    cells = rows.pivot_table(index=[*SETTING, "seed"], columns="name", values="ap")
    lines: dict[str, dict[str, str]] = {}
    for other in cells.columns.drop(ours):
        by_cell = (cells[ours] - cells[other]).dropna()
        by_setting = by_cell.groupby(level=SETTING).mean()
        lines[other] = {
            "settings won": f"{int((by_setting > 0).sum())} of {len(by_setting)}",
            "cells won": f"{int((by_cell > 0).sum())} of {len(by_cell)}",
            "mean gain of AP": f"{by_setting.mean():+.3f}",
            "least gain": f"{by_setting.min():+.3f} ({' '.join(by_setting.idxmin())})",
        }
    return _table(f"{ours} against each, in average precision", pd.DataFrame(lines).T, str)


def _rates(rows: pd.DataFrame) -> str:
    covered = (rows.noise_low <= rows.wrong) & (rows.wrong <= rows.noise_high)
    measured = rows.assign(
        covered=covered.astype(float),
        error=(rows.noise_rate - rows.wrong).abs(),
        width=rows.noise_high - rows.noise_low,
    )
    columns = ["wrong", "noise_rate", "noise_low", "noise_high", "error", "width", "covered"]
    table = measured.groupby(SETTING, sort=False)[columns].mean()
    table.index = [" ".join(setting) for setting in table.index]
    whole = f"{int(covered.sum())} of {len(covered)} intervals hold the true one"
    title = f"Share of wrong labels, estimated: {whole}, mean error {measured.error.mean():.3f}"
    return _table(title, table, "{:.3f}".format)


def _repairs(rows: pd.DataFrame) -> pd.DataFrame:
    found = rows[rows.part.isin(("grafts", "retrain", "stopping"))].drop_duplicates(
        [*SETTING, "seed", "name"]
    )
    if found.empty:
        return found
    table = 100 * found.pivot_table(index=SETTING, columns="name", values="accuracy", sort=False)
    table.index = [" ".join(setting) for setting in table.index]
    table.loc["mean"] = table.mean(skipna=False)
    table.loc["cells"] = found.groupby("name").size().reindex(table.columns)
    return table[[name for name in REPAIR_ORDER if name in table]]


def _regrets(rows: pd.DataFrame, best: str, order: Sequence[str]) -> pd.DataFrame:
    if best not in set(rows.name):
        return rows.iloc[:0]
    cells = rows.pivot_table(index=[*SETTING, "seed"], columns="name", values="accuracy", sort=False)
    names = [name for name in order if name in cells]
    regrets = 100 * cells[names].rsub(cells[best], axis=0)
    table = regrets.groupby(level=SETTING, sort=False).mean()
    table.index = [" ".join(setting) for setting in table.index]
    return pd.concat([table, regrets.mean().to_frame("mean").T, regrets.max().to_frame("worst cell").T])


def _table(title: str, table: pd.DataFrame, write: Callable[[float], str]) -> str:
    """A row named cells, and a column of that name, hold counts."""

    def text(row: object, column: object, value: object) -> str:
        if isinstance(value, float) and np.isnan(value):
            return "-"
        return f"{value:.0f}" if "cells" in (row, column) else write(value)  # type: ignore[arg-type]

    lines = [
        f"## {title}\n",
        f"| | {' | '.join(map(str, table.columns))} |",
        "|---" * (1 + table.shape[1]) + "|",
    ]
    for row, values in zip(table.index, table.to_numpy().tolist(), strict=True):
        written = [text(row, *pair) for pair in zip(table.columns, values, strict=True)]
        lines.append(f"| {row} | {' | '.join(written)} |")
    return "\n".join(lines) + "\n"
