"""Explanations from the estimator."""

from typing import Any

import dask.array as da
import numpy as np
import pandas
import pytest
from sklearn.exceptions import NotFittedError
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.errors import Code
from protodask.explain import Explanation

NAMES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def fitted() -> tuple[PrototypeSetClassifier, pandas.DataFrame]:
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.uniform(size=(300, 3)), columns=NAMES)
    y = np.where((X["one"] > 0.5) ^ (X["two"] > 0.5), "yes", "no")
    return PrototypeSetClassifier(recipe="source", n_batches=2, n_candidates=60, tolerance=1e-3).fit(X, y), X


Fitted = tuple[PrototypeSetClassifier, pandas.DataFrame]


def the_one(found: Explanation | list[Explanation]) -> Explanation:
    assert isinstance(found, Explanation)
    return found


def test_explain__of_several_rows_is_a_list_that_fits_the_predictions(fitted: Fitted) -> None:
    classifier, X = fitted
    for n_batches in (None, 0, 1):
        found = classifier.explain(X[:20], n_batches=n_batches)
        assert isinstance(found, list)
        probability = classifier.predict_proba(X[:20], n_batches=n_batches)
        np.testing.assert_allclose([item.probability for item in found], probability, rtol=1e-5)
        np.testing.assert_array_equal([item.predicted for item in found], classifier.predict(X[:20], n_batches))
        familiarity = classifier.familiarity(X[:20], n_batches=n_batches)
        np.testing.assert_allclose([item.familiarity for item in found], familiarity, rtol=1e-5, atol=1e-9)


def test_explain__of_one_row_is_one_explanation_however_it_is_given(fitted: Fitted) -> None:
    classifier, X = fitted
    expected = the_one(classifier.explain(X[4:5], most=3))
    assert len(expected.contributions) == 3
    assert {match.name for match in expected.contributions[0].features} <= set(NAMES)
    assert the_one(classifier.explain(X.iloc[4], most=3)).contributions == expected.contributions
    unnamed = PrototypeSetClassifier(recipe="source", n_candidates=60, tolerance=1e-3).fit(X.to_numpy(), X["one"] > 0.5)
    row = X.to_numpy()[4]
    same = the_one(unnamed.explain(row[None, :])).contributions
    for given in (row, row.tolist()):
        assert the_one(unnamed.explain(given)).contributions == same


@pytest.mark.parametrize(
    ("rows", "code", "facts"),
    [
        (pandas.DataFrame([[0.0, np.inf, 1.0]], columns=NAMES), "bad-value", ["'two'", "row 0"]),
        (da.zeros((4, 3)), "wrong-type", ["compute"]),
    ],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_explain__refuses(fitted: Fitted, rows: Any, code: Code, facts: list[str]) -> None:
    with refused(code, *facts):
        fitted[0].explain(rows)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_explain__refuses_another_number_of_features(fitted: Fitted) -> None:
    # It is scikit-learn that says so.
    with pytest.raises(ValueError, match="expecting 3 features"):
        fitted[0].explain(np.zeros((2, 2)))


def test_explain__refuses_more_batches_than_there_are(fitted: Fitted) -> None:
    classifier, X = fitted
    with refused("bad-setting", "n_batches", 3, "2 batches"):
        classifier.explain(X[:1], n_batches=3)
    with pytest.raises(NotFittedError):
        PrototypeSetClassifier().explain(X[:1])
