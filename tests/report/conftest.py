"""A run that was really trained and audited, for the main paths; and synthetic folders for odd and hostile ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
import pytest

COLUMNS = [
    "lens", "measure", "checkpoint", "layer", "split", "value", "low", "high", "n", "note",
    "probe", "fit", "labels", "shallow", "position", "sample", "y", "label",
]  # fmt: skip
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass
class Synthetic:
    """A made-up run: peaks early, then memorises its wrong labels, the last layers most of all."""

    checkpoints: int = 16
    layers: tuple[str, ...] = ("layer1", "layer2", "layer3")
    classes: tuple[str, ...] = DIGITS
    probes: tuple[str, ...] = ("masc", "velpic", "logistic")
    noise: float = 0.4
    samples: int = 60  # in the trajectories
    features: int = 40  # in the spectra
    seed: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.epochs = np.unique(np.linspace(0, 60, self.checkpoints).round().astype(int))
        self.time = self.epochs / 60
        self.random = np.random.default_rng(self.seed)

    def add(self, lens: str, measure: str, value: Any, margin: float = 0.0, **place: Any) -> None:
        edges = {"low": value - margin, "high": min(1, value + margin)} if margin else {}
        self.rows.append({"lens": lens, "measure": measure, "value": float(value), **edges, **place})

    def accuracy(self, depth: float, top: float = 0.95) -> np.ndarray:
        """Up quickly; then down by what the noise and the depth allow."""
        rise = 0.1 + (top - 0.1) * (1 - np.exp(-14 * self.time))
        fall = 0.9 * self.noise * depth * np.clip(self.time - 0.15, 0, None) ** 0.7
        return np.clip(rise - fall + self.random.normal(0, 0.004, len(self.time)), 0, 1)

    def model(self) -> None:
        fit = np.clip(0.1 + 0.5 * (1 - np.exp(-14 * self.time)) + 0.42 * self.time, 0, 1)
        curves = {
            ("test", "true"): self.accuracy(1.0), ("train", "given"): fit,
            ("train", "true"): self.accuracy(1.1), ("test", "given"): self.accuracy(1.0) * 0.7,
        }  # fmt: skip
        for (split, labels), curve in curves.items():
            for epoch, value in zip(self.epochs, curve, strict=True):
                place = {"checkpoint": epoch, "layer": "output", "split": split, "labels": labels, "n": 500}
                self.add("model", "accuracy", value, 0.02, **place)
                self.add("model", "loss", 2.3 * (1.05 - value), **place)
        self.last = curves["test", "true"]

    def latent(self) -> None:
        for number, layer in enumerate(["input", *self.layers]):
            depth = max(0, number - 0.7) / len(self.layers)
            for probe, bonus in zip(self.probes, (-0.02, 0.0, 0.01, -0.03), strict=False):
                for fit, split, labels in [
                    ("given", "test", "true"), ("given", "train", "given"), ("given", "train", "true"),
                    ("true", "test", "true"), ("shuffled", "test", "true"),
                ]:  # fmt: skip
                    curve = self.accuracy(depth * (0.4 if fit == "true" else 0.8)) + bonus
                    curve = 0 * curve + 0.1 if fit == "shuffled" else curve
                    for epoch, value in zip(self.epochs, curve, strict=True):
                        place = {"checkpoint": epoch, "layer": layer, "probe": probe, "fit": fit, "n": 500}
                        self.add("latent", "accuracy", value, 0.02, split=split, labels=labels, **place)
                for epoch in self.epochs if probe == self.probes[0] else ():
                    place = {"checkpoint": epoch, "layer": layer, "probe": probe, "fit": "given"}
                    self.add("latent", "dimension", 30 + 10 * number - epoch / 6, split="train", **place)

    def richness(self) -> None:
        last = self.layers[-1]
        measures = {
            "d_lr": 0.15 + 0.6 * np.exp(-4 * self.time), "effective_dimension": 9 + 20 * np.exp(-3 * self.time),
            "effective_dimension_rest": 15 + 30 * np.exp(-3 * self.time), "squared_parameter_norm": 10 + 25 * self.time,
            "initial_kernel_alignment": np.exp(-2 * self.time), "nc1": 5 * np.exp(-2 * self.time),
            "nc1_stabilised": 4 * np.exp(-2 * self.time), "trace_within": 1 / (1 + 9 * self.time),
            "nc2_etf": 0.8 * np.exp(-2 * self.time), "nc3": 0.9 * np.exp(-3 * self.time),
            "nc4": 0.3 * np.exp(-3 * self.time),
        }  # fmt: skip
        for measure, curve in measures.items():
            for epoch, value in zip(self.epochs, curve, strict=True):
                margin = 0.02 if measure == "d_lr" else 0.0
                self.add(
                    "richness", measure, value, margin, checkpoint=epoch, layer=last, split="test", n=500
                )
        position = np.arange(1, self.features + 1)
        for epoch, time in zip(self.epochs, self.time, strict=True):
            sharp = 0.04 + 0.3 * time
            panels = {
                "quality": 0.95 * (1 - np.exp(-sharp * position)),
                "utilisation": 1 - np.exp(-1.4 * sharp * position),
                "intensity": position ** -(1.0 + 2 * time),
            }
            for measure, values in panels.items():
                for place, value in zip(position, values, strict=True):
                    self.add(
                        "richness", measure, value, checkpoint=epoch, layer=last, split="test", position=place
                    )

    def temporal(self) -> None:
        for number, cut in enumerate(self.layers):
            depth = (number + 1) / len(self.layers)
            self._composites(cut, depth)
            self._window(cut, depth)
            self._swap(cut, depth)
            self._trajectory(cut)
        for epoch, time in zip(self.epochs, self.time, strict=True):
            self.add("temporal", "parameter_drift", 1 - time, checkpoint=epoch, layer="all")

    def _composites(self, cut: str, depth: float) -> None:
        for shallow, early in zip(self.epochs, self.time, strict=True):
            for deep, late in zip(self.epochs, self.time, strict=True):
                near = np.exp(-((early - late) ** 2) * 6 * depth / (0.2 + late))
                place = {"checkpoint": deep, "shallow": shallow, "layer": cut, "split": "test", "n": 500}
                self.add("temporal", "accuracy", 0.1 + 0.75 * near, labels="true", **place)
                self.add("temporal", "consistency", near, **place)

    def _window(self, cut: str, depth: float) -> None:
        for epoch, time in zip(self.epochs, self.time, strict=True):
            place = {"checkpoint": epoch, "layer": cut}
            self.add("temporal", "window", round(epoch * time * (1.1 - depth) + 1), **place)
            self.add("temporal", "parameter_drift", (1 - time) * (1.2 - depth), **place)
            self.add("temporal", "feature_drift", (1 - time) * (0.4 + depth / 2), split="test", **place)
        for position in np.linspace(0, 1, 101):
            value = np.exp(-((position - 1 + depth / 2) ** 2) / 0.05) * 2
            self.add(
                "temporal", "density", value, checkpoint=self.epochs[-1], layer=cut, split="test",
                position=position,
            )  # fmt: skip

    def _swap(self, cut: str, depth: float) -> None:
        place = {"checkpoint": self.epochs[-1], "shallow": self.epochs[len(self.epochs) // 4], "layer": cut}
        place |= {"split": "test", "n": 500}
        for measure, value in {
            "swap_early_late": 0.7 + 0.24 * depth, "swap_late_early": 0.94 - 0.26 * depth,
            "swap_early": 0.94, "swap_late": 0.68,
        }.items():  # fmt: skip
            self.add("temporal", measure, value, 0.03, **place)

    def _trajectory(self, cut: str) -> None:
        label = np.arange(self.samples) % len(self.classes)
        angle = 2 * np.pi * label / len(self.classes)
        wander = self.random.normal(0, 0.25, (2, self.samples))
        for epoch, time in zip(self.epochs, self.time, strict=True):
            reach = 0.2 + 3 * np.sqrt(time)
            x = reach * np.cos(angle + time) + wander[0] * (1 + time)
            y = reach * np.sin(angle + time) + wander[1] * (1 + time)
            for sample in range(self.samples):
                self.add(
                    "temporal", "trajectory", x[sample], y=y[sample], sample=sample, label=label[sample],
                    checkpoint=epoch, layer=cut, split="test",
                )  # fmt: skip

    def repair(self) -> None:
        before = float(self.last[-1])
        for number, layer in enumerate(self.layers):
            for probe in self.probes[:2]:
                gain = self.noise * (0.65 - 0.15 * abs(number - 1) - (0.05 if probe == "masc" else 0))
                place = {
                    "checkpoint": self.epochs[-1],
                    "layer": layer,
                    "probe": probe,
                    "split": "test",
                    "n": 500,
                }
                self.add("repair", "accuracy_before", before, **place)
                self.add("repair", "accuracy_after", before + gain, **place)
                self.add("repair", "difference", gain, 0.035, **place)

    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows).reindex(columns=COLUMNS)

    def metrics(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "epoch": self.epochs, "test_accuracy": self.last, "train_accuracy": self.last - 0.02,
                "train_fit": 0.1 + 0.88 * self.time, "train_wrong_fit": 0.05 + 0.9 * self.time,
                "test_loss": 2.3 * (1.05 - self.last),
            }
        )  # fmt: skip


def verdict() -> list[dict[str, Any]]:
    """One sentence of each answer."""
    return [
        {
            "topic": "memorising", "answer": "yes", "numbers": {"peak": 0.948, "last": 0.664, "since": 12},
            "sentence": "It has memorised wrong labels since about epoch 12: test accuracy fell from 94.8 % to 66.4 %.",
            "rule": "test accuracy at the end lies below its peak, and the intervals do not overlap",
        },
        {
            "topic": "latent knowledge", "answer": "yes", "numbers": {"layer": "layer2", "gap": 0.27},
            "sentence": "Layer 2 still knows 27 points more than the output shows (VeLPIC, 93.6 %).",
            "rule": "the best layer's interval lies above the model's",
        },
        {
            "topic": "repair", "answer": "yes", "numbers": {"gain": 0.26, "low": 0.22, "high": 0.3},
            "sentence": "Writing that probe into the head would give back 22 to 30 points.",
            "rule": "the paired bootstrap interval of the difference lies above 0",
        },
        {
            "topic": "richness", "answer": "cannot tell", "numbers": {"d_lr": 0.16},
            "sentence": "Cannot tell whether training was rich or lazy: the interval spans both.",
            "rule": "rich below 0.1, lazy above 0.5",
        },
        {
            "topic": "collapsed", "answer": "no", "numbers": {"nc1": 0.67},
            "sentence": "The classes have not collapsed to their means.", "rule": "NC1 above 0.1",
        },
    ]  # fmt: skip


def facts(made: Synthetic, finished: bool = True) -> dict[str, Any]:
    """run.json of the made-up run."""
    return {
        "format": 1, "undertow": "0.1.0", "made": "2026-11-16T03:57:15+00:00",
        "config": {
            "model": "mlp:256-256-256", "data": "digits", "noise": str(made.noise), "train_size": None,
            "epochs": 60, "batch_size": 64, "optimiser": "adam", "lr": 0.001, "milestones": [], "shuffle": True,
            "greedy": False, "checkpoints": "every:4", "seed": 0, "seed_init": -1,
        },
        "model": {"spec": "mlp:256-256-256", "shape": [64], "outputs": 10},
        "data": {
            "name": "digits", "fingerprint": "7e69b9ca993f2c200271da3986a5d422", "classes": list(made.classes),
            "train": 1297, "test": 500,
        },
        "interventions": [], "versions": {"python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6"},
        "machine": "Linux x86_64", "finished": "2026-11-16T03:59:15+00:00" if finished else None, "ended": "",
    }  # fmt: skip


def write_suspects(folder: Path, classes: tuple[str, ...], count: int = 40) -> None:
    """A few blurred discs with a given, a proposed and a true label: every fifth time, the given one was right."""
    random = np.random.default_rng(5)
    sample = np.sort(random.choice(1000, count, replace=False))
    across, down = np.meshgrid(np.linspace(-1, 1, 28), np.linspace(-1, 1, 28))
    images = []
    for _ in sample:
        x, y, size = random.uniform(-0.4, 0.4, 3)
        images.append(255 * np.exp(-((across - x) ** 2 + (down - y) ** 2) / (0.12 + 0.1 * abs(size))))
    given = random.integers(0, len(classes), count)
    true = (given + (np.arange(count) % 5 > 0)) % len(classes)
    pd.DataFrame(
        {
            "sample": sample, "given": given, "proposed": (given + 1) % len(classes), "true": true,
            "score": np.linspace(0.9999, 0.6, count), "confidence": np.linspace(0.8, 0.5, count),
        }
    ).to_parquet(folder / "suspects.parquet")  # fmt: skip
    np.savez(folder / "suspects.npz", sample=sample, images=np.stack(images).astype(np.uint8))


def write_audit(folder: Path, made: Synthetic, lenses: tuple[str, ...], **changes: Any) -> Path:
    """Write the whole folder; `changes` go into audit.json."""
    folder.mkdir(parents=True, exist_ok=True)
    made.model()
    for lens in lenses:
        getattr(made, lens)()
    made.table().to_parquet(folder / "audit.parquet")
    made.metrics().to_parquet(folder / "metrics.parquet")
    (folder / "run.json").write_text(json.dumps(facts(made)))
    audit = {
        "format": 1, "undertow": "0.1.0", "made": "2026-11-16T04:10:00+00:00", "run": folder.name,
        "situation": "clean test labels known", "quick": False, "verdict": verdict(),
        "headline": "It learnt the digits, then memorised the wrong labels; layer 2 still knows better.",
        "measures": {}, "settings": {"variance": 0.99, "layers": list(made.layers)},
        "data": {"name": "digits", "classes": list(made.classes), "train": 1297, "test": 500},
    }  # fmt: skip
    (folder / "audit.json").write_text(json.dumps({**audit, **changes}))
    return folder


ALL = ("latent", "richness", "temporal", "repair")


@pytest.fixture(scope="session")
def make_audit() -> Callable[..., Path]:
    """A writer of synthetic audit folders; its options are those of Synthetic."""

    def make(
        folder: Path,
        *,
        lenses: tuple[str, ...] = ALL,
        suspects: bool = False,
        audit: dict[str, Any] | None = None,
        **shape: Any,
    ) -> Path:
        made = Synthetic(**shape)
        write_audit(folder, made, lenses, **(audit or {}))
        if suspects:
            write_suspects(folder, made.classes)
        return folder

    return make


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run that memorises wrong labels, as train, audit and labels write it; only read it."""
    import undertow as ut
    from undertow.labels.suspects import write_suspects as keep_suspects

    folder = tmp_path_factory.mktemp("runs") / "m40"
    run = ut.train(
        "mlp:96-96-96",
        folder,
        data="digits",
        noise=0.4,
        epochs=32,
        checkpoints="every:4",
        lr=0.004,
        device="cpu",
    )
    ut.audit(run, samples=600, matrix_samples=200)
    data = run.data()
    keep_suspects(ut.label_errors(run, data, checkpoints=(4, 8)), data.train.x, folder)
    return folder


