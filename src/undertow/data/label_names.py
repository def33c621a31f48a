"""Labels that are names, numbered.

    parts, told = number_names({"x": x, "y": np.array(["cat", "dog", "cat"])})    # y becomes 0, 1, 0; classes are added
    order_words(("cat", "dog"))                 # how they are numbered, and that a model may have done it otherwise

Where an array `classes` names the classes, its order counts; else that of the alphabet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import unknown

LABELS = ("y", "y_train", "y_test", "true", "true_train")
SHOWN = 6
"""Classes that a note names."""


def order_words(classes: Sequence[str]) -> str:
    """What to tell where names were numbered by the alphabet."""
    listed = ", ".join(f"{name} {at}" for at, name in enumerate(classes[:SHOWN]))
    more = ", ..." if len(classes) > SHOWN else ""
    return (
        f"Labels are names and are numbered by the alphabet ({listed}{more}). If the model numbers its classes "
        "otherwise, give numbers."
    )


def number_names(parts: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], str]:
    """Arrays of labels that are names as class numbers, with the array `classes`; and what to tell of their order."""
    named = [key for key in LABELS if key in parts and parts[key].dtype.kind in "US"]
    if not named:
        return dict(parts), ""
    there = sorted({str(name) for key in named for name in parts[key].ravel()})
    classes = [str(name) for name in parts["classes"]] if "classes" in parts else there
    places = {name: at for at, name in enumerate(classes)}
    strange = next((name for name in there if name not in places), None)
    if strange is not None:
        raise unknown("class", strange, classes, "The array classes must name all that labels name.")
    numbered = {key: np.array([places[str(name)] for name in parts[key]], np.int64) for key in named}
    return {**parts, **numbered, "classes": np.array(classes)}, "" if "classes" in parts else order_words(
        classes
    )
