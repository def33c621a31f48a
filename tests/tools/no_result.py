"""Changes of mutants.py that cannot change a result: how much is done at once, a way that gives the same numbers.

Each is a file, the text of its line, the change, and why. A line that is no longer there is an error: the reason may
have gone with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Harmless(NamedTuple):
    """A change that no test can notice."""

    file: str
    line: str
    change: str
    why: str


HARMLESS = (
    Harmless(
        "latent/masc.py", "CELLS, LEAST_ROWS = 2_000_000, 256", "constant: 2000000 -> 2000001",
        "how many rows are scored at once",
    ),
    Harmless("latent/subspace.py", "PANEL = 128", "constant: 128 -> 129", "how wide the panels of a product are"),
    Harmless(
        "latent/subspace.py", "together = dim in SHORT and all(dim <= len(at) for at in classes)",
        "comparison: dim <= len(at) -> dim < len(at)", "both ways give the same subspace",
    ),
    Harmless(
        "latent/subspace.py", "if not together:", "sign: not together -> not not together",
        "both ways give the same subspace, one of them faster",
    ),
    Harmless(
        "latent/subspace.py", "coarse = rounding is not None and rounding > torch.finfo(torch.float32).eps / 4",
        "constant: 4 -> 5", "roundings are half an eps of float32 or far below",
    ),
    Harmless(
        "latent/subspace.py", "if not together:", "condition: if not together: -> if not not together:",
        "both ways give the same subspace, one of them faster",
    ),
    Harmless(
        "latent/subspace.py", "if thin and min(rows.shape) > DIRECTIONS:",
        "comparison: min(rows.shape) > DIRECTIONS -> min(rows.shape) >= DIRECTIONS",
        "rows of exactly that many: both ways give the same subspace",
    ),
    Harmless(
        "latent/subspace.py", "if thin and rows.shape[1] < rows.shape[0]:",
        "comparison: rows.shape[1] < rows.shape[0] -> rows.shape[1] <= rows.shape[0]",
        "a square matrix: both ways give the same subspace",
    ),
    Harmless(
        "latent/velpic.py", "bases = [of_stored(part, thin=thin, count=1).basis for part in rows]",
        "constant: 1 -> 2", "only the first direction is looked at",
    ),
    Harmless(
        "latent/velpic.py", "of_moment(moments.second_moment(c), count=1, rounding=moments.resolution)",
        "constant: 1 -> 2", "only the first direction is looked at",
    ),
    Harmless(
        "latent/velpic.py", "with as_written(rows[0].device):", "constant: 0 -> 1", "all classes are on one device",
    ),
    Harmless(
        "latent/velpic.py", "negative = torch.where(along == 0, largest < 0, along < 0)",
        "comparison: along < 0 -> along <= 0", "0 was asked for before",
    ),
    Harmless(
        "latent/velpic.py", "negative = torch.where(along == 0, largest < 0, along < 0)",
        "comparison: largest < 0 -> largest <= 0", "an entry of the largest magnitude is 0 only if all are",
    ),
    Harmless(
        "latent/logistic.py",
        "least = torch.finfo(rows.dtype).eps if rows.dtype == torch.float32 else 0.0",
        "comparison: rows.dtype == torch.float32 -> rows.dtype != torch.float32",
        "when the float32 steps end; the float64 ones end at the same minimum",
    ),
    Harmless(
        "latent/logistic.py",
        '{"coef_": coef.to(dtype, copy=True), "intercept_": bias.to(dtype, copy=True), "loss_": loss}',
        "constant: True -> False", "nobody writes into the flat weights afterwards",
    ),
    Harmless(
        "richness/alignment.py", "scale = torch.where(scale > 0, 1 / scale, 0)", "constant: 1 -> 2",
        "the same factor for all outputs: it cancels",
    ),
    Harmless(
        "richness/alignment.py", "inverse = torch.where(sizes > TOLERANCE * sizes[:, :1], 1 / sizes, 0)",
        "constant: 1 -> 2", "the same factor for all directions: D_LR is a share",
    ),
    Harmless(
        "richness/alignment.py", "inverse = torch.where(sizes > TOLERANCE * sizes[:, :1], 1 / sizes, 0)",
        "comparison: sizes > TOLERANCE * sizes[:, :1] -> sizes >= TOLERANCE * sizes[:, :1]",
        "a size that is the bound to the last digit",
    ),
    Harmless(
        "latent/nearest.py", "return (~(ahead > 2 * self._error(off)) | ahead.isinf()).nonzero()[:, 0]",
        "comparison: ahead > 2 * self._error(off) -> ahead >= 2 * self._error(off)",
        "whether a row at the very bound is looked at in float64 too",
    ),
    Harmless(
        "latent/nearest.py",
        "torch.sub(self._points[own], self._centre) @ row for own, row in zip(places, off, strict=True)",
        "constant: True -> False", "both have one item for each row",
    ),
)  # fmt: skip


def reason_for(source: Path, file: str, number: int, change: str) -> str:
    """Why a change of a line of a file changes no result; empty where it is not known to be so."""
    line = (source / file).read_text(encoding="utf-8").splitlines()[number - 1].strip()
    return next((one.why for one in HARMLESS if one[:3] == (file, line, change)), "")


def lost(source: Path) -> list[str]:
    """Entries whose line is no longer in its file."""
    return [
        f"{one.file}: {one.line}"
        for one in HARMLESS
        if one.line not in map(str.strip, (source / one.file).read_text(encoding="utf-8").splitlines())
    ]
