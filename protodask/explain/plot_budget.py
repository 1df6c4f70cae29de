"""A plot of what budgets buy: how accurate the model is that each method finds for an item of a size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from protodask.engine.records import Floats
from protodask.errors import InputError
from protodask.explain.palette import CLASS_MARKERS, MUTED, PAPER, class_color
from protodask.explain.plot_figures import (
    SMALL,
    compact,
    legend_below,
    legend_sign,
    name_axes,
    new_figure,
    note,
    power_of_ten,
    set_log_ticks,
    set_ticks,
    set_title,
    shown,
    spread_rows,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Choosing(Protocol):
    """What finds one of its candidates for an item under a budget, as the indexes of feature budgets do."""

    @property
    def accuracies(self) -> Floats:
        """Of the candidates."""

    def choose(self, sizes: ArrayLike, budgets: ArrayLike) -> Any:
        """Numbers of candidates, -1 where none is within the budget."""


AccuracyAt = Callable[[float, Floats], ArrayLike]
"""For an item of a size the accuracy under each of these budgets, NaN where nothing is within one."""

STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (7, 1.5, 1.2, 1.5)), (0, (2.5, 1)))
"""Of the lines. With the eight markers, forty methods differ without a look at their colours."""

WIDEST, NARROWEST = 2.4, 1.0
"""Points. Each line is narrower than the one before, over which it is drawn: both are seen where they agree."""

MARKERS = 6
"""On each line, at places of its own, for the same reason."""

STEPS = 480
"""Budgets that are looked up in a panel, more than it has pixels on a page."""

MOST_PANELS = 9
MOST_TICKS = 5

LONGEST_NAME = {1: 60, 2: 28, 3: 16}
"""Letters of an axis' name, by the number of panels beside each other."""


