"""What all plots share: figures without pyplot, plain axes, labels shown as they are written, legends that fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from protodask.errors import needed
from protodask.explain.explanation import visible
from protodask.explain.palette import GRID, INK, MUTED, PAPER, class_color, class_marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTH = 5.2
"""Inches. At a screen's 400 pixels the smallest text is then about 8 pixels high, at 1,280 about 25."""

TEXT = 9.0
SMALL = 8.0
"""Points."""

LONGEST_LABEL = 22
"""Letters; what is left out of a longer label is replaced by an ellipsis."""

MOST_IN_LEGEND = 40


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of so many inches; it is no pyplot figure and needs no display."""
    with needed("Plots need matplotlib, which is not installed.", "Install protodask[report], and repeat."):
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    layout = ConstrainedLayoutEngine(w_pad=0.07, h_pad=0.07)
    return Figure(figsize=(width, height), facecolor=PAPER, layout=layout)


def tidy(axes: Axes, *, grid: Literal["x", "y", "both", "none"] = "none") -> Axes:
    """Two thin sides, small ticks, and at most a faint grid."""
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(MUTED)
        axes.spines[side].set_linewidth(0.8)
    axes.tick_params(which="both", colors=MUTED, labelcolor=INK, labelsize=SMALL, width=0.8, length=3)
    axes.tick_params(which="minor", length=0)
    axes.set_axisbelow(True)
    if grid != "none":
        axes.grid(True, axis=grid, color=GRID, linewidth=0.8)
    return axes


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Label both axes, in these very letters."""
    axes.set_xlabel(x, fontsize=TEXT, color=INK, parse_math=False)
    axes.set_ylabel(y, fontsize=TEXT, color=INK, parse_math=False)


def set_title(axes: Axes, text: str, size: float = TEXT) -> None:
    """A title at the left, in these very letters."""
    axes.set_title(text, fontsize=size, color=INK, loc="left", parse_math=False)


def shown(label: object, longest: int = LONGEST_LABEL) -> str:
    """A class or a name as one line of at most so many letters; characters without a shape are written as escapes.

    What is left out is in the middle: numbered names differ at the end.
    """
    text = visible(label)
    tail = longest // 3
    return text if len(text) <= longest else text[: longest - 1 - tail] + "…" + text[len(text) - tail :]


def set_ticks(
    axes: Axes, axis: Literal["x", "y"], places: Sequence[float] | NDArray[Any], labels: Sequence[str], **text: Any
) -> None:
    """Ticks at these places with these very labels; `text` is how they are to look."""
    getattr(axes, f"set_{axis}ticks")(np.asarray(places, dtype=np.float64), list(labels), parse_math=False, **text)


def set_log_ticks(axes: Axes, axis: Literal["x", "y"], low: float, high: float, zero: float | None = None) -> None:
    """Ticks at powers of ten between two values on an axis that is logarithmic; `zero` is the place of a 0."""
    from matplotlib.ticker import NullLocator

    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, -(-(last - first + 1) // 8))
    exponents = list(range(first, last + 1, step))
    places = [10.0**exponent for exponent in exponents]
    labels = [power_of_ten(exponent) for exponent in exponents]
    if len(places) < 2:
        places = sorted({low, high})
        labels = [f"{place:.2g}" for place in places]
    if zero is not None:
        places, labels = [zero, *places], ["0", *labels]
    axes.set(**{f"{axis}scale": "log"})
    getattr(axes, f"{axis}axis").set_minor_locator(NullLocator())
    set_ticks(axes, axis, places, labels)


SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def power_of_ten(exponent: int) -> str:
    """A power of ten: in full from 0.001 to 1,000."""
    if -3 <= exponent <= 3:
        return f"{10.0**exponent:,.{max(0, -exponent)}f}"
    return "10" + str(exponent).translate(SUPERSCRIPTS)


def compact(value: float) -> str:
    """A count or a weight in few letters."""
    if not math.isfinite(value):
        return str(value)
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}"


def note(figure: Figure, text: str) -> Figure:
    """A figure that says why there is nothing to see."""
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=TEXT, color=MUTED, wrap=True, parse_math=False)
    return figure


def legend_sign(**looks: Any) -> Line2D:
    """A sign in a legend: a marker by itself, unless it is to be a line."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **{"linestyle": "none", **looks})


def class_sign(position: int) -> Line2D:
    """The sign of a class."""
    return legend_sign(
        marker=class_marker(position),
        color=class_color(position),
        markeredgecolor=PAPER,
        markersize=6.5,
        markeredgewidth=0.4,
    )


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend below the axes, in as many columns as fit; the figure grows by its height.

    Labels are set when the legend exists: matplotlib leaves out those that begin with an underscore.
    """
    longest = 16 if len(labels) > 12 else LONGEST_LABEL
    texts = [shown(label, longest) for label in labels[:MOST_IN_LEGEND]]
    if not texts:
        return
    if len(labels) > MOST_IN_LEGEND:
        texts[-1] = f"and {len(labels) - MOST_IN_LEGEND + 1} more"
    size = SMALL if len(texts) <= 12 else SMALL - 1
    width, height = figure.get_size_inches()
    columns = _legend_columns([len(text) for text in texts], width * 72 / (LETTER_WIDTH * size))
    rows = -(-len(texts) // columns)
    figure.set_size_inches(width, height + 0.1 + rows * size * 1.55 / 72)
    handles = [*handles[: MOST_IN_LEGEND - 1], legend_sign()] if len(labels) > MOST_IN_LEGEND else list(handles)
    made = figure.legend(
        handles,
        ["."] * len(texts),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=size,
        labelcolor=INK,
        handletextpad=0.35,
        columnspacing=1.1,
        handlelength=1.4,
        borderaxespad=0.2,
    )
    for entry, text in zip(made.get_texts(), texts, strict=True):
        entry.set_parse_math(False)
        entry.set_text(text)


LETTER_WIDTH = 0.62
"""Of the font's size, on average; what is drawn small is drawn a little wider."""

LETTERS_BESIDE = 5
"""What the sign, and the space on both sides of it, take of a legend's width."""


def _legend_columns(lengths: Sequence[int], letters: float) -> int:
    """Most columns, filled one after the other as evenly as possible, that fit into the width of so many letters."""
    for columns in range(len(lengths), 1, -1):
        widest = [part.max() + LETTERS_BESIDE for part in np.array_split(np.array(lengths), columns)]
        if sum(widest) <= letters:
            return columns
    return 1


def legend_classes(figure: Figure, classes: Sequence[object], positions: Sequence[int]) -> None:
    """The legend of some classes, given by position."""
    legend_below(figure, [class_sign(position) for position in positions], [str(classes[p]) for p in positions])


def spread_rows(length: int, most: int) -> NDArray[np.int64]:
    """At most `most` positions below `length`, evenly spread: what a plot can show of many rows."""
    return np.arange(length) if length <= most else np.linspace(0, length - 1, most).astype(np.int64)


def marker_sizes(weight: NDArray[np.float64], smallest: float = 9.0, largest: float = 90.0) -> NDArray[np.float64]:
    """Areas of markers, in square points, that grow in proportion to the weight."""
    top = weight.max(initial=0.0)
    share = weight / top if top > 0 else np.zeros_like(weight)
    return smallest + (largest - smallest) * share
