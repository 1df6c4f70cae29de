"""Every plot, on plain and on hostile input: it is drawn without a warning, and its texts are literal and inside it."""

import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from html import escape
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from numpy.typing import NDArray
from support.errors import refused

from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion
from protodask.budget.index import make_index
from protodask.data.format.schema import Column
from protodask.errors import Code
from protodask.evaluation.calibration import CalibrationCurve, calibration_sums, finish_calibration, no_calibration
from protodask.evaluation.outcomes import Outcomes
from protodask.explain import palette
from protodask.explain.explanation import JOINERS
from protodask.explain.importance import Importance
from protodask.explain.maps import batch_map
from protodask.explain.plot_figures import compact, legend_below, power_of_ten, shown
from protodask.explain.plot_space import MOST_ROWS
from protodask.explain.plots import (
    budget_plot,
    calibration_plot,
    confusion_plot,
    familiarity_plot,
    importance_plot,
    map_plot,
    scatter_plot,
    search_plot,
    surface_plot,
    training_plot,
)
from protodask.explain.surface import surface
from protodask.prototypes.model import PrototypeSet
from protodask.selection.results import SearchResult, Trial

MakeModel = Callable[..., PrototypeSet]
Floats = NDArray[np.float64]

NASTY = ("$x^2$", "_hidden", "<b>&amp;", "a$b", "\\frac{1}{2", "%s{0}")
MANY = tuple(f"class number {position}" for position in range(30))


def draw(figure: Figure, pixels: int = 400) -> list[str]:
    """The texts that are visible, when the figure was laid out that many pixels wide; none may stick out of it.

    No pixel is filled, which takes half the time and says nothing about texts.
    """
    FigureCanvasAgg(figure)
    figure.set_dpi(pixels / figure.get_size_inches()[0])
    figure.draw_without_rendering()
    texts = visible_texts(figure)
    for text in texts:
        box, frame = text.get_window_extent(), figure.bbox
        assert box.x0 >= frame.x0 - 1, text
        assert box.x1 <= frame.x1 + 1, text
        assert box.y0 >= frame.y0 - 1, text
        assert box.y1 <= frame.y1 + 1, text
    return [text.get_text() for text in texts]


def texts_of(figure: Figure) -> set[str]:
    """What is written somewhere, without a look at where it comes to stand."""
    texts: list[Any] = list(figure.findobj(Text))
    return {text.get_text() for text in texts}


def visible_texts(figure: Figure) -> list[Text]:
    """All texts but those of ticks that are switched off or beyond the limits of their axis."""
    of_ticks: set[Text] = set()
    found: list[Text] = []
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                of_ticks |= {tick.label1, tick.label2}
                if tick.label1.get_visible() and low <= tick.get_loc() <= high:
                    found.append(tick.label1)
    others: list[Any] = list(figure.findobj(Text))
    found += [text for text in others if text not in of_ticks]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def tick_labels(figure: Figure, axis: str) -> list[Text]:
    (axes, *_) = figure.axes
    return [label for label in (axes.get_xticklabels() if axis == "x" else axes.get_yticklabels()) if label.get_text()]


def as_svg(figure: Figure) -> str:
    """What is drawn, wherever it comes to stand: the layout takes longer than everything else."""
    file, layout = BytesIO(), figure.get_layout_engine()
    figure.set_layout_engine("none")
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(file, format="svg")
    figure.set_layout_engine(layout)
    return file.getvalue().decode()


def places_of(line: Any) -> list[float]:
    """Where a line's points are, along the first axis."""
    return [float(place) for place in line.get_xdata()]


def assert_apart(labels: list[Text]) -> None:
    """No two texts cover each other."""
    boxes = [label.get_window_extent() for label in labels]
    for position, box in enumerate(boxes):
        for other in boxes[position + 1 :]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            along = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across <= 1 or along <= 1, "labels overlap"


def make_curve(n_rows: int, n_classes: int, n_bins: int = 10, seed: int = 0) -> CalibrationCurve:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_classes), n_rows) if n_classes > 1 else np.ones((n_rows, 1))
    outcomes = Outcomes(p, rng.integers(0, n_classes, n_rows), np.ones(n_rows))
    return finish_calibration(calibration_sums(outcomes, n_bins), names(n_classes))


