"""Plots of where things are: decision surfaces, maps of batches, and the scatter matrix of the active features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from protodask.engine.records import Floats, Integers
from protodask.errors import InputError, count
from protodask.explain.maps import BatchMap
from protodask.explain.palette import GRID, INK, MUTED, PAPER, class_color, class_marker
from protodask.explain.plot_figures import (
    SMALL,
    legend_classes,
    marker_sizes,
    name_axes,
    new_figure,
    note,
    set_title,
    shown,
    spread_rows,
    tidy,
)
from protodask.explain.surface import Surface, prototype_values
from protodask.prototypes.model import PrototypeSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_PROTOTYPES = 400
"""Drawn one by one in a plot, the heaviest; more would hide each other."""

MOST_ROWS = 1500
"""Rows drawn in a plot, evenly spread."""

MOST_SHAPES = 2000
"""Rows drawn as shapes of their own, in all panels together; more become a picture, which is smaller in a page."""


def surface_plot(surface: Surface) -> Figure:
    """Regions of the predicted classes, stronger where the class is more probable, and the prototypes near by."""
    figure = new_figure(4.0)
    axes = tidy(figure.add_subplot())
    x, y = surface.first_values, surface.second_values
    steps = ((x[1] - x[0]) / 2, (y[1] - y[0]) / 2)
    axes.imshow(
        _region_colors(surface),
        extent=(x[0] - steps[0], x[-1] + steps[0], y[0] - steps[1], y[-1] + steps[1]),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )
    present = np.unique(surface.predicted)
    for ahead in _leads(surface, present):
        if ahead.min() < 0 < ahead.max():
            axes.contour(x, y, ahead, levels=[0], colors=[INK], linewidths=0.7, linestyles="solid")
    kept = slice(0, MOST_PROTOTYPES)
    _say_cut(axes, "with the strongest impact here", len(surface.prototypes))
    _scatter_prototypes(
        axes, surface.prototypes[kept], surface.prototype_class[kept], marker_sizes(surface.prototype_impact[kept])
    )
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    axes.locator_params(nbins=6)
    name_axes(axes, shown(surface.names[0], 50), shown(surface.names[1], 40))
    legend_classes(figure, surface.classes, sorted({*present.tolist(), *surface.prototype_class[kept].tolist()}))
    return figure


def _region_colors(surface: Surface) -> Floats:
    """The colour of the most probable class, as opaque as it is ahead of an even guess (n, n, 4)."""
    from matplotlib.colors import to_rgb

    n_classes = len(surface.classes)
    palette = np.array([to_rgb(class_color(position)) for position in range(n_classes)])
    top = surface.probability.max(axis=2)
    sure = np.clip((top - 1 / n_classes) / (1 - 1 / n_classes), 0, 1) if n_classes > 1 else np.ones_like(top)
    return np.concatenate([palette[surface.predicted], (0.1 + 0.5 * sure)[..., None]], axis=2)


def _leads(surface: Surface, positions: Integers) -> Iterator[Floats]:
    """How far each of some classes is ahead of the best other one (n, n): 0 on the borders of its region."""
    if len(surface.classes) < 2:
        return
    second, best = np.moveaxis(np.partition(surface.probability, -2, axis=2)[..., -2:], 2, 0)
    for position in positions.tolist():
        yield surface.probability[..., position] - np.where(surface.predicted == position, second, best)


def _say_cut(axes: Axes, which: str, n_prototypes: int) -> None:
    """Say so where not all prototypes are drawn."""
    if n_prototypes > MOST_PROTOTYPES:
        set_title(axes, f"{MOST_PROTOTYPES} of {n_prototypes:,} prototypes, those {which}", SMALL - 1)


def _scatter_prototypes(axes: Axes, places: Floats, classes: Integers, sizes: Floats) -> None:
    for position in np.unique(classes).tolist():
        mine = classes == position
        axes.scatter(
            places[mine, 0],
            places[mine, 1],
            s=sizes[mine],
            c=class_color(position),
            marker=class_marker(position),
            edgecolors=PAPER,
            linewidths=0.6,
            zorder=3,
        )


def _scatter_rows(axes: Axes, places: Floats, classes: Integers | None, size: float, panels: int = 1) -> None:
    looks: dict[str, Any] = {
        "s": size,
        "alpha": 0.35,
        "linewidths": 0,
        "zorder": 2,
        "rasterized": len(places) * panels > MOST_SHAPES,
    }
    if classes is None:
        axes.scatter(places[:, 0], places[:, 1], c=MUTED, **looks)
        return
    for position in np.unique(classes).tolist():
        mine = classes == position
        axes.scatter(places[mine, 0], places[mine, 1], c=class_color(position), **looks)


def map_plot(batch_map: BatchMap, features: ArrayLike | None = None, target: ArrayLike | None = None) -> Figure:
    """The prototypes of a batch, sized by weight, in the plane in which they differ most; lengths are comparable.

    `features`: other rows to show, with all features of the model, in raw units; `target`: their classes by position.
    """
    figure = new_figure(4.0 if len(batch_map.row) else 1.2)
    if len(batch_map.row) == 0:
        return note(figure, f"Batch {batch_map.batch} has no prototypes.")
    axes = tidy(figure.add_subplot())
    order = np.argsort(-batch_map.prototype_weight, kind="stable")[:MOST_PROTOTYPES]
    places, classes = batch_map.positions[order], batch_map.prototype_class[order]
    _say_cut(axes, "of the largest weight", len(batch_map.row))
    present = set(classes.tolist())
    if features is not None:
        rows = np.asarray(features)
        codes = _checked_classes(target, len(rows), len(batch_map.classes))
        kept = spread_rows(len(rows), MOST_ROWS)
        shown_classes = None if codes is None else codes[kept]
        _scatter_rows(axes, batch_map.project(rows[kept]), shown_classes, 7)
        present |= set() if shown_classes is None else set(shown_classes.tolist())
    _scatter_prototypes(axes, places, classes, marker_sizes(batch_map.prototype_weight[order]))
    axes.axhline(0, color=GRID, linewidth=0.8, zorder=1)
    axes.axvline(0, color=GRID, linewidth=0.8, zorder=1)
    axes.margins(0.06)
    axes.set_aspect("equal", adjustable="datalim")
    axes.locator_params(nbins=6)
    name_axes(axes, _axis_name(batch_map, 0), _axis_name(batch_map, 1))
    legend_classes(figure, batch_map.classes, sorted(present))
    return figure


def _axis_name(batch_map: BatchMap, position: int) -> str:
    """The share of the variance, and the features with the largest loadings."""
    loadings = batch_map.axes[position]
    if not loadings.any():
        return "no further variance"
    text = f"{batch_map.explained[position]:.0%} of the variance"
    most, longest = (3, 18) if position == 0 else (2, 16)
    order = np.argsort(-np.abs(loadings), kind="stable")[:most].tolist()
    terms = [
        f"{'−' if loadings[place] < 0 else '+'} {shown(batch_map.feature_names[place], longest)}"
        for place in order
        if abs(loadings[place]) > 0.1
    ]
    return f"{text}\n{' '.join(terms).removeprefix('+ ')}"


def scatter_plot(
    model: PrototypeSet, features: ArrayLike | None = None, target: ArrayLike | None = None, most: int = 6
) -> Figure:
    """The active features against each other, at most `most`, those with the largest weights first.

    Dots are the rows `features` (N, D), in raw units, coloured by `target`, their classes by position; the heaviest
    prototypes are sized by weight, each where its batch looks at both features. On the diagonal: how values are
    distributed.
    """
    columns = strongest_features(model, most)
    if not columns:
        return note(new_figure(1.2), "The model looks at no feature.")
    rows = np.zeros((0, model.n_features)) if features is None else np.asarray(features, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != model.n_features:
        raise InputError(
            "wrong-shape",
            f"The features have shape {rows.shape}.",
            f"Give rows of the model's {count(model.n_features, 'feature')}.",
        )
    codes = _checked_classes(target, len(rows), model.n_classes)
    kept = spread_rows(len(rows), MOST_ROWS)
    rows, codes = rows[kept], None if codes is None else codes[kept]
    n = len(columns)
    figure = new_figure(5.2 if n > 1 else 2.8)
    present: set[int] = set() if codes is None else set(codes.tolist())
    limits = [_limits(model, rows, column) for column in columns]
    for i, row_feature in enumerate(columns):
        for j, column_feature in enumerate(columns[: i + 1]):
            axes = tidy(figure.add_subplot(n, n, i * n + j + 1))
            axes.set_xlim(*limits[j])
            if i == j:
                _draw_distribution(axes, model, rows, codes, column_feature, limits[j])
            else:
                axes.set_ylim(*limits[i])
                present |= _draw_pair(axes, model, rows, codes, (column_feature, row_feature), n)
            _name_panel(axes, model, (i, j), columns)
    figure.align_labels()
    present = present or {int(code) for batch in model.batches for code in batch.prototype_class}
    legend_classes(figure, model.classes, sorted(present))
    return figure


def strongest_features(model: PrototypeSet, most: int) -> list[int]:
    """Positions of the active features with the largest weight in any batch, strongest first."""
    weight = np.zeros(model.n_features)
    for batch in model.batches:
        np.maximum.at(weight, batch.feature_index, batch.feature_weight)
        if batch.differences is not None:
            places = batch.differences.places
            np.maximum.at(weight, batch.differences.others[places], batch.feature_weight[places])
    order = np.argsort(-weight, kind="stable")
    return [int(place) for place in order[:most] if weight[place] > 0]


def _checked_classes(target: ArrayLike | None, n_rows: int, n_classes: int) -> Integers | None:
    if target is None:
        return None
    codes = np.asarray(target)
    if codes.shape != (n_rows,) or codes.dtype.kind not in "iu" or (codes < 0).any() or (codes >= n_classes).any():
        raise InputError(
            "wrong-shape" if codes.shape != (n_rows,) else "bad-value" if codes.dtype.kind in "iu" else "wrong-type",
            f"The target has shape {codes.shape} and type {codes.dtype} for {n_rows} rows.",
            f"Give the position of each row's class, from 0 to {n_classes - 1}.",
        )
    return codes.astype(np.int64)


def _limits(model: PrototypeSet, rows: Floats, column: int) -> tuple[float, float]:
    values = np.concatenate([rows[:, column], prototype_values(model, column, model.n_batches)[0]])
    values = values[np.isfinite(values)]
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    if not low <= high:
        return 0.0, 1.0
    margin = 0.06 * (high - low) or max(abs(low) * 0.1, 0.5)
    return low - margin, high + margin


def _draw_distribution(
    axes: Axes, model: PrototypeSet, rows: Floats, codes: Integers | None, column: int, limits: tuple[float, float]
) -> None:
    edges = np.linspace(*limits, 25)
    if len(rows) == 0 or codes is None:
        values = rows[:, column] if len(rows) else prototype_values(model, column, model.n_batches)[0]
        axes.stairs(np.histogram(values, edges)[0], edges, color=MUTED, linewidth=1)
    else:
        for position in np.unique(codes).tolist():
            counts = np.histogram(rows[codes == position, column], edges)[0]
            axes.stairs(counts, edges, color=class_color(position), linewidth=1)
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.spines["left"].set_visible(False)


def _draw_pair(
    axes: Axes, model: PrototypeSet, rows: Floats, codes: Integers | None, pair: tuple[int, int], n: int
) -> set[int]:
    _scatter_rows(axes, rows[:, pair], codes, 5 if n > 3 else 9, n * (n - 1) // 2)
    parts = [
        (np.column_stack([first, second]), batch.prototype_class, batch.prototype_weight)
        for batch in model.batches
        for first, second in [[batch.values_of(column) for column in pair]]
        if first is not None and second is not None
    ]
    if not parts:
        return set()
    places, classes, weight = (np.concatenate(list(part)) for part in zip(*parts, strict=True))
    order = np.argsort(-weight, kind="stable")[: MOST_PROTOTYPES if n <= 3 else MOST_PROTOTYPES // 4]
    largest = 60.0 if n <= 3 else 30.0
    _scatter_prototypes(axes, places[order], classes[order], marker_sizes(weight[order], 4.0, largest))
    return set(classes[order].tolist())


def _name_panel(axes: Axes, model: PrototypeSet, place: tuple[int, int], columns: Sequence[int]) -> None:
    """Names and a few ticks at the outer edge only."""
    i, j = place
    n = len(columns)
    axes.locator_params(nbins=6 if n == 1 else 4 if n <= 3 else 2)
    axes.tick_params(labelsize=SMALL - (0 if n <= 3 else 1.5))
    outer_y = j == 0 and i > 0
    axes.tick_params(left=outer_y, labelleft=outer_y, labelbottom=i == n - 1)
    x = _in_two_lines(model.feature_names[columns[j]], 60 // n) if i == n - 1 else ""
    y = _in_two_lines(model.feature_names[columns[i]], 60 // n) if outer_y else ""
    name_axes(axes, x, y)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(SMALL)


def _in_two_lines(name: str, width: int) -> str:
    """A name, broken at the space nearest its middle where it is longer than a line."""
    text = shown(name, 2 * width)
    spaces = [place for place, letter in enumerate(text) if letter == " "]
    if len(text) <= width or not spaces:
        return shown(name, width)
    middle = min(spaces, key=lambda place: abs(place - len(text) / 2))
    return f"{shown(text[:middle], width)}\n{shown(text[middle + 1 :], width)}"
