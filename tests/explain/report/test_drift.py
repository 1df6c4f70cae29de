from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp

from protodask.engine import Engine, array_source
from protodask.explain.report.drift import (
    distance,
    judge,
    measure_drift,
    outside_p_value,
    standardized_steps,
)
from protodask.explain.report.profile import Profile, Range, no_range, profile
from protodask.prototypes.model import PrototypeSet, familiarity

MakeModel = Callable[..., PrototypeSet]


def profiled(
    engine: Engine, features: np.ndarray[tuple[int, int], np.dtype[np.float64]], target: list[int], within: Range
) -> Profile:
    rows: dict[str, Any] = {"features": features, "target": np.array(target, dtype=np.int32)}
    return profile(engine, array_source(rows, 64), max(target) + 1, within)


def test_measure_drift__against_plain_numpy(make_model: MakeModel, engine: Engine) -> None:
    model = make_model(0)
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(300, 4)), rng.normal(size=(200, 4))
    new[:, 1] += 3
    new[:, 2] *= 5
    old[:, 3] = new[:, 3] = 7.0
    before = profiled(engine, old, [0, 1, 2] * 100, no_range(4))
    after = profiled(engine, new, [0, 3] * 100, Range(old.min(axis=0), old.max(axis=0)))
    found = measure_drift(model, 2, before, after, ("a", True, "c"), ("a", "x", "y", 1))
    by_name = {feature.name: feature for feature in found.features}
    p_values = []
    for column in range(4):
        feature, expected = by_name[f"x{column}"], ks_2samp(old[:, column], new[:, column], method="asymp")
        assert feature.distance == pytest.approx(expected.statistic)
        p_values.append(expected.pvalue)
        outside = (new[:, column] < old[:, column].min()) | (new[:, column] > old[:, column].max())
        assert feature.outside == pytest.approx(outside.mean())
        pooled = np.sqrt((old[:, column].var() + new[:, column].var()) / 2)
        step = 0.0 if pooled == 0 else (new[:, column].mean() - old[:, column].mean()) / pooled
        assert feature.step == pytest.approx(step)
        assert feature.used == (column in model.active_features)
    assert {feature.name for feature in found.features[:2]} == {"x1", "x2"}
    assert [feature.alarm for feature in found.features[2:]] == ["none", "none"]
    assert found.alarming == 2
    assert by_name["x1"].p_value >= max(min(p_values), 0)
    np.testing.assert_allclose(
        np.sort(found.familiarity.before), np.sort(familiarity(model.scores(old, [2])[0])), rtol=1e-12
    )
    shares: dict[Any, Any] = {(type(entry.label), entry.label): (entry.before, entry.after) for entry in found.classes}
    assert shares[str, "a"] == (pytest.approx(1 / 3), 0.5)
    assert shares[bool, True] == (pytest.approx(1 / 3), None)
    assert shares[int, 1] == (None, 0.5)
    assert found.new_classes == (1,)
    assert set(map(str, found.vanished_classes)) == {"True", "c"}


def test_measure_drift__of_the_same_rows_is_none(make_model: MakeModel, engine: Engine) -> None:
    model, old = make_model(0), np.random.default_rng(0).normal(size=(500, 4))
    before = profiled(engine, old, [0, 1] * 250, no_range(4))
    after = profiled(engine, old, [0, 1] * 250, Range(old.min(axis=0), old.max(axis=0)))
    found = measure_drift(model, 1, before, after, ("a", "b"), None)
    assert found.alarming == 0
    assert found.classes == ()
    assert {feature.distance for feature in found.features} == {0.0}
    assert found.familiarity.p_value == pytest.approx(1)


def test_measure_drift__hardly_ever_alarms_where_there_is_none(make_model: MakeModel, engine: Engine) -> None:
    model, rng = make_model(0), np.random.default_rng(5)
    alarms = 0
    for _ in range(30):
        old, new = rng.standard_t(3, size=(60, 4)), rng.standard_t(3, size=(60, 4))
        before = profiled(engine, old, [0] * 60, no_range(4))
        after = profiled(engine, new, [0] * 60, Range(old.min(axis=0), old.max(axis=0)))
        alarms += any(feature.alarm != "none" for feature in measure_drift(model, 1, before, after, "a", "a").features)
    assert alarms <= 2


