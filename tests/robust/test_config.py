from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from protodask.errors import InputError
from protodask.robust.config import MOST_COST, RobustConfig


def test_robust_config__holds_plain_values() -> None:
    config = RobustConfig("MM-SBM", eps=np.float32(0.25), C=2, gap=np.float64(0.5), max_passes=np.int64(7))  # type: ignore[arg-type]
    assert config == RobustConfig("SBM", 0.25, 2.0, 0.5, 7)
    assert json.loads(json.dumps(config.as_dict())) == config.as_dict()
    assert type(config.C) is float


def test_problem__leaves_out_when_to_stop() -> None:
    config = RobustConfig()
    assert RobustConfig(gap=0.5, max_passes=1).problem() == config.problem()
    for other in (RobustConfig("S"), RobustConfig(eps=0.2), RobustConfig(C=2.0), RobustConfig(weighted=False)):
        assert other.problem() != config.problem()


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"formulation": "SV"}, "Choose one of SVM"),
        ({"eps": 0}, "above 0 and below 1"),
        ({"eps": 1}, "above 0 and below 1"),
        ({"eps": float("nan")}, "above 0 and below 1"),
        ({"eps": 10**400}, "above 0 and below 1"),
        ({"eps": "0.1"}, "Give a number"),
        ({"C": True}, "Give a number"),
        ({"C": 0.0}, "above 0"),
        ({"C": float("nan")}, "above 0"),
        ({"C": 2 * MOST_COST}, "at most"),
        ({"gap": 10**400}, "at most"),
        ({"gap": None}, "Give a number"),
        ({"max_passes": 0}, "at least 1"),
        ({"max_passes": 1.5}, "whole number"),
        ({"max_passes": True}, "whole number"),
        ({"weighted": 1}, "True or False"),
    ],
)
def test_robust_config__refuses_what_makes_no_sense(settings: dict[str, Any], remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        RobustConfig(**settings)
