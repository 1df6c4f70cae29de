"""Ranges of rows, those of several sources against slices of a list, and the check that none is missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.data.arrays import rows as rows_module
from protodask.data.arrays.rows import RangedRows, RowRange, check_finite, joined_ranges
from protodask.engine import Layout, array_source


@given(
    rows=st.integers(1, 40),
    start=st.integers(0, 10**12),
    bad=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 2)), min_size=1, max_size=3),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_check_finite__names_the_first_value(rows: int, start: int, bad: list[tuple[int, int]], value: float) -> None:
    features = np.zeros((rows, 3), dtype=np.float32)
    places = sorted((row % rows, column) for row, column in bad)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "CHECK_ROWS", 7)
        check_finite(features, ("a", "b", "c"), start)
        for place in places:
            features[place] = value
        row, column = places[0]
        with refused("bad-value", f"'{'abc'[column]}'", f"row {start + row}"):
            check_finite(features, ("a", "b", "c"), start)


@given(data=st.data(), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3), cut=st.sampled_from([1, 4, 16]))
def test_ranged_rows__are_the_rows_of_the_ranges(data: st.DataObject, sizes: list[int], cut: int) -> None:
    values = [100.0 * number + np.arange(size) for number, size in enumerate(sizes)]
    sources = [array_source({"features": value[:, None]}, cut) for value in values]
    ranges, expected = [], []
    for _ in range(data.draw(st.integers(1, 5))):
        which = data.draw(st.integers(0, len(sizes) - 1))
        first = data.draw(st.integers(0, sizes[which] - 1))
        rows = data.draw(st.integers(0, sizes[which] - first))
        ranges.append(RowRange(sources[which], first, rows))
        expected += values[which][first : first + rows].tolist()
    joined = joined_ranges(ranges)
    assert sum(part.rows for part in joined) == len(expected)
    assert all(part.rows for part in joined)
    if not expected:
        return
    found = RangedRows(joined, ("features",), Layout(len(expected), 8))
    blocks = [found.read(number)["features"][:, 0].tolist() for number in range(found.layout.n_blocks)]
    assert [value for block in blocks for value in block] == expected
    start = data.draw(st.integers(0, len(expected) - 1))
    stop = data.draw(st.integers(start + 1, len(expected)))
    assert found.rows(start, stop)["features"][:, 0].tolist() == expected[start:stop]


def test_joined_ranges__joins_neighbours_of_one_source() -> None:
    source, other = (array_source({"features": np.zeros((9, 1))}) for _ in range(2))
    parts = [RowRange(source, 0, 2), RowRange(source, 2, 3), RowRange(other, 5, 1), RowRange(other, 7, 1)]
    assert [(part.first, part.rows) for part in joined_ranges(parts)] == [(0, 5), (5, 1), (7, 1)]
