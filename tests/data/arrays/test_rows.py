"""Ranges of rows, and the check that none is missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.data.arrays import rows as rows_module
from protodask.data.arrays.rows import check_finite


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
