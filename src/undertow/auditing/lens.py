"""What a lens is: a function of a session that gives a typed result with tidy rows. Anyone can add one.

    def my_lens(session):                     # session: one pass for all, see undertow.session
        gauges = [Sparsity(layer) for layer in session.layers("auto")]
        session.visit(gauges)
        return MyResult(...)                  # a frozen dataclass with .rows() -> Row(...), one for each number

    ut.audit(run, lenses=["latent", my_lens])

A lens that has a method `gauges(session)` is visited together with all others, in one pass over the samples. Rows go
into the table, the page and the gates (`--fail-if`): a measure's name stands for its last row, or for what a method
`measures()` of the result says. docs/lenses.md has an example that is run by a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol, cast, runtime_checkable

from undertow.errors import BadValue, unknown
from undertow.rows import Row
from undertow.session.gauge import Gauge
from undertow.session.session import Session
from undertow.shares import Number


@runtime_checkable
class Result(Protocol):
    """What a lens found."""

    def rows(self) -> Iterable[Row]:
        """Its numbers, one row each."""
        ...


class Lens(Protocol):
    """A way to look at a session."""

    def __call__(self, session: Session) -> Result:
        """Look."""
        ...


def gauges_of(lens: Lens, session: Session) -> Sequence[Gauge[Any]]:
    """What a lens wants of the pass that all share."""
    asked = getattr(lens, "gauges", None)
    return [] if asked is None else asked(session)


def find_lens(named: object, known: Sequence[str]) -> str | Lens:
    """A built-in lens by name, anyone's as package.module:function, or a function itself."""
    if callable(named):
        return cast("Lens", named)
    if not isinstance(named, str):
        raise BadValue("lenses", f"names among {', '.join(known)}, or functions", named)
    if named in known:
        return named
    module, _, name = named.partition(":")
    if not name:
        raise unknown("lens", named, known)
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise BadValue("lenses", "package.module:function", named)
    try:
        return cast("Lens", getattr(import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise BadValue(
            "lenses", "package.module:function that can be imported", named, f"{error}."
        ) from error


def measures_of(result: Result) -> dict[str, Number]:
    """The numbers of a result that gates know by name."""
    told = getattr(result, "measures", None)
    if told is not None:
        return dict(told())
    known = [one for one in result.rows() if one.value is not None]
    return {one.measure: Number(one.value, one.low, one.high) for one in known if one.value is not None}
