"""Tables that lie in memory or on disk: the same numbers, and less memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
import torch

from undertow.errors import RunProblem
from undertow.labels.judge import judge_labels
from undertow.labels.shelf import MOST_ROWS, TABLES, Shelf, slices
from undertow.labels.views import View


def test_a_table_on_disk_keeps_what_was_written_when_its_pages_leave_the_memory():
    shelf = Shelf(on_disk=True)
    table, wanted = shelf.table(5000, 37), torch.randn(5000, 37)
    table.copy_(wanted)
    shelf.rest()
    assert table.equal(wanted)
    table[7] = 3.0
    shelf.rest()
    assert table[7].eq(3).all()
    assert shelf.argmax(table).equal(table.argmax(1))


def test_a_shelf_goes_to_other_processes_without_its_files():
    shelf = Shelf(on_disk=True)
    table = shelf.table(10, 10)
    there = pickle.loads(pickle.dumps(shelf))
    assert there.on_disk
    there.rest()
    assert len(there.table(*table.shape)) == 10


def test_tables_go_to_disk_where_all_of_them_do_not_fit():
    assert not Shelf.of(1000, 10, room=TABLES * 40_000).on_disk
    assert Shelf.of(1000, 10, room=TABLES * 40_000 - 1).on_disk


@pytest.mark.parametrize("columns", [1, 10, 1000, 50_000])
def test_blocks_hold_every_row_once(columns):
    rows = [row for block in slices(40_001, columns) for row in range(40_001)[block]]
    assert rows == list(range(40_001))
    assert max(block.stop - block.start for block in slices(40_001, columns)) <= MOST_ROWS


@pytest.mark.parametrize("step", [1, 3, 7, 40_000])
def test_every_few_rows_are_those_of_the_whole_table(step):
    table = torch.arange(40_001)[:, None].expand(-1, 300)
    assert Shelf().every(table, step)[:, 0].equal(table[::step, 0])
    assert Shelf().mean(table.double()).equal(table.double().mean(0))


def test_a_full_disk_is_said_before_anything_is_computed(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunProblem, match=r"wanted 4\.0 MB on disk .*No space left.*TMPDIR"):
        Shelf(on_disk=True).table(1000, 1000)


def test_answers_are_the_same_on_disk_and_in_memory(blobs, flipped):
    """Voters of every part: inputs, neighbours, a late layer and the network's answers; some labels are missing."""
    rows, true = blobs([150] * 6, apart=1.2)
    given = flipped(true, 0.25, 6)
    given[::19] = -1
    views = [View(rows=rows), View("layer1", 9, rows=rows.relu())]
    answers = [(9.0, 3 * torch.nn.functional.one_hot(given.clamp(min=0), 6).float() + rows[:, :6])]
    likely = (rows[:, :6] / 2).softmax(1)
    one, other = (judge_labels(given, 6, views, answers, [likely], room=room) for room in (10**9, 1))
    assert other.shelf.on_disk
    assert not one.shelf.on_disk
    assert one.scores.equal(other.scores)
    assert one.proposed.equal(other.proposed)
    assert one.pred_probs.equal(other.pred_probs)
    assert one.beliefs.equal(other.beliefs)
    assert one.belief_in(true).equal(one.beliefs.gather(1, true[:, None])[:, 0])
    assert one.rate == other.rate


@pytest.mark.slow
def test_memory_does_not_grow_with_samples_by_classes():
    """Measured in a process of its own: tables of 80,000 x 500 take 160 MB each, and seven of them 1.1 GB."""
    code = (
        "import resource, torch; from undertow.labels.judge import View, judge_labels;"
        "g = torch.Generator().manual_seed(0); y = torch.randint(0, 500, (80_000,), generator=g);"
        "x = 1.5 * torch.randn(500, 32, generator=g)[y] + torch.randn(80_000, 32, generator=g);"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "judge_labels(y, 500, [View('a', rows=x), View('b', 9, rows=x + 1)], room=10**8).proposed;"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * unit < 6e8
