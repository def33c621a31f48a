"""The same job by others, each with its best setting, and by us: processor seconds of one thread.

    python bench/peers.py                                 # all; Datalab takes minutes
    python bench/peers.py --part logistic       # probes, knn, logistic, cka, layers, collapse, labels or datalab
    python bench/peers.py --part datalab --count 50000

Rows of 512 features in float32, 10,000 of them. faiss, pytorch-cka, torch-cka and neural-collapse are measured where
they are installed. Whoever
converges is asked for the same minimum with the same tolerance.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

import undertow as ut
from _ratio import machine
from undertow.latent import KNN, LogisticProbe
from undertow.latent.layer import PROBES
from undertow.richness.similarity import cka

TITLES = ["what", "peer", "peer s", "ours s", "ratio", "floor s", "share of the floor"]
Row = list[str]
L2 = 1e-4


def seconds(work: Callable[[], object], rounds: int = 1) -> float:
    """The least processor seconds of some rounds."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def row(
    what: str, ours: float, peer: str = "", theirs: float | None = None, floor: float | None = None
) -> Row:
    ratio = "" if theirs is None else f"{theirs / ours:.1f}x"
    share = "" if floor is None else f"{100 * floor / ours:.0f} %"
    numbers = [f"{one:.3g}" if one is not None else "" for one in (theirs, ours)]
    return [what, peer, *numbers, ratio, "" if floor is None else f"{floor:.3g}", share]


def drawn(classes: int, count: int = 10_000, dim: int = 512) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (count,), generator=draw)
    return torch.randn(count, dim, generator=draw) + 0.3 * torch.randn(classes, dim, generator=draw)[y], y


def probes() -> list[Row]:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import NearestCentroid

    x, y = drawn(100)
    rows, labels = x.numpy(), y.numpy()

    def best(*models: object) -> float:
        return min(seconds(lambda one=one: one.fit(rows, labels).predict(rows[:2000])) for one in models)  # pyright: ignore

    def ours(name: str) -> float:
        return seconds(lambda: PROBES[name]().fit(x, y).predict(x[:2000]), 2)

    lda = best(*(LinearDiscriminantAnalysis(solver=solver) for solver in ("svd", "lsqr", "eigen")))
    return [
        row("LDA, 10,000 x 512, 100 classes, fitted and 2,000 answers", ours("lda"), "scikit-learn", lda),
        row("nearest mean, the same", ours("mean"), "scikit-learn", best(NearestCentroid())),
    ]


def knn() -> list[Row]:
    from sklearn.neighbors import KNeighborsClassifier

    (x, y), found = drawn(100), list[Row]()
    rows, labels, asked = x.numpy(), y.numpy(), x[:2000]
    for metric in ("cosine", "euclidean"):
        ours = seconds(lambda m=metric: KNN(5, m).fit(x, y).predict(asked), 2)
        peer = KNeighborsClassifier(5, metric=metric, algorithm="brute")
        theirs = seconds(lambda p=peer: p.fit(rows, labels).predict(rows[:2000]), 2)
        found.append(row(f"kNN, {metric}, k = 5, 2,000 asked of 10,000 x 512", ours, "scikit-learn", theirs))
    if find_spec("faiss"):
        import faiss  # pyright: ignore

        faiss.omp_set_num_threads(1)

        def search() -> None:
            index = faiss.IndexFlatL2(512)
            index.add(rows)
            index.search(rows[:2000], 5)

        found.append(row("... euclidean again", ours, "faiss", seconds(search, 2)))
    sets = [y, y.flip(0), y.roll(1)]

    def thrice() -> None:
        KNN.predict_each(KNN(5).fit_each(x, sets), asked)

    once = seconds(lambda: KNN(5).fit(x, y).predict(asked), 2)
    return [*found, row("... cosine with three sets of labels", seconds(thrice, 2), "one set", once)]


