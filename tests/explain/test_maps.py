"""Maps of batches against a case worked out by hand, and against plain principal components of repeated points."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.errors import Code
from protodask.explain.maps import batch_map
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]


def with_batch(model: PrototypeSet, **values: Any) -> PrototypeSet:
    """The model with its first batch changed."""
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in values.items()}
    return replace(model, batches=(replace(model.batches[0], **arrays), *model.batches[1:]))


@pytest.fixture
def by_hand(make_model: MakeModel) -> PrototypeSet:
    """Two features that count 2 / 4 and 3 to a unit; prototypes on a cross around (10, 20), one arm heavier."""
    return with_batch(
        make_model(prototypes=(4,), n_features=3),
        feature_index=[0, 2],
        feature_weight=[2.0, 3.0],
        center=[7.0, 0.0],
        scale=[4.0, 1.0],
        prototypes=[[14.0, 20.0], [6.0, 20.0], [10.0, 20.5], [10.0, 19.5]],
        prototype_class=[0, 1, 1, 2],
        prototype_weight=[3.0, 3.0, 1.0, 1.0],
        row=[1, 2, 3, 4],
    )


def test_batch_map__by_hand(by_hand: PrototypeSet) -> None:
    """Scaled places are (2, 0), (-2, 0), (0, 1.5), (0, -1.5); variances 6 x 4 / 8 = 3 and 2 x 2.25 / 8 = 0.5625."""
    found = batch_map(by_hand)
    assert found.center.tolist() == [10.0, 20.0]
    assert found.scaling.tolist() == [0.5, 3.0]
    np.testing.assert_allclose(found.axes, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(found.positions, [[2.0, 0.0], [-2.0, 0.0], [0.0, 1.5], [0.0, -1.5]], atol=1e-12)
    np.testing.assert_allclose(found.explained, np.array([3, 0.5625]) / 3.5625)
    assert found.feature_names == ("x0", "x2")
    # The feature between the two plays no part.
    np.testing.assert_allclose(found.project([[12.0, 99.0, 21.0], [10.0, -1.0, 20.0]]), [[1, 3], [0, 0]], atol=1e-12)


@given(st.integers(0, 500), st.integers(2, 5))
def test_batch_map__is_the_plain_components_of_repeated_points(
    make_model: MakeModel, seed: int, n_features: int
) -> None:
    """A prototype of weight 3 counts as three of weight 1."""
    model = make_model(seed, prototypes=(9,), n_features=n_features)
    weight = np.random.default_rng(seed).integers(1, 6, 9)
    model = with_batch(model, prototype_weight=weight * 0.5)
    batch = model.batches[0]
    found = batch_map(model)
    points = np.repeat(batch.prototypes * batch.feature_weight / batch.scale, weight, axis=0)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(points.T, bias=True)))
    values, vectors = values[::-1], vectors[:, ::-1]
    width = min(2, n_features - 1)
    np.testing.assert_allclose(found.explained[:width], values[:width] / values.sum(), rtol=1e-8)
    for position in range(width):
        axis = vectors[:, position]
        sign = np.sign(axis @ found.axes[position])
        np.testing.assert_allclose(found.axes[position], sign * axis, atol=1e-6)
    places = np.repeat(found.positions, weight, axis=0)
    np.testing.assert_allclose(places.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(places.var(axis=0)[:width], values[:width], rtol=1e-8)


@given(st.integers(0, 200))
def test_project__puts_the_prototypes_where_they_are(make_model: MakeModel, seed: int) -> None:
    model = make_model(seed, prototypes=(0, 7), n_features=5)
    found = batch_map(model, 2)
    rows = np.full((7, 5), 1e6)
    rows[:, found.feature_index] = model.batches[1].prototypes
    np.testing.assert_allclose(found.project(rows), found.positions, atol=1e-12)


@given(st.integers(0, 200))
def test_batch_map__signs_do_not_depend_on_the_order_of_prototypes(make_model: MakeModel, seed: int) -> None:
    model = make_model(seed, prototypes=(8,))
    batch = model.batches[0]
    order = np.random.default_rng(seed).permutation(8)
    turned = with_batch(
        model,
        **{name: getattr(batch, name)[order] for name in ("prototypes", "prototype_class", "prototype_weight", "row")},
    )
    one, other = batch_map(model), batch_map(turned)
    np.testing.assert_allclose(one.axes, other.axes, atol=1e-8)
    np.testing.assert_allclose(one.positions[order], other.positions, atol=1e-8)
    for axis in one.axes:
        assert axis[np.argmax(np.abs(axis))] > 0


def test_batch_map__equal_loadings_take_the_sign_of_the_first(by_hand: PrototypeSet) -> None:
    model = with_batch(
        by_hand, feature_weight=[4.0, 1.0], prototypes=[[1.0, -1.0], [-1.0, 1.0], [2.0, -2.0], [-2.0, 2.0]]
    )
    found = batch_map(model)
    np.testing.assert_allclose(found.axes[0], [0.5**0.5, -(0.5**0.5)])
    assert found.explained.tolist() == [pytest.approx(1), 0]
    assert (found.axes[1] == 0).all()


def test_batch_map__of_one_feature(make_model: MakeModel) -> None:
    model = make_model(prototypes=(5,), n_features=2)
    found = batch_map(model)
    batch = model.batches[0]
    assert found.axes.tolist() == [[1.0], [0.0]]
    assert found.explained.tolist() == [pytest.approx(1), 0]
    np.testing.assert_allclose(
        found.positions[:, 0], (batch.prototypes - found.center)[:, 0] * batch.feature_weight / batch.scale
    )
    assert (found.positions[:, 1] == 0).all()


@pytest.mark.parametrize("length", [0, 1])
def test_batch_map__of_one_prototype_or_none(make_model: MakeModel, length: int) -> None:
    found = batch_map(make_model(prototypes=(length,)))
    assert found.positions.tolist() == [[0.0, 0.0]] * length
    assert found.explained.tolist() == [0, 0]
    assert found.project(np.ones((3, 4))).tolist() == [[0.0, 0.0]] * 3


def test_batch_map__keeps_the_digits_of_values_far_from_zero(by_hand: PrototypeSet) -> None:
    batch = by_hand.batches[0]
    moved = with_batch(by_hand, prototypes=batch.prototypes + np.array([1e9, 0]), center=[1e9, 0.0])
    np.testing.assert_allclose(batch_map(moved).positions, batch_map(by_hand).positions, atol=1e-9)


def test_batch_map__refuses_what_is_no_batch_or_no_row(make_model: MakeModel) -> None:
    model = make_model()
    for number in (0, 3):
        with refused("bad-setting", number, "2 batches", "from 1"):
            batch_map(model, number)
    unfit: list[tuple[Code, Any]] = [
        ("wrong-shape", np.ones(4)),
        ("wrong-shape", np.ones((2, 3))),
        ("wrong-type", [["a"] * 4]),
    ]
    for code, rows in unfit:
        with refused(code, str(np.shape(rows)), "4 features"):
            batch_map(model).project(rows)
