"""The command line: `undertow --help` lists the commands.

    undertow train mlp --data mnist --noise 0.4 --epochs 60 --out runs/m40
    undertow runs runs/ ; undertow show runs/m40 ; undertow layers runs/m40
    undertow data list ; undertow data show mnist

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 where a gate of `audit --fail-if` holds. What a user can mend is said
in one line; `--debug` shows the traceback with it. Commands are imported when they are called, so that help
answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from errno import ENOSPC
from io import TextIOWrapper
from typing import Any

from undertow.errors import BadValue, UndertowError

DEBUG, JSON = "--debug", "--json"
LONGEST = 200
"""Letters of a path in an error."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows no ✓ shows \u2713
    debug = DEBUG in tokens
    try:
        with _own_output(tokens):
            return _call([token for token in tokens if token != DEBUG])
    except UndertowError as error:
        if debug:
            raise
        return _complain(str(error), error.exit_code)
    except SystemExit as error:  # ours never raise it; its code would pass for a gate's, or for success
        if debug:
            raise
        ended = f"Code of the model or the data ended the program (SystemExit: {error.code})"
        return _complain(f"{ended}. Let it raise an error instead.", 1)
    except KeyboardInterrupt:
        return _complain(
            "Stopped. Nothing that was saved is lost: repeat the command to go on (train: with --resume).",
            130,
        )
    except BrokenPipeError:
        # Whoever read our output has seen enough (`undertow runs | head`); what is left goes nowhere, without a word.
        _drop_output()
        return 0
    except OSError as error:  # output on a full disk, a path that no system call takes
        if debug or (error.errno != ENOSPC and not error.filename):
            raise
        _drop_output()
        where = str(error.filename)[:LONGEST] if error.filename else "What it prints cannot be written"
        return _complain(f"{where}: {error.strerror or error}.", 1)


@contextmanager
def _own_output(tokens: Sequence[str]) -> Generator[None]:
    """Under --json standard output holds our answer alone: what a user's code prints goes to the other stream."""
    if JSON not in tokens:
        yield
        return
    from undertow.cli.screen import answering

    with answering(sys.stdout), redirect_stdout(sys.stderr):
        yield


def _drop_output() -> None:
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _call(tokens: list[str]) -> int:
    from cyclopts import CycloptsError, MissingArgumentError

    from undertow.cli.app import app

    check_given(tokens)
    try:
        with _visible_warnings():
            result = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except MissingArgumentError as error:
        from undertow.cli.missing import missing_words

        return _complain(missing_words(error), 2)
    except CycloptsError as error:
        return _complain(str(error), 2)
    return result if isinstance(result, int) else 0


@contextmanager
def _visible_warnings() -> Generator[None]:
    """Warnings name files, too: no name in them may steer the terminal."""
    usual = warnings.formatwarning

    def shown(*parts: Any, **more: Any) -> str:
        from undertow.cli.screen import visible

        return visible(usual(*parts, **more))

    warnings.formatwarning = shown
    try:
        yield
    finally:
        warnings.formatwarning = usual


def check_given(tokens: Sequence[str]) -> None:
    """Refuse an empty word: as a path it would be the current folder, as a list nothing at all."""
    before = "undertow"
    for token in tokens:
        flag = token[:-1] if token[:2] == "--" and token[-1:] == "=" else ""
        if flag or not token:
            raise BadValue(flag or before, "a value", token, "Give one, or leave it out.")
        before = token


def _complain(sentence: str, code: int) -> int:
    from undertow.cli.screen import visible

    print(f"undertow: {visible(sentence)}", file=sys.stderr)  # noqa: T201
    return code