@pytest.mark.parametrize("weight", [None, 0.0], ids=["no rows", "no weight"])
@pytest.mark.parametrize("swapped", [False, True])
def test_measure_drift__without_rows_alarms_nobody(
    weight: float | None, swapped: bool, make_model: MakeModel, engine: Engine
) -> None:
    size = 0 if weight is None else 5
    arrays: dict[str, Any] = {"features": np.ones((size, 4)), "target": np.zeros(size, dtype=np.int32)}
    if weight is not None:
        arrays["weight"] = np.full(size, weight)
    none = profile(engine, array_source(arrays, 64), 2, no_range(4))
    some = profiled(engine, np.random.default_rng(0).normal(size=(100, 4)), [0, 1] * 50, no_range(4))
    before, after = (none, some) if swapped else (some, none)
    found = measure_drift(make_model(0), 2, before, after, ("a", "b"), ("a", "b"))
    assert {feature.alarm for feature in found.features} == {"none"}
    assert (found.classes, found.familiarity.rare) == ((), 0.0)


def test_measure_drift__calls_used_what_the_first_batches_look_at(make_model: MakeModel, engine: Engine) -> None:
    model = make_model(0)
    rows = profiled(engine, np.random.default_rng(0).normal(size=(50, 4)), [0, 1] * 25, no_range(4))
    for count in range(model.n_batches + 1):
        found = measure_drift(model, count, rows, rows, ("a", "b"), ("a", "b"))
        wanted = {f"x{index}" for batch in model.batches[:count] for index in batch.feature_index.tolist()}
        assert {feature.name for feature in found.features if feature.used} == wanted


@pytest.mark.parametrize(("before", "after", "least"), [(20, 15, 4), (50, 200, 10), (3, 5, 5)])
def test_outside_p_value__is_the_frequency_in_draws(before: int, after: int, least: int) -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(20_000, before)), rng.normal(size=(20_000, after))
    outside = (new < old.min(axis=1, keepdims=True)) | (new > old.max(axis=1, keepdims=True))
    frequency = np.mean(outside.sum(axis=1) >= least)
    assert outside_p_value(before, after, least / after) == pytest.approx(frequency, abs=0.01)


def test_outside_p_value__of_many_rows_is_continued_and_of_none_is_one() -> None:
    assert outside_p_value(1000, 10_001, 0.004) == pytest.approx(outside_p_value(1000, 10_000, 0.004), abs=0.02)
    assert outside_p_value(1000, 50, 0.0) == 1
    assert outside_p_value(1, 50, 0.9) == 1


def test_distance__of_small_samples_has_the_p_value_of_all_ways_to_part_them() -> None:
    values = np.random.default_rng(0).normal(size=7)
    for size in range(1, 7):
        gaps = []
        for first in combinations(range(7), size):
            own = np.isin(np.arange(7), first)
            gaps.append(distance(values[own], values[~own])[0])
        for first, gap in zip(combinations(range(7), size), gaps, strict=True):
            own = np.isin(np.arange(7), first)
            expected = np.mean([other >= gap - 1e-9 for other in gaps])
            assert distance(values[own], values[~own])[1] == pytest.approx(expected)


def test_distance__of_a_row_and_a_row_is_no_alarm() -> None:
    assert distance(np.array([0.0]), np.array([1.0])) == (1.0, 1.0)
    assert distance(np.array([9.0]), np.arange(3.0))[1] == pytest.approx(1 / 2)


def test_distance__of_an_empty_sample_is_none() -> None:
    assert distance(np.zeros(0), np.ones(3)) == (0.0, 1.0)


def test_standardized_steps__between_two_constants_are_infinite(engine: Engine) -> None:
    before = profiled(engine, np.array([[1.0, 2.0]] * 9), [0] * 9, no_range(2))
    after = profiled(engine, np.array([[1.0, 3.0]] * 9), [0] * 9, no_range(2))
    assert standardized_steps(before, after).tolist() == [0.0, np.inf]


@pytest.mark.parametrize(
    ("step", "gap", "p_value", "outside", "expected"),
    [
        (0.0, 0.3, 0.001, 0.0, "strong"),
        (0.0, 0.3, 0.5, 0.0, "none"),
        (-0.6, 0.0, 0.001, 0.0, "strong"),
        (0.3, 0.05, 0.001, 0.0, "some"),
        (0.0, 0.05, 1e-9, 0.0, "none"),
        (0.0, 0.0, 1.0, 0.06, "strong"),
        (0.0, 0.0, 1.0, 0.01, "some"),
    ],
)
def test_judge__asks_for_size_and_significance(
    step: float, gap: float, p_value: float, outside: float, expected: str
) -> None:
    assert judge(step, gap, p_value, outside) == expected
