"""Streams: all samples once, in order, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from undertow.errors import BadData, BadValue
from undertow.features.stream import stream_features


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def samples(n=25):
    g = torch.Generator().manual_seed(0)
    return torch.randint(256, (n, 2, 3), generator=g, dtype=torch.uint8), torch.arange(n) % 3


def scaled(x):
    return x.float() / 255


@pytest.mark.parametrize("batch_size", [1, 7, 25, 100])
def test_batches_make_up_the_whole(batch_size):
    model, (x, _) = network(), samples()
    parts = list(stream_features(model, x, ["input", "3"], batch_size=batch_size, prepare=scaled))
    rows = torch.cat([torch.arange(25)[part.rows] for part in parts])
    assert rows.tolist() == list(range(25))
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([part.outputs for part in parts]), model(scaled(x)))
        features = torch.cat([part.features["3"] for part in parts])
        torch.testing.assert_close(features, model[:4](scaled(x)))
    assert torch.equal(torch.cat([part.features["input"] for part in parts]), scaled(x).flatten(1))


def test_between_batches_the_model_is_as_it_was():
    """Fails if a stream that is left half read keeps its hooks or the eval mode."""
    model, (x, _) = network().train(), samples()
    stream = stream_features(model, x, "3", batch_size=5, prepare=scaled)
    next(stream)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    model(scaled(x))  # the owner may even train on
    next(stream)
    assert model.training


def test_bad_requests_are_refused():
    model, (x, _) = network(), samples()
    with pytest.raises(BadValue, match="1 or more, got 0"):
        next(stream_features(model, x, "3", batch_size=0))
    with pytest.raises(BadValue, match="one tensor, got 'tuple'"):
        next(stream_features(model, (x,), "3", prepare=scaled))
    with pytest.raises(BadData, match="one length, at least 1, got"):
        next(stream_features(model, (x, x[:3]), "3"))


PEAK = """
import resource, sys, torch
from torch import nn
from undertow.features import FeatureStore, MomentsAccumulator, gram, project, stream_features
from undertow.features import wide
from undertow.latent.spectrum import eigenvectors_of_rows
torch.set_num_threads(1)
wide.READ_BYTES = 2**20
route, n = sys.argv[1], int(sys.argv[2])
g = torch.Generator().manual_seed(0)
x, y = torch.randn(n, 4, generator=g), torch.arange(n) % 10
width = 256 if route == "moments" else 4096
model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 10))
seen, store = MomentsAccumulator(256, 10), FeatureStore("1", y, 10)
for rows, _, features in stream_features(model, x, "1", batch_size=64):
    if route == "moments":
        seen.update(features["1"], y[rows])
    else:
        store.write(rows, features["1"])
for c in range(0 if route == "moments" else 3):
    part = store.rows(c)
    if route == "gram":
        project(part, gram(part)[:, :4])
    else:
        eigenvectors_of_rows(part, count=2)
store.close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.parametrize(
    ("route", "small", "features"),
    [("moments", 10_000, 92), ("gram", 1_000, 164), ("randomised", 1_000, 164)],
)
def test_peak_memory_stays_flat_while_samples_grow_tenfold(route, small, features, tmp_path):
    """Fails if features, batches or mapped files pile up: ten times the samples have `features` MB of them."""

    def peak(n):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-c", PEAK, route, str(n)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    few, many = peak(small), peak(10 * small)
    assert many - few < features / 4, (few, many)
