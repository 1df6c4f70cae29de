"""Decision surfaces where the boundary can be worked out by hand, and against the model's own scores."""

from collections.abc import Callable
from dataclasses import replace
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.data.format.schema import Column
from protodask.evaluation.stream import weighted_quantiles
from protodask.explain.surface import surface, typical_point
from protodask.prototypes.batches import Batch
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]


def pair_model(weight: tuple[float, float] = (2.0, 2.0), third: float = 0.0) -> PrototypeSet:
    """A prototype of class "a" at (0, 1), one of "b" at (4, 1), with a third feature between them; equal shares."""
    names = ("x", "unused", "y", "z")
    return PrototypeSet(
        marginals=np.array([0.5, 0.5]),
        classes=("a", "b"),
        feature_names=names,
        columns=tuple(Column(name) for name in names),
        batches=(
            Batch(
                feature_index=np.array([0, 2, 3]),
                feature_weight=np.array([1.0, 2.0, 1.0]),
                center=np.zeros(3),
                scale=np.array([2.0, 1.0, 1.0]),
                prototypes=np.array([[0.0, 1.0, 0.0], [4.0, 1.0, third]]),
                prototype_class=np.array([0, 1]),
                prototype_weight=np.array(weight),
                row=np.array([3, 5]),
            ),
        ),
        precision="float64",
    )


def test_surface__boundary_is_half_way_between_equal_prototypes() -> None:
    found = surface(pair_model(), "x", "y", n_points=41, limits=((0, 4), (-1, 3)))
    assert found.first_values[20] == 2
    np.testing.assert_allclose(found.probability[:, 20], 0.5, atol=1e-12)
    assert (found.predicted[:, :20] == 0).all()
    assert (found.predicted[:, 21:] == 1).all()
    # At (0, 1): similarity 1 to the first, exp(-1/2 (4 / 2)^2) to the second, weight 2 each.
    row = int(np.flatnonzero(np.isclose(found.second_values, 1))[0])
    first, second = 0.5 + 2.0, 0.5 + 2 * exp(-2)
    np.testing.assert_allclose(found.probability[row, 0], [first / (first + second), second / (first + second)])
    assert found.familiarity[row, 0] == pytest.approx(2 + 2 * exp(-2))


def test_surface__boundary_moves_with_the_weights() -> None:
    """2 exp(-x^2 / 8) = 1 exp(-(4 - x)^2 / 8) at x = 2 + ln 2."""
    found = surface(pair_model((2.0, 1.0)), "x", "y", n_points=401, limits=((0, 4), (0, 2)))
    edge = found.first_values[(found.predicted == 0).sum(axis=1)]
    np.testing.assert_allclose(edge, 2 + np.log(2), atol=4 / 400)


def test_surface__the_other_features_are_held_still() -> None:
    """At z = 3 the second prototype (z = 3) is near, the first is exp(-9/2) away."""
    found = surface(pair_model(third=3.0), "x", "y", at=[0, 0, 0, 3], n_points=5, limits=((0, 4), (1, 2)))
    first, second = 0.5 + 2 * exp(-4.5), 0.5 + 2 * exp(-2)
    np.testing.assert_allclose(found.probability[0, 0, 0], first / (first + second))
    assert found.prototypes.tolist() == [[4, 1], [0, 1]]
    np.testing.assert_allclose(found.prototype_impact, [2, 2 * exp(-4.5)])
    assert found.prototype_class.tolist() == [1, 0]
    far = surface(pair_model(third=10.0), "x", "y", at=[0, 0, 0, 10], n_points=5)
    assert far.prototypes.tolist() == [[4, 1]], "the first leaves no trace there"


@given(st.integers(0, 200), st.integers(0, 2))
def test_surface__is_the_models_scores_point_by_point(make_model: MakeModel, seed: int, n_batches: int) -> None:
    model = make_model(seed)
    found = surface(model, 3, 1, n_points=4, n_batches=n_batches, limits=((-2, 2), (-1, 3)))
    for i, j in ((0, 0), (1, 3), (3, 2)):
        row = found.at.copy()
        row[3], row[1] = found.first_values[j], found.second_values[i]
        q = model.scores(row[None], [n_batches])[0][0]
        np.testing.assert_allclose(found.probability[i, j], q / q.sum(), rtol=1e-12)
        assert found.predicted[i, j] == q.argmax()
        assert found.familiarity[i, j] == pytest.approx(q.sum() - 1, abs=1e-12)
    assert found.names == ("x3", "x1")


