"""Types that checkpoints of others hold beside tensors, and that cannot do anything when they are read.

with torch.serialization.safe_globals(harmless_types()):
    torch.load(path, weights_only=True)
"""

from __future__ import annotations

import argparse
import collections
import datetime
import pathlib
import types
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np


@cache
def harmless_types() -> list[Any]:
    """Namespaces, paths, times, numpy's numbers and arrays: plain values under another name."""
    makers = import_module("numpy._core.multiarray")
    numbers = [getattr(np.dtypes, name) for name in np.dtypes.__all__ if name != "ObjectDType"]
    arrays = [np.dtype, np.ndarray, makers.scalar, makers._reconstruct]
    paths = [pathlib.PosixPath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path]
    plain = [argparse.Namespace, types.SimpleNamespace, collections.defaultdict, collections.deque]
    times = [datetime.datetime, datetime.date, datetime.timedelta, datetime.timezone]
    # The factories of a defaultdict.
    simple = [int, float, str, bool, list, dict, tuple, frozenset, slice, range]
    # Older numpy, and Python's own moves, wrote other paths to the same things.
    moved: list[Any] = [
        (makers.scalar, "numpy.core.multiarray.scalar"),
        (makers._reconstruct, "numpy.core.multiarray._reconstruct"),
        (pathlib.PurePosixPath, "pathlib._local.PosixPath"),
        (pathlib.PurePosixPath, "pathlib._local.PurePosixPath"),
    ]
    return [*plain, *paths, *times, *simple, *numbers, *arrays, *moved]
