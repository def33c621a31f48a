"""The data sets that undertow knows by name, as a plain table: no torch, so that lists are fast.

    DATA["mnist"].about           # '28x28 grey handwritten digits'
    DATA["mnist"].hub.repo        # 'ylecun/mnist'
    DATA["blobs"].options         # {'n': 1000, 'classes': 3, 'noise': 0.25}: blobs:classes=4,n=500 sets them

Generated sets have `n` training samples and a quarter as many for the test.
`undertow.data.load_data` turns a name into a DataSet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["image", "vector", "tokens", "named"]
Origin = Literal["embedded", "hub"]
Mode = Literal["L", "RGB"]  # one grey channel or three colour channels


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the images and labels of a set lie: on the hub, or in a folder of the same layout."""

    repo: str  # owner/name on the Hugging Face hub, or a folder
    config: str = ""  # for repositories that hold more than one set
    image: str = ""  # column; found by its name or kind if left empty
    label: str = ""
    train: str = "train"  # split
    test: str = ""  # split; "test", else a validation split, if left empty
    mode: Mode | None = None  # None: grey if all images are grey, else colour


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is known about a data set before it is loaded."""

    about: str
    kind: Kind
    shape: tuple[int, ...]
    classes: int
    train: int  # samples
    test: int
    scaling: str
    options: Mapping[str, int | float] = field(default_factory=dict[str, int | float])
    hub: Place | None = None  # None: made here, without a network

    @property
    def origin(self) -> Origin:
        """Whether the set comes with undertow or from a mirror or the hub."""
        return "hub" if self.hub else "embedded"


def _images(
    about: str, shape: tuple[int, int, int], classes: int, train: int, test: int, place: Place
) -> Entry:
    return Entry(
        about=about,
        kind="image",
        shape=shape,
        classes=classes,
        train=train,
        test=test,
        scaling="half",
        hub=place,
    )


DATA: Mapping[str, Entry] = {
    "digits": Entry(
        about="8x8 grey handwritten digits that come with scikit-learn",
        kind="image",
        shape=(1, 8, 8),
        classes=10,
        train=1297,
        test=500,
        scaling="half",
    ),
    "mnist1d": Entry(
        about="ten drawn curves, distorted and noisy, by the MNIST-1D recipe",
        kind="vector",
        shape=(40,),
        classes=10,
        train=4000,
        test=1000,
        scaling="none",
        options={"n": 4000},
    ),
    "mod-division": Entry(
        about="x / y modulo a prime p as tokens `x op y =`; all pairs, half of them to train on",
        kind="tokens",
        shape=(4,),
        classes=97,
        train=4656,
        test=4656,
        scaling="none",
        options={"p": 97, "share": 0.5},
    ),
    "heaviside": Entry(
        about="the step function: numbers from -1 to 1, labelled by their sign",
        kind="vector",
        shape=(1,),
        classes=2,
        train=1000,
        test=250,
        scaling="none",
        options={"n": 1000},
    ),
    "blobs": Entry(
        about="round clouds of points in the plane",
        kind="vector",
        shape=(2,),
        classes=3,
        train=1000,
        test=250,
        scaling="none",
        options={"n": 1000, "classes": 3, "noise": 0.25},
    ),
    "spirals": Entry(
        about="interleaved spiral arms of points in the plane",
        kind="vector",
        shape=(2,),
        classes=2,
        train=1000,
        test=250,
        scaling="none",
        options={"n": 1000, "classes": 2, "noise": 0.02},
    ),
    "mnist": _images(
        "28x28 grey handwritten digits", (1, 28, 28), 10, 60_000, 10_000, Place(repo="ylecun/mnist", mode="L")
    ),
    "fashion_mnist": _images(
        "28x28 grey pictures of clothes",
        (1, 28, 28),
        10,
        60_000,
        10_000,
        Place(repo="zalando-datasets/fashion_mnist", mode="L"),
    ),
    "cifar10": _images(
        "32x32 colour photographs",
        (3, 32, 32),
        10,
        50_000,
        10_000,
        Place(repo="uoft-cs/cifar10", mode="RGB"),
    ),
    "cifar100": _images(
        "32x32 colour photographs, fine labels",
        (3, 32, 32),
        100,
        50_000,
        10_000,
        Place(repo="uoft-cs/cifar100", mode="RGB"),
    ),
    "svhn": _images(
        "32x32 colour house-number digits, cropped",
        (3, 32, 32),
        10,
        73_257,
        26_032,
        Place(repo="ufldl-stanford/svhn", config="cropped_digits", mode="RGB"),
    ),
    "stl10": _images(
        "96x96 colour photographs, the labelled part",
        (3, 96, 96),
        10,
        5_000,
        8_000,
        Place(repo="tanganke/stl10", mode="RGB"),
    ),
    "tiny_imagenet": _images(
        "64x64 colour photographs; the validation split is the test split",
        (3, 64, 64),
        200,
        100_000,
        10_000,
        Place(repo="zh-plus/tiny-imagenet", mode="RGB"),
    ),
}
"""Name -> what it is. Embedded sets first."""
