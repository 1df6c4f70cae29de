"""Features as columns: what is refused, and what it says to do."""

import math
from typing import Any

import numpy as np
import pytest

from protodask.budget.feature_columns import encoded_positions, feature_columns
from protodask.data.schema import Column
from protodask.errors import InputError

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
    ("costs", "without", "remedy"),
    [
        ({}, [], "its columns and its cost"),
        ({"first": (["a"], [1.0])}, [], r"listing it under `without`"),
        ({"first": (["a"], [1.0])}, ["b"], r"no cost: c\. Give each a cost, 0 where it is free"),
        ({**COSTS, "more": (["d"], [1.0])}, [], r"no column 'd'. Its columns are a, b, c"),
        (COSTS, ["d"], r"no column 'd'"),
        (COSTS, ["a"], "Take it out of `without`"),
        ({**COSTS, "more": (["a"], [1.0])}, [], "belong to one feature"),
        ({"first": (["a", "a"], [1.0])}, ["b", "c"], "belong to one feature"),
        ({"first": ([], [1.0])}, ["a", "b", "c"], "Name at least one"),
        ({"first": (["a"], [])}, ["b", "c"], "constant first"),
        ({"first": (["a"], [math.nan])}, ["b", "c"], "feature 'first' cannot be used .* Give numbers"),
        ({"first": (["a"], [1.0, -1.0])}, ["b", "c"], r"The cost \[1.0, -1.0\] of the feature 'first' .* 0 or more"),
    ],
)
def test_feature_columns__refuses_what_makes_no_sense(costs: Any, without: list[str], remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        feature_columns(COLUMNS, costs, without=without)


def test_feature_columns__blames_no_feature_for_sizes_in_the_wrong_order() -> None:
    with pytest.raises(InputError, match="The sizes of items range from 5 to 1"):
        feature_columns(COLUMNS, COSTS, (5.0, 1.0))
