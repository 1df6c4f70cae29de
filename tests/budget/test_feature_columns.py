"""Features as columns: what is refused, and what it says to do."""

import math
from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.budget.feature_columns import encoded_positions, feature_columns
from protodask.data.format.schema import Column

COLUMNS = (Column("a"), Column("b", "nominal", ("x", "y")), Column("c", "ordinal", ("low", "high")))
COSTS: dict[str, Any] = {"first": (["a"], [1.0, 2.0]), "rest": (["b", "c"], [0.5])}


def test_feature_columns__knows_names_columns_and_costs() -> None:
    found = feature_columns(COLUMNS, COSTS, (1.0, 10.0))
    assert found.names == ("first", "rest")
    assert found.columns_of(frozenset({1})) == {"b", "c"}
    assert found.curves.coefficients.tolist() == [[1.0, 2.0], [0.5, 0.0]]
    assert (found.curves.low, found.curves.high) == (1.0, 10.0)
    assert found.curves.at(frozenset({0, 1}), 3.0) == 7.5
    assert feature_columns(COLUMNS, {"a": (["a"], [0.0])}, without=["c", "b"]).curves.high == math.inf


def test_encoded_positions__are_all_of_a_nominal_column() -> None:
    assert encoded_positions(COLUMNS, frozenset({"b"})).tolist() == [1, 2]
    assert encoded_positions(COLUMNS, frozenset({"c", "a"})).tolist() == [0, 3]
    assert encoded_positions(COLUMNS, frozenset()).dtype == np.int64


@pytest.mark.parametrize(
    ("costs", "without", "expected"),
    [
        ({}, [], ("setting-missing",)),
        (["a"], [], ("setting-missing", "columns", "cost")),
        ({"first": [1.0]}, ["b", "c"], ("wrong-type", "'first'", "columns", "cost")),
        ({"first": [1.0, 2.0]}, ["b", "c"], ("wrong-type", "'first'", "columns", "cost")),
        ({"first": 1.0}, ["b", "c"], ("wrong-type", "'first'", "columns", "cost")),
        ({"first": (["a"], ["much"])}, ["b", "c"], ("wrong-type", "'first'", "'much'")),
        ({"first": (["a"], [1.0])}, [], ("setting-missing", "`without`")),
        ({"first": (["a"], [1.0])}, ["b"], ("setting-missing", "`without`")),
        ({**COSTS, "more": (["d"], [1.0])}, [], ("column-missing", "'d'")),
        (COSTS, ["d"], ("column-missing", "'d'")),
        (COSTS, ["a"], ("settings-conflict", "'a'", "`without`")),
        ({**COSTS, "more": (["a"], [1.0])}, [], ("named-twice", "'a'", "'first'", "'more'")),
        ({"first": (["a", "a"], [1.0])}, ["b", "c"], ("named-twice", "'a'", "'first'")),
        ({"first": ([], [1.0])}, ["a", "b", "c"], ("setting-missing", "'first'")),
        ({"first": (["a"], [])}, ["b", "c"], ("setting-missing", "'first'")),
        ({"first": (["a"], [math.nan])}, ["b", "c"], ("bad-value", "nan", "'first'", 0, "inf")),
        ({"first": (["a"], [1.0, -1.0])}, ["b", "c"], ("bad-value", "[1.0, -1.0]", "'first'", 0, "inf")),
    ],
)
def test_feature_columns__refuses_what_makes_no_sense(
    costs: Any, without: list[str], expected: tuple[Any, ...]
) -> None:
    with refused(*expected):
        feature_columns(COLUMNS, costs, without=without)


def test_feature_columns__a_single_column_needs_no_list() -> None:
    columns = [Column("age"), Column("size")]
    found = feature_columns(columns, {"first": ("age", [1.0])}, without="size")
    assert found.columns == (("age",),)


def test_feature_columns__blames_no_feature_for_sizes_in_the_wrong_order() -> None:
    with refused("bad-setting", 5, 1):
        feature_columns(COLUMNS, COSTS, (5.0, 1.0))