def names(n_classes: int) -> tuple[str, ...]:
    return NASTY[:n_classes] if n_classes <= len(NASTY) else tuple(f"class {position}" for position in range(n_classes))


@pytest.mark.parametrize("n_classes", [1, 6, 30, 50])
def test_confusion_plot__says_what_it_can_at_every_size(n_classes: int) -> None:
    counts = np.diag(np.arange(n_classes) * 37.0)
    counts[0, -1] = 1234567
    figure = confusion_plot(counts, names(n_classes))
    found = draw(figure)
    assert_apart(tick_labels(figure, "y"))
    assert_apart(tick_labels(figure, "x"))
    if n_classes <= 6:
        assert any(text.startswith("1.23M\n100.0%") for text in found)
        assert set(names(n_classes)) <= set(found)
    if 6 < n_classes <= 30:
        assert {"1.23M", "100", "rows"} <= set(found)


def test_confusion_plot__shades_by_row() -> None:
    figure = confusion_plot([[3, 1], [0, 0]], ["a", "b"])
    draw(figure)
    cells: Any
    (cells,) = figure.axes[0].findobj(PolyCollection)
    right, wrong = cells.get_facecolor()  # and nothing for the class without rows
    assert right[3] > wrong[3] > 0


def test_confusion_plot__refuses_another_shape() -> None:
    with refused("wrong-shape", "(1, 2)", "2 classes"):
        confusion_plot([[1, 2]], ["a", "b"])


@pytest.mark.parametrize(("n_classes", "panels"), [(1, 1), (2, 1), (3, 3), (30, 9)])
def test_calibration_plot__has_a_panel_for_each_of_the_larger_classes(n_classes: int, panels: int) -> None:
    figure = calibration_plot(make_curve(500, n_classes))
    found = draw(figure) if n_classes in (1, 30) else texts_of(figure)
    assert len(figure.axes) == panels
    assert ("9 of 30 classes: those with the most rows" in found) == (n_classes == 30)
    if n_classes == 2:
        assert NASTY[1] in found
        assert NASTY[0] not in found


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_calibration_plot__of_a_few_rows(n_rows: int) -> None:
    draw(calibration_plot(make_curve(n_rows, 2)))


def test_calibration_plot__of_nothing_says_so() -> None:
    assert draw(calibration_plot(finish_calibration(no_calibration(3, 5), "abc"))) == ["There are no rows."]
    assert draw(calibration_plot(finish_calibration(no_calibration(0, 5), ""))) == ["There are no rows."]


def test_familiarity_plot__counts_every_row_once() -> None:
    rng = np.random.default_rng(0)
    samples = {"training": 10 ** rng.uniform(-8, 2, 1000), "_$other$": np.zeros(3), "empty": np.zeros(0)}
    figure = familiarity_plot({**samples, "broken": np.array([np.nan, np.inf])})
    found = draw(figure)
    assert "training (1,000 rows)" in found
    assert "_$other$ (3 rows)" in found
    assert "≤ 0.001" in found
    assert not any("empty" in text or "broken" in text for text in found)
    steps = [patch.get_data().values for patch in figure.axes[0].patches if hasattr(patch, "get_data")]
    assert len(steps) == 4
    for values in steps:
        assert values.sum() == pytest.approx(1)


@pytest.mark.parametrize("samples", [{}, {"a": []}, {"a": [np.nan]}])
def test_familiarity_plot__of_nothing_says_so(samples: dict[str, Any]) -> None:
    assert draw(familiarity_plot(samples)) == ["There are no rows."]


@pytest.mark.parametrize("values", [[0.0], [1e-30], [1e6, 0.5], [-1e-9, 3.0], [1e12]])
def test_familiarity_plot__of_a_row_or_two(values: list[float]) -> None:
    draw(familiarity_plot({"a": values}))


def make_importance(mean: list[float], error: list[float]) -> Importance:
    columns = tuple(f"column {position} with a long name indeed" for position in range(len(mean)))
    features = tuple((position,) for position in range(len(mean)))
    return Importance(columns, features, np.array(mean), np.array(error), 0.5, 1000, 4, 5)


