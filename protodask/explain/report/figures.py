"""The figures of a page: the plots of this package, inline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from protodask.errors import count
from protodask.explain.plots import calibration_plot, familiarity_plot, search_plot, training_plot
from protodask.explain.report.content import Content, figure, listed
from protodask.explain.report.svg import Styles, inline_figure
from protodask.explain.report.text import number, percent

QUANTILES = (0.05, 0.5, 0.95)

NOTHING = Markup("")


@dataclass(frozen=True)
class Figures:
    """Markup of each figure; empty where there is nothing to draw."""

    calibration: Markup = NOTHING
    familiarity: Markup = NOTHING
    drift: Markup = NOTHING
    training: Markup = NOTHING
    search: Markup = NOTHING


def figures(content: Content, styles: Styles) -> Figures:
    """Draw what there is."""
    return Figures(*(draw(content, styles) for draw in (_calibration, _familiarity, _drift, _training, _search)))


def _calibration(content: Content, styles: Styles) -> Markup:
    curve = content.calibration
    errors = zip(curve.classes, curve.error.tolist(), strict=True)
    said = [f"{label}: {number(error, 2)}" for label, error in errors if error == error]
    alternative = (
        "Observed share by predicted probability with a 95 per cent band. Expected calibration error by class: "
    )
    more = f" and {count(len(said) - 9, 'more class', 'more classes')}" if len(said) > 9 else ""
    return inline_figure(
        calibration_plot(curve),
        "calibration-",
        "Observed share by predicted probability",
        alternative + ", ".join(said[:9]) + more + ".",
        styles,
    )


def _familiarity(content: Content, styles: Styles) -> Markup:
    values = content.reference.familiarity
    return inline_figure(
        familiarity_plot({"tested": values}),
        "familiarity-",
        "Distribution of familiarity",
        f"Histogram of the familiarity of a sample. {_quantiles(values)}",
        styles,
    )


def _quantiles(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    if not len(values):
        return "No rows."
    found = np.quantile(values, QUANTILES).tolist()
    return (
        ", ".join(
            f"{percent(share, 0)} of the rows have at most {number(value, 3)}"
            for share, value in zip(QUANTILES, found, strict=True)
        )
        + "."
    )


def _drift(content: Content, styles: Styles) -> Markup:
    if content.drift is None or content.drift.changes is None:
        return NOTHING
    before, after = content.drift.familiarity
    return inline_figure(
        familiarity_plot({"before": before, "now": after}),
        "drift-",
        "Distribution of familiarity, before and now",
        f"Two histograms. Before: {_quantiles(before)} Now: {_quantiles(after)}",
        styles,
    )


def _training(content: Content, styles: Styles) -> Markup:
    curves: list[list[float]] = []
    iterations: list[int] = []
    for record in content.round_records:
        values = [value for entry in listed(record.get("values")) if (value := figure(entry)) is not None]
        curves.append(values)
        count = figure(record.get("iterations"))
        iterations.append(max(len(values), int(count) if count is not None and np.isfinite(count) else 0))
    if not any(curves):
        return NOTHING
    ends = ", ".join(
        f"round {position} from {number(curve[0])} to {number(curve[-1])}"
        for position, curve in enumerate(curves, start=1)
        if curve
    )
    return inline_figure(
        training_plot(curves, iterations),
        "training-",
        "Objective after each iteration",
        f"The objective falls over the iterations: {ends}.",
        styles,
    )


def _search(content: Content, styles: Styles) -> Markup:
    result = content.search
    if result is None or not result.trials:
        return NOTHING
    chosen = result.trials[result.selected]
    return inline_figure(
        search_plot(result),
        "search-",
        "Held-out log-loss of the trials",
        f"{count(len(result.trials), 'trial')}. Chosen: lambda_v {number(chosen.lambda_v)}, "
        f"{count(chosen.n_batches, 'batch', 'batches')}, with a mean log-loss of {number(chosen.mean)}.",
        styles,
    )
