"""Names as people can see them, whatever characters they hold."""

from __future__ import annotations

JOINERS = "\u200c\u200d\u00a0"
"""Not printable by themselves, but part of how some scripts are written."""


def visible(value: object) -> str:
    """A name as text that any file can hold: characters without a shape are written as escapes.

    Among them are those that reverse the direction of what follows, which could make a name read as another.
    """
    return "".join(
        letter if letter.isprintable() or letter in JOINERS else letter.encode("unicode_escape").decode()
        for letter in str(value)
    )
