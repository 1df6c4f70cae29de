"""Encoding: values to features and codes, and the first value that cannot be used."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import check_error, refused

from protodask.data import Column, MatrixTable, encode_features, encode_labels
from protodask.data.arrays.rows import REMOVE
from protodask.data.tables.encoding import (
    MISSING,
    UNSEEN,
    Problem,
    check_categories,
    check_column_names,
    columns_besides,
    distinct_labels,
    encode_group,
    encode_inclusion,
    encode_number,
    encode_weight,
    label_codes,
    label_of,
    settle_labels,
)
from protodask.errors import Code


def objects(*values: Any) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def encode(table: dict[str, Any], *columns: Column, **options: Any) -> tuple[np.ndarray[Any, Any], Problem | None]:
    rows = len(next(iter(table.values())))
    out = np.full((rows, sum(len(column.feature_names) for column in columns)), np.nan, dtype=np.float32)
    return out, encode_features(table, columns, out, **options)


@given(
    codes=st.lists(st.integers(0, 4), max_size=40),
    kind=st.sampled_from(["text", "unicode", "integer", "float", "boolean"]),
)
def test_label_codes__find_labels_whatever_they_come_as(codes: list[int], kind: str) -> None:
    values: Any
    labels: tuple[Any, ...]
    match kind:
        case "text":
            labels = ("q", "a", "ü", "", " ")
            values = objects(*(labels[code] for code in codes))
        case "unicode":
            labels = ("q", "a", "ü", "zz", " ")
            values = np.array([labels[code] for code in codes], dtype="U2")
        case "integer":
            labels = (7, -2, 0, 10**12, 1)
            values = np.array([labels[code] for code in codes], dtype=np.int64)
        case "float":
            labels = (7, -2, 0, 5, 1)
            values = np.array([labels[code] for code in codes], dtype=np.float64)
        case _:
            labels = (True, False)
            codes = [code % 2 for code in codes]
            values = np.array([labels[code] for code in codes], dtype=bool)
    assert label_codes(values, labels).tolist() == codes
    assert distinct_labels(values, "x") == {(type(labels[code]), labels[code]) for code in codes}


def test_label_codes__read_text_as_what_the_labels_are() -> None:
    assert label_codes(objects("3", "3.0", "4", "03", None, "x"), (3, 4)).tolist() == [0, 0, 1, -1, -2, -1]
    assert label_codes(objects("True", "false", "TRUE", "0"), (False, True)).tolist() == [1, 0, 1, -1]
    assert label_codes(np.array([1.0, 2.5, np.nan]), (1, 2)).tolist() == [0, -1, -2]
    assert label_codes(np.array([1, 0]), (False, True)).tolist() == [-1, -1]
    assert label_codes(objects("a", float("nan"), None), ("a",)).tolist() == [0, -2, -2]
    assert label_codes(objects("a", ["a"], None), ("a",)).tolist() == [0, -1, -2]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 0, 4, 1, 5, 3]])
def test_label_codes__tell_truth_values_from_numbers_in_one_column(order: list[int]) -> None:
    values = objects(*(np.array([1, True, 1.0, 0, False, np.True_], dtype=object)[order]))
    for labels, expected in (((False, True), [-1, 1, -1, -1, 0, 1]), ((0, 1), [1, -1, 1, 0, -1, -1])):
        assert label_codes(values, labels).tolist() == [expected[place] for place in order]


def test_label_of__reads_each_type() -> None:
    assert [label_of(value) for value in (None, np.nan, 2.0, 2.5, np.int8(3), np.True_, b"x", np.str_("y"))] == [
        None,
        None,
        2,
        "2.5",
        3,
        True,
        "x",
        "y",
    ]
    assert type(label_of(np.True_)) is bool


@pytest.mark.parametrize(
    ("labels", "untyped", "settled"),
    [
        (["b", "a"], True, ("a", "b")),
        (["10", "9"], True, (9, 10)),
        (["10", "9"], False, ("10", "9")),
        (["1.0", "0.0"], True, (0, 1)),
        (["01", "2"], True, ("01", "2")),
        (["true", "False"], True, (False, True)),
        ([3, "1"], False, (1, 3)),
        ([3, "x"], False, ("3", "x")),
        ([True, "false"], True, (False, True)),
        ([True, 0], False, ("0", "True")),
    ],
)
def test_settle_labels__makes_labels_of_one_type(labels: list[Any], untyped: bool, settled: tuple[Any, ...]) -> None:
    found = settle_labels([(type(label), label) for label in labels], untyped)
    assert found == settled
    assert list(map(type, found)) == list(map(type, settled))


def test_encode_features__of_each_kind() -> None:
    out, problem = encode(
        {
            "size": objects("big", "small", "middle"),
            "colour": objects("red", "blue", "red"),
            "length": np.array([1.5, -2.0, 3.0]),
            "count": np.array([1, 2, 3], dtype=np.uint8),
            "flag": np.array([True, False, True]),
            "text": objects("1", "2.5", "-3e2"),
        },
        Column("colour", "nominal", ("blue", "green", "red")),
        Column("length"),
        Column("size", "ordinal", ("small", "middle", "big")),
        Column("count"),
        Column("flag"),
        Column("text"),
    )
    assert problem is None
    np.testing.assert_array_equal(
        out, [[0, 0, 1, 1.5, 2, 1, 1, 1], [1, 0, 0, -2, 0, 2, 0, 2.5], [0, 0, 1, 3, 1, 3, 1, -300]]
    )


def test_encode_features__of_a_matrix_is_that_of_its_columns() -> None:
    matrix = np.arange(12.0).reshape(4, 3)
    table = MatrixTable(("a", "b", "c"), matrix, {"y": np.arange(4)})
    columns = (Column("a"), Column("b"), Column("c"))
    out = np.empty((4, 3))
    assert encode_features(table, columns, out) is None
    np.testing.assert_array_equal(out, matrix)
    assert encode_features(table, columns[::-1], out) is None
    np.testing.assert_array_equal(out, matrix[:, ::-1])
    assert list(table) == ["a", "b", "c", "y"]
    assert len(table) == 4
    np.testing.assert_array_equal(table["y"], np.arange(4))


def test_encode_features__can_leave_unseen_categories_out() -> None:
    column = Column("colour", "nominal", ("blue", "red"))
    table = {"colour": objects("red", "green", "blue")}
    out, problem = encode(table, column)
    assert problem is not None
    assert problem.row == 1
    check_error(problem.error(), "bad-value", "colour", "green", "row 1", "unseen='zero'")
    out, problem = encode(table, column, unseen="zero")
    assert problem is None
    np.testing.assert_array_equal(out, [[0, 1], [0, 0], [1, 0]])
    _, problem = encode({"colour": objects("red", None)}, column, unseen="zero")
    assert problem is not None
    assert "missing" in problem.seen


def test_encode_features__an_unseen_category_is_none_and_not_a_missing_one() -> None:
    column = Column("colour", "nominal", ("blue", "red"), filled=0.0, marked=True)
    out, problem = encode({"colour": objects("red", "green", None, "blue")}, column, unseen="zero")
    assert problem is None
    np.testing.assert_array_equal(out, [[0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]])


COLUMNS = (
    Column("age"),
    Column("pay", filled=1.5, marked=True),
    Column("town", "nominal", ("Oslo", "Rome")),
    Column("size", "ordinal", ("s", "m"), filled=0.0),
)
VALUES: dict[str, list[Any]] = {
    "age": [1.0, -2.5, "3", "old", None, float("inf"), 1e300],
    "pay": [0.5, None, "much", float("-inf")],
    "town": ["Oslo", "Rome", "Bonn", None],
    "size": ["s", "m", None, "xl"],
}
"""Values that can be used, and others."""


@given(data=st.data(), unseen=st.sampled_from(["error", "zero"]), rows=st.integers(1, 12))
def test_encode_features__marks_the_rows_that_would_be_errors_by_themselves(
    data: st.DataObject, unseen: Any, rows: int
) -> None:
    good = data.draw(st.booleans(), label="mostly good")
    table = {
        name: objects(
            *data.draw(st.lists(st.sampled_from(values[:2] if good else values), min_size=rows, max_size=rows))
        )
        for name, values in VALUES.items()
    }
    if good:
        table["age"][data.draw(st.integers(0, rows - 1))] = "old"
    marks = np.zeros(rows, dtype=np.bool_)
    found, problem = encode(table, *COLUMNS, unseen=unseen, marks=marks)
    assert problem is None
    for row in range(rows):
        one, wrong = encode({name: values[row : row + 1] for name, values in table.items()}, *COLUMNS, unseen=unseen)
        assert marks[row] == (wrong is not None)
        np.testing.assert_array_equal(found[row], np.zeros_like(found[row]) if marks[row] else one[0])


@given(wrong=st.sets(st.integers(0, 20_000), max_size=5))
def test_encode_features__marks_rows_of_a_matrix(wrong: set[int]) -> None:
    matrix = np.ones((20_001, 2))
    for number, row in enumerate(wrong):
        matrix[row, number % 2] = (np.nan, np.inf, 1e300)[number % 3]
    marks = np.zeros(len(matrix), dtype=np.bool_)
    out = np.empty(matrix.shape, dtype=np.float32)
    assert encode_features(MatrixTable(("a", "b"), matrix, {}), (Column("a"), Column("b")), out, marks=marks) is None
    assert set(np.flatnonzero(marks).tolist()) == wrong
    assert (out == np.where(marks, 0, 1)[:, None]).all()


@pytest.mark.parametrize(
    ("values", "code", "facts"),
    [
        (np.array([1.0, 2.0, np.nan]), "bad-value", ("'a'", "missing or infinite", "row 12")),
        (np.array([1.0, 2.0, np.inf]), "bad-value", ("'a'", "missing or infinite", "row 12")),
        (np.array([1.0, 2.0, 1e300]), "bad-value", ("'a'", "1e+300", "float32", "row 12", "float64")),
        (objects("1", "2", None), "bad-value", ("'a'", "missing or infinite", "row 12")),
        (objects("1", "2", "x"), "bad-value", ("'a'", "'x'", "row 12", "categorical=['a']")),
        (objects("1", None, "x"), "bad-value", ("'a'", "missing or infinite", "row 11")),
    ],
)
def test_encode_features__says_which_value_comes_first(values: Any, code: Code, facts: tuple[str, ...]) -> None:
    _, problem = encode({"a": values, "b": np.array([0, 0, np.nan])}, Column("b"), Column("a"))
    assert problem is not None
    if "row 12" in facts:  # on equal rows the column that comes first is named
        _, problem = encode({"a": values}, Column("a"))
    assert problem is not None
    check_error(problem.shifted(10).error(), code, *facts)


def test_encode_labels__names_what_is_no_class() -> None:
    codes, problem = encode_labels(objects("a", "b"), ("b", "a"), "y")
    assert (codes.tolist(), codes.dtype.name, problem) == ([1, 0], "int32", None)
    _, problem = encode_labels(objects("a", "z"), ("b", "a"), "y")
    assert problem is not None
    check_error(problem.error(), "bad-value", "'y'", "'z'", "row 1", "classes")


@pytest.mark.parametrize(
    ("encoder", "values", "code", "facts"),
    [
        (encode_number, [1, np.nan], "bad-value", ("missing or infinite", "row 1")),
        (encode_weight, [1, -1], "bad-value", ("negative weight", "row 1")),
        (encode_weight, [0, np.inf], "bad-value", ("missing or infinite", "row 1")),
        (encode_inclusion, [1, 0], "bad-value", ("inclusion probability", "0.0", "row 1")),
        (encode_inclusion, [1, 1.5], "bad-value", ("inclusion probability", "1.5", "row 1")),
        (encode_inclusion, [1, np.nan], "bad-value", ("missing or infinite", "row 1")),
    ],
)
def test_encode_weight_and_inclusion__refuse_what_they_cannot_be(
    encoder: Any, values: Any, code: Code, facts: tuple[str, ...]
) -> None:
    _, problem = encoder(np.array(values, dtype=float), "w")
    check_error(problem.error(), code, *facts)
    numbers, problem = encoder(np.array([1, 0.5]), "w")
    assert problem is None
    assert numbers.tolist() == [1, 0.5]


def test_encode_number__says_of_a_missing_one_only_what_helps() -> None:
    _, problem = encode_number(np.array([1, np.nan]), "w")
    assert problem is not None
    assert problem.remedy == REMOVE


@pytest.mark.parametrize("kind", ["M8[ns]", "M8[D]", "m8[ns]", "m8[s]", "complex64"])
@pytest.mark.parametrize("as_objects", [False, True])
def test_encode_number__takes_no_times_nor_complex_numbers_for_numbers(kind: str, as_objects: bool) -> None:
    values = np.array([1, 2]).astype(kind)
    if as_objects:
        values = objects(*values)
    _, problem = encode_number(values, "w")
    assert problem is not None
    check_error(problem.error(), "bad-value", "row 0", "not a number")


def test_encode_number__reads_text_that_is_a_number() -> None:
    numbers, problem = encode_number(objects("1", 2, "0.5"), "w")
    assert (numbers.tolist(), problem) == ([1, 2, 0.5], None)
    _, problem = encode_number(objects("1", "one"), "w")
    assert problem is not None
    check_error(problem.error(), "bad-value", "one", "row 1")


def test_columns_besides__are_noted_and_no_reason_to_refuse() -> None:
    assert columns_besides(["b", "a", "y"], ["a", "b"], ["y"]) == []
    with pytest.warns(UserWarning, match="left out: 'c', 'd'"):
        assert columns_besides(["c", "a", "d"], ["a"], []) == ["c", "d"]
    with refused("columns-differ", "lacks 'b'", "has 'c' besides"):
        columns_besides(["a", "c"], ["a", "b"], [])


def test_check_column_names__names_what_is_missing_and_what_is_new() -> None:
    check_column_names(["b", "a"], ["a", "b"])
    with refused("columns-differ", "lacks 'b'", "has 'c' besides", "`drop`"):
        check_column_names(["a", "c"], ["a", "b"])


GROUPS = st.one_of(
    st.integers(-(10**17), 10**17), st.text(max_size=5), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)
)


def meaning(value: Any) -> str:
    """The text that stands for a group, written out once more: whole numbers and truth values in one form."""
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return "1" if str(value).lower() == "true" else "0"
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]+\.0*", value):
        return str(int(value.split(".")[0]))
    return str(value)


@given(st.lists(GROUPS, min_size=1, max_size=30))
@example([0, "0.."])
def test_encode_group__has_one_code_for_each_meaning(values: list[Any]) -> None:
    codes, problem = encode_group(objects(*values), "g")
    assert problem is None
    assert codes.dtype == np.int64
    assert (codes >= 0).all()
    meanings = [meaning(value) for value in values]
    by_meaning = dict(zip(meanings, codes.tolist(), strict=True))
    assert [by_meaning[text] for text in meanings] == codes.tolist()
    assert len(set(by_meaning.values())) == len(by_meaning)


@pytest.mark.parametrize(
    "values",
    [
        np.array([7, 12, 7]),
        np.array([7, 12, 7], dtype=np.uint8),
        np.array([7.0, 12.0, 7.0], dtype=np.float32),
        np.array(["7", "12", "7"]),
        np.array([b"7", b"12", b"7"]),
        objects("7", 12, 7.0),
        objects("7.0", "12", "7"),
    ],
)
def test_encode_group__is_the_same_whatever_the_type(values: Any) -> None:
    # The first is as it was when groups were introduced: datasets on disk hold such codes.
    assert encode_group(values, "g")[0].tolist() == [8935947972715885637, 6542022708525376483, 8935947972715885637]


@pytest.mark.parametrize(
    "values",
    [
        objects("a", None, None),
        np.array([1.0, np.nan, 2.0]),
        objects(1, float("nan"), 2),
        np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        objects([1, 2], None),
    ],
)
def test_encode_group__names_the_first_row_without_one(values: Any) -> None:
    problem = encode_group(values, "patient")[1]
    assert problem is not None
    check_error(problem.error(), "bad-value", "patient", "row 1", "missing")


@pytest.mark.parametrize("values", [np.array([5, 7, "NaT"], dtype="M8[ns]"), np.array([5, 7, "NaT"], dtype="m8[ps]")])
def test_labels__of_times_that_python_does_not_know_are_text(values: NDArray[Any]) -> None:
    labels = settle_labels(distinct_labels(values, "y"), untyped=False)
    assert labels == (str(values[0]), str(values[1]))
    assert label_codes(values, labels).tolist() == [0, 1, MISSING]
    assert label_codes(np.array([5, 7]), labels).tolist() == [UNSEEN, UNSEEN]


def test_encode_group__takes_whatever_has_a_text() -> None:
    lists, dates = objects([1, 2], [3], [1, 2]), np.array(["2020-01-01", "2020-01-02", "2020-01-01"], dtype="M8[D]")
    for values in (lists, dates):
        codes, problem = encode_group(values, "g")
        assert problem is None
        assert codes[0] == codes[2] != codes[1]
    assert encode_group(objects(), "g")[0].tolist() == []


def test_check_categories__of_very_many_texts_takes_no_time() -> None:
    began = time.process_time()
    with refused("over-limit", "20,001 different texts in 20,001 rows, like an identifier"):
        check_categories("a", ["-", *(f"id{number}" for number in range(20_000))], 20_001)
    with refused("over-limit", "numbers such as '0,5' but for '-'"):
        check_categories("a", ["-", *(f"{number},5" for number in range(20_000))], 20_001)
    assert time.process_time() - began < 3
