"""Carrying out the step `budget`: an index of what features are worth computing, and the models it chooses among.

Which columns make a feature, and what each costs, a file of costs says.
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protodask.budget import BudgetIndex
from protodask.budget.column_folder import BUDGET, holds_budget, save_column_budget
from protodask.budget.column_index import BudgetRun, budgeted
from protodask.budget.costs import CostCurves
from protodask.budget.feature_columns import Costed, feature_columns
from protodask.budget.greedy import TradeOff, make_greedy
from protodask.budget.greedy_index import GreedyIndex
from protodask.budget.index_building import SearchSettings, check_greedy, search_of
from protodask.budget.index_file import local_place
from protodask.budget.polynomials import evaluate
from protodask.data import Dataset
from protodask.data.places.storage import check_outside
from protodask.engine import Engine
from protodask.errors import InputError
from protodask.pipeline.file.places import holds
from protodask.pipeline.file.values import convert, parse_record, shown
from protodask.pipeline.file.yaml_file import read_mapping
from protodask.pipeline.inspecting.budget import shown_sizes
from protodask.pipeline.steps.budget import BudgetBuilt, BudgetStep
from protodask.pipeline.steps.training import record_of_run, run_directory
from protodask.pipeline.telling.events import BudgetStarted, ComparisonStarted, Listener
from protodask.pipeline.work.published import check_beside, is_published, write_beside
from protodask.pipeline.work.settings import fit_config
from protodask.places import mask
from protodask.prototypes.folds import MAX_FOLDS
from protodask.prototypes.setting_checks import check_range

PLOT_FORMATS = (".png", ".svg", ".pdf")

DATES = {"svg": "Date", "pdf": "CreationDate"}
"""What the formats call the time of writing."""

GREEDY: dict[str, tuple[TradeOff, ...] | None] = {
    "greedy": None,
    "greedy, accuracy only": ("accuracy",),
    "greedy, cost only": ("cost",),
}
"""Methods to compare with, and the trade-offs they look at; None for those that suit the data."""

COEFFICIENTS = "Give a list of coefficients, constant first: [2, 0.5] is 2 + 0.5 n on an item of size n."


def check_budget(step: BudgetStep) -> None:
    """Refuse settings that cannot work whatever the data; the files of costs and settings are read."""
    config = fit_config(step)
    if config.n_batches < 1:
        raise InputError("bad-setting", "The models would have no batches.", "Train them with one batch or more.")
    if not 2 <= step.folds <= MAX_FOLDS:
        raise InputError("bad-setting", f"There would be {step.folds} folds.", f"Give a number from 2 to {MAX_FOLDS}.")
    for name, value in (("alpha", step.alpha), ("monotone-error", step.monotone_error)):
        check_range(name, value, 0.0, sys.float_info.max, "Give a difference of accuracies, a number from 0 up.")
    if step.search == "greedy":
        check_greedy(step.alpha, step.monotone_error, step.diminishing_returns)
    if step.most_fits is not None and step.most_fits < 1:
        raise InputError(
            "bad-setting", f"most-fits is {step.most_fits}.", "Give the number of sets there is time for, at least 1."
        )
    local_place(step.out, "budgets")
    run_directory(step.out, step.run_dir)
    if step.plot is not None:
        _plot_format(step.plot)
    read_costs(step.costs)


def build_budget(step: BudgetStep, engine: Engine, listen: Listener) -> BudgetBuilt:
    """Explore the sets of features, fit models, and write what the step asks for."""
    config, costs = fit_config(step), read_costs(step.costs)
    where = local_place(step.out, "budgets")
    check_outside(where, step.data)
    with record_of_run(step) as run_dir:
        there = is_published(where, run_dir, step.overwrite, BUDGET)
        if step.plot is not None:
            from protodask.explain.plot_figures import new_figure

            for place in (where, step.data, run_dir):
                if holds(place, step.plot):
                    raise InputError(
                        "places-overlap",
                        f"The plot {step.plot} lies inside of {mask(place)}.",
                        "Choose a place outside of it.",
                    )
            new_figure(1.0)  # whether there is anything to draw with is asked before the work is done
            check_beside(step.plot, step.overwrite, run_dir)
        data = Dataset.open(step.data)
        features = feature_columns(data.columns, costs.features, costs.sizes, costs.without)
        settings = SearchSettings(
            step.search,
            step.alpha,
            step.monotone_error,
            step.diminishing_returns,
            step.most_fits,
            middle_size(features.curves),
        )
        greedy = search_of(step.search, features.n_features) == "greedy"
        listen(BudgetStarted(features.n_features, step.folds, step.most_fits, data.metadata.group_name, greedy))
        keep = step.run_dir is not None
        with budgeted(data, features, config, settings, step.folds, run_dir, engine, listen, keep) as run:
            compared = _compare(run, step.most_fits, listen) if step.compare else {}
            # The plot first: the folder says that all is there.
            if step.plot is not None:
                write_beside(step.plot, _draw(run.budget.index, compared, _plot_format(step.plot)), step.overwrite)
            if not (there and holds_budget(where, run.budget)):
                save_column_budget(run.budget, where, step.overwrite)
    return BudgetBuilt(where, run.budget, compared, step.plot, tuple(_notes(run, greedy)))


def _plot_format(path: str) -> str:
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in PLOT_FORMATS:
        raise InputError(
            "bad-setting",
            f"The plot {path} ends in none of {', '.join(PLOT_FORMATS)}.",
            "Give it one of these endings.",
        )
    return suffix[1:]


def _compare(run: BudgetRun, most_fits: int | None, listen: Listener) -> dict[str, GreedyIndex]:
    curves = run.budget.features.curves
    found = {}
    for name, trade_offs in GREEDY.items():
        listen(ComparisonStarted(name))
        found[name] = make_greedy(
            curves,
            run.expand,
            trade_offs,
            size=middle_size(curves),
            most_fits=most_fits,
            feature_names=run.budget.features.names,
        )
    return found


def middle_size(curves: CostCurves) -> float:
    """What greedy sequences take for the size of most items, of which nothing is known."""
    sizes = shown_sizes(curves)
    return sizes[len(sizes) // 2]


def _draw(index: BudgetIndex, compared: Mapping[str, GreedyIndex], form: str) -> bytes:
    import matplotlib

    from protodask.explain.plots import budget_plot

    sizes = shown_sizes(index.curves)
    whole = index.curves.of_set(frozenset(range(index.curves.n_features)))
    costs = np.concatenate([evaluate(index.costs[:, None, :], sizes).reshape(-1), evaluate(whole, sizes)])
    positive = costs[costs > 0]
    budgets = (float(positive.min()) / 2, float(positive.max()) * 1.5) if len(positive) else (0.5, 2.0)
    figure = budget_plot({"index": index, **compared}, sizes, budgets)
    out = io.BytesIO()
    # Nothing in it depends on the time or on chance: a repeated build has to know its own plot again.
    with matplotlib.rc_context({"svg.hashsalt": "budget"}):
        figure.savefig(out, format=form, dpi=200, metadata={DATES[form]: None} if form in DATES else None)
    return out.getvalue()


def _notes(run: BudgetRun, greedy: bool) -> Iterator[str]:
    """What speaks for other settings."""
    exploration, index = run.exploration, run.budget.index
    if not index.guaranteed:
        enough = math.ceil(exploration.observed_error * 1e4 * (1 - 1e-9)) / 1e4
        yield (
            f"Adding features made a model less accurate by up to {exploration.observed_error:.4g}, more than the "
            f"{exploration.monotone_error:.4g} that was assumed, so that nothing is guaranteed. Repeat with "
            f"monotone_error={enough:g}; with the same `run_dir`, only what is missing is fitted."
        )
    elif greedy:
        yield "The sets were searched for greedily: they are mostly as good as any, and nothing is guaranteed."
    elif math.isinf(index.guarantee):
        yield "So few sets were expanded that nothing is known of the others; allow more with `most_fits`."
    elif index.guarantee > index.alpha:
        yield (
            f"With this many fits, accuracies may be up to {index.guarantee:.4g} below the best instead of "
            f"{index.alpha:.4g}; allow more with `most_fits`."
        )
    if index.sets == (frozenset(),) and any(one.features for one in index.expansions):
        yield "No set of features is more accurate than the shares of the classes alone."


@dataclass(frozen=True)
class CostsFile:
    """What such a file says."""

    features: Mapping[str, Costed]
    sizes: tuple[float, float]
    without: tuple[str, ...]


@dataclass(frozen=True)
class _Keys:
    features: str
    sizes: tuple[float, ...] | None = None
    without: tuple[str, ...] = ()


def read_costs(path: str) -> CostsFile:
    """Read a YAML or JSON file of costs."""
    where = f"The file {path}"
    content = read_mapping(path)
    features = content.pop("features", None)
    if not isinstance(features, Mapping) or not features:
        raise InputError(
            "setting-missing",
            f"{where} names no features.",
            "Add `features:` with the name and the cost of each below it.",
        )
    rest = parse_record(_Keys, {**content, "features": "-"}, where)
    found: dict[str, Costed] = {}
    for key, value in features.items():
        name = str(key)
        if name in found:
            raise InputError("named-twice", f"{where} has the feature {name!r} twice.", "Leave one out.")
        found[name] = _feature(name, value, f"{where}: features: {name}")
    return CostsFile(found, _sizes(rest.sizes, found, where), rest.without)


def _feature(name: str, value: Any, where: str) -> Costed:
    if not isinstance(value, Mapping):
        return (name,), _coefficients(value, where)
    unknown = [key for key in value if key not in ("columns", "cost")]
    if unknown or "cost" not in value:
        seen = f"has the unknown key {shown(unknown[0])}" if unknown else "lacks the key 'cost'"
        raise InputError(
            "unknown-key" if unknown else "setting-missing",
            f"{where} {seen}.",
            "Give `cost:` and, unless the column has that name, `columns:`.",
        )
    columns = convert(value.get("columns", name), tuple[str, ...], f"{where}: columns")
    return columns, _coefficients(value["cost"], f"{where}: cost")


def _coefficients(value: Any, where: str) -> Sequence[float]:
    if value is None or value == []:
        raise InputError("bad-setting", f"{where} is empty.", COEFFICIENTS)
    found = convert(value, tuple[float, ...], where)
    if not all(map(math.isfinite, found)):
        raise InputError("bad-setting", f"{where} is {shown(value)}.", COEFFICIENTS)
    return tuple(found)


def _sizes(given: tuple[float, ...] | None, features: Mapping[str, Costed], where: str) -> tuple[float, float]:
    if given is None:
        varying = [name for name, (_, cost) in features.items() if len(cost) > 1]
        if varying:
            raise InputError(
                "setting-missing",
                f"{where} does not say how large items are, and the cost of {varying[0]!r} depends on it.",
                "Add `sizes: [smallest, largest]`.",
            )
        return 0.0, math.inf
    if len(given) != 2:
        raise InputError(
            "bad-setting", f"{where}: sizes is {shown(list(given))}.", "Give two numbers, the smallest and the largest."
        )
    return given[0], given[1]
