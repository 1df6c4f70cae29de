from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.robust.config import MOST_COST, RobustConfig
from protodask.robust.formulations import FORMULATIONS


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
    ("settings", "limits"),
    [
        ({"eps": 0}, (0, 1)),
        ({"eps": 1}, (0, 1)),
        ({"eps": float("nan")}, (0, 1)),
        ({"eps": 10**400}, (0, 1)),
        ({"eps": "0.1"}, ()),
        ({"C": True}, ()),
        ({"C": 0.0}, (0, f"{MOST_COST:g}")),
        ({"C": float("nan")}, (0, f"{MOST_COST:g}")),
        ({"C": 2 * MOST_COST}, (0, f"{MOST_COST:g}")),
        ({"gap": 10**400}, (0, 1)),
        ({"gap": 1.1}, (0, 1)),
        ({"gap": None}, ()),
        ({"max_passes": 0}, (1,)),
        ({"max_passes": 1.5}, (1,)),
        ({"max_passes": True}, (1,)),
        ({"weighted": 1}, ("True", "False")),
    ],
)
def test_robust_config__refuses_what_makes_no_sense(settings: dict[str, Any], limits: tuple[object, ...]) -> None:
    ((name, value),) = settings.items()
    with refused("bad-setting", f"{name} is {value!r}", *limits):
        RobustConfig(**settings)


def test_robust_config__of_an_unknown_formulation_names_those_there_are() -> None:
    with refused("unknown-name", "SV", *FORMULATIONS):
        RobustConfig("SV")
