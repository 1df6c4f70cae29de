"""Plots of how a model came about: the objective while training, and the search for its hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from protodask.engine.records import Floats
from protodask.explain.palette import ACCENT, CLASS_COLORS, INK, MUTED, PAPER, class_color
from protodask.explain.plot_figures import (
    SMALL,
    legend_below,
    legend_sign,
    name_axes,
    new_figure,
    note,
    set_log_ticks,
    set_ticks,
    set_title,
    tidy,
)
from protodask.selection.results import SearchResult, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


STYLES = ("-", "--", ":", "-.")
"""Of the lines that share a colour."""

LONG_FIT = 30
"""Iterations from which they are shown on a logarithmic axis: most of the descent is at the beginning."""


def training_plot(curves: Sequence[ArrayLike], iterations: Sequence[int] | None = None) -> Figure:
    """The objective after each iteration, a curve for each round.

    `iterations`: how many each round had, where its curve was thinned to fewer values, evenly spread.
    """
    found = [np.asarray(curve, dtype=np.float64).ravel() for curve in curves]
    counts = [len(curve) for curve in found] if iterations is None else [int(count) for count in iterations]
    drawn = [
        (number, _thinned_places(len(curve), count), curve)
        for number, (curve, count) in enumerate(zip(found, counts, strict=True), start=1)
        if np.isfinite(curve).any()
    ]
    figure = new_figure(2.9 if drawn else 1.2)
    if not drawn:
        return note(figure, "No iterations are on record.")
    axes = tidy(figure.add_subplot(), grid="y")
    for number, places, curve in drawn:
        shape: dict[str, Any] = {"marker": "o", "markersize": 4} if len(curve) == 1 else {}
        axes.plot(places, curve, linewidth=1.5, **_looks(number - 1), **shape)
    longest = max(float(places[-1]) for _, places, _ in drawn)
    if longest > LONG_FIT:
        axes.set_xlim(1, longest * 1.05)
        set_log_ticks(axes, "x", 1, longest)
    else:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1))
    name_axes(axes, "iteration", "objective")
    legend_below(
        figure,
        [legend_sign(linewidth=1.8, **_looks(number - 1)) for number, _, _ in drawn],
        [f"round {number}" for number, _, _ in drawn],
    )
    return figure


def _thinned_places(length: int, iterations: int) -> Floats:
    return np.linspace(1, max(iterations, length), length) if length > 1 else np.full(length, float(max(iterations, 1)))


def _looks(position: int) -> dict[str, Any]:
    """Of a line, but for its width."""
    return {"color": class_color(position), "linestyle": STYLES[position // len(CLASS_COLORS) % len(STYLES)]}


def search_plot(result: SearchResult) -> Figure:
    """Held-out log-loss of all trials, the best and the chosen one marked; bars are one standard error.

    Joint search: by `lambda_v`, a line for each number of batches. Two stages: the penalties tried with one batch, and
    the numbers of batches tried with the best of them.
    """
    trials = [(place, trial) for place, trial in enumerate(result.trials) if math.isfinite(_mean(trial))]
    figure = new_figure(3.1 if trials else 1.2)
    if not trials:
        return note(figure, "No trial has a finite log-loss.")
    if result.strategy == "joint":
        axes = tidy(figure.add_subplot(), grid="y")
        counts = _draw_by_penalty(axes, trials)
        _mark(axes, result, {place: (x, _mean(trial)) for place, trial, x in _with_places(trials)})
        handles = [legend_sign(linewidth=1.8, **_looks(place)) for place in range(len(counts))]
        names = ["1 batch" if count == 1 else f"{count} batches" for count in counts]
        legend_below(figure, [*handles, *_marks()], [*names, "best", "chosen"])
        return figure
    first = [(place, trial) for place, trial in trials if trial.stage == 1]
    second = [(place, trial) for place, trial in trials if trial.stage != 1]
    panels = [stage for stage in (first, second) if stage]
    for number, stage in enumerate(panels):
        axes = tidy(figure.add_subplot(1, len(panels), number + 1), grid="none" if stage is first else "y")
        if stage is first:
            _draw_penalties(figure, axes, result, first)
        else:
            _draw_by_batches(axes, result, second)
    legend_below(figure, _marks(), ["best", "chosen"])
    return figure


def _mean(trial: Trial) -> float:
    return math.fsum(trial.fold_losses) / len(trial.fold_losses) if trial.fold_losses else math.nan


Placed = list[tuple[int, Trial]]


def _log_places(values: Sequence[float]) -> tuple[list[float], float, float, float | None]:
    """Places on a logarithmic axis, its least and greatest positive value, and where a penalty of 0 stands."""
    positive = [value for value in values if value > 0]
    low, high = (min(positive), max(positive)) if positive else (1.0, 1.0)
    zero = low / 10 if any(value == 0 for value in values) else None
    return [value if value > 0 else low / 10 for value in values], low, high, zero


def _with_places(trials: Placed) -> list[tuple[int, Trial, float]]:
    places, *_ = _log_places([trial.lambda_v for _, trial in trials])
    return [(place, trial, x) for (place, trial), x in zip(trials, places, strict=True)]


def _draw_by_penalty(axes: Axes, trials: Placed) -> list[int]:
    counts = sorted({trial.n_batches for _, trial in trials})
    placed = _with_places(trials)
    for position, count in enumerate(counts):
        mine = sorted((x, _mean(trial), trial.standard_error) for _, trial, x in placed if trial.n_batches == count)
        x, mean, error = np.array(mine).T
        axes.vlines(x, mean - error, mean + error, color=class_color(position), linewidth=1, alpha=0.45)
        axes.plot(x, mean, linewidth=1.4, marker="o", markersize=3.5, **_looks(position))
    _set_penalties(axes, "x", [trial.lambda_v for _, trial in trials])
    name_axes(axes, "lambda_v", "held-out log-loss")
    return counts


def _set_penalties(axes: Axes, axis: Literal["x", "y"], values: Sequence[float]) -> list[float]:
    """Ticks and limits of an axis of penalties, and where these stand on it."""
    places, low, high, zero = _log_places(values)
    set_log_ticks(axes, axis, low, high, zero)
    least = low if zero is None else zero
    margin = max(high / least, 10.0) ** 0.06
    axes.set(**{f"{axis}lim": (least / margin, high * margin)})
    return places


def _draw_penalties(figure: Figure, axes: Axes, result: SearchResult, trials: Placed) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb

    losses = np.array([_mean(trial) for _, trial in trials])
    # Darker is better; opacity makes the shades.
    shades = LinearSegmentedColormap.from_list("loss", [(*to_rgb(ACCENT), 1.0), (*to_rgb(ACCENT), 0.08)])
    low, high = float(losses.min()), float(np.quantile(losses, 0.9))
    scale = Normalize(low, high if high > low else low + 1e-6, clip=True)
    columns = [
        _set_penalties(axes, "x", [trial.lambda_v for _, trial in trials]),
        _set_penalties(axes, "y", [trial.lambda_w for _, trial in trials]),
    ]
    axes.scatter(columns[0], columns[1], c=shades(scale(losses)), s=34, edgecolors=MUTED, linewidths=0.5)
    penalties = {(trial.lambda_v, trial.lambda_w): (x, y) for (_, trial), x, y in zip(trials, *columns, strict=True)}
    ends = {place: result.trials[place] for place in (result.best, result.selected)}
    tried = {place: penalties.get((trial.lambda_v, trial.lambda_w)) for place, trial in ends.items()}
    _mark(axes, result, {place: found for place, found in tried.items() if found is not None})
    bar: Any = figure.colorbar(
        ScalarMappable(scale, shades), ax=axes, location="top", aspect=30, pad=0.02, fraction=0.06
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=SMALL - 1, colors=MUTED, labelcolor=INK, length=2)
    bar.ax.locator_params(nbins=4)
    bar.set_label("held-out log-loss, one batch", fontsize=SMALL, color=INK)
    name_axes(axes, "lambda_v", "lambda_w")


def _draw_by_batches(axes: Axes, result: SearchResult, trials: Placed) -> None:
    rows = sorted((trial.n_batches, _mean(trial), trial.standard_error) for _, trial in trials)
    count, mean, error = np.array(rows).T
    axes.vlines(count, mean - error, mean + error, color=ACCENT, linewidth=1, alpha=0.5)
    axes.plot(count, mean, color=ACCENT, linewidth=1.4, marker="o", markersize=3.5)
    numbers = sorted({int(number) for number in count})
    kept = numbers[:: -(-len(numbers) // 8)]
    set_ticks(axes, "x", kept, [str(number) for number in kept])
    axes.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    _mark(axes, result, {place: (trial.n_batches, _mean(trial)) for place, trial in trials})
    name_axes(axes, "batches", "held-out log-loss")
    set_title(axes, "", SMALL)


def _mark(axes: Axes, result: SearchResult, places: dict[int, tuple[float, float]]) -> None:
    for trial, handle in ((result.best, _marks()[0]), (result.selected, _marks()[1])):
        if trial in places:
            x, y = places[trial]
            handle.set_data([x], [y])
            handle.set_zorder(5)
            axes.add_line(handle)


def _marks() -> tuple[Any, Any]:
    """The signs of the best trial, a ring, and of the chosen one, a filled diamond; both fit on one place."""
    ring = legend_sign(marker="o", markersize=11, markerfacecolor="none", markeredgecolor=INK)
    return ring, legend_sign(marker="D", markersize=6, color=INK, markeredgecolor=PAPER)
