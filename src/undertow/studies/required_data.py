"""Which data a study needs, and whether it is here; needs no torch until data is really looked for.

data_needed(study.at("laptop"))            # ("mnist", "fashion_mnist")
whereabouts("mnist")                       # "here", "subset", "downloaded" or "to download"
check_data([study.at("laptop"), ...])      # loads each set once; what cannot be had is said before any training
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from undertow.data.catalogue import DATA
from undertow.data.mirror import find_mirror
from undertow.errors import NotThere
from undertow.studies.recipe import Study

Whereabouts = Literal["here", "subset", "downloaded", "to download"]


def data_needed(study: Study) -> tuple[str, ...]:
    """The sets that its cases are trained on and that do not come with undertow."""
    return tuple(name for name in study.data if DATA[name].hub)


def whereabouts(name: str) -> Whereabouts:
    """Whether a set of the catalogue is on this machine, as far as can be told without loading it."""
    place = DATA[name].hub
    if place is None:
        return "here"
    folder, stands_in = find_mirror(name)
    if folder:
        return "subset" if stands_in else "here"
    return "downloaded" if _hub_copy(place.repo).is_dir() else "to download"


def _hub_copy(repo: str) -> Path:
    """Where the hub's library keeps an earlier download."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    kept = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets")
    return kept.expanduser() / repo.replace("/", "___")


def check_data(studies: Iterable[Study]) -> None:
    """Load every set that the studies need, so that a missing one is found before anything is trained.

    Raises:
        NotThere: which studies need which sets that cannot be had, and how to get the first of them.
    """
    from undertow.data.load import load_data

    wanting: dict[str, list[str]] = {}
    for study in studies:
        for name in data_needed(study):
            wanting.setdefault(name, []).append(study.name)
    problems: dict[str, NotThere] = {}
    for name in wanting:
        try:
            load_data(name)
        except NotThere as error:
            problems[name] = error
    if problems:
        first, *others = problems
        names = list(dict.fromkeys(study for name in problems for study in wanting[name]))
        also = f" Also missing: {', '.join(others)}." if others else ""
        raise NotThere(
            f"Nothing was trained, because data is missing for {', '.join(names)}. {problems[first]}{also}"
        ) from problems[first]