def test_importance_plot__shows_the_strongest_first() -> None:
    figure = importance_plot(make_importance([0.1, 0.0, -0.02, 0.3], [0.01, 0.0, math.nan, 0.02]))
    found = texts_of(figure)
    bars = [patch.get_width() for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert bars == [0.3, 0.1, -0.02]
    assert any("1 more columns" in text for text in found)


@pytest.mark.parametrize("n_columns", [0, 1, 300])
def test_importance_plot__of_any_number_of_columns(n_columns: int) -> None:
    figure = importance_plot(make_importance([1 / (place + 1) for place in range(n_columns)], [0.01] * n_columns))
    draw(figure)
    if n_columns:
        assert len(tick_labels(figure, "y")) == min(n_columns, 20)
        assert_apart(tick_labels(figure, "y"))


def test_importance_plot__of_a_model_that_looks_at_nothing() -> None:
    draw(importance_plot(make_importance([0.0] * 3, [0.0] * 3)))
    draw(importance_plot(make_importance([math.nan], [math.nan])))


def test_training_plot__spreads_thinned_curves_over_their_iterations() -> None:
    figure = training_plot([np.linspace(1, 0.5, 200), [0.4, 0.3]], [2000, 2])
    assert {"round 1", "round 2", "1,000"} <= set(draw(figure))
    long, short = figure.axes[0].get_lines()
    assert places_of(long)[0::199] == [1, 2000]
    assert places_of(short) == [1, 2]


@pytest.mark.parametrize(
    "curves", [[[0.5]], [[math.nan, 1.0, math.inf]], [[], [0.3, 0.2]], [[1.0, 1.0]], [np.ones(40)] * 20]
)
def test_training_plot__of_odd_curves(curves: list[Any]) -> None:
    draw(training_plot(curves))


@pytest.mark.parametrize("curves", [[], [[]], [[math.nan]]])
def test_training_plot__of_nothing_says_so(curves: list[Any]) -> None:
    assert draw(training_plot(curves)) == ["No iterations are on record."]


def joint(lambdas: list[float], counts: list[int], folds: int = 5) -> SearchResult:
    rng = np.random.default_rng(0)
    trials = tuple(
        Trial(1, value, 1e-8, count, tuple(rng.uniform(0.3, 0.5, folds))) for value in lambdas for count in counts
    )
    return SearchResult("joint", trials, 0, len(trials) - 1, "one standard error")


def two_stage(lambdas: list[float], counts: list[int]) -> SearchResult:
    rng = np.random.default_rng(0)
    first = tuple(Trial(1, value, 0.1 * value, 1, tuple(rng.uniform(0.3, 0.5, 3))) for value in lambdas)
    second = tuple(Trial(2, lambdas[0], 0.1 * lambdas[0], count, tuple(rng.uniform(0.2, 0.4, 3))) for count in counts)
    best = len(first) if counts else 0
    return SearchResult("two-stage", first + second, best, len(first) + len(counts) - 1, "one standard error")


def test_search_plot__marks_the_best_and_the_chosen_trial() -> None:
    result = joint([1e-4, 1e-3, 1e-2], [1, 2])
    figure = search_plot(result)
    assert {"1 batch", "2 batches", "best", "chosen", "lambda_v"} <= set(draw(figure))
    ring, chosen = figure.axes[0].get_lines()[-2:]
    for mark, trial in ((ring, result.trials[0]), (chosen, result.trials[-1])):
        assert places_of(mark) == [trial.lambda_v]
        assert np.asarray(mark.get_ydata()).tolist() == [pytest.approx(trial.mean)]


def test_search_plot__bars_are_standard_errors() -> None:
    result = joint([1e-3], [1])
    figure = search_plot(result)
    (trial,) = result.trials
    (bars,) = figure.axes[0].collections
    ((x, low), (_, high)) = np.asarray(bars.get_paths()[0].vertices).tolist()
    assert x == trial.lambda_v
    assert (high - low) / 2 == pytest.approx(trial.standard_error)


@pytest.mark.slow
def test_search_plot__of_two_stages_marks_the_chosen_penalties_too() -> None:
    figure = search_plot(two_stage([1e-3, 1e-2, 1e-4], [0, 1, 2, 3]))
    penalties, batches = (axes for axes in figure.axes if axes.get_xlabel() in {"lambda_v", "batches"})
    assert [places_of(line) for line in penalties.get_lines()] == [[1e-3], [1e-3]]
    assert [places_of(line) for line in batches.get_lines()[-2:]] == [[0], [3]]


@pytest.mark.parametrize(
    "result",
    [
        joint([1e-3], [1]),
        joint([0.0, 1e-3], [1, 2]),
        joint([0.0], [1]),
        joint([1e-3, 2e-3], list(range(12)), folds=1),
        joint(list(np.logspace(-12, 6, 19)), [1]),
        two_stage([1e-3], [1]),
        two_stage([0.0, 1e-3], []),
        two_stage([1e-3], list(range(60))),
    ],
)
def test_search_plot__of_odd_searches(result: SearchResult) -> None:
    draw(search_plot(result))


def test_search_plot__leaves_out_trials_without_a_loss() -> None:
    result = joint([1e-4, 1e-3, 1e-2], [1])
    broken = replace(result.trials[0], fold_losses=(math.nan, 0.3))
    draw(search_plot(replace(result, trials=(broken, *result.trials[1:]))))
    nothing = SearchResult("joint", (broken, replace(broken, fold_losses=(math.inf,))), 0, 0, "rule")
    assert draw(search_plot(nothing)) == ["No trial has a finite log-loss."]
    assert draw(search_plot(SearchResult("two-stage", (), 0, 0, "rule"))) == ["No trial has a finite log-loss."]


def from_budget(price: float, accuracy: float) -> Callable[[float, Floats], Floats]:
    """A method whose only set costs a price for each unit of size."""
    return lambda size, budgets: np.where(budgets >= price * size, accuracy, np.nan)


def lines_of(figure: Figure, panel: int) -> list[Any]:
    return list(figure.axes[panel].get_lines())


def test_budget_plot__is_the_staircase_of_what_an_index_chooses() -> None:
    curves = CostCurves.of([[1.0, 0.0], [0.0, 0.1]])
    accuracies = {(): 0.1, (0,): 0.6, (1,): 0.7, (0, 1): 0.9}
    index = make_index(curves, [Expansion(frozenset(features), value) for features, value in accuracies.items()])
    figure = budget_plot({"index": index}, [5, 20], (0.1, 10))
    assert {"size 5", "size 20", "budget", "accuracy", "index"} <= texts_of(figure)
    for panel, size in enumerate((5, 20)):
        (line,) = lines_of(figure, panel)
        assert line.get_drawstyle() == "steps-post"
        for budget, shown_accuracy in zip(line.get_xdata(), line.get_ydata(), strict=True):
            within = [
                accuracies[features]
                for features in accuracies
                if sum(curves.at(frozenset([feature]), size) for feature in features) <= budget
            ]
            assert shown_accuracy == max(within)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budgets", "ticks"),
    [
        ((1.1, 18), ["2", "5", "10"]),
        ((1, 60), ["1", "3", "10", "30"]),
        ((0.5, 60), ["1", "10"]),
        ((0.012, 0.06), ["0.02", "0.05"]),
        ((1.2, 1.3), ["1.2", "1.3"]),
        ((2e-6, 4e9), ["10⁻⁵", "0.01", "10", "10⁴", "10⁷"]),
    ],
)
def test_budget_plot__has_some_ticks_whatever_the_budgets(budgets: tuple[float, float], ticks: list[str]) -> None:
    figure = budget_plot({"a": from_budget(1, 0.5)}, [1, 2, 3], budgets)
    assert [label.get_text() for label in tick_labels(figure, "x")] == ticks
    if len(ticks) > 3:
        draw(figure)
        assert_apart(tick_labels(figure, "x"))


