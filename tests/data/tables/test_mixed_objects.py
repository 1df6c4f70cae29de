"""Columns of Python objects of several types: whoever reads them takes them for the same, or refuses them in words."""

import datetime
import enum
import itertools
import math
import tempfile
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask import InputError, PrototypeSetClassifier, ingest, load_model
from protodask.data.arrays.rows import read_rows
from protodask.data.format.schema import Column
from protodask.engine import Engine

NUMBERS: list[Any] = [
    3,
    -1.5,
    0,
    True,
    False,
    np.int64(4),
    np.float32(0.5),
    np.bool_(True),
    Decimal("1.25"),
    Fraction(1, 4),
]
MISSING: list[Any] = [None, float("nan"), pd.NA, pd.NaT, np.float64("nan"), Decimal("NaN"), np.datetime64("NaT", "ns")]
OTHERS: list[Any] = [
    "red",
    "3",
    "",
    "true",
    b"ab",
    b"\xff",
    datetime.date(2020, 1, 2),
    datetime.time(1),
    1 + 2j,
    (1, 2),
]
BROKEN: list[Any] = [float("inf"), 10**400, 2**64, [1], {"a": 1}]
"""Of which some are no numbers that can be used, and others nothing that can be told apart."""

ROWS = 12
CLASSES = ["yes", "no"] * (ROWS // 2)

columns = st.lists(
    st.one_of(
        st.sampled_from(NUMBERS),
        st.sampled_from(MISSING),
        st.sampled_from(NUMBERS + MISSING),
        st.sampled_from(OTHERS + MISSING),
        st.sampled_from(NUMBERS + OTHERS + BROKEN),
    ),
    min_size=1,
    max_size=4,
).map(lambda pool: (pool * ROWS)[:ROWS])


def frame_of(values: list[Any]) -> pd.DataFrame:
    held = np.empty(len(values), dtype=object)
    held[:] = [None] * len(values)
    for row, value in enumerate(values):
        held[row] = value
    return pd.DataFrame({"x": pd.Series(held, dtype=object), "z": np.arange(float(len(values)))})


def is_absent(value: Any) -> bool:
    """Or infinite, which among numbers is an error and no category."""
    if isinstance(value, float) and math.isinf(value):
        return True
    return any(value is absent or type(value) is type(absent) for absent in MISSING) and bool(pd.isna(value))


def rows_to_fit(frame: pd.DataFrame) -> tuple[tuple[Column, ...], NDArray[Any]]:
    """The columns that a classifier finds, and their features."""
    with Engine() as engine, PrototypeSetClassifier().training_rows(frame, CLASSES, None, engine) as rows:
        return rows.data.columns, read_rows(rows.data.source, 0, ROWS)["features"]


@settings(max_examples=25)
@example([0, False, "red"] * 4)
@example([3, None, math.inf] * 4)
@example([None, "red", math.inf] * 4)
@example(["red", math.inf] * 6)
@example([math.inf] * 12)
@example([Decimal("NaN")] * 12)
@given(columns)
def test_columns_of_objects__are_the_same_to_ingest_and_fit(values: list[Any]) -> None:
    frame = frame_of(values)
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"target": "k", "text_is_categorical": True, "dtype": "float64"}
        try:
            dataset = ingest(frame.assign(k=CLASSES), f"{folder}/d.zarr", **options)
        except InputError as error:
            with refused(error.code, "'x'"):
                rows_to_fit(frame)
            return
        features = read_rows(dataset, 0, ROWS)["features"]
    column = dataset.columns[0]
    found, wanted = rows_to_fit(frame)
    assert [(each.kind, each.categories, each.marked) for each in dataset.columns] == [
        (each.kind, each.categories, each.marked) for each in found
    ]
    np.testing.assert_allclose(features, wanted, rtol=1e-12)
    absent = np.array([is_absent(value) for value in values])
    known = [value for value in values if not is_absent(value)]
    numeric = bool(known) and all(isinstance(value, (Real, Decimal, np.bool_)) for value in known)
    assert column.kind == ("numeric" if numeric else "nominal")
    assert column.marked == (absent.sum() > 0)
    if column.marked:
        np.testing.assert_array_equal(features[:, len(column.feature_names) - 1], absent)
    if numeric:
        np.testing.assert_array_equal(features[~absent, 0], [float(value) for value in known])
    else:
        codes = features[:, : len(column.categories)]
        np.testing.assert_array_equal(codes.sum(axis=1), ~absent)
        for one, other in itertools.combinations(np.flatnonzero(~absent), 2):
            if values[one] is values[other]:
                np.testing.assert_array_equal(codes[one], codes[other])


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**400], ids=["above", "below", "far"])
def test_whole_numbers_beyond_64_bits__are_text_as_categories(value: int, tmp_path: Path) -> None:
    frame = frame_of([value, 3] * 6)
    dataset = ingest(frame.assign(k=CLASSES), tmp_path / "d.zarr", target="k", categorical=["x"])
    assert dataset.columns[0].categories == tuple(sorted(map(str, (value, 3))))
    labelled = ingest(frame[["z"]].assign(k=frame["x"]), tmp_path / "e.zarr", target="k")
    assert labelled.classes == dataset.columns[0].categories
    held = pd.Index([value, 3], dtype=object)  # which pandas takes as they are, and not every version from a column
    given = frame.assign(x=pd.Categorical.from_codes([0, 1] * 6, held))
    model = PrototypeSetClassifier(n_candidates=4, n_draws=1, tolerance=1e-2).fit(given, CLASSES).model_
    model.save(tmp_path / "m.zarr")
    again = load_model(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


class Level(enum.IntEnum):
    """Numbers with names."""

    LOW = 1
    HIGH = 3


def test_enumerations__are_numbers_and_plain_labels(tmp_path: Path) -> None:
    frame = frame_of([Level.LOW, Level.HIGH] * 6)
    dataset = ingest(frame.assign(k=frame["x"]), tmp_path / "d.zarr", target="k")
    assert dataset.columns[0].kind == "numeric"
    assert [(type(label), label) for label in dataset.classes] == [(int, 1), (int, 3)]
    columns, features = rows_to_fit(frame)
    assert columns[0].kind == "numeric"
    assert features[:2, 0].tolist() == [1, 3]


def test_durations_of_numpy__are_categories_as_those_of_python(tmp_path: Path) -> None:
    days = [1, 2] * 6
    for kind in (lambda day: np.timedelta64(day, "D"), lambda day: datetime.timedelta(days=day)):
        frame = frame_of([kind(day) for day in days])
        dataset = ingest(frame.assign(k=CLASSES), tmp_path / "d.zarr", target="k", categorical=["x"], overwrite=True)
        columns, _ = rows_to_fit(frame)
        assert dataset.columns[0].categories == columns[0].categories == ("1 day, 0:00:00", "2 days, 0:00:00")


def test_numbers_that_are_too_large__are_named(tmp_path: Path) -> None:
    frame = frame_of([1, Decimal("0.5"), 10**400] * 4)
    for use in (rows_to_fit, lambda rows: ingest(rows.assign(k=CLASSES), tmp_path / "d.zarr", target="k")):
        with refused("bad-value", "'x'", "row 2", "not a number"):
            use(frame)
