"""A small server for one person on one machine: lists the runs in a folder and shows their reports.

    serve("runs/")                                  # until Ctrl-C; http://127.0.0.1:8765
    server = make_server(Path("runs"), port=0)      # for tests: server.server_address, server.serve_forever()

    /                    the runs               /stamp/                 changes when the list does
    /run/NAME            a report               /stamp/run/NAME         changes when its numbers do
    /together            up to six, newest      /stamp/together

It answers no file at all: an address names a run that the server itself has found, or nothing, so there is no path
to climb. A run whose files are links that lead out of the folder is left out. Only 127.0.0.1 is listened on, and
only requests that name this machine are answered: a foreign page cannot read along by renaming its own address.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RD, socket
from threading import BoundedSemaphore, Lock
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from undertow.errors import BadValue, NotThere, RunProblem, UndertowError
from undertow.report import summary
from undertow.report.listing import list_shown
from undertow.report.page import fill, page_text
from undertow.report.saved import READ, Saved, read_saved, read_states, stamp

HOST = "127.0.0.1"
PORT, MOST_PORT = 8765, 65_535
TOGETHER = 6
"""Runs on one page."""
RECENT = 600
"""Seconds since the last sign of life within which an unfinished run counts as training."""
AT_ONCE, PATIENCE = 64, 10
"""Connections, and seconds that a silent one is kept."""
ARRIVED = 20
"""Seconds within which a whole request must have come, however steadily it drips."""
KEPT = 32
"""Rendered pages kept in memory."""
HEADERS = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}  # fmt: skip


class ServedRuns:
    """The runs of one folder, by the names that addresses use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._one_at_a_time = Lock()
        self._rendered = lru_cache(KEPT)(self._render)

    def runs(self) -> dict[str, Path]:
        """Run folders at any depth, by name."""
        return {self._name(path): path for path in list_shown(self.folder) if self._inside(path)}

    def newest(self) -> list[str]:
        """Names of the runs that fit on one page, the latest first."""
        runs = self.runs()
        return sorted(runs, key=lambda name: _touched(runs[name]), reverse=True)[:TOGETHER]

    def report(self, names: list[str], address: str) -> str:
        """The report of these runs, which follows them; rendered once for every state of their files."""
        folders = self.folders(names)
        stamps = "|".join(map(stamp, folders))
        with self._one_at_a_time:
            return self._rendered(tuple(folders), address, stamps)

    def folders(self, names: list[str]) -> list[Path]:
        """Where these runs are; one may have gone since it was named."""
        runs = self.runs()
        if gone := [name for name in names if name not in runs]:
            raise NotThere(f"The run {gone[0]} is gone. The list is at /.")
        return [runs[name] for name in names]

    def listing(self) -> str:
        """The page of all runs."""
        rows = [_row(name, path) for name, path in self.runs().items()]
        return fill(
            "runs.html", scripts=("base.js", "theme.js", "live.js", "runs.js"), live=True, several=False,
            title=f"{self.folder.name} · undertow", folder=str(self.folder.name), runs=rows, together="/together",
            data={"live": {"url": "/stamp/", "stamp": self.stamp()}},
        )  # fmt: skip

    def stamp(self) -> str:
        """Changes when a run comes, goes or changes."""
        return "|".join(f"{_quoted(name)}:{stamp(path)}" for name, path in self.runs().items())

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix() if path != self.folder else "."

    def _inside(self, path: Path) -> bool:
        real = [(path / name).resolve() for name in READ if (path / name).exists()]
        return all(own.is_relative_to(self.folder) for own in real)

    def _render(self, folders: tuple[Path, ...], address: str, stamps: str) -> str:
        return page_text([read_saved(own) for own in folders], live={"url": address, "stamp": stamps})


def make_server(folder: Path, port: int = PORT) -> ThreadingHTTPServer:
    """A server of the runs in `folder`, on this machine only."""
    if not folder.is_dir():
        raise NotThere(
            f"There is no folder {folder}. `undertow train --out {folder}/NAME` makes the first run in it."
        )

    if not isinstance(port, int) or not 0 <= port <= MOST_PORT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadValue("serve --port", f"a port from 0 to {MOST_PORT}", port)

    class Handler(_Handler):
        """Answers for this folder."""

        served = ServedRuns(folder)

    try:
        return _Server((HOST, port), Handler)
    except OSError as error:
        raise RunProblem(
            f"serve: cannot listen on port {port} ({error.strerror}). Choose another --port."
        ) from error


