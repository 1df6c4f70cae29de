from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from support.errors import refused

from protodask.evaluation.interval import Interval, normal_interval, normal_quantile


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_normal_quantile__is_scipys(confidence: float) -> None:
    assert normal_quantile(confidence) == pytest.approx(norm.interval(confidence)[1], rel=1e-12)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(0.01, 0.99))
def test_normal_interval__lies_around_the_value_and_grows_with_confidence(
    value: float, standard_error: float, confidence: float
) -> None:
    narrow = normal_interval(value, standard_error, confidence)
    wide = normal_interval(value, standard_error, confidence + 0.005)
    assert wide.low <= narrow.low <= narrow.value == value <= narrow.high <= wide.high
    assert narrow.high - value == pytest.approx(value - narrow.low, abs=1e-9 * (abs(value) + 1))


def test_normal_interval__of_no_error_is_the_value() -> None:
    assert normal_interval(3.0, 0.0) == Interval(3.0, 3.0, 3.0)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95.0, float("nan")])
def test_normal_quantile__confidence_that_is_no_probability(confidence: float) -> None:
    with refused("bad-setting", "between 0 and 1", "confidence", confidence):
        normal_quantile(confidence)
