from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask.data.format.schema import TARGET, WEIGHT, Column
from protodask.engine import add_records, array_source, thread_engine
from protodask.engine.records import Floats
from protodask.robust.certified import BOUNDS
from protodask.robust.classifier_rows import RowsOfArrays
from protodask.robust.config import RobustConfig
from protodask.robust.measures import NOTHING, CertifiedSums, certified_sums, evaluate_robust
from protodask.robust.model import RobustModel
from protodask.robust.uncertain_rows import UncertainRows


def some_points() -> tuple[NDArray[np.bool_], Floats]:
    return np.array([True, True, True, False, False]), np.array([0.0, 0.05, 0.1, 0.5, 0.01])


def test_certified_sums__by_hand() -> None:
    sums = certified_sums(*some_points(), eps=0.05)
    assert sums.count == 5
    assert sums.nominal_error == pytest.approx(2 / 5)
    assert sums.expected_certified_error == pytest.approx((0.0 + 0.05 + 0.1 + 1 + 1) / 5)
    assert sums.certified_fraction == pytest.approx(2 / 5)


def test_certified_sums__of_weights_are_those_of_copies() -> None:
    right, certified = some_points()
    copies = np.array([2, 0, 1, 3, 1])
    weighted = certified_sums(right, certified, 0.1, copies.astype(float))
    expected = certified_sums(np.repeat(right, copies), np.repeat(certified, copies), 0.1)
    assert astuple(weighted)[1:-1] == pytest.approx(astuple(expected)[1:-1])
    assert weighted.by == expected.by
    assert (weighted.count, expected.count) == (5, 7)


NUMBERS = st.integers(0, 1000).map(float)
SUMS = st.builds(CertifiedSums, st.integers(0, 9), *[NUMBERS] * 4, st.tuples(*[NUMBERS] * len(BOUNDS)))


@given(SUMS, SUMS, SUMS)
def test_add_records__is_a_monoid(left: CertifiedSums, middle: CertifiedSums, right: CertifiedSums) -> None:
    assert add_records(add_records(left, middle), right) == add_records(left, add_records(middle, right))
    assert add_records(NOTHING, left) == left == add_records(left, NOTHING)


def some_model(n_classes: int) -> RobustModel:
    random = np.random.default_rng(n_classes)
    planes = 1 if n_classes == 2 else n_classes
    return RobustModel(
        weights=random.normal(size=(planes, 3)),
        intercept=random.normal(size=planes),
        classes=tuple("abcd"[:n_classes]),
        features=("u", "v", "w"),
        columns=(Column("u"), Column("v"), Column("w")),
        config=RobustConfig("SBMV", eps=0.3),
        objective=np.ones(planes),
        lower_bound=np.ones(planes),
        passes=(1,) * planes,
    )


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_evaluate_robust__over_blocks_is_that_of_all_points(n_classes: int, weighted: bool) -> None:
    model, random = some_model(n_classes), np.random.default_rng(0)
    middle, half = random.normal(size=(60, 3)), 0.3 * random.random((60, 3))
    codes = random.integers(0, n_classes, 60)
    # The targets count the classes the other way round.
    arrays = {"lower": middle - half, "upper": middle + half, "mean_low": middle, "mean_high": middle}
    arrays[TARGET.name] = (n_classes - 1 - codes).astype(np.int32)
    weights = random.integers(0, 3, 60).astype(float)
    if weighted:
        arrays[WEIGHT.name] = weights
    with thread_engine(2) as engine:
        found = evaluate_robust(
            model, array_source(arrays, 16), RowsOfArrays(None), np.arange(n_classes)[::-1], engine, eps=0.2
        )
    rows = UncertainRows(middle - half, middle + half, middle, middle)
    certified, by = model.certified(rows)
    expected = certified_sums(model.predict(rows) == codes, certified, 0.2, weights if weighted else None, by)
    assert astuple(found)[:-1] == pytest.approx(astuple(expected)[:-1])
    assert found.by == pytest.approx(expected.by)
    assert sum(found.by) == pytest.approx(found.certified)
    assert 0 < found.certified_fraction < 1


def test_evaluate_robust__of_no_rows_is_refused() -> None:
    empty = {name: np.empty((0, 3)) for name in ("lower", "upper", "mean_low", "mean_high")}
    source = array_source({**empty, TARGET.name: np.empty(0, dtype=np.int32)})
    with refused("no-rows"):
        evaluate_robust(some_model(2), source, RowsOfArrays(None), np.arange(2))


def test_evaluate_robust__of_rows_without_weight_is_refused() -> None:
    rows = {name: np.zeros((4, 3)) for name in ("lower", "upper", "mean_low", "mean_high")}
    source = array_source({**rows, TARGET.name: np.zeros(4, dtype=np.int32), WEIGHT.name: np.zeros(4)})
    with refused("no-rows", "weights", 0):
        evaluate_robust(some_model(2), source, RowsOfArrays(None), np.arange(2))


@pytest.mark.parametrize("eps", [0.0, 1.0, -1.0, np.nan])
def test_evaluate_robust__at_no_probability_is_refused(eps: float) -> None:
    rows = {name: np.zeros((4, 3)) for name in ("lower", "upper", "mean_low", "mean_high")}
    source = array_source({**rows, TARGET.name: np.zeros(4, dtype=np.int32)})
    with refused("bad-setting", f"eps is {eps}", 0, 1):
        evaluate_robust(some_model(2), source, RowsOfArrays(None), np.arange(2), eps=eps)


def test_certified_sums__of_no_points_is_nothing() -> None:
    assert certified_sums(np.empty(0, dtype=bool), np.empty(0), 0.1) == NOTHING