def test_budget_plot__begins_where_something_is_affordable() -> None:
    figure = budget_plot({"a": from_budget(1, 0.7), "never": from_budget(100, 0.9)}, [2, 3], (1, 10))
    for panel, size in enumerate((2, 3)):
        some, none = lines_of(figure, panel)
        assert (np.isfinite(some.get_ydata()) == (np.asarray(some.get_xdata()) >= size)).all()
        assert np.isnan(none.get_ydata()).all()


@pytest.mark.parametrize(("n_sizes", "panels"), [(1, 1), (4, 4), (30, 9)])
def test_budget_plot__has_a_panel_for_each_of_some_sizes(n_sizes: int, panels: int) -> None:
    figure = budget_plot({"a": from_budget(1, 0.7)}, range(1, n_sizes + 1), (1, 1e6), budget_name="$seconds$")
    found = draw(figure) if n_sizes == 30 else texts_of(figure)
    assert len(figure.axes) == panels
    assert ("9 of 30 sizes" in found) == (n_sizes == 30)
    assert {"size 1", f"size {n_sizes}", "$seconds$"} <= set(found)


def test_budget_plot__shows_what_was_measured_where_it_was() -> None:
    methods = {"a": from_budget(1, 0.7), "b": from_budget(2, 0.8)}
    figure = budget_plot(
        methods, [1, 2], (1, 10), measured={"b": [(1, 3, 0.75), (2, 4, 0.6), (2, 5, 0.7), (7, 1, 0.1)]}
    )
    assert "as measured" in texts_of(figure)
    marks = [lines_of(figure, panel)[-1] for panel in (0, 1)]
    assert [mark.get_xydata().tolist() for mark in marks] == [[[3, 0.75]], [[4, 0.6], [5, 0.7]]]
    line = lines_of(figure, 0)[1]
    assert (marks[0].get_marker(), marks[0].get_markeredgecolor()) == (line.get_marker(), line.get_color())
    assert "as measured" not in texts_of(budget_plot(methods, [1], (1, 10)))
    draw(budget_plot(methods, [1], (1, 10), measured={"a": []}))


