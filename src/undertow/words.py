"""Numbers as people read them.

number(0.048712)        # "0.0487"
number(7.5e-14)         # "7.5e-14"
"""

from __future__ import annotations


def number(value: float) -> str:
    """Three significant digits, without an exponent where it is easy to read without."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        digits = f"{value:.3g}"
        return f"{value:.0f}" if "e" in digits else digits
    return f"{value:.1e}"
