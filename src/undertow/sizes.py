"""Sizes in bytes and times in seconds, as people write and read them.

parse_size("2GB")                  # 2,000,000,000; GiB is 2^30
check_whole("seed", 7, 0)          # a whole number from 0 to 2^53
show_size(335_544_320)             # "336 MB"
show_time(5400)                    # "90 min"
"""

from __future__ import annotations

import re

from undertow.errors import BadValue

EXACT = 2**53
"""The largest whole number that is exact in JSON and among floats: larger seeds, epochs and counts are refused."""
_LETTERS = " KMGT"


def parse_size(text: str | int, who: str = "memory", least: int = 1) -> int:
    """At least `least` bytes of "2GB", "512 MiB", "1.5g" or a plain number; GB is 10^9 and GiB is 2^30."""
    told = str(min(text, 2 * EXACT)) if isinstance(text, int) else str(text)
    found = re.fullmatch(r" *([0-9]{1,19}(?:\.[0-9]{1,19})?) *([KMGT]?)(I?)B? *", told.strip().upper())
    if not found or not told.isascii() or (found[3] and not found[2]):
        raise BadValue(who, "a size like 2GB, 512MB or 1.5GiB", text)
    base = 1024 if found[3] else 1000
    size = int(float(found[1]) * base ** _LETTERS.index(found[2] or " "))
    if size > EXACT:
        raise BadValue(who, "at most 9,000 TB", text)
    if size < least:
        raise BadValue(who, "more than nothing", text)
    return size


def check_whole(who: str, value: int, least: int, most: int = EXACT) -> None:
    """Refuse a count or a seed outside what is allowed; the end that nobody reaches is told to who reached it."""
    if not hasattr(value, "__index__"):
        raise BadValue(who, "a whole number", value)
    if not least <= value <= most:
        raise BadValue(who, f"a number from {least} {'on' if value < least else f'to {most:,}'}", value)


def show_size(size: float) -> str:
    """A size for people: 335 MB, 2.1 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.{1 if size < 9.95 and unit != 'B' else 0}f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def show_time(seconds: float) -> str:
    """A time for people: 4 s, 3 min, 2.5 h."""
    if seconds < 0.1:
        return "0.1 s"  # nothing takes no time at all
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"
