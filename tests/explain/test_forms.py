"""A model that looks at a feature in several forms: what is shown has raw values, names of the forms, and adds up."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from support.models import looking_at_scores, make_model

from protodask.explain.contributions import explain_rows
from protodask.explain.maps import batch_map
from protodask.explain.plot_space import strongest_features
from protodask.explain.surface import surface
from protodask.explain.tables import feature_weight_table
from protodask.pipeline.inspecting.model import describe_model
from protodask.prototypes.batches import Batch
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.model import PrototypeSet


@pytest.fixture(scope="module")
def model() -> PrototypeSet:
    return looking_at_scores(make_model(1, n_active=4))


def some_rows() -> NDArray[np.float64]:
    return np.random.default_rng(3).normal(size=(7, 4))


def test_explain_rows__add_up_to_the_probability(model: PrototypeSet) -> None:
    rows = some_rows()
    expected = probabilities(model.scores(rows, [2])[0])
    for found, probability in zip(explain_rows(model, rows, most=100), expected, strict=True):
        total = found.marginal + found.others
        for item in found.contributions:
            total[found.classes.index(item.label)] += item.share
            assert np.prod([feature.similarity for feature in item.features]) == pytest.approx(item.similarity)
        np.testing.assert_allclose(total, probability, rtol=1e-12)


def test_explain_rows__of_values_far_from_zero(model: PrototypeSet) -> None:
    """The kernel cuts off standard deviations, not raw values."""
    batch = model.batches[0]
    assert batch.knots is not None
    far = np.where(batch.feature_index == 0, 1.6e18, 0.0)
    moved = replace(
        batch,
        knots=replace(batch.knots, values=batch.knots.values * 1e5 + 1.6e18),
        prototypes=batch.prototypes * np.where(far > 0, 1e5, 1.0) + far,
        center=np.where(batch.scored, 0.0, batch.center + far),
        scale=np.where(batch.scored, 1.0, batch.scale * np.where(far > 0, 1e5, 1.0)),
    )
    changed = replace(model, batches=(moved,))
    row = np.array([[1.6e18 + 1e5, 0.1, 0.2, 0.3]])
    (found,) = explain_rows(changed, row, most=100)
    total = found.marginal + found.others
    for item in found.contributions:
        total[found.classes.index(item.label)] += item.share
    np.testing.assert_allclose(total, probabilities(changed.scores(row, [1])[0])[0], rtol=1e-9)


def test_explain_rows__name_the_form_and_show_raw_values(model: PrototypeSet) -> None:
    row = some_rows()[0]
    (found,) = explain_rows(model, row[None, :], most=100)
    item = next(item for item in found.contributions if item.batch == 1)
    assert [feature.name for feature in item.features] == ["x0", "x0 (normal score)", "x0 (level)", "x1", "x2", "x3"]
    assert [feature.value for feature in item.features] == [row[0], row[0], *row]
    prototype = model.batches[0].prototypes[item.position]
    assert [feature.prototype_value for feature in item.features] == prototype.tolist()


def test_batch_map__has_the_prototypes_where_their_rows_are_projected(model: PrototypeSet) -> None:
    found = batch_map(model, 1)
    batch = model.batches[0]
    rows = np.zeros((batch.n_prototypes, 4))
    rows[:, batch.feature_index] = batch.prototypes
    np.testing.assert_allclose(found.project(rows), found.positions, atol=1e-12)
    assert found.feature_names == ("x0", "x0 (normal score)", "x0 (level)", "x1", "x2", "x3")
    everywhere = np.hypot(*(found.axes @ found.axes.T - np.eye(2)))
    np.testing.assert_allclose(everywhere, 0, atol=1e-12)


def test_surface__is_what_the_model_says(model: PrototypeSet) -> None:
    found = surface(model, "x0", "x1", at=some_rows()[0], n_points=5)
    row = some_rows()[0]
    row[[0, 1]] = found.first_values[2], found.second_values[3]
    np.testing.assert_allclose(found.probability[3, 2], probabilities(model.scores(row[None, :], [2])[0])[0])
    batch = model.batches[0]
    near = np.tile(some_rows()[0], (batch.n_prototypes, 1))
    near[:, :2] = batch.prototypes[:, [0, 3]]
    impact = [kernel_values(batch, row) for row in near]
    expected = np.sort(batch.prototype_weight * np.diag(impact))[::-1]
    ours = found.prototype_impact[np.isin(found.prototypes[:, 0], batch.prototypes[:, 0])]
    np.testing.assert_allclose(ours, expected[: len(ours)], rtol=1e-9)


def test_surface__of_a_level_where_all_prototypes_have_one_value(model: PrototypeSet) -> None:
    batch = model.batches[0]
    place = int(np.flatnonzero([name == "x0 (level)" for name in model.names_in(batch)])[0])
    kept = np.array([place, *np.flatnonzero(batch.feature_index > 0)])
    standardization = batch.standardization.select(kept)
    prototypes = batch.prototypes[:, kept].copy()
    prototypes[:, 0] = 0.0
    alone = replace(
        batch,
        feature_index=batch.feature_index[kept],
        feature_weight=batch.feature_weight[kept],
        center=standardization.center,
        scale=standardization.scale,
        knots=standardization.knots,
        prototypes=prototypes,
    )
    found = surface(replace(model, batches=(alone,)), "x0", "x1", at=some_rows()[0], n_points=5)
    assert np.isfinite(found.first_values).all()
    assert np.isfinite(found.probability).all()
    assert found.first_values[-1] > found.first_values[0]


def kernel_values(batch: Batch, row: NDArray[np.float64]) -> NDArray[np.float64]:
    """The kernel between a row of all features and each prototype of a batch."""
    apart = batch.standardization.apply(row[None, batch.feature_index]) - batch.standardization.apply(batch.prototypes)
    values: NDArray[np.float64] = np.exp(-0.5 * np.square(apart * batch.feature_weight).sum(axis=1))
    return values


def test_feature_weights__are_listed_by_form(model: PrototypeSet) -> None:
    columns = feature_weight_table(model).columns
    lines = {
        name: weight
        for number, name, weight in zip(columns["batch"], columns["feature"], columns["weight"], strict=True)
        if number == 1
    }
    assert set(lines) == {"x0", "x0 (normal score)", "x0 (level)", "x1", "x2", "x3"}
    described = describe_model(model, "m.zarr")["batches"][0]["features"]
    assert {entry["name"]: entry["weight"] for entry in described} == lines


def test_strongest_features__counts_the_heavier_form(model: PrototypeSet) -> None:
    heaviest = [max(batch.feature_weight[batch.feature_index == x].max() for batch in model.batches) for x in range(4)]
    assert strongest_features(model, 4) == np.argsort(-np.array(heaviest), kind="stable").tolist()