def test_budget_plot__tells_forty_methods_apart_without_colour() -> None:
    figure = budget_plot({f"method {number}": from_budget(number + 1, 0.5) for number in range(40)}, [1], (1, 100))
    draw(figure)
    signs = {(str(line.get_linestyle()), str(line._dash_pattern), line.get_marker()) for line in lines_of(figure, 0)}
    assert len(signs) == 40


def test_budget_plot__of_lines_on_each_other_shows_a_marker_of_each() -> None:
    figure = budget_plot({name: from_budget(1, 0.7) for name in "abcd"}, [1], (1, 100))
    places = [place for line in lines_of(figure, 0) for place in line.get_markevery()]
    assert len(places) == len(set(places))
    assert min(map(len, (line.get_markevery() for line in lines_of(figure, 0)))) >= 3


def test_budget_plot__of_nothing_says_so() -> None:
    assert draw(budget_plot({}, [1], (1, 2))) == ["There are no methods."]
    assert draw(budget_plot({"a": from_budget(1, 1)}, [], (1, 2))) == ["There are no sizes."]


@pytest.mark.parametrize("budgets", [(0, 1), (2, 1), (1, 1), (1, math.inf), (math.nan, 1)])
def test_budget_plot__refuses_budgets_without_an_axis(budgets: tuple[float, float]) -> None:
    with refused("bad-setting", *(f"{end:g}" for end in budgets)):
        budget_plot({"a": from_budget(1, 1)}, [1], budgets)


def test_budget_plot__refuses_what_does_not_fit_together() -> None:
    methods = {"a": from_budget(1, 1)}
    with refused("unknown-name", "'b'"):
        budget_plot(methods, [1], (1, 2), measured={"b": [(1, 1, 1)]})
    with refused("wrong-shape", "'a'", "(1, 2)"):
        budget_plot(methods, [1], (1, 2), measured={"a": [(1, 1)]})
    with refused("user-code", "'a'", "()"):
        budget_plot({"a": lambda _size, _budgets: 0.5}, [1], (1, 2))


def named(model: PrototypeSet) -> PrototypeSet:
    features = (*NASTY, *MANY)[: model.n_features]
    return replace(
        model,
        classes=names(model.n_classes),
        feature_names=features,
        columns=tuple(Column(name) for name in features),
    )