def logistic(several: tuple[int, ...] = (10, 100)) -> list[Row]:
    """Features as layers have them: not centred, of unequal spread; three tenths of the labels are drawn anew."""
    from sklearn.linear_model import LogisticRegression

    found: list[Row] = []
    for classes in several:
        x, y = drawn(classes)
        x = x * torch.logspace(0.5, -1.5, 512) + 1
        draw = torch.Generator().manual_seed(1)
        anew = torch.rand(len(y), generator=draw) < 0.3
        y = torch.where(anew, torch.randint(classes, (len(y),), generator=draw), y)
        ours = LogisticProbe("lbfgs", l2=L2)
        theirs = LogisticRegression(C=1 / (L2 * len(y)), tol=1e-4, max_iter=1000)
        with warnings.catch_warnings(action="ignore"):
            own = seconds(lambda o=ours, x=x, y=y: o.fit(x, y))
            other = seconds(lambda t=theirs, x=x, y=y: t.fit(x.numpy(), y.numpy()))
        ended = f"{ours.n_iter_} and {int(theirs.n_iter_[0])} iterations"
        words = f"converged logistic, 10,000 x 512, {classes} classes ({ended}; scikit-learn stops at 1,000)"
        found.append(row(words, own, "scikit-learn", other))
    return found


def plain_cka(a: Tensor, b: Tensor) -> float:
    a, b = a - a.mean(0), b - b.mean(0)
    sizes = torch.linalg.matrix_norm(a.T @ a) * torch.linalg.matrix_norm(b.T @ b)
    return float((a.T @ b).square().sum() / sizes)


def cka_pair() -> list[Row]:
    a, _ = drawn(10)
    b = torch.tanh(a @ torch.randn(512, 512, generator=torch.Generator().manual_seed(1)) / 512**0.5)
    exact = plain_cka(a.double(), b.double())
    off = [abs(found - exact) for found in (cka(a, b), plain_cka(a, b))]
    words = f"CKA of one pair, 10,000 x 512 (off by {off[0]:.0e}; plain by {off[1]:.0e})"
    return [
        row(words, seconds(lambda: cka(a, b), 3), "plain float32 torch", seconds(lambda: plain_cka(a, b), 3))
    ]


def layers() -> list[Row]:
    """Four layers of two networks, all pairs, passes included; both packages average over batches of 256."""
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from undertow.features.stream import stream_features
    from undertow.richness.similarity import KnownKernel, cka_of

    torch.manual_seed(0)
    wide = [part for at in range(4) for part in (nn.Linear(512 if at else 64, 512), nn.ReLU())]
    nets = [nn.Sequential(*copy.deepcopy(wide), nn.Linear(512, 10)) for _ in range(2)]
    for part in nets[1].parameters():
        part.data += 0.02 * torch.randn_like(part)
    x, names = torch.randn(10_000, 64), ["1", "3", "5", "7"]

    def ours() -> None:
        kernels = [
            [KnownKernel.of(torch.cat([one.features[name] for one in parts])) for name in names]
            for parts in (list(stream_features(net, x, names)) for net in nets)
        ]
        for first in kernels[0]:
            for second in kernels[1]:
                cka_of(first, second)

    def loader() -> DataLoader[Any]:
        return DataLoader(TensorDataset(x), batch_size=256)

    own, found = seconds(ours, 2), list[Row]()
    if find_spec("cka"):
        import cka as pytorch_cka  # pyright: ignore

        theirs = seconds(lambda: pytorch_cka.compute_cka(*nets, loader(), layers=names, progress=False), 2)
        found.append(row("CKA of 4 x 4 layers with passes, all samples at once", own, "pytorch-cka", theirs))
    if find_spec("torch_cka"):
        from torch_cka import CKA  # pyright: ignore

        def theirs() -> None:
            with torch.no_grad():
                CKA(*nets, "a", "b", names, names).compare(loader(), loader())

        found.append(row("... the same", own, "torch-cka", seconds(theirs)))
    return found


