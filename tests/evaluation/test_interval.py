from __future__ import annotations

import pytest
from scipy.stats import norm
from support.errors import refused

from protodask.evaluation.interval import normal_quantile


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_normal_quantile__is_scipys(confidence: float) -> None:
    assert normal_quantile(confidence) == pytest.approx(norm.interval(confidence)[1], rel=1e-12)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95.0, float("nan")])
def test_normal_quantile__confidence_that_is_no_probability(confidence: float) -> None:
    with refused("bad-setting", "between 0 and 1", "confidence", confidence):
        normal_quantile(confidence)
