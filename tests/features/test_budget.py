"""Sizes, estimates and the choice of a route."""

from __future__ import annotations

import subprocess
import sys

import pytest

from undertow.errors import BadValue
from undertow.features.budget import choose_route, estimate_memory
from undertow.sizes import parse_size

TEN = [1000] * 10


@pytest.mark.parametrize(
    ("n_per_class", "dim", "budget", "kind"),
    [
        (TEN, 512, "2GB", "moments"),
        (TEN, 2048, "2GB", "gram"),
        (TEN, 16384, "2GB", "gram"),
        ([6000] * 10, 2048, "2GB", "moments"),
        ([6000] * 10, 2048, "300MB", "randomised"),
        ([6000] * 10, 16384, "3GB", "gram"),
        ([60_000] * 10, 16384, "3GB", "randomised"),
        ([600] * 200, 4096, "2GB", "gram"),
    ],
)
def test_routes(n_per_class, dim, budget, kind):
    route = choose_route(n_per_class, dim, budget)
    assert route.kind == kind
    assert route.estimate.total <= parse_size(budget)
    assert f"{dim:,} features" in route.reason
    assert "memory" in route.reason


def test_the_reason_tells_what_was_passed_over():
    reason = choose_route([60_000] * 10, 16384, "3GB").reason
    assert "moments would take" in reason
    assert "gram would take" in reason


def test_a_budget_below_everything_is_refused_with_the_least_that_would_do():
    with pytest.raises(BadValue, match=r"at least \d.* for a layer of 16,384 features.* got '1.0 MB'"):
        choose_route(TEN, 16384, "1MB")


def test_estimates_count_the_state_that_is_really_there():
    """335 MB of scatter at d = 2048 and ten classes, n * D * 4 bytes of stored features."""
    assert estimate_memory("moments", TEN, 2048).held >= 10 * 2048**2 * 8
    assert estimate_memory("gram", TEN, 16384).stored == 10_000 * 16384 * 4
    assert estimate_memory("gram", TEN, 16384).total < 2**30


def test_sizes_need_no_torch():
    code = "import sys, undertow.features as f; f.choose_route([10], 4, '1GB'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