def test_surface__of_the_first_batches_shows_their_prototypes_alone() -> None:
    model = pair_model()
    both = replace(model, batches=(*model.batches, *pair_model(third=0.5).batches))
    limits = ((0.0, 4.0), (0.0, 2.0))
    found, alone = (surface(one, "x", "y", [0, 0, 0, 0], 3, 1, limits) for one in (both, model))
    np.testing.assert_array_equal(found.prototypes, alone.prototypes)
    np.testing.assert_array_equal(found.prototype_impact, alone.prototype_impact)
    assert len(surface(both, "x", "y", [0, 0, 0, 0], 3, 2, limits).prototypes) == 4


def test_surface__shows_all_prototypes_and_some_more(make_model: MakeModel) -> None:
    model = make_model(2)
    shared = [index for index in model.batches[0].feature_index if index in model.batches[1].feature_index]
    found = surface(model, int(shared[0]), int(shared[1]), n_points=3)
    for axis, values in enumerate((found.first_values, found.second_values)):
        known = np.concatenate(
            [batch.prototypes[:, batch.feature_index == shared[axis]].ravel() for batch in model.batches]
        )
        reach = 0.15 * (known.max() - known.min())
        assert values[0] == pytest.approx(known.min() - reach)
        assert values[-1] == pytest.approx(known.max() + reach)


def test_surface__around_a_single_value_is_as_wide_as_the_kernel() -> None:
    """Both prototypes are at y = 1, where the feature weighs 2 to a scale of 1."""
    found = surface(pair_model(), "x", "y", n_points=3)
    assert found.second_values.tolist() == [0, 1, 2]


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 6)), min_size=1, max_size=9))
def test_weighted_quantiles__median_is_that_of_repeated_values(pairs: list[tuple[int, int]]) -> None:
    values, weight = (np.array(part, dtype=float) for part in zip(*pairs, strict=True))
    repeated = np.sort(np.repeat(values, weight.astype(int)))
    assert weighted_quantiles(values, weight, [0.5]) == [repeated[(len(repeated) - 1) // 2]]


def test_typical_point__is_a_value_of_a_prototype() -> None:
    point = typical_point(pair_model((1.0, 3.0), third=7.0))
    assert point.tolist() == [4, 0, 1, 7]
    assert typical_point(pair_model(), 0).tolist() == [0, 0, 0, 0]


def test_surface__refuses_what_it_cannot_show() -> None:
    model = pair_model()
    with refused("setting-missing", "'unused'", "limits"):
        surface(model, "x", "unused")
    with refused("setting-missing", "'x'", "limits"):
        surface(model, "x", "y", n_batches=0)
    with refused("settings-conflict", "'x'"):
        surface(model, "x", 0)
    for feature in ("nothing", 4, -1):
        with refused("unknown-name", repr(feature), "4 features"):
            surface(model, "x", feature)
    with refused("bad-setting", "from 2 to 1000", "n_points", 1):
        surface(model, "x", "y", n_points=1)
    with refused("wrong-shape", "(1,)", "4 features"):
        surface(model, "x", "y", at=[0.0])
    with refused("bad-value", "not finite", "4 features"):
        surface(model, "x", "y", at=[0, 0, 0, np.nan])
    with refused("bad-setting", "(1, 1)", "limits"):
        surface(model, "x", "y", limits=((1, 1), (0, 1)))


def test_surface__of_a_feature_the_model_ignores_is_flat() -> None:
    model = replace(pair_model(), batches=())
    found = surface(model, "x", "unused", limits=((0, 1), (0, 1)), n_points=3)
    assert (found.probability == 0.5).all()
    assert (found.familiarity == 0).all()
    assert found.prototypes.shape == (0, 2)