def test_surface_plot__regions_and_prototypes(make_model: MakeModel) -> None:
    model = named(make_model(2))
    first, second = model.batches[0].feature_index[:2].tolist()
    found = surface(model, first, second, n_points=30)
    figure = surface_plot(found)
    texts = draw(figure)
    assert {model.feature_names[first], model.feature_names[second]} <= set(texts)
    assert {model.classes[place] for place in np.unique(found.predicted)} <= set(texts)
    (image,) = figure.axes[0].images
    opacity = np.asarray(image.get_array())[..., 3]
    assert opacity.argmax() == found.probability.max(axis=2).argmax(), "the surest point is the strongest"
    markers: list[Any] = list(figure.axes[0].findobj(PathCollection))
    assert sum(len(points.get_offsets()) for points in markers) == len(found.prototypes)


@pytest.mark.parametrize("n_classes", [1, 2, 30])
def test_surface_plot__of_any_number_of_classes(make_model: MakeModel, n_classes: int) -> None:
    model = make_model(prototypes=(60,), n_classes=n_classes)
    if n_classes == 1:
        model = replace(model, marginals=np.ones(1))
    index = model.batches[0].feature_index
    draw(surface_plot(surface(named(model), int(index[0]), int(index[1]), n_points=20)))


def test_surface_plot__without_batches(make_model: MakeModel) -> None:
    draw(surface_plot(surface(make_model(prototypes=()), 0, 1, n_points=5, limits=((0, 1), (0, 1)))))


@pytest.mark.parametrize(("prototypes", "n_features"), [(0, 4), (1, 2), (2, 4), (600, 2), (600, 4)])
def test_map_plot__of_any_number_of_prototypes(make_model: MakeModel, prototypes: int, n_features: int) -> None:
    model = named(make_model(prototypes=(prototypes,), n_features=n_features, n_classes=6))
    rng = np.random.default_rng(0)
    found = batch_map(model)
    if prototypes < 3:
        draw(map_plot(found))
    texts = draw(map_plot(found, rng.normal(size=(10, n_features)), rng.integers(0, 6, 10)))
    if prototypes == 0:
        assert texts == ["Batch 1 has no prototypes."]
    if prototypes == 2:
        assert any(text.startswith("100% of the variance") for text in texts)
        assert "no further variance" in texts


def test_map_plot__shows_some_of_many_rows(make_model: MakeModel) -> None:
    figure = map_plot(batch_map(make_model()), np.random.default_rng(0).normal(size=(2000, 4)))
    draw(figure)
    rows: Any = figure.axes[0].findobj(PathCollection)[0]
    assert len(rows.get_offsets()) == MOST_ROWS


def test_plots_of_prototypes__say_how_many_are_left_out(make_model: MakeModel) -> None:
    model = make_model(prototypes=(600,), n_features=3)
    assert "400 of 600 prototypes, those of the largest weight" in draw(map_plot(batch_map(model)))
    first, second = model.batches[0].feature_index.tolist()
    found = surface(model, first, second, n_points=5)
    says = f"400 of {len(found.prototypes)} prototypes, those with the strongest impact here"
    assert (says in draw(surface_plot(found))) == (len(found.prototypes) > 400)
    assert not any("prototypes" in text for text in texts_of(map_plot(batch_map(make_model()))))


def test_surface_plot__borders_are_where_two_classes_are_equal(make_model: MakeModel) -> None:
    model = make_model(2)
    first, second = model.batches[0].feature_index[:2].tolist()
    found = surface(model, first, second, n_points=60)
    figure = surface_plot(found)
    contours: list[Any] = list(figure.axes[0].findobj(ContourSet))
    points = np.concatenate([path.vertices for contour in contours for path in contour.get_paths()])
    rows = np.tile(found.at, (len(points), 1))
    rows[:, [first, second]] = points
    best = np.sort(model.scores(rows, [model.n_batches])[0], axis=1)[:, ::-1]
    assert len(points) > 50
    assert np.median(best[:, 0] / best[:, 1]) < 1.002


def test_map_plot__lengths_are_the_same_both_ways(make_model: MakeModel) -> None:
    figure = map_plot(batch_map(make_model(prototypes=(30,))))
    draw(figure)
    (axes,) = figure.axes
    (x0, y0), (x1, y1) = axes.transData.transform([(0, 0), (1, 1)])
    assert x1 - x0 == pytest.approx(y1 - y0, rel=0.01)


