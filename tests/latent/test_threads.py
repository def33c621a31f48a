"""Classes side by side: the same answers, and torch's number of threads as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread, get_ident

import pytest
import torch

from undertow.latent import MASC, VeLPIC, subspace
from undertow.latent.threads import in_groups, side_by_side

CPU = torch.device("cpu")
PATIENCE = 300
"""Seconds at most for a thread to begin: a busy machine takes some."""


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(("parts", "each"), [(2, 2), (3, 1), (9, 1)])
def test_order_is_kept_and_threads_are_shared_out(parts: int, each: int) -> None:
    """Fails if workers take all maths threads each, which is many times slower than one after the other."""
    said = side_by_side(lambda part: (part, torch.get_num_threads(), get_ident()), range(parts), CPU)
    assert [part for part, _, _ in said] == list(range(parts))
    assert {count for _, count, _ in said} == {each}
    assert get_ident() not in {ident for _, _, ident in said}
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_a_failure_is_passed_on_and_the_number_put_back() -> None:
    def fail(part: int) -> int:
        return 1 // part

    for _ in range(2):  # a lock that is not let go would hide the second
        with pytest.raises(ZeroDivisionError):
            side_by_side(fail, [1, 0, 2], CPU)
        assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_a_second_caller_meanwhile_changes_nothing() -> None:
    """Fails if two callers put back each other's number: the second would leave 1 behind."""
    started, go_on = Event(), Event()

    def wait(_: int) -> bool:
        started.set()
        return go_on.wait(PATIENCE)

    first = Thread(target=side_by_side, args=(wait, [0, 1], CPU))
    first.start()
    assert started.wait(PATIENCE)
    here = side_by_side(lambda _: get_ident(), range(3), CPU)
    go_on.set()
    first.join()
    assert set(here) == {get_ident()}
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("each", [100, 500])  # fewer rows than dimensions; or more, and classes in groups
def test_masc_is_the_same_and_has_no_gradients(each: int) -> None:
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(4 * each, 300, generator=draw, dtype=torch.float64) / torch.arange(1, 301)
    labels = torch.arange(4 * each) % 4
    together = MASC().fit(rows.requires_grad_(), labels)
    torch.set_num_threads(1)
    alone = MASC().fit(rows.detach(), labels)
    torch.testing.assert_close(together.scores(rows), alone.scores(rows), rtol=1e-9, atol=1e-12)
    assert not together.basis_.requires_grad


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("probe", [MASC(), VeLPIC()])
def test_groups_of_classes_are_as_one_class_after_the_other(
    probe: MASC | VeLPIC, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if a group mixes its classes up; class sizes differ, and one class is all zeros."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(7).repeat_interleave(torch.tensor([400, 500, 301, 600, 350, 420, 310]))
    rows = torch.relu(torch.randn(len(labels), 300, generator=draw) + labels[:, None] / 4)
    rows[labels == 3] = 0
    together = probe.fit(rows, labels).decision_function(rows)
    monkeypatch.setattr(subspace, "SHORT", range(0))
    alone = probe.fit(rows, labels).decision_function(rows)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("four_threads")
def test_groups_give_every_thread_one() -> None:
    assert [list(group) for group in in_groups(range(10))] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert {len(group) for group in in_groups(range(100))} == {5}
    assert [list(group) for group in in_groups(range(2))] == [[0], [1]]
    assert in_groups([]) == []
