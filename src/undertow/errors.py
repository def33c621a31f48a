"""The errors that undertow raises for what a user gave it.

    raise BadValue("noise", "a share from 0 to 1", 1.4, "For 40 % write --noise 0.4.")
    raise unknown("model", "resnet19", MODELS)      # ... Did you mean 'resnet18' or 'resnet20'?

Each message says who complains, what was wanted, what came and what to do next.
The command line prints it on one line and exits with `exit_code`; anything that is not an
`UndertowError` is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UndertowError(Exception):
    """Something in the input, the data or the machine's state stops the work."""

    exit_code = 1


class BadValue(UndertowError, ValueError):
    """A setting outside what is allowed."""

    exit_code = 2

    def __init__(self, who: str, wanted: str, got: object, next_step: str = "") -> None:
        self._parts = (who, wanted, got, next_step)
        # Nobody typed what was not given, so it is not quoted.
        missing = isinstance(got, str) and got == "none"
        came = "but there is none" if missing else f"got {got!r}"
        super().__init__(f"{who}: wanted {wanted}, {came}.{' ' * bool(next_step)}{next_step}")

    def __reduce__(self) -> tuple[type[BadValue], tuple[str, str, object, str]]:
        """Pickle the parts, not the sentence, so that the error reaches other processes."""
        return type(self), self._parts


class UnknownName(UndertowError, LookupError):
    """A name that nothing answers to."""

    exit_code = 2


class BadData(UndertowError, ValueError):
    """Samples or labels that cannot be trained on; the message names the file or the index."""


class NotThere(UndertowError, FileNotFoundError):
    """A file, folder or data set that is not there; the message says how to get it."""


class RunProblem(UndertowError, OSError):
    """A run folder that cannot be written or read."""


class BadFile(RunProblem):
    """A file that undertow wrote, or should have written, and that is not what it should be.

    `path` names the file and `field` the place in it ("config.lr", "column score"; "" for the file as a whole).
    """

    def __init__(self, path: object, field: str, problem: str, next_step: str = "") -> None:
        self._parts = (str(path), field, problem, next_step)
        self.path, self.field = str(path), field
        where = f"{path}: {field}" if field else f"{path}"
        super().__init__(f"{where}: {problem}.{' ' * bool(next_step)}{next_step}")

    def __reduce__(self) -> tuple[type[BadFile], tuple[str, ...]]:
        """Pickle the parts, so that the error reaches other processes."""
        return type(self), self._parts


RESTORE = "Restore it from a copy; if the change is meant, `undertow seal` takes it as it is."


class ChangedFile(BadFile):
    """A sealed file whose content is another than was written: a flipped bit, an exchanged file, an edit."""

    def __init__(
        self,
        path: object,
        problem: str = "its content has changed since undertow wrote it",
        next_step: str = RESTORE,
    ) -> None:
        super().__init__(path, "", problem, next_step)
        self._parts = (str(path), problem, next_step)


FOREIGN = (Exception, SystemExit)
"""What a user's own code may raise: where it calls sys.exit, that must not end our program with its code."""


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> UnknownName:
    """The error for an unknown `name`: near names if there are any, else `hint`, else all names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        advice = f"Did you mean {' or '.join(map(repr, near))}?"
    else:
        advice = hint or f"Known: {', '.join(names) or 'none'}."
    return UnknownName(f"There is no {kind} {name!r}. {advice}")
