"""Ranges of rows, and the check that none is missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protodask.data import rows as rows_module
from protodask.data.rows import check_finite
from protodask.errors import InputError


@given(
    rows=st.integers(1, 40),
    start=st.integers(0, 10**12),
    bad=st.lists(st.tuples(st.integers(0, 39), st.integers(0, 2)), max_size=3),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_check_finite__names_the_first_value(rows: int, start: int, bad: list[tuple[int, int]], value: float) -> None:
    features = np.zeros((rows, 3), dtype=np.float32)
    places = sorted(place for place in bad if place[0] < rows)
    for place in places:
        features[place] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "CHECK_ROWS", 7)
        if not places:
            check_finite(features, ("a", "b", "c"), start)
            return
        row, column = places[0]
        seen = rf"Column '{'abc'[column]}' .* in row {start + row} \(counted from 0\)\. Fill in or remove"
        with pytest.raises(InputError, match=seen):
            check_finite(features, ("a", "b", "c"), start)
