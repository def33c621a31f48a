"""`undertow data list|show|fetch|corruptions`: what data there is."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from undertow.cli.flags import BadUsage
from undertow.cli.screen import console, percent, print_json, table, thousands
from undertow.data.catalogue import DATA

if TYPE_CHECKING:
    from rich.table import Table

    from undertow.data.samples import DataSet, Samples


def list_sets(*, json: bool = False) -> None:
    """List the data sets known by name.

    Args:
        json: Print one JSON object per set.
    """
    rows = [
        {
            "name": name, "about": entry.about, "shape": "×".join(map(str, entry.shape)), "classes": entry.classes,
            "train": entry.train, "test": entry.test, "from": _origin(name, entry.origin),
        }
        for name, entry in DATA.items()
    ]  # fmt: skip
    if json:
        for row in rows:
            print_json(row)
        return
    shown = [[thousands(cell) if isinstance(cell, int) else cell for cell in row.values()] for row in rows]
    console().print(table("", list(rows[0]), shown, right=["shape", "classes", "train", "test"]))
    console().print(
        "Also hub:owner/name, an image folder, .npz or .npy files. UNDERTOW_DATA names a local mirror."
    )


def show(source: str, *, noise: str = "0", seed: int = 0, json: bool = False) -> None:
    """Show what is in a data set: sizes, classes, pixels, and what label noise would do.

    Args:
        source: A name, hub:owner/name or a path.
        noise: Label noise to apply, as for `undertow train`.
        seed: The seed of the noise.
        json: Print one JSON object.
    """
    from undertow.data.entries import shown
    from undertow.data.load import load_data
    from undertow.data.noise import parse_noise

    data = load_data(source)
    noisy = parse_noise(noise, seed=seed).apply(data.train, len(data.classes))
    wrong = _wrong_share(noisy)
    facts = {
        "name": data.name, "kind": data.kind, "shape": data.shape, "classes": len(data.classes),
        "train": len(data.train), "test": len(data.test), "scaling": data.scaling, "note": data.note,
        "fingerprint": data.fingerprint, "wrong_labels": wrong,
    }  # fmt: skip
    if json:
        print_json(facts)
        return
    screen = console()
    shape = "×".join(map(str, data.shape)) if data.kind != "named" else shown(data.train.x)
    size = f"{thousands(len(data.train))} train, {thousands(len(data.test))} test"
    screen.print(f"[bold]{escape(data.name)}[/]: {data.kind} {shape}, {size}")
    if data.note:
        screen.print(f"Note: {escape(data.note)}")
    if noise != "0":
        screen.print(f"With noise {noise}: {percent(wrong, 2)} of the training labels are wrong.")
    screen.print(_class_table(data, noisy))


def fetch(*sources: str) -> None:
    """Load data sets once, so that they are in the cache.

    Args:
        sources: Names, hub:owner/name or paths.
    """
    from undertow.data.load import load_data

    if not sources:
        raise BadUsage("data fetch: name at least one data set. `undertow data list` shows them.")
    for source in sources:
        began = time.monotonic()
        data = load_data(source)
        took = time.monotonic() - began
        note = f" ({data.note})" if data.note else ""
        console().print(
            f"{source}: {thousands(len(data.train))} + {thousands(len(data.test))} samples in {took:.1f} s{note}"
        )


def corruptions(
    *, out: Path = Path("sheet.png"), data: str = "cifar10", count: int = 3, seed: int = 0
) -> None:
    """Draw a contact sheet of the 15 corruptions at severities 1 to 5.

    Args:
        out: The PNG to write.
        data: The image set whose test images are shown.
        count: How many images stand in a cell.
        seed: The seed of the corruptions.
    """
    from undertow.data.corruptions import contact_sheet
    from undertow.data.load import load_data

    chosen = load_data(data)
    if chosen.kind != "image":
        raise BadUsage(f"data corruptions: {data} is not a set of images. Choose other --data.")
    contact_sheet(chosen.test.tensor[:count], out, seed)
    console().print(f"{out}: 15 corruptions × 5 severities of {chosen.name}")


def _origin(name: str, origin: str) -> str:
    """Where the set would come from on this machine."""
    mirror = os.environ.get("UNDERTOW_DATA")
    if origin == "embedded" or not mirror:
        return origin
    if (Path(mirror) / name).is_dir():
        return "mirror"
    return "mirror (subset)" if (Path(mirror) / f"{name}_subset").is_dir() else origin


def _wrong_share(samples: Samples) -> float:
    return 0.0 if samples.true is None else float((samples.y != samples.true).double().mean())


def _class_table(data: DataSet, noisy: Samples) -> Table:
    count = len(data.classes)
    train, test, given = (
        part.bincount(minlength=count).tolist() for part in (data.train.y, data.test.y, noisy.y)
    )
    rows = list(zip(data.classes, train, given, test, strict=True))
    shown = rows if count <= 20 else [*rows[:10], ("...", "", "", ""), *rows[-5:]]
    return table("", ["class", "train", "after noise", "test"], shown, right=["train", "after noise", "test"])
