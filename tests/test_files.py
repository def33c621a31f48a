"""Writing aside: whole or not at all, by any number of writers, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import undertow as ut
from undertow import files
from undertow.errors import RunProblem
from undertow.files import aside, is_unfinished, sweep, together, write_text

HOLD = """
import sys
from pathlib import Path
from undertow.files import aside
with aside(Path(sys.argv[1])) as part:
    part.write_text("half")
    print("writing", flush=True)
    sys.stdin.readline()
    part.write_text("whole")
"""


def writer(path: Path) -> subprocess.Popen:
    """A process in the middle of writing `path`."""
    made = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert made.stdout.readline() == "writing\n"
    return made


def unfinished(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if is_unfinished(path)]


def test_what_a_dead_writer_left_goes_and_what_a_live_one_needs_stays(tmp_path: Path):
    """Fails if leftovers are told by a process number, which another container may share."""
    dead, live = writer(tmp_path / "a.txt"), writer(tmp_path / "b.txt")
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    dead.communicate()
    before = len([path for path in tmp_path.iterdir() if is_unfinished(path)])
    sweep(tmp_path)
    assert (before, len([path for path in tmp_path.iterdir() if is_unfinished(path)])) == (2, 1)
    live.communicate("\n")
    assert live.returncode == 0
    assert (tmp_path / "b.txt").read_text() == "whole"
    assert not unfinished(tmp_path)


def test_the_next_write_sweeps_by_itself(tmp_path: Path):
    dead = writer(tmp_path / "a.txt")
    dead.kill()
    dead.communicate()
    write_text(tmp_path / "c.txt", "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c.txt"]


def test_writers_with_one_process_number_do_not_tear_each_others_files(tmp_path: Path, monkeypatch):
    """As two containers on a shared folder: names by process number alone tore a quarter of such writes."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    failed: list[str] = []

    def work(letter: str) -> None:
        for _ in range(100):
            write_text(tmp_path / "shared.txt", letter * 10_000)
            seen = (tmp_path / "shared.txt").read_text()
            if len(seen) != 10_000 or len(set(seen)) != 1:
                failed.append(seen[:10])

    threads = [threading.Thread(target=work, args=(letter,), daemon=True) for letter in "abcd"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    assert not unfinished(tmp_path)


def test_a_kill_before_the_first_rename_does_not_block_the_folder(tmp_path: Path):
    """Fails if the leftover makes the folder count as not empty for ever."""
    run = tmp_path / "run"
    dead = writer(run / "run.json")
    dead.kill()
    dead.communicate()
    assert unfinished(run)
    done = ut.train("mlp:4", run, data="digits", epochs=0, train_size=50, test_size=50)
    assert done.epochs == (0,)
    assert not unfinished(run)


def test_someone_elses_files_still_block_it(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("mine")
    with pytest.raises(RunProblem, match="not empty and holds no run"):
        ut.train("mlp:4", tmp_path / "run", data="digits", epochs=0, train_size=50, test_size=50)


def test_resuming_leaves_another_writer_alone(tmp_path: Path):
    """Fails if --resume deletes every unfinished file that it meets."""
    settings = {"data": "digits", "epochs": 0, "train_size": 50, "test_size": 50}
    ut.train("mlp:4", tmp_path / "run", **settings)
    live = writer(tmp_path / "run" / "notes.txt")
    ut.train("mlp:4", tmp_path / "run", resume=True, **settings)
    live.communicate("\n")
    assert live.returncode == 0
    assert (tmp_path / "run" / "notes.txt").read_text() == "whole"


def test_names_as_long_as_the_system_allows(tmp_path: Path):
    """255 bytes, spaces, a newline and letters that are no UTF-8: a prefix before the name would be too long."""
    for name in ("x" * 255, "a b", "a\nb", "ä" * 127, os.fsdecode(b"caf\xe9")):
        write_text(tmp_path / name, "here")
        assert (tmp_path / name).read_text() == "here"
    assert not unfinished(tmp_path)


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path):
    write_text(tmp_path / "a", "old")

    def fail() -> None:
        with aside(tmp_path / "a") as part:
            part.write_text("new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (tmp_path / "a").read_text() == "old"
    assert not unfinished(tmp_path)


def test_files_that_belong_together_are_written_by_one_at_a_time(tmp_path: Path):
    """Fails if two searches leave the table of one beside the pictures of the other."""

    def work(letter: str) -> None:
        for _ in range(50):
            with together(tmp_path):
                write_text(tmp_path / "one", letter)
                write_text(tmp_path / "two", letter)

    threads = [threading.Thread(target=work, args=(letter,), daemon=True) for letter in "ab"]
    for one in threads:
        one.start()
    seen = []
    while any(one.is_alive() for one in threads):
        if (tmp_path / "two").exists():
            with together(tmp_path):
                seen.append({(tmp_path / name).read_text() for name in ("one", "two")})
    assert seen
    assert all(len(own) == 1 for own in seen)


def test_a_writer_that_never_ends_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files, "WAIT", 0.0)
    with (
        together(tmp_path),
        pytest.raises(RunProblem, match=r"another process has held it.*End that process"),
        together(tmp_path),
    ):
        pass
    with together(tmp_path):
        write_text(tmp_path / "one", "free again")


def test_a_folder_that_vanishes_while_it_is_written_is_said(tmp_path: Path):
    """Fails if the folder is made anew: half a run, and an exit code that says all is well."""
    import shutil

    from torch import nn

    recorder = ut.Recorder(tmp_path / "run")
    recorder.save(nn.Linear(2, 2), 0)
    recorder.do(lambda: shutil.move(tmp_path / "run", tmp_path / "elsewhere"))
    with pytest.raises(RunProblem, match="moved or deleted while its run was written"):
        recorder.close()
    assert not (tmp_path / "run").exists()
    assert ut.open_run(tmp_path / "elsewhere").epochs == (0,)
