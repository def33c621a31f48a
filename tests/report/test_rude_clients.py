"""The server under slow, many and rude clients; a damaged run hides no other."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from undertow.report import server as served
from undertow.report.server import make_server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A server whose patience is short, so that the test is."""
    monkeypatch.setattr(served, "AT_ONCE", 8)
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "run.json").write_text('{"format": 1}')
    with make_server(tmp_path, port=0) as made:
        made.RequestHandlerClass.timeout = 0.5
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


PATIENCE = 300
"""Seconds, for a machine that hangs; nothing waits for them to pass."""


def get(server, path: str = "/") -> tuple[int, str]:
    """What the server answers; on a busy machine it may turn a client away, or find it slow, and is asked again."""
    late = time.monotonic() + PATIENCE
    while True:
        client = HTTPConnection("127.0.0.1", server.server_address[1], timeout=PATIENCE)
        try:
            client.request("GET", path)
            answer = client.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException):
            assert time.monotonic() < late, "the server answers nobody"
        finally:
            client.close()


def test_a_thousand_half_open_connections_are_let_go(server):
    """Fails without a time limit on sockets: each held a thread for ever."""
    before, held = threading.active_count(), []
    for _ in range(1000):
        one = socket.create_connection(server.server_address, timeout=PATIENCE)
        one.sendall(b"GET / HT")
        held.append(one)
        assert threading.active_count() <= before + 8
    for one in held:
        with one:
            assert one.recv(1) == b""  # the server hung up
    assert get(server)[0] == 200


def test_clients_that_drip_hold_no_place_for_ever(server, monkeypatch):
    """Fails where only silence has a limit: a byte now and then kept each of the few places."""
    monkeypatch.setattr(served, "ARRIVED", 0.0)
    server.RequestHandlerClass.timeout = PATIENCE
    held = [socket.create_connection(server.server_address, timeout=PATIENCE) for _ in range(8)]
    for one in held:
        with one, suppress(ConnectionError):  # it may have hung up already
            one.sendall(b"GET / HT")
            one.recv(1)  # nothing, or that this is no request: not heard any longer
    monkeypatch.setattr(served, "ARRIVED", PATIENCE)
    assert get(server)[0] == 200


def ask(server, head: str) -> bytes:
    server.RequestHandlerClass.timeout = PATIENCE  # or a busy machine is taken for a silent client
    with socket.create_connection(server.server_address, timeout=PATIENCE) as one:
        one.sendall(head.replace("PORT", str(server.server_address[1])).encode("latin1") + b"\r\n\r\n")
        return one.makefile("rb").read()


def test_two_names_of_the_server_are_none(server):
    """The first is ours, another reader may take the second."""
    twice = "GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: evil.example"
    assert b" 403 " in ask(server, twice)
    assert b" 200 " in ask(server, twice.partition("\r\nHost: evil")[0])


@pytest.mark.parametrize("address", ["http://[", "http://[::1", "//[/run/good", "*", "/run/%ff%fe"])
def test_an_address_of_nothing_is_answered(server, capfd, address: str):
    """Fails by a traceback and no answer."""
    assert b" 404 " in ask(server, f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1:PORT")
    assert capfd.readouterr().err == ""


def test_a_name_that_is_no_utf8_hides_no_other_and_can_be_opened(server, tmp_path: Path):
    """Fails with an empty answer to everything."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    odd.mkdir()
    (odd / "run.json").write_text('{"format": 1}')
    status, text = get(server)
    assert (status, "good" in text, 'href="/run/%FF%FE"' in text) == (200, True, True)
    assert get(server, "/run/%FF%FE")[0] == 200
    assert "%FF%FE" in get(server, "/stamp/")[1]


def test_a_run_that_goes_away_meanwhile_is_told(server, tmp_path: Path, monkeypatch, capfd):
    """Its folder was found, then it is gone: fails by a KeyError, and nobody is answered."""
    runs = [{"good": tmp_path / "good"}, {}]
    monkeypatch.setattr(served.ServedRuns, "runs", lambda self: runs.pop(0) if runs else {})
    status, text = get(server, "/run/good")
    assert (status, text) == (500, "The run good is gone. The list is at /.")
    assert capfd.readouterr().err == ""


def test_runs_that_come_and_go_are_listed_without_a_fault(server, tmp_path: Path, capfd):
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            for name in "abc":
                (tmp_path / name).mkdir()
                (tmp_path / name / "run.json").write_text('{"format": 1}')
            for name in "abc":
                (tmp_path / name / "run.json").unlink()
                (tmp_path / name).rmdir()

    other = threading.Thread(target=come_and_go, daemon=True)
    other.start()
    try:
        answers = {get(server, path)[0] for path in ["/", "/stamp/", "/together", "/run/a"] * 10}
    finally:
        done.set()
        other.join()
    assert answers <= {200, 404, 500}
    assert capfd.readouterr().err == ""


def test_a_client_that_leaves_early_says_nothing(server, capfd):
    for _ in range(20):
        with socket.create_connection(server.server_address, timeout=PATIENCE) as one:
            one.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_address[1]}\r\n\r\n".encode())
            one.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0"
            )  # a reset, not a goodbye
    assert get(server)[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"config": 3}', '{"data": {"name": [1]}}', '{"versions": {"a": {}}}', '{"format": 1e400}'],
)
def test_a_damaged_run_hides_no_other(server, tmp_path: Path, content: str):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text(content)
    status, text = get(server)
    assert (status, "good" in text, "damaged" in text) == (200, True, True)


def test_a_pipe_in_place_of_a_file_is_refused_not_read(server, tmp_path: Path):
    """Fails by waiting for ever."""
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "run.json")
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / "run.json").write_text("{}")
    status, text = get(server)
    assert (status, "good" in text) == (200, True)
