"""An audit on a real Ray cluster of two nodes: the numbers of one process, though a node and the driver are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

import undertow as ut
from undertow.session import Session
from undertow.session.look import Look
from undertow.session.portable import Portable

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'undertow[ray]'")

MODULE = "undertow_slow_net"
SOURCE = '''
"""A network in float64 that tells when it is run, and where."""
import os
import time
from dataclasses import dataclass
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import Dataset
from undertow.errors import BadData

class SlowNet(nn.Module):
    least = 205  # whole splits, not the few samples that are tried or followed

    def __init__(self):
        super().__init__()
        self.register_buffer("number", torch.tensor(-1))
        self.layer1 = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Linear(24, 16), nn.ReLU())
        self.head = nn.Linear(16, 3)
        self.double()

    def forward(self, x):
        log, gate = os.environ.get("SLOW_LOG"), os.environ.get("SLOW_GATE")
        if log and len(x) > self.least:
            with Path(log).open("a") as lines:
                lines.write(f"{int(self.number)} {os.getsid(0)}\\n")
            # Later checkpoints wait: the node is killed in the middle.
            while int(self.number) >= 2 and not Path(gate).exists():
                time.sleep(0.02)
        return self.head(self.layer2(self.layer1(x.double())))

class ShardNet(SlowNet):
    least = 60

@dataclass(frozen=True)
class Number:
    """A job."""
    own: int
    bad: int = -1
    def __call__(self, session):
        if self.own == self.bad:
            raise BadData(f"no number {self.own}.")
        return self.own**2

@dataclass(frozen=True)
class Where:
    """A job: which process has it, which GPU Ray gave to that, and where models go; waits until two have one."""
    meeting: str
    number: int
    def __call__(self, session):
        place = Path(self.meeting)
        (place / str(self.number)).touch()
        while len(list(place.iterdir())) < 2:
            time.sleep(0.02)
        return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES"), str(session.config.device)

class Rows(Dataset):
    """Samples of a file, one by one."""
    def __init__(self, path, split):
        self.x, self.y = torch.load(path)[split]
    def __len__(self):
        return len(self.x)
    def __getitem__(self, row):
        return self.x[row], int(self.y[row])

DRIVER = """
import json, sys, torch
import undertow as ut
from undertow_slow_net import SlowNet
if __name__ == "__main__":
    out, settings = sys.argv[1], json.loads(sys.argv[2])
    parts = torch.load(sys.argv[3])
    run = ut.open_run(sys.argv[4], model=SlowNet)
    session = ut.Session(run, parts["train"], parts["test"], out=out, **settings)
    with session.working():  # the workers stay for all three verbs; each has something of its own to measure
        found = ut.audit(session, probes=("masc", "velpic", "lda"))
        found.save(out)
        ut.probe_grid(session, probes=("mean", "qda"))
        ut.label_errors(session, folds=4).table.to_parquet(out + "/labels.parquet")
    print(json.dumps([one.sentence for one in found.verdict]))
"""
STREAMS = """
import json, sys
import undertow as ut
from undertow.data.streamed import SampleStream, open_reader
from undertow.session import Session, adding
from undertow.session.splits import Split
from undertow_slow_net import Rows, ShardNet
def streamed(split):
    x = SampleStream(open_reader(Rows(sys.argv[3], split)), split)
    return Split(x, x.labels)
if __name__ == "__main__":
    adding.SHARD = 64
    out, settings = sys.argv[1], json.loads(sys.argv[2])
    run = ut.open_run(sys.argv[4], model=ShardNet)
    session = Session(run, streamed("train"), streamed("test"), out=out, **settings)
    with session.working():  # the workers stay for both verbs
        found = ut.audit(session, probes=("masc", "velpic", "mean", "lda"))
        found.save(out)
        ut.probe_grid(session, probes=("mean", "qda"))
        wrong = ut.label_errors(session)
    wrong.table.to_parquet(out + "/labels.parquet")
    print(json.dumps([*(one.sentence for one in found.verdict), str(wrong.rate)]))
