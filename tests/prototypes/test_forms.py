"""Features as normal scores and levels: the map by itself, what is learned of it, and models that look through it."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.objective import Penalty, dense_objective, loss_weights
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeClassifier
from support.models import looking_at_scores
from threadpoolctl import threadpool_limits

from protodask import PrototypeSetClassifier
from protodask.data.format.schema import Column
from protodask.engine import Engine, array_source
from protodask.prototypes import FitConfig, PrototypeSet
from protodask.prototypes import rounds as rounds_module
from protodask.prototypes import tiles as tiles_module
from protodask.prototypes.batch_kernel import Candidates, batch_kernels
from protodask.prototypes.config import FeatureForms, FeatureWeights
from protodask.prototypes.fitted import SCORED_ROWS
from protodask.prototypes.forms import (
    FARTHEST_SCORE,
    FEWEST_IN_LEVEL,
    LEVEL_SPREAD,
    MOST_KNOTS,
    MOST_LEVELS,
    SURE_ROWS,
    UNSEEN,
    UNSURE_BITS,
    Forms,
    _cuts,
    arranged,
    expected_forms,
    learn_forms,
    levels_of,
    normal_scores,
    sample_rows,
)
from protodask.prototypes.kernel import Knots, Line, Standardization
from protodask.prototypes.likelihood import likelihood_kernel
from protodask.prototypes.objective import make_problem, starting_point
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.steps import stepping_start
from protodask.prototypes.tiles import Precision
from protodask.prototypes.training import Training
from protodask.prototypes.training_data import TrainingData

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MakeRows = Callable[..., Arrays]
MakeData = Callable[..., TrainingData]

COLUMNS = tuple(Column(name) for name in "abc")

skewed = st.lists(st.integers(0, 30), min_size=3, max_size=25).map(lambda values: np.exp(np.array(values) / 3.0))


def score_by_counting(values: Floats, weight: Floats, x: float) -> float:
    """The normal score of a value of a sample, from the shares of rows below it and at it."""
    total = below = at = 0.0
    for value, mass in zip(values.tolist(), weight.tolist(), strict=True):
        total += mass
        below += mass if value < x else 0.0
        at += mass if value == x else 0.0
    score = NormalDist().inv_cdf((below + at / 2) / total)
    return min(max(score, -FARTHEST_SCORE), FARTHEST_SCORE)


@given(values=skewed, seed=st.integers(0, 10))
def test_normal_scores__are_those_of_the_shares_of_rows(values: Floats, seed: int) -> None:
    weight = np.random.default_rng(seed).integers(1, 4, len(values)).astype(np.float64)
    found = normal_scores(values, weight)
    if found is None:
        assert len(np.unique(values)) <= 2 or nearly_linear(values, weight)
        return
    np.testing.assert_array_equal(found[0], np.unique(values))
    expected = [score_by_counting(values, weight, x) for x in np.unique(values).tolist()]
    np.testing.assert_allclose(found[1], expected, rtol=1e-9, atol=1e-9)


def nearly_linear(values: Floats, weight: Floats) -> bool:
    rows = np.repeat(values, weight.astype(int))
    scores = [score_by_counting(values, weight, x) for x in rows.tolist()]
    return bool(np.corrcoef(rows, scores)[0, 1] > 0.98)


def test_normal_scores__of_many_values_are_linear_between_knots_and_cut_off() -> None:
    values = np.exp(2 * np.random.default_rng(0).normal(size=20_000))
    found = normal_scores(values, np.ones(len(values)))
    assert found is not None
    assert len(found[0]) <= MOST_KNOTS
    assert (found[1][0], found[1][-1]) == (-FARTHEST_SCORE, FARTHEST_SCORE)
    x = np.quantile(values, [0.01, 0.1, 0.5, 0.9, 0.99])
    expected = [NormalDist().inv_cdf(share) for share in (0.01, 0.1, 0.5, 0.9, 0.99)]
    np.testing.assert_allclose(np.interp(x, *found[:2]), expected, atol=0.06)
    np.testing.assert_array_equal(np.interp([-1e9, 1e9], *found[:2]), [-FARTHEST_SCORE, FARTHEST_SCORE])


def test_normal_scores__have_a_knot_at_a_lump() -> None:
    values = np.concatenate([np.zeros(5000), np.exp(np.random.default_rng(0).normal(size=5000))])
    found = normal_scores(values, np.ones(len(values)))
    assert found is not None
    assert np.interp(0.0, *found[:2]) == pytest.approx(NormalDist().inv_cdf(0.25))


@pytest.mark.parametrize(
    "values",
    [np.zeros(50), np.arange(50) % 2, np.random.default_rng(0).normal(size=5000), np.array([1e300, -1e300] * 9)],
    ids=["constant", "two values", "normal", "two large values"],
)
def test_normal_scores__are_none_where_they_are_no_other_feature(values: Floats) -> None:
    assert normal_scores(values.astype(np.float64), np.ones(len(values))) is None


@pytest.mark.parametrize(
    ("wanted", "columns", "scored"),
    [("plain", [0, 1, 2], []), ("scores", [0, 1, 2], [0, 2]), ("both", [0, 0, 1, 2, 2], [1, 4])],
)
def test_arranged__puts_the_feature_as_it_is_first(wanted: FeatureForms, columns: list[int], scored: list[int]) -> None:
    knots = Line(np.array([0.0, 1.0]), np.array([-1.0, 2.0]))
    found = arranged([knots, None, knots], wanted)
    assert found.columns.tolist() == columns
    assert ([] if found.knots is None else found.knots.places) == scored
    standardization = found.standardization(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0]))
    x = np.array([[0.5, 6.0, 1.0]])
    by_form = {"plain": [-0.25, 1, -0.25], "scores": [0.5, 1, 2], "both": [-0.25, 0.5, 1, -0.25, 2]}
    np.testing.assert_allclose(standardization.apply(x[:, found.columns])[0], by_form[wanted])


def test_normal_scores__tell_a_lump_from_what_lies_beside_it() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(10_000) < 0.9, 0.0, rng.uniform(-1, 1, 10_000))
    for sign in (1.0, -1.0):
        found = normal_scores(sign * values, np.ones(len(values)))
        assert found is not None
        assert len(found[0]) <= MOST_KNOTS
        np.testing.assert_allclose(np.interp([-0.02, 0.0, 0.02], *found[:2]), [-1.64, 0.0, 1.64], atol=0.12)


def test_normal_scores__turn_with_the_feature() -> None:
    values = np.random.default_rng(0).standard_cauchy(20_000)
    one, other = normal_scores(values, np.ones(20_000)), normal_scores(-values, np.ones(20_000))
    assert one is not None
    assert other is not None
    x = np.quantile(values, [0.0005, 0.01, 0.3, 0.9, 0.9995])
    np.testing.assert_allclose(np.interp(x, *one[:2]), -np.interp(-x, *other[:2]), atol=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_normal_scores__of_weights_of_very_different_sizes_are_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, weight = np.sort(np.exp(2 * rng.normal(size=5000))), rng.random(5000)
    weight[-1] = 1e-14
    found = normal_scores(values, weight)
    assert found is not None
    assert np.isfinite(found[1]).all()
    assert (np.diff(found[1]) >= 0).all()


def test_learn_forms__leaves_categories_as_they_are(engine: Engine) -> None:
    columns = [Column("a"), Column("size", "ordinal", tuple(range(40))), Column("c")]
    arrays = lognormal(200)
    arrays["features"][:, 1] = np.floor(np.minimum(arrays["features"][:, 1], 39))
    found = learn_forms(engine, array_source(arrays), ("features", "target"), columns, "both", 0)
    assert found.columns.tolist() == expected_forms(columns, "both").columns.tolist() == [0, 0, 1, 2, 2]


def test_learn_forms__leaves_marks_of_what_is_missing_as_they_are(engine: Engine) -> None:
    columns = [Column("a", filled=1.0, marked=True), Column("c")]
    arrays = lognormal(200)
    found = learn_forms(engine, array_source(arrays), ("features", "target"), columns, "both", 0)
    assert found.columns.tolist() == expected_forms(columns, "both").columns.tolist() == [0, 0, 1, 2, 2]


def test_expected_forms__are_two_of_each_number() -> None:
    columns = [
        Column("a"),
        Column("colour", "nominal", ("red", "green", "blue")),
        Column("size", "ordinal", ("s", "l")),
    ]
    assert len(expected_forms(columns, "plain").columns) == 5
    assert expected_forms(columns, "both").columns.tolist() == [0, 0, 1, 2, 3, 4]


def lognormal(n_rows: int, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    x = np.exp(2 * rng.normal(size=(n_rows, 3)))
    x[:, 1] = np.where(rng.random(n_rows) < 0.4, 0.0, x[:, 1])
    target = (np.log(x[:, 0]) + (x[:, 1] > 0) + rng.normal(scale=0.3, size=n_rows) > 0).astype(np.int32)
    return {"features": x, "target": target}


def test_learn_forms__does_not_depend_on_how_rows_are_cut(engine: Engine) -> None:
    arrays = lognormal(500)
    found = [
        learn_forms(engine, array_source(arrays, block_rows), ("features", "target"), COLUMNS, "both", 5)
        for block_rows in (32, 64, 1024)
    ]
    for other in found[1:]:
        assert_same_knots(found[0].knots, other.knots)


@pytest.mark.parametrize("weighted", [False, True])
def test_learn_forms__have_the_same_bits_on_any_number_of_blas_threads(engine: Engine, weighted: bool) -> None:
    """A product of more than ten thousand numbers is cut into one part for each thread of OpenBLAS."""
    random = np.random.default_rng(0)
    arrays: Arrays = {
        "features": np.exp(2 * random.standard_normal((20_000, 3))),
        "target": np.zeros(20_000, dtype=np.int32),
    }
    arrays["target"][(arrays["features"] > [1, 2, 3]).sum(axis=1) > 1] = 1
    if weighted:
        arrays["weight"] = random.exponential(1.0, 20_000)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            forms = learn_forms(engine, array_source(arrays, 4096), tuple(arrays), COLUMNS, "all", 0, by_region=True)
        found.append({name: values.tobytes() for name, values in forms.arrays().items()})
    assert found[0] == found[1]


def test_learn_forms__of_more_rows_than_the_sample_holds(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protodask.prototypes.forms.MOST_ROWS", 1500)
    arrays = lognormal(4000)
    found = [
        learn_forms(engine, array_source(arrays, block_rows), ("features", "target"), COLUMNS, "scores", 5).knots
        for block_rows in (256, 4096)
    ]
    assert_same_knots(*found)
    every = learn_forms(engine, array_source(lognormal(1500)), ("features", "target"), COLUMNS, "scores", 5).knots
    assert found[0] is not None
    assert every is not None
    assert not np.array_equal(found[0].values, every.values), "another sample"
    x = np.quantile(arrays["features"][:, 0], [0.1, 0.5, 0.9])
    np.testing.assert_allclose(found[0].score(0, x), [NormalDist().inv_cdf(p) for p in (0.1, 0.5, 0.9)], atol=0.15)


def test_learn_forms__counts_rows_by_their_weights(engine: Engine) -> None:
    arrays = lognormal(300)
    weight = np.arange(300) % 3
    weighted = learn_forms(
        engine, array_source({**arrays, "weight": weight * 0.5}), ("features", "target", "weight"), COLUMNS, "both", 0
    )
    repeated = {name: np.repeat(values, weight, axis=0) for name, values in arrays.items()}
    plain = learn_forms(engine, array_source(repeated), ("features", "target"), COLUMNS, "both", 0)
    assert weighted.knots is not None
    assert plain.knots is not None
    np.testing.assert_array_equal(weighted.columns, plain.columns)
    np.testing.assert_array_equal(weighted.knots.values, plain.knots.values)
    np.testing.assert_allclose(weighted.knots.scores, plain.knots.scores, rtol=1e-9)


def assert_same_knots(one: Knots | None, other: Knots | None) -> None:
    assert one is not None
    assert other is not None
    assert one.values.tobytes() == other.values.tobytes()
    assert one.scores.tobytes() == other.scores.tobytes()


def test_sample_rows__are_fewer_where_features_are_many() -> None:
    assert sample_rows(10) == 20_000
    assert sample_rows(10_000) == 1_000


CONFIG = FitConfig.of("source", n_candidates=16, lambda_w=1e-4, tolerance=1e-4, seed=3, precision="float64")


@pytest.mark.parametrize("forms", ["scores", "both"])
@pytest.mark.parametrize("weights", ["shared", "class"])
def test_training__is_that_on_the_forms_themselves(
    engine: Engine,
    training_data: MakeData,
    monkeypatch: pytest.MonkeyPatch,
    forms: FeatureForms,
    weights: FeatureWeights,
) -> None:
    # That features are forms of fewer others is what the starting point alone knows of.
    monkeypatch.setattr(rounds_module, "starting_point", lambda one: starting_point(replace(one, columns=None)))
    config = replace(CONFIG, feature_forms=forms, feature_weights=weights)
    data = training_data(lognormal(150))
    model, history = Training(data, config, engine, MemoryScores()).run()
    found = learn_forms(engine, data.source, data.array_names, COLUMNS, forms, config.seed)
    standardization = found.standardization(data.summary.mean, data.summary.scale)

    def transformed(arrays: Arrays) -> Arrays:
        return {**arrays, "features": standardization.apply(arrays["features"][:, found.columns])}

    plain = replace(config, feature_forms="plain", standardize=False)
    direct, expected = Training(training_data(transformed(lognormal(150))), plain, engine, MemoryScores()).run()
    assert [record.iterations for record in history] == [record.iterations for record in expected]
    np.testing.assert_allclose([record.value for record in history], [record.value for record in expected], rtol=1e-7)
    fresh = lognormal(100, seed=9)
    (scores,) = model.scores(fresh["features"], [model.n_batches])
    (other,) = direct.scores(transformed(fresh)["features"], [direct.n_batches])
    np.testing.assert_allclose(scores, other, rtol=1e-4)
    assert any(batch.scored.any() for batch in model.batches)
    raw = lognormal(150)["features"]
    for batch in model.batches:
        np.testing.assert_array_equal(batch.prototypes, raw[batch.row][:, batch.feature_index])


@pytest.mark.slow
def test_model__does_not_mind_heavy_tails() -> None:
    arrays = lognormal(900)
    x, y = arrays["features"], arrays["target"]
    losses = {}
    for forms in ("plain", "both"):
        model = PrototypeSetClassifier(feature_forms=forms, n_candidates=100, hold_out=0.2).fit(x[:600], y[:600])
        losses[forms] = -np.log(model.predict_proba(x[600:])[np.arange(300), y[600:]]).mean()
    assert losses["both"] < 0.75 * losses["plain"]


def level_by_counting(values: Floats, target: NDArray[np.int64], weight: Floats, cuts: Floats, x: float) -> float:
    """How much the classes change at the cuts below a value, by loops over the rows."""

    def shares(low: float, high: float) -> Floats:
        found = np.array(
            [
                sum(w for v, k, w in zip(values, target, weight, strict=True) if low < v <= high and k == label)
                for label in np.unique(target)
            ]
        )
        found += UNSEEN
        root: Floats = np.sqrt(found / found.sum())
        return root

    ends = [-np.inf, *cuts, np.inf]
    total = 0.0
    for number, cut in enumerate(cuts, start=1):
        if cut < x:
            before, after = shares(ends[number - 1], cut), shares(cut, ends[number + 1])
            total += math.dist(before, after)
    return total


def banded(rows: int, seed: int, cuts: Sequence[float] = (-0.5, 0.7), noise: float = 0.05) -> Arrays:
    """A class for each band of a feature, in some rows another one; and a feature that says nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    target = np.searchsorted(cuts, x[:, 0])
    return {"features": x, "target": np.where(rng.random(rows) < noise, 0, target).astype(np.int32)}


