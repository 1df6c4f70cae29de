"""Settings: what is refused, and what they become in files."""

import json
import math
from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.prototypes.config import FitConfig

BAD: list[tuple[str, Any, str]] = [
    ("n_batches", -1, "whole number of at least 0"),
    ("n_batches", 1.0, "whole number"),
    ("n_batches", True, "whole number"),
    ("n_candidates", 0, "whole number of at least 1"),
    ("n_candidates", "many", "whole number"),
    ("n_candidates", None, "whole number"),
    ("max_iterations", 0, "whole number of at least 1"),
    ("seed", -1, "whole number of at least 0"),
    ("max_fraction", 0.0, "strictly between 0 and 1"),
    ("max_fraction", 1.0, "strictly between 0 and 1"),
    ("max_fraction", math.nan, "strictly between 0 and 1"),
    ("lambda_v", -1e-9, "finite and not negative"),
    ("lambda_v", math.inf, "finite and not negative"),
    ("lambda_v", math.nan, "finite and not negative"),
    ("lambda_w", -1, "finite and not negative"),
    ("lambda_w", "0.1", "finite and not negative"),
    ("alpha_v", 1.01, "share of the l2 part, from 0 to 1"),
    ("alpha_w", -0.01, "share of the l2 part, from 0 to 1"),
    ("tolerance", -1e-9, "relative change of the objective from 0 to 1"),
    ("tolerance", 1.5, "relative change of the objective from 0 to 1"),
    ("precision", "float16", "'float32' or 'float64'"),
    ("max_fraction", "half", "strictly between 0 and 1"),
    ("max_fraction", None, "strictly between 0 and 1"),
    ("standardize", "no", "True or False"),
    ("weighted", "no", "True or False"),
    ("weighted", None, "True or False"),
]


@pytest.mark.parametrize(("name", "value", "remedy"), BAD)
def test_config__refuses_naming_the_setting_and_what_would_do(name: str, value: Any, remedy: str) -> None:
    with refused("unknown-name" if name == "precision" else "bad-setting", f"{name} is {value!r}", remedy):
        FitConfig(**{name: value})


def test_config__takes_the_ends_of_every_range() -> None:
    FitConfig(n_batches=0, n_candidates=1, lambda_v=0.0, lambda_w=0, alpha_v=0, alpha_w=1, tolerance=0.0, seed=0)
    FitConfig(seed=2**63, max_fraction=0.999, max_iterations=1, precision="float64")


def test_config__takes_numpy_numbers() -> None:
    FitConfig(n_batches=np.int64(2), lambda_v=np.float64(0.1), alpha_v=np.float32(0.5))  # type: ignore[arg-type]


def test_config__as_dict_is_plain_and_complete() -> None:
    config = FitConfig(n_batches=3, seed=9, precision="float64")
    assert FitConfig(**json.loads(json.dumps(config.as_dict()))) == config


def test_config__of_numpy_numbers_can_go_into_a_file() -> None:
    config = FitConfig(n_batches=np.int64(2), seed=np.int32(3))  # type: ignore[arg-type]
    assert json.loads(json.dumps(config.as_dict()))["n_batches"] == 2


def test_with_batches__changes_nothing_else() -> None:
    config = FitConfig(n_batches=3, seed=9)
    assert config.with_batches(1).as_dict() == {**config.as_dict(), "n_batches": 1}
