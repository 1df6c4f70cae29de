"""Plots of how good a model is: confusion, calibration, familiarity, importance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.data.format.schema import Label
from protodask.engine.records import Floats
from protodask.errors import InputError
from protodask.evaluation.calibration import CalibrationCurve
from protodask.explain.importance import Importance
from protodask.explain.palette import ACCENT, CLASS_COLORS, GRID, INK, MUTED, PAPER, class_color
from protodask.explain.plot_figures import (
    SMALL,
    TEXT,
    compact,
    legend_below,
    legend_sign,
    name_axes,
    new_figure,
    note,
    power_of_ten,
    set_ticks,
    set_title,
    shown,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_CELLS_WITH_COUNTS = 6
MOST_CELLS_WITH_SHARES = 30
MOST_NAMED_CLASSES = 40

RIGHT, WRONG = ACCENT, CLASS_COLORS[1]
"""Colours of the diagonal of a confusion matrix, and of the rest."""


def confusion_plot(confusion: ArrayLike, classes: Sequence[Label]) -> Figure:
    """Weight by true class (row) and predicted class (column), (K, K), shaded by its share of the row.

    Up to 6 classes a cell says count and share, up to 30 the share in per cent, and the margin the row's count.
    """
    counts = np.asarray(confusion, dtype=np.float64)
    if counts.shape != (len(classes), len(classes)):
        raise InputError(
            "wrong-shape",
            f"The confusion matrix has shape {counts.shape} for {len(classes)} classes.",
            "Give a square matrix with a row and a column for each class.",
        )
    n_classes = len(classes)
    figure = new_figure(4.4 if n_classes else 1.2)
    if n_classes == 0:
        return note(figure, "There are no classes.")
    totals = counts.sum(axis=1)
    present = np.isfinite(totals) & (totals > 0)
    shares = np.divide(counts, totals[:, None], out=np.zeros_like(counts), where=present[:, None])
    axes = tidy(figure.add_subplot())
    _draw_cells(axes, shares)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.set(xlim=(0, n_classes), ylim=(n_classes, 0), aspect="equal")
    size = SMALL if n_classes <= 15 else max(4.5, min(SMALL, 215 / n_classes))
    step = -(-n_classes // MOST_NAMED_CLASSES)
    places = np.arange(0, n_classes, step)
    names = [shown(classes[place], 14 if n_classes <= 12 else 10) for place in places.tolist()]
    flat = n_classes * max(map(len, names)) < 45
    turned: dict[str, Any] = {} if flat else {"rotation": 90, "va": "top"}
    set_ticks(axes, "x", places + 0.5, names, fontsize=size, **turned)
    set_ticks(axes, "y", places + 0.5, names, fontsize=size)
    name_axes(axes, "predicted class", "true class")
    if n_classes <= MOST_CELLS_WITH_SHARES:
        _write_cells(axes, counts, shares, present)
    if MOST_CELLS_WITH_COUNTS < n_classes <= MOST_CELLS_WITH_SHARES:
        for row in range(n_classes):
            axes.text(n_classes + 0.25, row + 0.5, compact(totals[row]), fontsize=size, color=MUTED, va="center")
        axes.text(n_classes + 0.25, -0.15, "rows", fontsize=size, color=MUTED, va="bottom")
    return figure


def _draw_cells(axes: Axes, shares: Floats) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    n_classes = len(shares)
    colors = np.empty((n_classes, n_classes, 4))
    own = np.eye(n_classes, dtype=np.bool_)
    colors[own, :3], colors[~own, :3] = to_rgb(RIGHT), to_rgb(WRONG)
    # Small shares are what one looks for.
    colors[..., 3] = np.where(shares > 0, 0.06 + 0.94 * shares**0.7, 0.0)
    many = n_classes > MOST_NAMED_CLASSES
    if many:  # a picture says the same as thousands of shapes, in fewer bytes
        axes.imshow(colors, extent=(0, n_classes, n_classes, 0), interpolation="nearest")
    else:
        row, column = np.nonzero(shares > 0)
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
        cells = np.stack([column, row], axis=1)[:, None, :] + corners
        axes.add_collection(PolyCollection(list(cells), facecolors=colors[row, column], edgecolors="none"))
    lines = np.arange(n_classes + 1) if not many else np.array([0, n_classes])
    axes.hlines(lines, 0, n_classes, color=GRID, linewidth=0.6)
    axes.vlines(lines, 0, n_classes, color=GRID, linewidth=0.6)


def _write_cells(axes: Axes, counts: Floats, shares: Floats, present: NDArray[np.bool_]) -> None:
    n_classes = len(counts)
    size = min(TEXT, 155 / n_classes) if n_classes > MOST_CELLS_WITH_COUNTS else (TEXT if n_classes <= 4 else SMALL)
    for row in np.flatnonzero(present).tolist():
        for column in range(n_classes):
            share = shares[row, column]
            if n_classes <= MOST_CELLS_WITH_COUNTS:
                text = f"{compact(counts[row, column])}\n{share:.1%}"
            else:
                text = f"{100 * share:.0f}" if share >= 0.005 else ""
            color = MUTED if share == 0 else PAPER if share > 0.55 else INK
            axes.text(column + 0.5, row + 0.5, text, fontsize=size, color=color, ha="center", va="center")


def calibration_plot(curve: CalibrationCurve, most: int = 9) -> Figure:
    """Share of each class among the rows that get it with a probability, with a band, and below the rows themselves.

    Of two classes the second is shown, whose curve mirrors that of the first; of more, the `most` with the most rows.
    """
    n_classes = len(curve.classes)
    # The expected weight of a class is the sum of its probabilities over all rows.
    mass = np.nansum(curve.predicted * curve.weight, axis=1)
    chosen = [1] if n_classes == 2 else sorted(np.argsort(-mass, kind="stable")[:most].tolist())
    columns = min(3, len(chosen))
    rows = -(-len(chosen) // max(columns, 1))
    figure = new_figure((3.6 if columns == 1 else 2.6 if columns == 2 else 1.85 * rows + 0.35) if chosen else 1.2)
    if not chosen or not (curve.weight > 0).any():
        return note(figure, "There are no rows.")
    first: Axes | None = None
    for place, position in enumerate(chosen):
        axes = figure.add_subplot(rows, columns, place + 1, sharex=first, sharey=first)
        first = first or axes
        _draw_calibration(tidy(axes), curve, position)
        axes.tick_params(labelleft=place % columns == 0, labelbottom=place + columns >= len(chosen))
    ticks = [0, 0.5, 1] if columns > 1 else [0, 0.25, 0.5, 0.75, 1]
    if first is not None:
        for axis in ("x", "y"):
            set_ticks(first, axis, ticks, [f"{tick:g}" for tick in ticks])
    figure.supxlabel("predicted probability", fontsize=TEXT, color=INK)
    figure.supylabel("observed share", fontsize=TEXT, color=INK)
    if n_classes > len(chosen) > 1:
        figure.suptitle(
            f"{len(chosen)} of {n_classes} classes: those with the most rows", fontsize=SMALL, color=MUTED, ha="center"
        )
    return figure


def _draw_calibration(axes: Axes, curve: CalibrationCurve, position: int) -> None:
    weight = curve.weight[position]
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    bars = 0.22 * weight / weight.max() if weight.max(initial=0.0) > 0 else np.zeros(len(weight))
    axes.bar(curve.edges[:-1], bars, width=np.diff(curve.edges), align="edge", color=GRID, linewidth=0)
    found = np.flatnonzero(np.isfinite(curve.observed[position]))
    x, y = curve.predicted[position][found], curve.observed[position][found]
    low, high = curve.low[position][found], curve.high[position][found]
    if len(found) == 1:
        axes.vlines(x, low, high, color=ACCENT, linewidth=5, alpha=0.22)
    axes.fill_between(x, low, high, color=ACCENT, alpha=0.22, linewidth=0)
    axes.plot(x, y, color=ACCENT, linewidth=1.4, marker="o", markersize=3)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    error = float(curve.error[position])
    set_title(axes, shown(curve.classes[position], 18), SMALL)
    if math.isfinite(error):
        axes.text(0.04, 0.96, f"error {error:.3f}", fontsize=SMALL - 1, color=MUTED, va="top", transform=axes.transAxes)


FAMILIARITY_FLOOR = 1e-3
"""Below this the model has next to no evidence, however much less it is."""

FAMILIARITY_BINS = 40


def familiarity_plot(samples: Mapping[str, ArrayLike]) -> Figure:
    """Distribution of familiarity in named samples, as shares of their rows, on a logarithmic axis from 0.001."""
    numbers = {name: np.asarray(values, dtype=np.float64).ravel() for name, values in samples.items()}
    found = {name: values[np.isfinite(values)] for name, values in numbers.items() if np.isfinite(values).any()}
    figure = new_figure(2.9 if found else 1.2)
    if not found:
        return note(figure, "There are no rows.")
    top = max(10 * FAMILIARITY_FLOOR, *(float(values.max()) for values in found.values()))
    edges = np.linspace(math.log10(FAMILIARITY_FLOOR), math.log10(top) + 1e-9, FAMILIARITY_BINS + 1)
    axes = tidy(figure.add_subplot(), grid="y")
    styles = ("-", "--", ":")
    for position, values in enumerate(found.values()):
        logs = np.log10(np.maximum(values, FAMILIARITY_FLOOR))
        share = np.histogram(np.clip(logs, edges[0], edges[-1]), edges)[0] / len(values)
        color, style = class_color(position), styles[position // len(CLASS_COLORS) % len(styles)]
        axes.stairs(share, edges, color=color, fill=True, alpha=0.12, linewidth=0)
        axes.stairs(share, edges, color=color, linewidth=1.4, linestyle=style)
    first, last = round(edges[0]), math.floor(edges[-1])
    exponents = list(range(first, last + 1, max(1, -(-(last - first) // 7))))
    labels = [f"≤ {power_of_ten(first)}", *map(power_of_ten, exponents[1:])]
    set_ticks(axes, "x", exponents, labels)
    axes.set_xlim(edges[0] - 0.02, edges[-1] + 0.02)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g}%")
    name_axes(axes, "familiarity", "share of rows")
    labels = [f"{shown(name)} ({len(values):,} rows)" for name, values in found.items()]
    legend_below(
        figure,
        [legend_sign(color=class_color(place), linestyle="-", linewidth=2) for place in range(len(found))],
        labels,
    )
    return figure


def importance_plot(importance: Importance, most: int = 20) -> Figure:
    """Increase of the log-loss when a column is permuted, with its standard error: the `most` important columns."""
    order = [place for place in importance.order.tolist() if math.isfinite(importance.mean[place])]
    active = [place for place in order if importance.mean[place] != 0 or importance.standard_error[place] != 0]
    chosen = (active or order)[:most]
    figure = new_figure(0.21 * len(chosen) + 0.9 if chosen else 1.2)
    if not chosen:
        return note(figure, "There are no columns.")
    axes = tidy(figure.add_subplot(), grid="x")
    places = np.arange(len(chosen))
    mean, error = importance.mean[chosen], np.nan_to_num(importance.standard_error[chosen])
    axes.barh(places, mean, height=0.62, color=ACCENT, alpha=0.85, linewidth=0)
    axes.hlines(places, mean - error, mean + error, color=INK, linewidth=1.1)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    set_ticks(axes, "y", places, [shown(importance.names[place], 28) for place in chosen])
    axes.set_ylim(len(chosen) - 0.4, -0.6)
    axes.locator_params(axis="x", nbins=6)
    rest = len(importance.names) - len(chosen)
    about = f"increase of the log-loss when permuted, ± standard error\nit is {importance.log_loss:.4g} on "
    about += f"{importance.rows:,} rows as they are" + (f"; {rest:,} more columns" if rest else "")
    figure.supxlabel(about, fontsize=SMALL, color=INK, parse_math=False)
    return figure