"""
'''
PATIENCE = 300
"""Seconds for a process to end, however busy the machine; nothing waits for them to pass."""
EPOCHS = (0, 1, 2, 3, 4, 6)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A run in float64, its samples in a file, and code that any process can import."""
    home = tmp_path_factory.mktemp("spread")
    (home / f"{MODULE}.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(home)
        patch.setenv("PYTHONPATH", f"{home}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        from undertow_slow_net import DRIVER, STREAMS, SlowNet

        (home / "driver.py").write_text(DRIVER)
        (home / "streams.py").write_text(STREAMS)
        torch.save(_samples(), home / "samples.pt")
        _train(home / "run", SlowNet())
        yield home


def _samples():
    draw = torch.Generator().manual_seed(0)

    def some(count):
        y = torch.arange(count) % 3
        x = torch.randn(count, 12, generator=draw, dtype=torch.float64)
        x[torch.arange(count), y] += 2
        return x, torch.where(torch.arange(count) % 7 == 3, (y + 1) % 3, y)

    return {"train": some(420), "test": some(210)}


def _train(folder: Path, model: nn.Module) -> None:
    x, y = _samples()["train"]
    with torch.random.fork_rng(devices=[]), ut.Recorder(folder) as recorder:
        optimiser = torch.optim.Adam(model.parameters(), 5e-3)
        for epoch in range(EPOCHS[-1] + 1):
            if epoch in EPOCHS:
                model.number.fill_(epoch)
                recorder.save(model, epoch)
            for rows in torch.arange(len(x)).split(60):
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimiser.step()
                optimiser.zero_grad()


def start(home: Path, out: Path, script: str = "driver.py", **settings) -> subprocess.Popen:
    command = [
        sys.executable,
        home / script,
        out,
        json.dumps(settings),
        home / "samples.pt",
        home / "run",
    ]
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLOW_")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own)


def told(process: subprocess.Popen) -> list[str]:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def here(given, tmp_path_factory):
    out = tmp_path_factory.mktemp("here")
    return told(start(given, out)), out


def check_same(words, out: Path, here) -> None:
    """The words and the tables of audit, probes and labels."""
    assert words == here[0]
    for name in ("audit", "probes", "labels"):
        found, wanted = (pd.read_parquet(place / f"{name}.parquet") for place in (out, here[1]))
        assert len(found)
        pd.testing.assert_frame_equal(found, wanted, rtol=1e-10, atol=1e-12)


def logged(log: Path) -> list[tuple[int, str]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(at), node) for at, node in (line.split() for line in lines)]


def wait_until(ready, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            pytest.fail(f"the audit ended too early or never began:\n{process.communicate()[1][-2000:]}")
        time.sleep(0.05)


def test_nodes_that_do_not_see_the_run_are_sent_its_checkpoints(tmp_path, given):
    run, parts = ut.open_run(given / "run", model=_net), _samples()
    session = Session(run, parts["train"], parts["test"], out=tmp_path / "own")
    sent = Portable.of(session)
    there = sent.open({name: path.read_bytes() for name, path in sent.files().items()}, gpu=False)
    assert there.run.path != run.path
    for at in EPOCHS:
        for own, other in zip(session.model(at).parameters(), there.model(at).parameters(), strict=True):
            assert torch.equal(own, other)
    assert there.mark(4) == session.mark(4)
    there.leave()
    assert not there.run.path.exists()


def test_a_worker_gives_back_what_it_measured_and_the_caller_keeps_it(tmp_path, given):
    from undertow.session.answers import AnswersGauge

    run, parts = ut.open_run(given / "run", model=_net), _samples()
    session = Session(run, parts["train"], parts["test"], out=tmp_path)
    gauge = AnswersGauge(session.samples)
    there = Portable.of(session).open(None, gpu=False)
    there.equip([gauge])
    seen = Look(3, (0,))(there)
    assert set(seen.values) == {0}
    assert seen.passed == {(3, "train"): 420, (3, "test"): 210}
    assert session.value(gauge, 3) is None  # a worker writes nothing
    session.visit([gauge], [3])
    assert session.value(gauge, 3).accuracies == seen.values[0].accuracies


def _net():
    from undertow_slow_net import SlowNet

    return SlowNet()


def test_settings_of_the_engine_are_checked_before_any_work(given):
    run = ut.open_run(given / "run", model=_net)
    with pytest.raises(ValueError, match="address is a setting of the Ray engine"):
        ut.audit(run, *_samples().values(), address="auto")
    with pytest.raises(ut.UndertowError, match="Did you mean 'ray'"):
        ut.audit(run, *_samples().values(), engine="rai")


@pytest.fixture(scope="module")
def slowed(given, tmp_path_factory):
    """Where models tell that they run, and what they wait for; set before the cluster starts."""
    home = tmp_path_factory.mktemp("slow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOW_LOG", str(home / "log"))
        patch.setenv("SLOW_GATE", str(home / "gate"))
        yield home


@pytest.fixture(scope="module")
def streams_here(given, tmp_path_factory):
    """Streams in one process, by the same shards."""
    out = tmp_path_factory.mktemp("streams")
    return told(start(given, out, "streams.py")), out


def test_shards_of_streams_with_probes_and_labels_survive_a_killed_node(
    tmp_path, given, streams_here, slowed, cluster
):  # fmt: skip
    """The second node is killed while both hold a shard of a checkpoint; its shard runs again on the other."""
    log, gate = slowed / "log", slowed / "gate"
    for old in (log, gate):
        old.unlink(missing_ok=True)
    driver = start(given, tmp_path, "streams.py", engine="ray", address=cluster.address)
    nodes = {cluster.head.name, cluster.second.name}
    wait_until(lambda: {node for at, node in logged(log) if at >= 2} >= nodes, driver)
    cluster.second.kill()
    gate.touch()
    check_same(told(driver), tmp_path, streams_here)


def test_answers_to_those_who_left_are_nobodys(given, cluster):
    """A spread that is left half-way, or whose job fails, leaves workers that serve the next one."""
    from undertow_slow_net import Number

    cluster.restore()
    run, parts = ut.open_run(given / "run", model=_net), _samples().values()
    session = Session(run, *parts, engine="ray", address=cluster.address)
    with session.working():
        left = session.spread([Number(n) for n in range(8)])
        next(left)
        left.close()
        with pytest.raises(ut.UndertowError, match="no number 3"):
            list(session.spread([Number(n, bad=3) for n in range(6)]))
        found = dict(session.spread([Number(n + 100) for n in range(9)]))
    assert found == {Number(n + 100): (n + 100) ** 2 for n in range(9)}


def test_on_gpus_there_is_one_worker_for_each(tmp_path, given, cluster):
    """A node that says it has two: Ray counts them, and tells each worker which one is its own."""
    from undertow_slow_net import Where

    third = cluster.join("--num-gpus=2")
    try:
        run, parts = ut.open_run(given / "run", model=_net), _samples().values()
        session = Session(run, *parts, engine="ray", address=cluster.address, cpus=0.25, gpus=1)
        with session.working():
            assert session.hands == 2
            found = [where for _, where in session.spread([Where(str(tmp_path), n) for n in (1, 2)])]
    finally:
        third.end()
    assert sorted(gpu for _, gpu, _ in found) == ["0", "1"]
    assert len({pid for pid, _, _ in found}) == 2
    assert {device for *_, device in found} == {"cuda"}


def test_a_node_killed_in_mid_audit_and_a_killed_driver_change_no_number(
    tmp_path, given, here, slowed, cluster
):  # fmt: skip
    """The driver is killed first, then its successor's second node; what was measured is not measured again."""
    cluster.restore()
    log, gate = slowed / "log", slowed / "gate"
    for old in (log, gate):
        old.unlink(missing_ok=True)
    first = start(given, tmp_path, engine="ray", address=cluster.address)
    wait_until(lambda: list((tmp_path / "cache").glob("answers-*")), first)  # one checkpoint is kept
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=PATIENCE)
    kept = {int(one.stem[-8:]) for one in (tmp_path / "cache").glob("answers-*")}
    log.unlink()
    second = start(given, tmp_path, engine="ray", address=cluster.address)
    nodes = {cluster.head.name, cluster.second.name}
    # Each node holds a checkpoint that waits.
    wait_until(lambda: {node for at, node in logged(log) if at >= 2} >= nodes, second)
    assert not kept & {at for at, node in logged(log) if node in nodes and at != EPOCHS[-1]} - {0}
    waiting = {at for at, node in logged(log) if node == cluster.second.name and at >= 2}
    cluster.second.kill()
    gate.touch()
    check_same(told(second), tmp_path, here)
    # What the lost node had begun ran again on the other one.
    assert waiting <= {at for at, node in logged(log) if node == cluster.head.name}
