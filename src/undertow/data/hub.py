"""Sets of the Hugging Face hub through its `datasets` library, imported only when it is needed.

    tables, files = fetch_tables(Place(repo="ylecun/mnist"))
    tables["train"]                     # pyarrow table with undecoded images
    files                               # the library's own copies on disk, to hash

The repository may also be a folder that the library can load. Left alone, the library tries a dead
network for about 30 s; here one request, bounded by PATIENCE, asks first. Without the network the
library's copy of an earlier download is used. No code of a repository is ever run.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from undertow.data.catalogue import Place
from undertow.data.tables import choose_splits
from undertow.errors import BadData, NotThere
from undertow.stored.door import read_bytes

if TYPE_CHECKING:
    import datasets

MOST_IMAGE = 1 << 30
"""Bytes of an image's file that can be meant."""
PATIENCE = 5.0
"""Seconds to wait for the hub's first answer."""


class HubProblem(NotThere):
    """The hub gives nothing: the library is missing, the network is silent, or the set is not there."""


def fetch_tables(place: Place) -> tuple[dict[str, pa.Table], list[Path]]:
    """Tables for "train" and, if there is one, "test", and the files on disk that hold all of them.

    There are no such files where a repository has its images one by one.
    """
    loaded = _load(place)
    chosen = choose_splits(map(str, loaded), place, place.repo)
    parts = {role: _undecoded(loaded[split]) for role, split in chosen.items()}
    tables: dict[str, pa.Table] = {role: part.with_format("arrow")[:] for role, part in parts.items()}
    if any(_outside(column) for table in tables.values() for column in table.columns):
        roots = _roots(place.repo)
        return {role: _read_in(table, roots) for role, table in tables.items()}, []
    return tables, [Path(file["filename"]) for part in parts.values() for file in part.cache_files]


def _load(place: Place) -> datasets.DatasetDict:
    try:
        import datasets
        from datasets.exceptions import DatasetsError
    except ImportError as error:
        raise HubProblem("the package `datasets` is not installed (pip install 'undertow[hub]')") from error
    local = Path(place.repo).is_dir()
    with _settings(offline=not local and not _hub_answers(place.repo)):
        try:
            return datasets.load_dataset(place.repo, place.config or None)
        except ConnectionError as error:
            raise HubProblem("the hub does not answer and no earlier download is on this machine") from error
        except (OSError, ValueError, DatasetsError) as error:
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            raise HubProblem(f"the hub's library says: {said}") from error


def _hub_answers(repo: str) -> bool:
    """Whether the hub can be reached; a set that it does not have is refused here."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    try:
        HfApi().dataset_info(repo, timeout=PATIENCE)
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise HubProblem(f"the hub has no public data set {repo!r}") from error
    except HfHubHTTPError:
        return True  # it answers, if only to complain: the library will say it better
    except Exception:  # which type a dead network raises depends on the HTTP package of the day
        return False
    return True


@contextmanager
def _settings(*, offline: bool) -> Generator[None]:
    """Switch the libraries to their offline mode if need be, and keep them quiet off a terminal."""
    import datasets
    from datasets import config
    from huggingface_hub import constants

    before = config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    silence = not sys.stderr.isatty() and datasets.is_progress_bar_enabled()
    if offline:
        config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    if silence:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
        if silence:
            datasets.enable_progress_bars()


def _undecoded(split: datasets.Dataset) -> datasets.Dataset:
    import datasets

    for name, feature in split.features.items():
        if isinstance(feature, datasets.Image):
            split = split.cast_column(name, datasets.Image(decode=False))
    return split


def _outside(column: pa.ChunkedArray) -> bool:
    """Whether it is a column of images of which some are given by their path only."""
    if not pa.types.is_struct(column.type) or {each.name for each in column.type} != {"bytes", "path"}:
        return False
    return any(part.field("bytes").null_count for part in column.chunks)


def _roots(repo: str) -> list[Path]:
    """Where images may lie that a table gives by their path: the set's own folder, or the libraries' copies."""
    if Path(repo).is_dir():
        return [Path(repo).resolve()]
    from datasets import config
    from huggingface_hub import constants

    copies = (config.HF_DATASETS_CACHE, config.DOWNLOADED_DATASETS_PATH, constants.HF_HUB_CACHE)
    return [Path(one).resolve() for one in copies]


def _read_in(table: pa.Table, roots: list[Path]) -> pa.Table:
    for at, column in enumerate(table.columns):
        if _outside(column):
            parts = [_read_images(part.to_pylist(), roots) for part in column.chunks]
            table = table.set_column(at, table.schema.field(at), pa.chunked_array(parts, column.type))
    return table


def _read_images(rows: list[dict[str, Any]], roots: list[Path]) -> list[dict[str, Any]]:
    return [{**row, "bytes": row["bytes"] or _read_inside(row["path"], roots)} for row in rows]


def _read_inside(told: str | None, roots: list[Path]) -> bytes:
    """The image at a path that a row names; a set tells of its own images and of no others on this machine."""
    if not told:
        raise BadData("A row of the set has neither an image nor the path of one.")
    path = (roots[0] / told).resolve()
    if not any(path.is_relative_to(root) for root in roots):
        raise BadData(
            f"{told}: wanted an image inside the set ({roots[0]}), got a path that leads out of it."
        )
    return read_bytes(path, MOST_IMAGE)
