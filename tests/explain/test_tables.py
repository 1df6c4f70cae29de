"""Models and explanations as tables."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.data.format.schema import Column
from protodask.explain.contributions import explain_rows
from protodask.explain.familiarity import FamiliarityReference
from protodask.explain.original_rows import OriginalRow, all_prototypes, original_rows
from protodask.explain.tables import (
    Explained,
    Table,
    explanation_table,
    feature_weight_table,
    probability_table,
    prototype_table,
)
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]


def lines(table: Table, **wanted: Any) -> list[dict[str, Any]]:
    """Rows of a table as records, those with the given values."""
    records = [dict(zip(table.columns, row, strict=True)) for row in table.rows()]
    return [record for record in records if all(record[name] == value for name, value in wanted.items())]


def explain(model: PrototypeSet, n_rows: int = 3, most: int = 4, **options: Any) -> list[Explained]:
    rows = np.random.default_rng(0).normal(size=(n_rows, model.n_features))
    found = explain_rows(model, rows, most=most)
    return [Explained(10 + n, row, item, **options) for n, (row, item) in enumerate(zip(rows, found, strict=True))]


def test_feature_weight_table__has_every_weight_heaviest_first(make_model: MakeModel) -> None:
    model = make_model(2, prototypes=(5, 0, 6))
    table = feature_weight_table(model)
    assert list(table.columns) == ["batch", "feature", "weight", "weight_per_unit"]
    assert {line["batch"] for line in lines(table)} == {1, 3}
    for number in (1, 3):
        batch, found = model.batches[number - 1], lines(table, batch=number)
        weights = [line["weight"] for line in found]
        assert weights == sorted(batch.feature_weight.tolist(), reverse=True)
        expected = {
            f"x{index}": (weight, weight / scale)
            for index, weight, scale in zip(batch.feature_index, batch.feature_weight, batch.scale, strict=True)
        }
        assert {line["feature"]: (line["weight"], line["weight_per_unit"]) for line in found} == expected


def test_feature_weight_table__per_unit_is_where_similarity_falls_to_exp_of_minus_half(model: PrototypeSet) -> None:
    batch = model.batches[0]
    step = {line["feature"]: 1 / line["weight_per_unit"] for line in lines(feature_weight_table(model), batch=1)}
    for position, index in enumerate(batch.feature_index.tolist()):
        row = np.zeros((1, 4))
        row[0, batch.feature_index] = batch.prototypes[0]
        row[0, index] += step[f"x{index}"]
        (found,) = explain_rows(model, row, most=100, n_batches=1)
        (own,) = [item for item in found.contributions if item.position == 0]
        assert own.similarity == pytest.approx(np.exp(-0.5), rel=1e-12)
        assert own.features[position].similarity == pytest.approx(np.exp(-0.5), rel=1e-12)


def test_prototype_table__has_every_prototype_with_its_active_features(make_model: MakeModel) -> None:
    model = make_model(2, prototypes=(5, 0, 6))
    table = prototype_table(model)
    assert table.n_rows == model.n_prototypes
    for item, line in zip(all_prototypes(model), lines(table), strict=True):
        batch = model.batches[item.batch - 1]
        assert (line["batch"], line["position"]) == (item.batch, item.position)
        assert line["row"] == batch.row[item.position] == item.row
        assert line["class"] == item.label
        assert line["weight"] == batch.prototype_weight[item.position]
        values = dict(zip(batch.feature_index.tolist(), batch.prototypes[item.position], strict=True))
        assert [line[f"x{index}"] for index in range(4)] == [values.get(index) for index in range(4)]


def test_prototype_table__of_original_rows_has_their_columns(model: PrototypeSet) -> None:
    originals = [
        OriginalRow(item.batch, item.position, item.row, item.label, {"colour": "red", "age": item.row}, True)
        for item in all_prototypes(model)
    ]
    table = prototype_table(model, originals)
    assert list(table.columns) == ["batch", "position", "row", "class", "weight", "colour", "age"]
    assert table.columns["age"] == table.columns["row"]
    with refused("wrong-shape", "all_prototypes"):
        prototype_table(model, originals[1:])


def test_tables__of_features_named_like_their_own_columns(model: PrototypeSet) -> None:
    names = ("weight", "class", "row", "row (data)")
    odd = replace(model, feature_names=names, columns=tuple(map(Column, names)))
    held = prototype_table(odd)
    assert list(held.columns)[:5] == ["batch", "position", "row", "class", "weight"]
    assert set(list(held.columns)[5:]) == {"weight (data)", "class (data)", "row (data)", "row (data) (data)"}
    assert held.columns["weight"] == prototype_table(model).columns["weight"]
    assert len(explanation_table(odd, explain(odd)).columns) == 12 + 2 * 4


def test_explanation_table__shares_sum_to_the_probabilities(model: PrototypeSet) -> None:
    explained = explain(model)
    table = explanation_table(model, explained)
    for entry in explained:
        found = entry.explanation
        (own,) = lines(table, row=entry.row, part="row")
        assert own["class"] == found.predicted
        assert own["share"] == found.probability.max()
        assert [own[f"x{index}"] for index in range(4)] == entry.features.tolist()
        for label, probability in zip(found.classes, found.probability, strict=True):
            parts = [line for line in lines(table, row=entry.row, **{"class": label}) if line["part"] != "row"]
            assert sum(line["share"] for line in parts) == pytest.approx(probability, abs=1e-12)
        for item, line in zip(found.contributions, lines(table, row=entry.row, part="prototype"), strict=True):
            assert (line["batch"], line["position"], line["training_row"]) == (item.batch, item.position, item.row)
            assert (line["impact"], line["weight"], line["similarity"]) == (item.impact, item.weight, item.similarity)
            assert line["dominant"] is item.dominant
            for match in item.features:
                assert line[match.name] == match.prototype_value
                assert line[f"similarity_{match.name}"] == match.similarity
    assert [line["rank"] for line in lines(table, row=10, part="prototype")] == [1, 2, 3, 4]
    assert not any(name.startswith("training_x") for name in table.columns)


def test_explanation_table__has_original_rows_where_they_are_known(model: PrototypeSet) -> None:
    explained = [
        replace(entry, originals=original_rows(model, entry.explanation.contributions)) for entry in explain(model)
    ]
    for line in lines(explanation_table(model, explained)):
        for index in range(4):
            known = line[f"x{index}"] if line["part"] == "prototype" else None
            assert line[f"training_x{index}"] == known


def test_probability_table__has_one_line_for_each_row(model: PrototypeSet) -> None:
    reference = FamiliarityReference(np.array([0.5, 1.5]), np.arange(2), 2, 2)
    explained = explain(model, actual="class 1")
    for entry, line in zip(explained, lines(probability_table(explained, reference)), strict=True):
        found = entry.explanation
        assert (line["row"], line["predicted"], line["actual"]) == (entry.row, found.predicted, "class 1")
        assert [line[f"probability_{label}"] for label in found.classes] == found.probability.tolist()
        assert line["familiarity"] == found.familiarity
        assert line["familiarity_p_value"] == reference.p_value(found.familiarity)
        assert line["familiarity_quantile"] == reference.quantile(found.familiarity)
        assert (line["marginal_share"], line["dominant_size"]) == (found.marginal_share, found.dominant_size)
    plain = probability_table(explain(model))
    assert not {"actual", "familiarity_p_value"} & set(plain.columns)


def test_tables__of_nothing(model: PrototypeSet) -> None:
    bare = replace(model, batches=())
    assert feature_weight_table(bare).n_rows == 0
    assert prototype_table(bare).n_rows == 0
    assert probability_table([]).n_rows == 0
    assert explanation_table(bare, []).n_rows == 0
    parts = [line["part"] for line in lines(explanation_table(bare, explain(bare, 1)))]
    assert parts == ["row", *["marginal"] * 3, *["others"] * 3]
