"""Public image sets by name: from a local mirror if there is one, else from the Hugging Face hub.

    load_named("mnist", seed=0)                     # UNDERTOW_DATA/mnist, else ylecun/mnist
    load_named("hub:owner/name", seed=0)            # UNDERTOW_DATA/owner/name, else the hub
    load_named("hub:owner/name:config=small,label=kind,test=validation", seed=0)

A mirror has a sub-folder for each set with parquet files `data/<split>-*.parquet`, as on the hub; a
sub-folder `<name>_subset` stands in where the full set is not there, and DataSet.note says so.
Mirror and hub give the same bits: both hand undecoded image bytes to one decoder.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from undertow.data.cache import Decoded, cached, content_key
from undertow.data.catalogue import DATA, Place
from undertow.data.hub import HubProblem, fetch_tables
from undertow.data.mirror import find_mirror
from undertow.data.options import split_spec, typed_options
from undertow.data.samples import DataSet
from undertow.data.tables import as_data_set, choose_splits, decode_tables, decoding, read_parquet
from undertow.errors import BadData, BadValue, NotThere, unknown

HUB = "hub:"
SHARD = re.compile(r"(?P<split>.+?)(-\d+-of-(?P<total>\d+)(-\w+)?)?\.parquet")


def load_named(spec: str, seed: int) -> DataSet:
    """The set that `spec` names: a name of the catalogue or `hub:owner/name`, with options."""
    name, place = parse_place(spec)
    folder, note = find_mirror(name)
    decoded = read_mirror(folder, place) if folder else _read_hub_or_explain(name, place)
    return as_data_set(decoded, spec, seed=seed, note=note)


def parse_place(spec: str) -> tuple[str, Place]:
    """The name under which a mirror would have the set, and its place on the hub."""
    if spec.startswith(HUB):
        return _parse_hub(spec)
    name, given = split_spec(spec)
    place = DATA[name].hub if name in DATA else None
    if place is None:
        raise unknown("public data set", name, (known for known, entry in DATA.items() if entry.hub))
    typed_options(name, given, {})
    return name, place


def _parse_hub(spec: str) -> tuple[str, Place]:
    repo, colon, tail = spec.removeprefix(HUB).partition(":")
    if not repo:
        raise BadValue("data", "hub:owner/name", spec)
    given = split_spec(f"hub:{tail}")[1] if colon else {}
    defaults = {"config": "", "image": "", "label": "", "train": "train", "test": ""}
    chosen = typed_options(f"{HUB}{repo}", given, defaults)
    return repo, replace(Place(repo=repo), **chosen)


def read_mirror(folder: Path, place: Place) -> Decoded:
    """Decode a folder of parquet files, or take it from the cache."""
    files = find_splits(folder, place)
    order = [part for role, shards in files.items() for part in (role, *shards)]

    def decode() -> Decoded:
        return decode_tables(
            {role: read_parquet(shards) for role, shards in files.items()}, place, str(folder)
        )

    return cached(content_key(decoding(place), *order), decode)


def read_hub(place: Place) -> Decoded:
    """Decode a set of the hub, or of a folder that `datasets` can load, or take it from the cache."""
    tables, files = fetch_tables(place)

    def decode() -> Decoded:
        return decode_tables(tables, place, place.repo)

    return cached(content_key(decoding(place), *tables, *files), decode) if files else decode()


def find_splits(folder: Path, place: Place) -> dict[str, list[Path]]:
    """The parquet files for "train" and, if there are any, for "test".

    They lie in the sub-folder `data`, in one named as the hub's configuration, or in the only one
    that has such files.
    """
    held: dict[Path, dict[str, list[Path]]] = {}
    for file in sorted([*folder.glob("*.parquet"), *folder.glob("*/*.parquet")]):
        found = SHARD.fullmatch(file.name)
        if found:
            held.setdefault(file.parent, {}).setdefault(found["split"], []).append(file)
    usual = (held[at] for at in (folder / "data", folder / place.config) if at in held)
    splits = next(iter(held.values())) if len(held) == 1 else next(usual, None)
    if splits is None:
        got = f"several folders with some: {', '.join(at.name for at in held)}" if held else "none"
        raise NotThere(
            f"{folder}: wanted parquet files data/{place.train}-*.parquet, as on the hub, got {got}. "
            "Put the files of one set into the sub-folder `data`."
        )
    chosen = choose_splits(splits, place, str(folder))
    return {role: _whole(splits[split]) for role, split in chosen.items()}


def _whole(shards: list[Path]) -> list[Path]:
    """The files of a split, if none is missing: with one missing the set would quietly be smaller."""
    found = SHARD.fullmatch(shards[0].name)
    total = int(found["total"] or 1) if found else 1
    if len(shards) != total:
        raise BadData(
            f"{shards[0].parent}: wanted {total} files as {shards[0].name} says, got {len(shards)}."
        )
    return shards


def _read_hub_or_explain(name: str, place: Place) -> Decoded:
    try:
        return read_hub(place)
    except HubProblem as error:
        root = os.environ.get("UNDERTOW_DATA")
        mirror = f"{root} (UNDERTOW_DATA) has no folder {name}" if root else "UNDERTOW_DATA is not set"
        raise NotThere(
            f"{name}: there is no mirror ({mirror}), and the Hugging Face hub does not give {place.repo}: {error}. "
            f"Either set UNDERTOW_DATA to a folder that has {name}/data/train-*.parquet and test-*.parquet, "
            "or load it once with the network and the package `datasets`."
        ) from error