def serve(folder: str | Path, port: int = PORT, ready: Callable[[str], None] | None = None) -> None:
    """Serve the runs in `folder` until interrupted; `ready` gets the address."""
    with make_server(Path(folder), port) as server:
        if ready:
            ready(f"http://{HOST}:{server.server_address[1]}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return  # how one leaves a server


def _quoted(name: str) -> str:
    """A run's name in an address, also one that is no UTF-8."""
    return quote(os.fsencode(name))


def _route(served: ServedRuns, path: str) -> tuple[str, str] | None:
    """The type and text for an address; None for one that names nothing."""
    asked = path.removeprefix("/stamp/") if path.startswith("/stamp/") else path.removeprefix("/")
    kind, _, rest = asked.partition("/")
    name = os.fsdecode(unquote_to_bytes(rest))
    if asked == "":
        names = None
    elif kind == "together" and not rest:
        names = served.newest()
    elif kind == "run" and name in served.runs():
        names = [name]
    else:
        return None
    if path.startswith("/stamp/"):
        found = served.stamp() if names is None else "|".join(map(stamp, served.folders(names)))
        return "text/plain", found
    return "text/html", served.listing() if names is None else served.report(names, f"/stamp/{asked}")


class _Server(ThreadingHTTPServer):
    """A server that a slow or rude client cannot hold up: so many at a time, the others are turned away."""

    request_queue_size = 128

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._places = BoundedSemaphore(AT_ONCE)
        self._late: dict[socket, float] = {}

    def service_actions(self) -> None:
        """Hear no more of clients whose request drips in: what they sent is answered, and their place is free."""
        now = time.monotonic()
        for client in [client for client, late in self._late.copy().items() if late < now]:
            self._late.pop(client, None)
            with suppress(OSError):
                client.shutdown(SHUT_RD)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, if there is a place."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._late[request] = time.monotonic() + ARRIVED
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._late.pop(request, None)
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """GET only; nothing is written, nothing is logged."""

    timeout = PATIENCE

    served: ServedRuns  # of each server its own
    server_version = "undertow"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        port = self.server.server_address[1]  # pyright: ignore
        if self.headers.get_all("Host") not in ([f"{HOST}:{port}"], [f"localhost:{port}"]):
            return self._send(403, "text/plain", "This server answers only its own machine.")
        try:
            found = _route(self.served, _path_of(self.path))
        except UndertowError as error:
            return self._send(500, "text/plain", str(error))
        except OSError as error:
            return self._send(
                500, "text/plain", f"A file changed while it was read ({error.strerror}). Ask again."
            )
        if found is None:
            return self._send(404, "text/plain", "There is no such run. The list is at /.")
        return self._send(200, *found)

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is the user's."""


def _path_of(address: str) -> str:
    try:
        return urlsplit(address).path
    except ValueError:  # http://[ is the address of nothing
        return address


def _row(name: str, path: Path) -> dict[str, Any]:
    """A line of the list; a damaged run is shown with its reason instead of hiding the others."""
    row: dict[str, Any] = {
        "name": name,
        "link": f"/run/{_quoted(name)}",
        "about": "",
        "tile": None,
        "found": "",
    }
    try:
        saved = read_saved(path)
        own = summary.tiles(saved)
    except UndertowError as error:
        return {**row, "state": "damaged", "found": str(error)}
    tile = own[0] if own and own[0].label == "Test accuracy" else None
    found = summary.tied(str(saved.audit.get("headline") or "Not audited yet."))
    return {**row, "about": summary.about(saved), "state": _state(saved), "tile": tile, "found": found}


def _state(saved: Saved) -> str:
    if saved.facts.get("config") and not saved.facts.get("finished"):
        return "training" if time.time() - _touched(saved.path) < RECENT else "unfinished"
    return "audited" if saved.audit else "finished" if saved.facts.get("finished") else "recorded"


def _touched(folder: Path) -> float:
    return max((own.st_mtime for own in read_states(folder)), default=0.0)