def budget_plot(
    methods: Mapping[str, Choosing | AccuracyAt],
    sizes: Sequence[float],
    budgets: tuple[float, float],
    *,
    measured: Mapping[str, ArrayLike] | None = None,
    size_name: str = "size",
    budget_name: str = "budget",
) -> Figure:
    """Accuracy against budget: a panel for each size of items, a line for each method.

    `budgets` are the ends of the axis, which is logarithmic. Of `measured`, (rows, 3), each row is a size, a budget and
    the accuracy that was found with them; it is shown as a hollow marker, and left out where it has no panel.
    """
    low, high = (float(end) for end in budgets)
    if not 0 < low < high < np.inf:
        raise InputError(
            "bad-setting",
            f"The budgets range from {low:g} to {high:g}.",
            "Give two positive numbers, the smaller one first.",
        )
    points = _points(methods, measured or {})
    given = sorted({float(size) for size in sizes})
    kept = [given[place] for place in spread_rows(len(given), MOST_PANELS).tolist()]
    if not kept or not methods:
        return note(new_figure(1.2), "There are no methods." if kept else "There are no sizes.")
    columns = 2 if len(kept) == 4 else min(3, len(kept))
    rows = -(-len(kept) // columns)
    figure = new_figure({1: 2.9, 2: 2.1, 3: 1.75}[columns] * rows + 0.35)
    grid = np.geomspace(low, high, STEPS)
    first: Axes | None = None
    for place, size in enumerate(kept):
        axes = tidy(figure.add_subplot(rows, columns, place + 1, sharex=first, sharey=first), grid="y")
        if first is None:
            first = axes
            _set_budget_ticks(axes, low, high)
        for position, (name, method) in enumerate(methods.items()):
            _draw_line(axes, (position, len(methods)), grid, _accuracies(name, method, size, grid))
        for position, name in enumerate(methods):
            if name in points:
                _draw_points(axes, position, points[name], size)
        set_title(axes, f"{shown(size_name, 12)} {compact(size)}", SMALL)
        lowest, leftmost = place + columns >= len(kept), place % columns == 0
        axes.tick_params(labelbottom=lowest, labelleft=leftmost)
        name_axes(axes, shown(budget_name, LONGEST_NAME[columns]) if lowest else "", "accuracy" if leftmost else "")
    if len(kept) < len(given):
        figure.suptitle(f"{len(kept)} of {len(given)} sizes", fontsize=SMALL, color=MUTED)
    handles = [legend_sign(linewidth=1.6, markersize=4.5, **_looks(position)) for position in range(len(methods))]
    labels = list(methods)
    if points:
        hollow = legend_sign(marker="o", markersize=5, markerfacecolor=PAPER, markeredgecolor=MUTED)
        handles, labels = [*handles, hollow], [*labels, "as measured"]
    legend_below(figure, handles, labels)
    return figure


def _points(methods: Mapping[str, Any], measured: Mapping[str, ArrayLike]) -> dict[str, Floats]:
    found: dict[str, Floats] = {}
    for name, rows in measured.items():
        if name not in methods:
            raise InputError(
                "unknown-name",
                f"{shown(name)!r} was measured but is not among the methods.",
                "Give both under the same name.",
            )
        table = np.asarray(rows, dtype=np.float64)
        if table.size == 0:
            table = np.zeros((0, 3))
        if table.ndim != 2 or table.shape[1] != 3:
            raise InputError(
                "wrong-shape",
                f"What was measured of {shown(name)!r} has the shape {table.shape}.",
                "Give rows of three numbers: size, budget and accuracy.",
            )
        found[name] = table
    return found


def _accuracies(name: str, method: Choosing | AccuracyAt, size: float, budgets: Floats) -> Floats:
    if callable(method):
        values = np.asarray(method(size, budgets), dtype=np.float64)
        if values.shape != budgets.shape:
            raise InputError(
                "user-code",
                f"{shown(name)!r} has accuracies of the shape {values.shape} for {len(budgets)} budgets.",
                "Return one for each budget.",
            )
        return values
    numbers = np.asarray(method.choose(np.full(len(budgets), size), budgets))
    values = np.append(np.asarray(method.accuracies, dtype=np.float64), np.nan)  # which number -1 means
    return np.asarray(values[numbers])


def _set_budget_ticks(axes: Axes, low: float, high: float) -> None:
    """Powers of ten, and numbers between them where there are hardly two: as many as fit into the narrowest panel."""
    set_log_ticks(axes, "x", low, high)
    axes.set_xlim(low, high)
    exponents = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    if high / low >= 100:
        some = exponents[:: -(-len(exponents) // MOST_TICKS)]
        set_ticks(axes, "x", [10.0**exponent for exponent in some], [power_of_ten(exponent) for exponent in some])
        return
    for leading in ((1, 2, 5), (1, 3)):
        places = [
            digit * 10.0**exponent for exponent in range(exponents.start - 1, exponents.stop) for digit in leading
        ]
        inside = [place for place in places if low <= place <= high]
        if 2 <= len(inside) <= MOST_TICKS:
            set_ticks(axes, "x", inside, [f"{place:.3g}" for place in inside])
            return


def _draw_line(axes: Axes, position: tuple[int, int], budgets: Floats, accuracies: Floats) -> None:
    number, of = position
    every = STEPS // MARKERS
    # Where a line begins only with a large budget, its first marker is at its beginning.
    begin = int(np.argmax(np.isfinite(accuracies)))
    places = [*range(begin + (2 * number + 1) * every // (2 * of), STEPS, every)]
    axes.step(
        budgets,
        accuracies,
        where="post",
        linewidth=WIDEST - (WIDEST - NARROWEST) * number / max(of - 1, 1),
        markersize=3.6,
        markevery=places,
        **_looks(number),
    )


def _draw_points(axes: Axes, number: int, points: Floats, size: float) -> None:
    mine = points[points[:, 0] == size]
    axes.plot(
        mine[:, 1],
        mine[:, 2],
        linestyle="none",
        marker=_looks(number)["marker"],
        markersize=5,
        markerfacecolor=PAPER,
        markeredgecolor=class_color(number),
        markeredgewidth=1.1,
        zorder=3,
    )


def _looks(number: int) -> dict[str, Any]:
    """Of a line and its markers, but for their sizes."""
    return {
        "color": class_color(number),
        "linestyle": STYLES[number % len(STYLES)],
        "marker": CLASS_MARKERS[number % len(CLASS_MARKERS)],
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.4,
    }
