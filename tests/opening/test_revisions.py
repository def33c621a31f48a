"""Checkpoints that are revisions of a repository: of git on this machine, and of the hub as its library asks for it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch

import undertow as ut
from undertow.errors import BadValue, NotThere, RunProblem
from undertow.training import revisions

from . import worlds

STEPS = (0, 1, 2, 4, 8)


def git(place: Path, *words: str) -> str:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    done = subprocess.run(["git", *who, "-C", str(place), *words], capture_output=True, check=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Five branches step0 ... step8 with one model each, as Pythia lies on the hub."""
    place = tmp_path_factory.mktemp("hub") / "tiny-pythia"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    for step in STEPS:
        model = worlds.tiny_bert()
        with torch.no_grad():
            model.classifier.bias.fill_(float(step))
        model.save_pretrained(place)
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", f"step {step}", "--allow-empty")
        git(place, "branch", f"step{step}")
    git(place, "tag", "-a", "step8-tag", "-m", "the same number again")
    return place


def on_disk(folder: Path) -> int:
    return len(list(folder.glob("[!a]*/model.safetensors")))


def test_a_local_repository_is_streamed(repository, monkeypatch):
    """Two checkpoints lie on disk at most, however many are asked for, and each has its own weights."""
    run = ut.open_run(f"hub:{repository}", revisions="step*")
    assert (run.epochs, run.unit) == (STEPS, "step")
    assert [one.name for one in run.passed_over] == ["step8-tag"]
    store = revisions.store_of(str(repository))
    fetched = []
    fetch = store.source.fetch

    def watched(revision, place, patterns):
        if patterns != revisions.SMALL:
            assert on_disk(store.folder) < revisions.KEPT, "there is no room for another"
            fetched.append(revision.name)
        fetch(revision, place, patterns)
        assert on_disk(store.folder) <= revisions.KEPT

    monkeypatch.setattr(store.source, "fetch", watched)
    for step in STEPS:
        assert run.model(step).classifier.bias[0].item() == step
    assert run.model(8) is not None
    assert run.model(4) is not None
    assert fetched == [f"step{step}" for step in STEPS], "what is on disk is not fetched again"
    assert len(set(map(run.mark, STEPS))) == len(STEPS)


def test_an_audit_of_revisions(repository, tmp_path):
    train, held = worlds.Texts(120, 0), worlds.Texts(90, 1)
    run = ut.open_run(f"hub:{repository}", revisions="step*")
    found = ut.audit(run, train, held, out=tmp_path, lenses=["richness"], progress=False)
    assert set(found.table["checkpoint"]) == set(STEPS)
    assert on_disk(revisions.store_of(str(repository)).folder) <= revisions.KEPT


def test_what_was_fetched_is_gone_with_the_process(repository):
    lines = f"""
        import undertow as ut
        from undertow.training import revisions
        run = ut.open_run("hub:{repository}", revisions="step*")
        run.weights(1)
        print(revisions.store_of("{repository}").folder)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(lines)], capture_output=True, text=True, check=True
    )
    assert not Path(done.stdout.strip()).exists()


def test_pointers_and_unknown_names_are_said(repository, tmp_path):
    with pytest.raises(BadValue, match=r"revisions like 'epoch\*' with a number.*It has main"):
        ut.open_run(f"hub:{repository}", revisions="epoch*")
    with pytest.raises(NotThere, match="there is no such folder"):
        ut.open_run("hub:./nowhere", revisions="*")
    with pytest.raises(BadValue, match="a repository, hub:owner/name"):
        ut.open_run(tmp_path, revisions="step*")
    git(tmp_path, "init", "-q", "-b", "step1")
    (tmp_path / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "a pointer")
    with pytest.raises(RunProblem, match="pointer of git-lfs"):
        ut.open_run(f"hub:{tmp_path}", revisions="step*").weights(1)


class Hub(BaseHTTPRequestHandler):
    """The few answers of the hub that its library asks for, from a git repository."""

    place: Path

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def log_message(self, *words: object) -> None:
        pass

    def answer(self, *, body: bool) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            return self.send(
                json.dumps(self.told(parts[4:])).encode(), body, {"Content-Type": "application/json"}
            )
        commit, name = parts[3], "/".join(parts[4:])
        content = subprocess.run(
            ["git", "-C", str(self.place), "cat-file", "blob", f"{commit}:{name}"],
            capture_output=True,
            check=True,
        ).stdout
        mark = hashlib.sha256(content).hexdigest()
        return self.send(content, body, {"X-Repo-Commit": commit, "ETag": f'"{mark}"'})

    def told(self, asked: list[str]) -> object:
        if asked == ["refs"]:
            lines = git(
                self.place, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"
            ).splitlines()
            named = [line.split() for line in lines]
            found = [
                {"name": ref.rpartition("/")[2], "ref": ref, "targetCommit": commit} for ref, commit in named
            ]
            return {"branches": found, "tags": [], "converts": []}
        commit = asked[1]
        names = git(self.place, "ls-tree", "--name-only", commit).splitlines()
        if asked[0] == "tree":
            return [{"type": "file", "oid": commit, "size": 1, "path": name} for name in names]
        return {"id": "nobody/tiny", "sha": commit, "siblings": [{"rfilename": name} for name in names]}

    def send(self, content: bytes, body: bool, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)


def test_the_hub_as_its_library_asks_for_it(repository):
    """huggingface_hub itself, in a process of its own, against a server on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Hub,), {"place": repository}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    lines = """
        import undertow as ut
        from undertow.training import revisions
        run = ut.open_run("hub:nobody/tiny", revisions="step*")
        most = 0
        for step in run.epochs:
            assert run.model(step).classifier.bias[0].item() == step
            most = max(most, len(list(revisions.store_of("nobody/tiny").folder.rglob("model.safetensors"))))
        print(run.epochs, most)
    """
    settings = {
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "NO_PROXY": "*",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(lines)], capture_output=True, text=True, check=False,
            env={**os.environ, **settings}, timeout=300,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "(0, 1, 2, 4, 8) 2"


@pytest.mark.parametrize("offline", ["0", "1"], ids=["no network", "told to stay offline"])
def test_an_unreachable_hub_is_one_sentence(offline, monkeypatch):
    """A network that is not there raises what httpx2 has, not what the hub's library has."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline == "1")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(NotThere, match=r"hub:nobody/nothing cannot be reached: .*A clone of it works, too"):
        ut.open_run("hub:nobody/nothing", revisions="step*")
