"""A connection to Ray: to a cluster that is there, or to one of this machine that ends with the work.

    with connected("auto"):          # or "10.0.0.5:6379", "ray://10.0.0.5:10001", None
        ...                          # one that is open already is used and left as it is

Ray alone would dial an address that nobody answers for minutes; a knock in a process that can be ended comes first.
A cluster that answers but is too busy to let us in is tried again. One that we start listens on loopback only.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import IO, Any

from undertow.errors import BadValue, NotThere, RunProblem

KNOCK = 3
"""Seconds for a cluster's port to answer."""

LOAD = 60
"""Seconds for a process to load Ray: a few, unless the machine is busy."""

JOIN = 20
"""Seconds more for the cluster to let that process in."""

IN_TIME = KNOCK + LOAD + JOIN
"""Seconds within which whoever dials nobody is told so."""

PATIENCE = 120
"""Seconds in which a cluster that answers may fail to start what serves us; it is tried again until then."""

PAUSE = 1
"""Seconds between two tries."""

SLOW = (
    "Starting Ray client server failed", "Proxy failed to Connect", "timed out during startup",
    "psutil.ZombieProcess", "psutil.NoSuchProcess",
)  # fmt: skip
"""What Ray says where its own processes did not start in time, or ended while it looked at them; it has no class of
errors for that."""

DEAF = "ray client connection timeout"
"""What Ray says where the port answers and nobody talks: a server that is slow to wake, or something else."""

CLIENT = "ray://"
LOADED = "undertow: ray is loaded"
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


class Unreachable(RunProblem):
    """A cluster that does not answer or does not let us in."""


@contextmanager
def connected(address: str | None = None) -> Generator[None]:
    """A connection to Ray; one that is there already is used and left as it is.

    Args:
        address: "auto" (the cluster of this machine), HOST:PORT of a head from one of its nodes,
            ray://HOST:PORT from anywhere, or None for a cluster of this machine that ends with the block.
    """
    ray = load_ray()
    if ray.is_initialized():
        yield
        return
    # Ray tells lost processes on standard output, even with log_to_driver=False: a reader of our JSON would stumble.
    ray._private.worker._worker_logs_enabled = False
    _join(ray, address)
    try:
        yield
    finally:
        ray.shutdown()
        ray._private.worker._worker_logs_enabled = True


def load_ray() -> Any:
    """The ray package, or how to get it."""
    try:
        import ray
    except ImportError as error:
        raise NotThere(
            "The engine 'ray' needs the ray package. `pip install 'undertow[ray]'` adds it."
        ) from error
    return ray


def _join(ray: Any, address: str | None) -> None:
    if address is None:
        with _loopback_only(ray):
            # "local": without it a file that a dead cluster left behind would be dialled.
            _enter(ray, "local", include_dashboard=False)
        return
    if address.startswith(CLIENT):
        # Read when Ray's client is loaded; its own 5, 10 and 15 seconds are too long to wait for nobody.
        os.environ.setdefault("RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S", "3")
        os.environ.setdefault("RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S", "3")
        _knock(address, address.removeprefix(CLIENT))
    else:
        if address != "auto":
            _knock(address, address)
        dial_first(address)
    _enter(ray, address)


@contextmanager
def _loopback_only(ray: Any) -> Generator[None]:
    """Let Ray take this machine for one without clusters: on Linux it would listen on all interfaces."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    constants = ray._private.ray_constants
    before, told = constants.ENABLE_RAY_CLUSTER, os.environ.get(CLUSTERS)
    constants.ENABLE_RAY_CLUSTER, os.environ[CLUSTERS] = (
        False,
        "0",
    )  # here, and in the processes that it starts
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        if told is None:
            del os.environ[CLUSTERS]
        else:
            os.environ[CLUSTERS] = told


def _enter(ray: Any, address: str, **settings: Any) -> None:
    """Join, again and again while the other side is too slow to start what serves us."""
    began, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # it warns of what it then raises
                ray.init(address=address, logging_level="ERROR", log_to_driver=False, **settings)
        except Exception as error:
            with suppress(Exception):
                ray.shutdown()  # what a failed start left behind
            if time.monotonic() - began > _patience(str(error)):
                raise _unreachable(address, str(error) or type(error).__name__, tries) from error
            time.sleep(PAUSE)
        else:
            return


def _patience(said: str) -> float:
    """Seconds from the first try on within which it is worth to try again."""
    if any(words in said for words in SLOW):
        return PATIENCE
    return JOIN if DEAF in said else -1


def _knock(address: str, door: str) -> None:
    host, _, port = door.rpartition(":")
    if not host or not port.isdigit():
        raise BadValue("address", "auto, HOST:PORT or ray://HOST:PORT", address)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def dial_first(address: str) -> None:
    """Join from a process that can be ended: Ray's own dialling ends only together with its process.

    Raises:
        Unreachable: nobody let it in within LOAD and JOIN seconds.
    """
    code = (
        f"import ray, sys; print({LOADED!r}, flush=True); "
        "ray.init(address=sys.argv[1], logging_level='ERROR', log_to_driver=False)"
    )
    with tempfile.TemporaryFile() as said:
        # Its own copy: while another thread sets a variable, a child that shares ours may find it torn.
        own = os.environ.copy()
        child = subprocess.Popen([sys.executable, "-c", code, address], stdout=said, stderr=said, env=own)
        try:
            _await(child, said)
        finally:
            child.kill()
            child.wait()
        if child.returncode:
            told = _text(said).replace(LOADED, "").strip()
            raise _unreachable(address, told or "nobody answered in time")


def _await(child: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    """Until the child ends, is refused or its time is up, which begins to count when it has loaded Ray."""
    deadline, loaded = time.monotonic() + LOAD, False
    while time.monotonic() < deadline and not _refused(told := _text(said)):
        if not loaded and LOADED in told:
            deadline, loaded = time.monotonic() + JOIN, True
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.1)
            return


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _refused(said: str) -> bool:
    return "AuthToken" in said or "Unauthenticated" in said


def _unreachable(address: str, said: str, tries: int = 1) -> Unreachable:
    if address == "local":
        where, advice = "Cannot start Ray on this machine", "Is it very busy? `--engine local` needs no Ray."
    else:
        where, advice = f"Cannot reach a Ray cluster at {address}", (
            "Is its head running, and is this one of its machines? From elsewhere use ray://HOST:10001; "
            "without --address a cluster of this machine is started."
        )  # fmt: skip
    lines = [line for line in said.strip().splitlines() if line.strip()]
    reason = lines[-1].strip()[:200].rstrip(".") if lines else "no reason given"
    if _refused(said):
        reason = "it refused our token"
        advice = "Set RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN here as on its nodes."
    elif tries > 1:
        reason = f"{reason} (tried {tries} times)"
    return Unreachable(f"{where}: {reason}. {advice}")