def collapse() -> list[Row]:
    """NC1 to NC4 of one layer."""
    if not find_spec("neural_collapse"):
        return []
    from neural_collapse import accumulate, measure  # pyright: ignore

    from undertow.richness.collapse import neural_collapse

    x, y = drawn(10)
    head = torch.randn(10, 512, generator=torch.Generator().manual_seed(2))

    def ours() -> None:
        neural_collapse(x, y, weights=head, predictions=(x @ head.T).argmax(1))

    def theirs() -> None:
        first = accumulate.MeanAccumulator(10, 512)
        for rows, own in zip(x.split(512), y.split(512), strict=True):
            first.accumulate(rows, own)
        means, centre = first.compute()
        within = accumulate.CovarAccumulator(10, 512, M=means)
        nearest = accumulate.DecAccumulator(10, 512, M=means, W=head)
        nearest.create_index(means)
        for rows, own in zip(x.split(512), y.split(512), strict=True):
            within.accumulate(rows, own, means)
            nearest.accumulate(rows, own, means, head)
        measure.variability(means, within.compute(), centre)
        measure.mean_norms(means, centre)
        measure.interference(means, centre)
        measure.simplex_etf_error(means, centre)
        measure.alignment_error(head, means, centre)

    return [
        row("NC1 to NC4, 10,000 x 512, 10 classes", seconds(ours, 3), "neural-collapse", seconds(theirs, 3))
    ]


def noisy(count: int, classes: int, dim: int = 128, apart: float = 0.6) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (count,), generator=draw)
    x = apart * torch.randn(classes, dim, generator=draw)[y] + torch.randn(count, dim, generator=draw)
    wrong = torch.rand(count, generator=draw) < 0.2
    return x, torch.where(wrong, torch.randint(classes, (count,), generator=draw), y)


def label_growth(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    """`label_errors` of features: grows with samples and classes, not faster."""
    found: list[Row] = []
    for count, classes in sizes:
        x, y = noisy(count, classes)
        spent = seconds(lambda x=x, y=y: ut.label_errors(features=x, labels=y))
        found.append(row(f"label_errors of features, {count:,} x 128, {classes} classes", spent))
    return found


def labels() -> list[Row]:
    return label_growth(((12_500, 30), (12_500, 100), (12_500, 200), (25_000, 100), (50_000, 100)))


def datalab(count: int = 50_000, classes: int = 100) -> list[Row]:
    """Wrong labels from features alone, as cleanlab's Datalab finds them; average precision of both."""
    from cleanlab import Datalab
    from sklearn.metrics import average_precision_score

    x, y = noisy(count, classes, apart=0.25)  # classes overlap: at 0.6 both find all but a few
    truth = torch.randint(classes, (count,), generator=torch.Generator().manual_seed(0))
    wrong = (y != truth).numpy()
    kept: dict[str, object] = {}

    def ours() -> None:
        kept["ours"] = ut.label_errors(features=x, labels=y).found.scores.numpy()

    def theirs() -> None:
        lab = Datalab({"y": y.tolist()}, label_name="y", verbosity=0)
        lab.find_issues(features=x.numpy(), issue_types={"label": {}})
        kept["theirs"] = 1 - lab.get_issues("label")["label_score"].to_numpy()

    own, other = seconds(ours), seconds(theirs)
    ap = [average_precision_score(wrong, kept[name]) for name in ("ours", "theirs")]
    words = f"wrong labels from features, {count:,} x 128, {classes} classes (AP {ap[0]:.3f} and {ap[1]:.3f})"
    return [row(words, own, "cleanlab Datalab", other)]


PARTS: dict[str, Callable[[], list[Row]]] = {
    "probes": probes, "knn": knn, "logistic": logistic, "cka": cka_pair, "layers": layers,
    "collapse": collapse, "labels": labels, "datalab": datalab,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--count", type=int, default=50_000, help="samples for Datalab")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"Processor seconds of one thread ({machine()}).\n")
    for part in [asked.part] if asked.part else PARTS:
        for one in datalab(asked.count) if part == "datalab" else PARTS[part]():
            print(f"| {' | '.join(one)} |", flush=True)


if __name__ == "__main__":
    main()