def cuts_by_trying(
    target: Integers, weight: Floats, rows: Integers, cost: float, unsure: float
) -> list[tuple[int, int, int]]:
    """Of ascending values, each of rows of one class: the last one below every cut, and those between which it is."""

    def bits(first: int, end: int) -> float:
        shares = [weight[first:end][target[first:end] == label].sum() for label in np.unique(target)]
        return -math.fsum(mass * math.log2(mass / sum(shares)) for mass in shares if mass > 0)

    def saved(first: int, end: int, cut: int) -> float:
        fits = min(rows[first:cut].sum(), rows[cut:end].sum()) >= FEWEST_IN_LEVEL
        return bits(first, end) - bits(first, cut) - bits(cut, end) if fits else -math.inf

    parts, found = [(0, len(target))], list[tuple[int, int, int]]()
    while len(found) < MOST_LEVELS - 1:
        tried = {(part, cut): saved(*part, cut) for part in parts for cut in range(part[0] + 1, part[1])}
        best = max(tried, key=lambda each: tried[each], default=None)
        if best is None or tried[best] <= cost:
            break
        part, cut = best
        low = high = cut
        while tried.get((part, low - 1), -math.inf) >= tried[best] - unsure:
            low -= 1
        while tried.get((part, high + 1), -math.inf) >= tried[best] - unsure:
            high += 1
        found.append((cut, low, high))
        parts = [one for one in parts if one != part] + [(part[0], cut), (cut, part[1])]
    found.sort()
    limits = [0, *((one[0] + other[0]) // 2 for one, other in itertools.pairwise(found)), len(target)]
    return [
        (cut - 1, max(low - 1, limits[number]), min(high, limits[number + 1]))
        for number, (cut, low, high) in enumerate(found)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_levels__are_how_much_the_classes_change_up_to_a_value(seed: int) -> None:
    arrays = banded(300, seed)
    values, target = arrays["features"][:, 0], arrays["target"].astype(np.int64)
    weight = np.random.default_rng(seed).uniform(0.5, 2, 300)
    found = levels_of(values, target, weight)
    assert found is not None
    assert found.is_level
    weight *= weight.sum() / (weight @ weight)
    order, sure = np.argsort(values), weight.sum() / SURE_ROWS
    cost = np.log2(weight.sum()) + np.log2(299)
    cuts = cuts_by_trying(target[order], weight[order], np.ones(300, dtype=np.int64), cost, sure * UNSURE_BITS)
    places, lows, highs = (values[order][list(ends)] for ends in zip(*cuts, strict=True))
    np.testing.assert_array_equal(found.values, np.stack([lows, highs], axis=1).ravel())
    assert (np.abs(np.subtract.outer([-0.5, 0.7], places)).min(axis=1) < 0.1).all(), "the cuts are found"
    expected = np.array([level_by_counting(values, target, weight, places, x) for x in found.values.tolist()])
    share, levels = weight / weight.sum(), np.interp(values, found.values, expected)
    middle = share @ levels
    expected = (expected - middle) * LEVEL_SPREAD * sure / np.sqrt(share @ (levels - middle) ** 2)
    np.testing.assert_allclose(found.scores, expected, atol=1e-12)


@given(seed=st.integers(0, 2**16), rows=st.integers(20, 300), classes=st.integers(2, 4))
def test_cuts__are_those_of_a_decision_tree(seed: int, rows: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    place = rng.integers(0, 40, rows)
    place = np.unique(place, return_inverse=True)[1]
    target = np.where(rng.random(rows) < 0.3, rng.integers(0, classes, rows), place * classes // 41)
    weight = rng.uniform(0.5, 2, rows)
    mass = np.zeros((place.max() + 1, classes))
    np.add.at(mass, (place, target), weight)
    tree = DecisionTreeClassifier(
        criterion="entropy",
        max_leaf_nodes=MOST_LEVELS,
        min_samples_leaf=5,
        min_impurity_decrease=7.5 / weight.sum(),
        random_state=0,
    )
    nodes = tree.fit(place[:, None], target, sample_weight=weight).tree_
    expected = np.sort(nodes.threshold[nodes.children_left >= 0]).astype(np.int64)
    for unsure in (0.0, 3.0):
        cuts = _cuts(mass, np.bincount(place), 5, 7.5, unsure)
        np.testing.assert_array_equal([cut.place - 1 for cut in cuts], expected)
        assert all(cut.first <= cut.place <= cut.last for cut in cuts)
        assert all(low.last < high.first for low, high in itertools.pairwise(cuts))
        assert unsure or all(cut.first == cut.place == cut.last for cut in cuts)


def test_levels__leave_open_what_no_row_tells() -> None:
    """Of rows on the wrong side of two thresholds alike, it is open at which of these classes change."""
    x = np.random.default_rng(0).standard_normal((5000, 2))
    rows = (np.abs(x[:, 0] - 0.3) > 0.01) | (x[:, 1] > 1)  # of those near the threshold few tell where it is
    values, target = x[rows, 0], ((x[:, 0] > 0.3) & (x[:, 1] < 1))[rows].astype(np.int64)
    found = levels_of(values, target, np.ones(len(values)))
    assert found is not None
    low, high = found.values
    assert low < 0.31 < high
    assert 3 <= ((values >= low) & (values <= high)).sum() <= 30, "more than the values next to one threshold"


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["equal", "uneven", "a tenth", "a class"])
def test_levels__of_what_says_nothing_are_rare(classes: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        target = rng.integers(0, classes, 400)
        weight = {
            "equal": np.ones(400),
            "uneven": rng.lognormal(size=400),
            "a tenth": np.where(rng.random(400) < 0.1, 10.0, 1.0),
            "a class": np.where(target == 0, 10.0, 1.0),
        }[kind]
        found.append(levels_of(rng.normal(size=400), target, weight))
    assert sum(line is not None for line in found) <= 8


@pytest.mark.parametrize(("rows", "share"), [(250, 0.5), (500, 1.0), (2000, 1.0)])
def test_levels__of_few_rows_are_spread_less(rows: int, share: float) -> None:
    arrays = banded(rows, 0)
    values = arrays["features"][:, 0]
    found = levels_of(values, arrays["target"], np.ones(rows))
    assert found is not None
    assert np.interp(values, *found[:2]).std() == pytest.approx(share * LEVEL_SPREAD)


def test_levels__are_none_of_two_values_or_one_class() -> None:
    rng = np.random.default_rng(0)
    assert levels_of(np.repeat([0.0, 1.0], 200), np.repeat([0, 1], 200), np.ones(400)) is None
    assert levels_of(rng.normal(size=400), np.zeros(400, dtype=np.int64), np.ones(400)) is None


@pytest.mark.parametrize("factor", [1e-300, 1e-20, 1e-3, 7.0, 1e20])
def test_levels__do_not_depend_on_the_size_of_all_weights(factor: float) -> None:
    arrays = banded(300, 0)
    weight = np.random.default_rng(0).uniform(0.5, 2, 300)
    found = [levels_of(arrays["features"][:, 0], arrays["target"], share) for share in (weight, factor * weight)]
    assert found[0] is not None
    assert found[1] is not None
    np.testing.assert_array_equal(found[0].values, found[1].values)
    np.testing.assert_allclose(found[0].scores, found[1].scores, rtol=1e-9)


@given(seed=st.integers(0, 2**16), rows=st.integers(10, 400), classes=st.integers(1, 4))
def test_levels__ascend_and_are_of_few_bands(seed: int, rows: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.round(rng.standard_cauchy(rows), 1)
    target = np.searchsorted(np.sort(rng.normal(size=classes - 1)), values)
    found = levels_of(values, target, np.ones(rows))
    if found is None:
        return
    assert (np.diff(found.values) >= 0).all()
    assert (np.diff(found.scores) >= 0).all()
    assert (found.scores[1:-1:2] == found.scores[2::2]).all(), "flat between the cuts"
    assert len(found.values) <= 2 * (MOST_LEVELS - 1) <= MOST_KNOTS
    assert set(found.values) <= set(values)
    known = np.interp(values, found.values, found.scores)
    assert known.mean() == pytest.approx(0, abs=1e-9)
    assert known.std() == pytest.approx(LEVEL_SPREAD * rows / SURE_ROWS)


def test_levels__tell_values_apart_that_single_precision_does_not() -> None:
    values = 1e9 + np.arange(400) / 64
    found = levels_of(values, np.repeat([0, 1], 200), np.ones(400))
    assert found is not None
    np.testing.assert_array_equal(found.values, values[199:201])


def test_learn_forms__of_classes_in_bands(engine: Engine) -> None:
    columns = [Column("a"), Column("b")]
    found = [
        learn_forms(engine, array_source(banded(900, 1), block_rows), ("features", "target"), columns, "all", 0)
        for block_rows in (64, 1024)
    ]
    for forms in found:
        assert forms.columns.tolist() == [0, 0, 1], "as it is, and its level: normal scores would be no other feature"
        assert forms.knots is not None
        assert [forms.knots.is_level(place) for place in forms.knots.places] == [True]
        assert len(forms.columns) <= len(expected_forms(columns, "all").columns)
    assert found[0].knots is not None
    assert found[1].knots is not None
    assert found[0].knots.keys == found[1].knots.keys


def test_forms__are_remembered_as_they_were_learned(engine: Engine) -> None:
    arrays = banded(900, 1)
    arrays["features"] = np.concatenate([arrays["features"], np.exp(arrays["features"][:, :1]), -arrays["features"]], 1)
    arrays["features"][:, 3] += 0.2 * arrays["features"][:, 1]
    columns = [Column(name) for name in "abcde"]
    source, names = array_source(arrays), ("features", "target")
    for wanted in ("plain", "scores", "both", "all"):
        forms = learn_forms(engine, source, names, columns, wanted, 0)
        again = Forms.of_arrays(forms.arrays())
        assert again.arrays().keys() == forms.arrays().keys()
        for name, values in forms.arrays().items():
            np.testing.assert_array_equal(again.arrays()[name], values)
    assert {"columns", "values", "scores", "levels", "others", "factor", "narrow"} == forms.arrays().keys()


@pytest.mark.slow
def test_fit__learns_bands() -> None:
    cuts = (-1.2, -0.5, -0.1, 0.2, 0.7, 1.3)
    train, test = (banded(1500, seed, cuts, noise=0.0) for seed in (0, 1))
    loss = {
        forms: log_loss(
            test["target"],
            PrototypeSetClassifier(feature_forms=forms, n_draws=1, random_state=0)
            .fit(train["features"], train["target"])
            .predict_proba(test["features"]),
        )
        for forms in ("both", "all")
    }
    assert loss["all"] < 0.7 * loss["both"]


def test_names_in__say_which_form(make_model: Callable[..., PrototypeSet]) -> None:
    model = make_model(0, n_features=4)
    batch = model.batches[0]
    line = Line(np.array([0.0, 1.0]), np.array([-1.0, 1.0]))
    scored = replace(batch, knots=Knots.of([None, line, None], 2))
    assert model.names_in(batch) == tuple(model.feature_names[index] for index in batch.feature_index)
    names = model.names_in(scored)
    assert names[1] == f"{model.feature_names[batch.feature_index[1]]} (normal score)"
    assert names[0] == model.feature_names[batch.feature_index[0]]


def test_knots__repeat_the_last_and_say_nothing_of_others() -> None:
    knots = Knots.of([None, Line(np.array([0.0, 2.0]), np.array([-1.0, 1.0]))], 5)
    assert knots is not None
    assert knots.places == [1]
    np.testing.assert_allclose(knots.score(1, np.array([-5.0, 0.0, 1.0, 2.0, 7.0])), [-1, -1, 0, 1, 1])
    assert knots.select(np.array([0])) is None
    assert Knots.of([None, None], 5) is None
    assert math.isnan(knots.values[0, 0])


def test_scores__of_many_rows_are_those_of_each(make_model: Callable[..., PrototypeSet]) -> None:
    model = looking_at_scores(make_model(0, n_features=4))
    rows = np.random.default_rng(1).normal(size=(2 * SCORED_ROWS + 5, 4))
    whole = model.scores(rows, [0, 1, 2])
    expected = np.tile(model.marginals, (len(rows), 1))
    for batch, found in zip(model.batches, whole[1:], strict=True):
        places, at = (
            batch.standardization.apply(batch.prototypes),
            batch.standardization.apply(rows[:, batch.feature_index]),
        )
        for j in range(batch.n_prototypes):
            kernel = np.exp(-0.5 * np.square((at - places[j]) * batch.feature_weight).sum(axis=1))
            expected[:, batch.prototype_class[j]] += batch.prototype_weight[j] * kernel
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_array_equal(whole[0], np.tile(model.marginals, (len(rows), 1)))
    assert [scores.shape for scores in model.scores(rows[:0], [1])] == [(0, model.n_classes)]


@pytest.mark.parametrize("longest", [1, 7, 16])
def test_scores__of_rows_in_several_tiles_are_those_of_each(
    make_model: Callable[..., PrototypeSet], monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    model = looking_at_scores(make_model(0, n_features=4))
    rows = np.random.default_rng(2).normal(size=(33, 4))
    expected = np.concatenate([model.scores(row[None, :], [2])[0] for row in rows])
    monkeypatch.setattr(tiles_module, "LONGEST_TILE", longest)
    np.testing.assert_allclose(model.scores(rows, [2])[0], expected, rtol=1e-9)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_likelihood__of_batches_that_look_at_different_forms(engine: Engine, precision: Precision) -> None:
    arrays = lognormal(120)
    x, y = arrays["features"], arrays["target"].astype(np.int64)
    forms = learn_forms(engine, array_source(arrays), ("features", "target"), COLUMNS, "both", 0)
    assert forms.columns.tolist() == [0, 0, 1, 1, 2, 2]
    standardization = forms.standardization(x.mean(axis=0), x.std(axis=0))
    z = standardization.apply(x[:, forms.columns])
    rows = np.concatenate([np.flatnonzero(y == label)[:6] for label in range(2)])
    batch = np.repeat([0, 1], 6)
    v = np.array([[0.3, 0.0, 0.0, 0.9, 0.0, 0.2], [0.0, 1.1, 0.0, 0.0, 0.4, 0.0]])
    w = np.random.default_rng(0).uniform(0, 30, 12) * (np.arange(12) % 4 > 0)
    batches = [
        kernel
        for b in range(2)
        for kernel in batch_kernels(
            Candidates(z[rows[batch == b]], y[rows[batch == b]], rows[batch == b]),
            v[b],
            w[batch == b],
            standardization,
            precision,
            forms.columns,
            first=(b, 6 * b),
        )
    ]
    previous = np.tile([0.4, 0.6], (120, 1))
    r = loss_weights(y, np.ones(120), rows, 2)
    found = likelihood_kernel(batches).evaluate(x, y, r, previous)
    none = Penalty(0.0, 0.0, 0.0, 0.0)
    evaluate = dense_objective(z, y, np.ones(120), rows, batch, previous, none)
    value, by_v, by_w = evaluate(v, w)
    tolerance = {"float32": 2e-4, "float64": 1e-9}[precision]
    assert found.value == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(found.by_feature, by_v, rtol=tolerance, atol=tolerance * 10)
    np.testing.assert_allclose(found.by_candidate, by_w, rtol=tolerance, atol=tolerance)


def test_starting_point__leaves_rows_as_far_apart_however_many_forms_there_are() -> None:
    standardized = np.random.default_rng(0).normal(size=(3, 3))
    every, of_class = np.ones(3), np.array([4.0, 2.0])

    def start(forms: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        columns = np.repeat(np.arange(3), forms)
        candidates = Candidates(standardized[:, columns], np.array([0, 0, 1]), np.arange(3))
        unit = Standardization(np.zeros(len(columns)), np.ones(len(columns)))
        problem = make_problem(candidates, every, of_class, unit, "float64", columns=columns)
        weight = problem.split(starting_point(problem))[0][0]
        features = candidates.features * weight
        return weight, np.square(features[:, None] - features).sum(axis=2)

    (weight, alone), (_, both) = start(1), start(2)
    np.testing.assert_allclose(weight, 10 / 3, rtol=1e-15)
    np.testing.assert_allclose(both, alone, rtol=1e-12)


@pytest.mark.parametrize(
    ("n_features", "exponent"), [(2, 50), (30, 100 / 30), (100, 1), (150, 2.25), (200, 4), (3000, 4)]
)
@pytest.mark.parametrize("forms", [1, 3])
def test_starting_point__of_many_features_does_not_make_all_rows_alike(
    n_features: int, exponent: float, forms: int
) -> None:
    columns = np.repeat(np.arange(n_features), forms)
    rows = np.random.default_rng(0).normal(size=(200, n_features))[:, columns]
    unit = Standardization(np.zeros(len(columns)), np.ones(len(columns)))
    candidates = Candidates(rows, np.repeat([0, 1], 100), np.arange(200))
    problem = make_problem(candidates, np.ones(200), np.array([400.0, 200.0]), unit, "float64", columns=columns)
    theta = starting_point(problem)
    # Half the mean squared distance of two rows is the sum of the variances.
    assert (rows * problem.split(theta)[0][0]).var(axis=0).sum() == pytest.approx(exponent, rel=0.1)
    steps = problem.split(stepping_start(problem))[0]
    np.testing.assert_allclose(steps, 3 * 10 / (n_features * forms**0.5))  # many rows find a way on from there
    # What the solver sees is of one norm all the same.
    seen = np.linalg.norm((theta * problem.solver_scale)[: problem.n_feature_weights])
    assert seen == pytest.approx(24 * forms**0.5)
