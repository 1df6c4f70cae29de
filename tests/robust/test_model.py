from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask.data.format.schema import Column
from protodask.robust import RobustConfig, RobustModel, UncertainRows
from protodask.robust.model import codes_of


def model_of(weights: NDArray[np.float64], intercept: NDArray[np.float64], formulation: str = "SBMV-I") -> RobustModel:
    planes, n_features = weights.shape
    names = tuple(f"x{feature}" for feature in range(n_features))
    return RobustModel(
        weights=weights,
        intercept=intercept,
        classes=tuple("abcd"[: max(2, planes)]),
        features=names,
        columns=tuple(Column(name) for name in names),
        config=RobustConfig(formulation),
        objective=np.ones(planes),
        lower_bound=np.ones(planes),
        passes=(1,) * planes,
    )


def test_certified_eps__of_three_classes_adds_up_the_bounds_against_the_others() -> None:
    # The mean is at 1, in [0.5, 1.5] with standard deviation 0.1; the classes meet at 0.8 and at 1.4.
    rows = UncertainRows([[0.5]], [[1.5]], [[1.0]], [[1.0]], [[1.01]])
    model = model_of(np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 0.8, 2.2]), "MC")
    assert model.predict(rows).tolist() == [1]
    assert model.certified_eps(rows)[0] == pytest.approx(1 / (1 + 2**2) + 1 / (1 + 4**2))


def test_certified_eps__of_exact_points_is_one_or_nothing() -> None:
    model = model_of(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.zeros(3))
    points = np.random.default_rng(0).normal(size=(200, 2))
    np.testing.assert_array_equal(model.certified_eps(UncertainRows.point(points)), np.zeros(200))


def test_certified_eps__on_a_plane_is_not_that_of_the_other_side() -> None:
    # Known exactly, and as near to the plane between two classes as rounding allows: the values of the two planes may
    # speak for the one and their difference for the other, which must not be certified in its place.
    random = np.random.default_rng(0)
    weights, intercept = np.vstack([random.normal(size=(2, 5)), np.zeros(5)]), np.array([0.3, -0.2, 1e3])
    across, at = weights[0] - weights[1], intercept[0] - intercept[1]
    points = random.normal(size=(500, 5))
    points -= ((points @ across - at) / (across @ across))[:, None] * across
    found = model_of(weights, intercept).certified_eps(UncertainRows.point(points))
    assert set(found) == {1.0}


def test_codes_of__the_first_of_equal_values() -> None:
    assert codes_of(np.array([[0.0], [-1.0], [2.0]])).tolist() == [1, 0, 1]
    assert codes_of(np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]])).tolist() == [0, 1]


def test_decision__of_other_features_is_refused() -> None:
    with refused("columns-differ", "3 features", "trained on 2"):
        model_of(np.ones((1, 2)), np.zeros(1)).decision(UncertainRows.point(np.ones((3, 3))))


@pytest.mark.parametrize(("formulation", "expected"), [("SVM", "SBMV-I"), ("M", "SBMV-I"), ("MC", "MC"), ("S", "S")])
def test_certifying__is_what_knows_a_spread(formulation: str, expected: str) -> None:
    assert model_of(np.ones((1, 2)), np.zeros(1), formulation).certifying() == expected


@pytest.mark.parametrize("formulation", ["SVM", "M", "MM-M"])
def test_certified_eps__by_what_knows_no_spread_is_refused(formulation: str) -> None:
    model = model_of(np.ones((1, 2)), np.zeros(1))
    with refused("unsupported", formulation.removeprefix("MM-"), "SBMV-I"):
        model.certified_eps(UncertainRows.point(np.ones((3, 2))), formulation)


def test_converged__asks_every_plane() -> None:
    model = model_of(np.ones((3, 2)), np.zeros(3))
    assert model.converged
    assert not replace(model, lower_bound=np.array([1.0, 0.9, 1.0])).converged
