"""The end of a DataLoader that lost a worker.

    except Exception as error:
        put_away(error)        # the loader whose error this is ends here, quietly

torch tells of a dead worker from the handler of a signal, wherever the main thread is. It does so again while the
loader is taken down, in a `__del__` whose errors nobody can catch. A traceback keeps the loader, and so decides when.
"""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager


def put_away(error: BaseException) -> None:
    """Let go of what the error's traceback holds."""
    with _unheard():
        told: BaseException | None = error
        while told is not None:
            traceback.clear_frames(told.__traceback__)
            told = told.__cause__ or told.__context__


@contextmanager
def _unheard() -> Generator[None]:
    """What becomes of child processes is not told inside the block; signals reach the main thread alone."""
    ended = getattr(signal, "SIGCHLD", None)  # not on Windows
    if ended is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = signal.signal(ended, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(ended, signal.SIG_DFL if heard is None else heard)