@pytest.fixture(scope="session")
def trained(audited: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run before its audit."""
    folder = tmp_path_factory.mktemp("trained") / "m40"
    folder.mkdir()
    for name in ("run.json", "metrics.parquet"):
        shutil.copy(audited / name, folder / name)
    return folder


PATIENCE = 300_000
"""Milliseconds for a browser on a busy machine; nothing waits for them to pass."""


@pytest.fixture
def settled():
    """Waits until the page has drawn two more frames: what scrolling and resizing set off is done by then."""
    frames = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    return lambda page: page.evaluate(frames)


@pytest.fixture
def eventually():
    """Asks until the answer is as wanted; a page that never gets there fails."""

    def wait(page, ask):
        late = monotonic() + PATIENCE / 1000
        while not ask():
            assert monotonic() < late, "the page did not get there"
            page.wait_for_timeout(20)

    return wait


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium; tests that want it are skipped where it or playwright is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not path:
        pytest.skip("no chromium to open pages with")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--headless"], timeout=PATIENCE
        )
        yield chromium
        chromium.close()


class Visitor:
    """Opens pages and notes every complaint, dialog and request for anything that is not allowed."""

    def __init__(self, browser):
        self.browser, self.complaints = browser, []

    def open(self, address, *, width=1280, ready=".host svg", allowed=("file:", "data:", "blob:"), **options):
        context = self.browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        note = self.complaints.append
        page.on("console", lambda said: note(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: note(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(allowed) else note(asked.url))
        page.on("dialog", lambda dialog: (note("a dialog opened"), dialog.dismiss()))
        page.goto(address)
        page.wait_for_selector(ready)
        return page


@pytest.fixture(scope="module")
def visitor(browser):
    """Opens pages for all tests of a file."""
    return Visitor(browser)


@pytest.fixture
def no_complaints(visitor):
    """Fails the test in which a page complained."""
    yield
    seen = visitor.complaints.copy()
    visitor.complaints.clear()  # so that one complaint fails one test
    assert seen == []


@pytest.fixture
def visit(visitor):
    """Opens an address in a window of its own."""
    opened = []

    def open_page(address, **options):
        opened.append(visitor.open(address, **options))
        return opened[-1]

    yield open_page
    for page in opened:
        page.context.close()


@pytest.fixture(scope="module")
def report(audited, tmp_path_factory):
    """The address of the whole audit's page."""
    from undertow.report import write_report

    return write_report([audited], tmp_path_factory.mktemp("pages") / "report.html").as_uri()
