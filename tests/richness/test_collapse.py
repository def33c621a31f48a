"""Neural collapse against a direct computation, the paper's propositions, and hard cases."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import torch

from undertow.errors import BadData
from undertow.richness import NeuralCollapse, d_lr, neural_collapse

MEASURES = (
    "nc1", "nc1_stabilised", "trace_within", "nc2_equinorm", "nc2_equiangle", "nc2_etf", "nc3",
)  # fmt: skip


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unbalanced(classes=4, p=9, offset=3.0):
    labels = torch.tensor([c for c in range(classes) for _ in range(5 + 7 * c)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    features = draw(len(labels), p) * 0.3 + draw(classes, p, seed=2)[labels] + offset
    return features, labels, draw(classes, p, seed=3)


def direct(features, labels, weights, predictions):
    """Every measure in plain numpy, with full matrices and loops over classes."""
    x, y, w = features.numpy(), labels.numpy(), weights.numpy()
    classes, p = w.shape
    means = np.stack([x[y == c].mean(0) for c in range(classes)])
    within = sum(np.cov(x[y == c], rowvar=False, bias=True) for c in range(classes))
    off = means - means.mean(0)
    between = sum(np.outer(m, m) for m in off) / classes
    norms = np.linalg.norm(off, axis=1)
    angles = [
        abs(off[i] @ off[j] / norms[i] / norms[j] + 1 / (classes - 1))
        for i in range(classes)
        for j in range(classes)
        if i != j
    ]
    gram, simplex = off @ off.T, np.eye(classes) - 1 / classes
    nearest = [int(np.argmin([np.linalg.norm(row - m) for m in means])) for row in x]
    return {
        "nc1": np.trace(np.linalg.pinv(between, rcond=1e-12, hermitian=True) @ within),
        "nc1_stabilised": np.trace(np.linalg.inv(between + 1e-4 * np.eye(p)) @ within),
        "trace_within": np.trace(within),
        "nc2_equinorm": norms.std() / norms.mean(),
        "nc2_equiangle": np.mean(angles),
        "nc2_etf": np.linalg.norm(gram / np.linalg.norm(gram) - simplex / np.linalg.norm(simplex)),
        "nc3": np.mean(
            [np.linalg.norm(w[c] / np.linalg.norm(w[c]) - off[c] / norms[c]) for c in range(classes)]
        ),
        "nc4": np.mean(np.array(nearest) == predictions.numpy()),
    }


@pytest.mark.parametrize(("classes", "p"), [(4, 9), (2, 3), (6, 3)])
def test_all_measures_against_a_direct_computation(classes, p):
    """Fails if classes are weighted by their size, or Sigma_b lacks its 1/C."""
    features, labels, weights = unbalanced(classes, p)
    predictions = labels.roll(3)
    wanted = direct(features, labels, weights, predictions)
    found = neural_collapse(features, labels, weights, predictions=predictions)
    for name, value in wanted.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name
    assert (found.count, found.classes) == (len(labels), classes)
    outputs = torch.nn.functional.one_hot(predictions, classes).double()
    assert neural_collapse(features.numpy(), labels.numpy(), predictions=outputs.numpy()).nc4 == found.nc4


def streamed(features, labels, classes, cut):
    """Two batches, of which the second was gathered elsewhere."""
    first, second = (NeuralCollapse(classes, labels.bincount()) for _ in range(2))
    first.update(features[:cut], labels[:cut])
    second.update(features[cut:], labels[cut:])
    return first.merge(second)


def test_moments_give_the_same_numbers():
    features, labels, weights = unbalanced()
    wanted = asdict(neural_collapse(features, labels, weights))
    found = streamed(features, labels, 4, 20).compute(weights)
    for name in MEASURES:
        assert getattr(found, name) == pytest.approx(wanted[name], rel=1e-10), name
    assert found.nc4 is None
    assert "nc4 needs the samples" in found.note


def test_means_that_lie_close_together_are_told_apart():
    """Fails for distances through products of rows as they come: 30 means 1e-7 apart at an offset of 10."""
    means = 10 + 1e-7 * draw(30, 8)
    labels = torch.arange(90) % 30
    features = means[labels] + 1e-10 * draw(90, 8, seed=1)
    assert neural_collapse(features, labels, predictions=labels).nc4 == 1
    assert neural_collapse(features, labels, predictions=labels.roll(1)).nc4 == 0


@pytest.mark.parametrize(("a1", "a2"), [(0.5, 2.0), (30.0, 0.1)])
def test_propositions_1_and_2(a1, a2):
    """T = T_MP on balanced classes: D_LR and NC1 are 0, and the means are a simplex of the stated size."""
    classes, each, p = 5, 8, 12
    onehot = torch.eye(classes, dtype=torch.float64).repeat(each, 1)
    n = classes * each
    # Over samples: <f|g> = f.g/n, so the projection on one-hot functions is C/n onehot onehot^T.
    roots = torch.cat([torch.full((n, 1), a1**0.5, dtype=torch.float64), (a2 * classes) ** 0.5 * onehot], 1)
    features = roots @ torch.linalg.qr(draw(p, p)).Q[: classes + 1]
    operator = features @ features.T / n
    ones = torch.ones(n, n, dtype=torch.float64) / n
    torch.testing.assert_close(operator, a1 * ones + a2 * classes / n * onehot @ onehot.T, rtol=0, atol=1e-12)

    found = neural_collapse(features, onehot.argmax(1), predictions=onehot)
    assert d_lr(features, onehot) == pytest.approx(0, abs=1e-12)
    assert found.nc1 == pytest.approx(0, abs=1e-12)
    assert found.trace_within == pytest.approx(0, abs=1e-12)
    assert found.nc2_etf == pytest.approx(0, abs=1e-12)
    assert found.nc2_equinorm == pytest.approx(0, abs=1e-12)
    assert found.nc2_equiangle == pytest.approx(0, abs=1e-12)
    assert found.nc4 == 1
    # Eq. 56: products of the centred means are C a2 (delta - 1/C).
    means = torch.stack([features[onehot[:, c] > 0].mean(0) for c in range(classes)])
    off = means - means.mean(0)
    simplex = torch.eye(classes, dtype=torch.float64) - 1 / classes
    torch.testing.assert_close(off @ off.T, classes * a2 * simplex, rtol=0, atol=1e-10)


def test_weights_along_the_means_are_self_dual():
    features, labels, _ = unbalanced()
    means = torch.stack([features[labels == c].mean(0) for c in range(4)])
    sizes = torch.tensor([1.0, 5, 0.1, 2]).double()[:, None]
    assert neural_collapse(features, labels, (means - means.mean(0)) * sizes).nc3 == pytest.approx(
        0, abs=1e-12
    )
    assert neural_collapse(features, labels, -(means - means.mean(0))).nc3 == pytest.approx(2, rel=1e-12)


def test_scale_changes_only_what_has_units():
    features, labels, weights = unbalanced()
    small, large = neural_collapse(features, labels, weights), neural_collapse(10 * features, labels, weights)
    for name in MEASURES:
        factor = {"trace_within": 100, "nc1_stabilised": large.nc1_stabilised / small.nc1_stabilised}
        assert getattr(large, name) == pytest.approx(getattr(small, name) * factor.get(name, 1), rel=1e-9), (
            name
        )


@pytest.mark.parametrize("route", ["features", "moments"])
@pytest.mark.parametrize(
    ("features", "labels", "classes", "message"),
    [
        (draw(6, 2), [0] * 6, 1, "two classes or more, got one"),
        (draw(6, 2), [0, 2, 0, 2, 0, 2], 3, "got none of class 1"),
        (draw(3, 2), [0, 1, 2], 3, "got one of each"),
        (torch.ones(6, 2), [0, 1] * 3, 2, "got means that coincide"),
        (torch.zeros(6, 2), [0, 1] * 3, 2, "got means that coincide"),
        (draw(6, 2) * torch.nan, [0, 1] * 3, 2, "NaN or infinity in 6 of 6 rows"),
        (draw(6, 2), [0, 1, 0, 1, 0, 5], 2, "got 5 at row 5"),
    ],
    ids=["one class", "empty class", "one each", "constant", "zeros", "nan", "label"],
)
def test_degenerate_classes_are_refused_in_words(features, labels, classes, message, route):
    labels = torch.tensor(labels)

    if route == "moments" and classes < 2:
        pytest.skip("refused before any sample: test_streaming.py")

    def moments_first(features, labels, classes):
        metric = NeuralCollapse(classes)
        metric.update(features, labels)
        return metric.compute()

    measure = neural_collapse if route == "features" else moments_first
    with pytest.raises(BadData, match=message):
        measure(features, labels, classes=classes)


def test_what_has_no_value_says_why():
    line = torch.tensor([[-1.0, 0], [0, 0], [1, 0]]).double().repeat(4, 1)
    labels = torch.arange(3).repeat(4)
    found = neural_collapse(line, labels, torch.ones(3, 2))
    assert found.nc2_equiangle is None
    assert found.nc3 is None
    assert "it has no angle" in found.note
    assert "no nc3" in found.note
    single = neural_collapse(draw(5, 1), torch.tensor([0, 0, 1, 1, 2]))
    assert (
        single.note
        == "1 classes have one sample and no spread; 1 features cannot hold the simplex of 3 classes"
    )
    with pytest.raises(BadData, match=r"wanted weights of shape \(3, 2\)"):
        neural_collapse(line, labels, torch.ones(2, 3))
    with pytest.raises(BadData, match="whole-number labels"):
        neural_collapse(line, labels.double())
