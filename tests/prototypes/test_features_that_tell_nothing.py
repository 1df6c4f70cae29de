"""Columns that are constant, that hardly vary, or that have no value in any row that is learnt from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from protodask import PrototypeSetClassifier
from protodask.data.format.summary import summarize_rows
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.forms import RARE, Forms, least_scale
from protodask.prototypes.kernel import Differences, Standardization
from protodask.prototypes.objective import make_problem, starting_point
from protodask.prototypes.steps import stepping_start

MANY = 1300
"""Rows that a round begins small steps with in these tests."""


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protodask.prototypes.config.STEPPED_ROWS", MANY)
    monkeypatch.setattr("protodask.prototypes.steps.FEWEST_STEPS", 60)
    monkeypatch.setattr("protodask.prototypes.staging.STAGE_BLOCK_ROWS", 128)


def make_rows(n_rows: int, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(n_rows, 2))
    return x, (x[:, 0] + 0.5 * random.normal(size=n_rows) > 0).astype(int)


@pytest.mark.parametrize(
    ("n_rows", "settings"),
    [
        (300, {"n_draws": 2}),
        (300, {"feature_weights": "class", "n_batches": 2, "n_draws": 1}),
        (300, {"recipe": "source", "tolerance": 1e-3}),
        (300, {"feature_forms": "plain", "hold_out": 0, "tolerance": 1e-3, "n_draws": 1}),
        (300, {"standardize": False, "n_draws": 1}),
        (MANY, {"n_draws": 1}),
    ],
    ids=["defaults", "rounds", "source", "plain", "raw", "small steps"],
)
def test_a_constant_column__does_not_change_answers_when_it_changes(n_rows: int, settings: dict[str, Any]) -> None:
    x, y = make_rows(n_rows)
    found = PrototypeSetClassifier(n_candidates=100, **settings).fit(
        np.column_stack([x[:, 0], np.full(n_rows, 2013.0), x[:, 1]]), y
    )
    if n_rows > 1000:
        assert found.history_[0].stages
    expected = found.predict_proba(np.column_stack([x[:, 0], np.full(n_rows, 2013.0), x[:, 1]]))
    for year in (2014.0, -1e6):
        later = found.predict_proba(np.column_stack([x[:, 0], np.full(n_rows, year), x[:, 1]]))
        np.testing.assert_array_equal(later, expected)
    assert found.score(x[:, [0, 0, 1]], y) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [300, MANY])
def test_constant_columns__do_not_change_a_fit(n_rows: int) -> None:
    x, y = make_rows(n_rows)
    settings: Any = {"n_candidates": 100, "n_draws": 1 if n_rows == MANY else 2}
    expected = PrototypeSetClassifier(**settings).fit(x, y).predict_proba(x)
    for n_constant in (1, 60):
        found = PrototypeSetClassifier(**settings).fit(np.column_stack([x, np.full((n_rows, n_constant), 1e30)]), y)
        np.testing.assert_allclose(
            found.predict_proba(np.column_stack([x, np.zeros((n_rows, n_constant))])), expected, 1e-3
        )


def test_starts__have_no_weight_where_candidates_are_alike() -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(12, 4))
    features[:, 2] = 0.7
    candidates = Candidates(features, np.repeat([0, 1], 6), np.arange(12))
    plain = Standardization(np.zeros(4), np.ones(4))
    problem = make_problem(candidates, np.ones(12), np.array([50.0, 60.0]), plain, "float64", sizes=(6, 6))
    weights = problem.split(starting_point(problem))[0]
    np.testing.assert_allclose(weights, [[10 / 3, 10 / 3, 0, 10 / 3]] * 2)
    without = Candidates(features[:, [0, 1, 3]], candidates.classes, candidates.rows)
    other = make_problem(
        without, np.ones(12), np.array([50.0, 60.0]), Standardization(np.zeros(3), np.ones(3)), "float64", sizes=(6, 6)
    )
    steps, others = (one.split(stepping_start(one)) for one in (problem, other))
    np.testing.assert_allclose(steps[0][:, [0, 1, 3]], others[0])
    np.testing.assert_allclose(steps[1], others[1])
    alike = replace(problem, candidates=Candidates(np.ones((12, 4)), candidates.classes, candidates.rows))
    assert (alike.split(starting_point(alike))[0] == 0).all()


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([0.0, 1.0, -3.0, 1e6, 0.5])),
    st.sampled_from([0.0, 2024.0, 1e7, -1e9]),
    st.integers(0, 2**16),
)
def test_two_valued__is_what_has_two_values(values: Any, offset: float, seed: int) -> None:
    values = values + offset
    weights = np.random.default_rng(seed).uniform(0.1, 10, len(values))
    target = np.zeros(len(values), dtype=np.int64)
    for weight in (None, weights):
        found = summarize_rows(values[:, None], target, weight, 1)
        assert found.two_valued.tolist() == [len(np.unique(values)) == 2]


def test_least_scale__is_a_quarter_of_what_two_values_differ_by() -> None:
    x = np.column_stack([np.r_[np.zeros(99), 4.0], np.arange(100.0), np.full(100, 3.0), np.r_[np.zeros(99), 2.0]])
    summary = summarize_rows(x, np.zeros(100, dtype=np.int64), None, 1)
    columns = np.array([0, 1, 1, 2, 3, 0])
    differences = Differences(np.array([-1, -1, -1, -1, -1, 3]), np.array([0.0, 0, 0, 0, 0, 2.0]))
    forms = Forms(columns, differences=differences, narrow=np.ones(6))
    assert least_scale(forms, summary).tolist() == [4 * RARE, 0, 0, 0, 2 * RARE, 0]
    known = replace(forms, least=least_scale(forms, summary))
    scale = known.standardization(summary.mean, summary.scale).scale
    np.testing.assert_allclose(scale, [1.0, *summary.scale[[1, 1, 2]], 0.5, summary.scale[0]])
    again = Forms.of_arrays(known.arrays()).standardization(summary.mean, summary.scale)
    np.testing.assert_array_equal(again.scale, scale)


@pytest.mark.parametrize(
    ("settings", "scale"), [({}, RARE), ({"feature_forms": "plain"}, None), ({"standardize": False}, 1.0)]
)
def test_rare_values__are_spread_less_than_others(settings: dict[str, Any], scale: float | None) -> None:
    x, y = make_rows(400)
    rare = (np.arange(400) % 40 == 0).astype(float)
    found = PrototypeSetClassifier(n_draws=1, n_candidates=60, **settings).fit(np.column_stack([x, rare]), y)
    scales = {float(s) for one in found.model_.batches for s in one.scale[one.feature_index == 2]}
    assert len(scales) == 1
    kept = scales.pop()
    assert kept == pytest.approx(scale) if scale else 0.1 < kept < 0.2


def test_forms_that_earlier_versions_remembered__have_the_scale_that_they_had() -> None:
    arrays_then = {name: values for name, values in Forms(np.array([0, 1])).arrays().items() if name != "least"}
    found = Forms.of_arrays(arrays_then).standardization(np.zeros(2), np.array([1.0, 0.01]))
    assert found.scale.tolist() == [1.0, 0.01]


@pytest.mark.parametrize("kind", ["numbers", "text", "matrix", "arrow"])
def test_a_column_without_any_value__is_learnt_around(kind: str) -> None:
    x, y = make_rows(200)
    frame = pd.DataFrame(x, columns=["a", "b"])
    empty: Any = {"numbers": np.nan, "text": pd.Series([None] * 200, dtype="str"), "matrix": np.nan, "arrow": 0}[kind]
    rows: Any = frame.assign(gone=empty)
    later: Any = frame.assign(gone="there" if kind == "text" else 7.0)
    if kind == "matrix":
        rows, later = rows.to_numpy(), later.to_numpy()
    elif kind == "arrow":
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        rows = table.append_column("gone", pyarrow.nulls(200))
        later = table.append_column("gone", pyarrow.array([None] * 200, pyarrow.float64()))
    found = PrototypeSetClassifier(n_draws=2, n_candidates=60).fit(rows, y)
    assert found.score(rows, y) > 0.8
    np.testing.assert_array_equal(found.predict_proba(later), found.predict_proba(rows))