@pytest.mark.parametrize("most", [1, 3])
def test_scatter_plot__has_a_panel_for_each_pair(make_model: MakeModel, most: int) -> None:
    model = named(make_model(n_features=9))
    rng = np.random.default_rng(0)
    figure = scatter_plot(model, rng.normal(size=(50, 9)), rng.integers(0, 3, 50), most)
    found = draw(figure)
    assert len(figure.axes) == most * (most + 1) // 2
    strengths = np.zeros(9)
    for batch in model.batches:
        np.maximum.at(strengths, batch.feature_index, batch.feature_weight)
    strongest = model.feature_names[int(strengths.argmax())]
    assert any(text.startswith(strongest[:3]) for text in found)


def test_scatter_plot__of_prototypes_alone_or_of_nothing(make_model: MakeModel) -> None:
    draw(scatter_plot(make_model(), most=2))
    draw(scatter_plot(make_model(), np.zeros((0, 4)), np.zeros(0, dtype=np.int64), 2))
    draw(scatter_plot(make_model(), np.full((3, 4), 7.0), most=2))
    assert draw(scatter_plot(make_model(prototypes=()))) == ["The model looks at no feature."]


@pytest.mark.slow
def test_scatter_plot__of_thirty_classes(make_model: MakeModel) -> None:
    rng = np.random.default_rng(0)
    model = named(make_model(prototypes=(100,), n_classes=30))
    figure = scatter_plot(model, rng.normal(size=(MOST_ROWS + 1, 4)), rng.integers(0, 30, MOST_ROWS + 1), 2)
    draw(figure)
    assert len(figure.axes) == 3


def test_plots_of_rows__refuse_rows_of_another_model(make_model: MakeModel) -> None:
    model = make_model()
    with refused("wrong-shape", "(2, 3)", "4 features"):
        scatter_plot(model, np.zeros((2, 3)))
    codes: list[tuple[Code, list[float]]] = [
        ("wrong-shape", [0]), ("bad-value", [0, 3]), ("wrong-type", [0.0, 1.0]), ("bad-value", [-1, 0])
    ]  # fmt: skip
    for code, target in codes:
        with refused(code, "from 0 to 2"):
            scatter_plot(model, np.zeros((2, 4)), target)
        with refused(code, "from 0 to 2"):
            map_plot(batch_map(model), np.zeros((2, 4)), target)


WRITTEN = {"$x^2$", "_hidden", "&lt;b&gt;&amp;amp;", "a$b", "\\frac{1}{2", "%s{0}"}
"""The names of `NASTY` in SVG."""


def only_feature(model: PrototypeSet, name: str) -> PrototypeSet:
    """The model with this name for every feature."""
    return replace(model, feature_names=(name,) * model.n_features)


@pytest.fixture(scope="module")
def figures(make_model: MakeModel) -> dict[str, Figure]:
    """One of each, of things with nasty names."""
    model = named(make_model(prototypes=(60,), n_classes=6, n_features=7))
    first, second = model.batches[0].feature_index[:2].tolist()
    rows, target = np.random.default_rng(0).normal(size=(30, 7)), np.arange(30) % 6
    importance = replace(make_importance([0.6, 0.5, 0.4, 0.3, 0.2, 0.1], [0.01] * 6), names=NASTY)
    methods = {name: from_budget(1 + place, 0.5 + 0.01 * place) for place, name in enumerate(NASTY)}
    return {
        "confusion": confusion_plot(np.eye(6), NASTY),
        "calibration": calibration_plot(make_curve(300, 6)),
        "familiarity": familiarity_plot({name: [0.1, 1.0, 10.0] for name in NASTY}),
        "importance": importance_plot(importance),
        "training": training_plot([[1, 0.5], [0.4, 0.3]]),
        "joint search": search_plot(joint([1e-3, 1e-2], [1, 2])),
        "two-stage search": search_plot(two_stage([1e-3, 1e-2], [1, 2])),
        "map": map_plot(batch_map(model), rows, target),
        "map of one name": map_plot(batch_map(only_feature(model, NASTY[0]))),
        "scatter": scatter_plot(model, rows, target, most=2),
        "surface": surface_plot(surface(model, first, second, n_points=9)),
        "budget": budget_plot(methods, [1, 2], (1, 10), measured={NASTY[0]: [(1, 2, 0.4)]}, budget_name="$t$"),
    }


