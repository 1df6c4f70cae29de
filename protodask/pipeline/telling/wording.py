"""How numbers and places are put, the same wherever they are said."""

from __future__ import annotations

import os
from typing import Any

from protodask.places import mask

MOST_LINES = 20
"""Lines of a list that are shown; --json has all."""


def value_text(value: Any) -> str:
    """A value of no special kind."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """A weight or a count: without decimals where it is whole or so large that they say nothing."""
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:,.4g}"


def count(amount: int, one: str, many: str | None = None) -> str:
    """A number of things."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def size(amount: int) -> str:
    """Bytes to read."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(max(amount.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{amount / 1024**power:.4g} {units[power]}"


def describe_seconds(seconds: float) -> str:
    """A duration to read."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def shorten(path: str) -> str:
    """A path as seen from the current folder, where that is shorter; of a URL, what may be shown."""
    if "://" in path:
        return mask(path)
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) and not relative.startswith("..") else path
