"""The colours of every plot, each a constant: a page that shows a plot as SVG can put a variable in the place of each.

Shades are made by opacity, never by another colour, so that they follow the replacement.
"""

from __future__ import annotations

INK = "#1f2430"
"""Text and the lines that carry the message."""

MUTED = "#6b7280"
"""Axes, tick labels, what is there for comparison."""

PAPER = "#ffffff"
"""Behind everything."""

GRID = "#e3e6eb"
"""Grid lines and empty bars."""

ACCENT = "#2f5fb3"
"""The one series of a plot that has one, and what was chosen."""

CLASS_COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#c99700",
    "#56b4e9",
    "#7a4fb5",
    "#8c6d46",
)
"""For classes and other names without an order. The first seven follow the set of Okabe and Ito, told apart by people
with any of the common colour deficiencies; its yellow is darkened and its black replaced, for white and black paper."""

CLASS_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
"""Shapes that tell apart the classes that share a colour."""


def class_color(position: int) -> str:
    """Colour of a class by its position; after the last they begin again."""
    return CLASS_COLORS[position % len(CLASS_COLORS)]


def class_marker(position: int) -> str:
    """Shape of a class by its position: the next one whenever the colours begin again."""
    return CLASS_MARKERS[position // len(CLASS_COLORS) % len(CLASS_MARKERS)]