@pytest.fixture(scope="module")
def svgs(figures: dict[str, Figure]) -> dict[str, str]:
    return {name: as_svg(figure) for name, figure in figures.items()}


def test_plots__show_markup_as_text(make_model: MakeModel, svgs: dict[str, str]) -> None:
    texts = {name: set(re.findall(r">([^<>]*)</text>", svg)) for name, svg in svgs.items()}
    for name in ("confusion", "calibration", "importance", "map", "budget"):
        assert texts[name] >= WRITTEN, name
    assert texts["familiarity"] >= {f"{name} (3 rows)" for name in WRITTEN}
    assert "$t$" in texts["budget"]
    index = make_model(prototypes=(60,), n_classes=6, n_features=7).batches[0].feature_index
    assert texts["surface"] >= {escape(NASTY[place]) for place in index[:2].tolist()}
    assert texts["scatter"] >= WRITTEN, "classes in the legend"
    assert any("$x^2$" in text for text in texts["map of one name"])


def test_plots__draw_in_the_colours_of_the_palette(svgs: dict[str, str]) -> None:
    """So that a page can put its own in their place; images are shades of class colours."""
    named_colors = {palette.INK, palette.MUTED, palette.PAPER, palette.GRID, palette.ACCENT, *palette.CLASS_COLORS}
    for svg in svgs.values():
        assert len(svg) < 200_000
        assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= named_colors


@pytest.mark.slow
def test_plots__keep_their_texts_inside_at_any_width(figures: dict[str, Figure]) -> None:
    for name in figures.keys() - {"map of one name"}:
        figure = figures[name]
        assert draw(figure, 400) == draw(figure, 1280), name


def test_plots__leave_pyplot_alone() -> None:
    training_plot([[1.0, 0.5]])
    assert "matplotlib.pyplot" not in sys.modules


def test_plots__without_matplotlib_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with refused("package-missing", "matplotlib", "protodask[report]"):
        training_plot([[1.0, 0.5]])


@given(st.text(max_size=60), st.integers(4, 40))
def test_shown__is_one_short_line(text: str, longest: int) -> None:
    found = shown(text, longest)
    assert len(found) <= longest
    assert all(letter.isprintable() or letter in JOINERS for letter in found)
    if text.isprintable() and len(text) <= longest:
        assert found == text


def test_shown__keeps_the_ends_apart() -> None:
    assert shown("a class of the number 17", 12) == "a class…r 17"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12, "12"), (9999, "9,999"), (1.25, "1.25"), (12345, "12.3k"), (2.5e6, "2.5M")]
)
def test_compact__of_counts_and_weights(value: float, text: str) -> None:
    assert compact(value) == text


def test_power_of_ten__in_full_or_by_exponent() -> None:
    assert [power_of_ten(exponent) for exponent in (-3, 0, 3, -12, 5)] == ["0.001", "1", "1,000", "10⁻¹²", "10⁵"]


@pytest.mark.parametrize("n_entries", [1, 7, 60])
def test_legend_below__shows_what_fits(n_entries: int) -> None:
    figure = training_plot([[1.0, 0.5]])
    figure.legends.clear()
    handles = [palette_line(position) for position in range(n_entries)]
    legend_below(figure, handles, [f"_${position}$ {'long ' * 9}" for position in range(n_entries)])
    texts = [text for text in draw(figure) if text.startswith(("_$", "and"))]
    assert len(texts) == min(n_entries, 40)
    assert ("and 21 more" in texts) == (n_entries == 60)


def palette_line(position: int) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=palette.class_color(position))


def test_palette__tells_many_classes_apart() -> None:
    signs = {(palette.class_color(position), palette.class_marker(position)) for position in range(64)}
    assert len(signs) == 64
    assert all(re.fullmatch(r"#[0-9a-f]{6}", color) for color in palette.CLASS_COLORS)
