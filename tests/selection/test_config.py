import json
from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.errors import Code
from protodask.selection.config import SearchConfig
from protodask.selection.search import fit_name
from protodask.selection.space import Setting


@pytest.mark.parametrize("method", ["grid", "random"])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lambda_v": (1e-3, 1e-3)}, 1),
        ({"strategy": "two-stage", "lambda_v": (1e-3, 1e-3)}, 25),
        ({"strategy": "two-stage", "lambda_w": (1e-6, 1e-6)}, 25),
        ({"strategy": "two-stage", "lambda_v": (0, 0), "lambda_w": (0, 0)}, 1),
        ({}, 7),
    ],
)
def test_settings__never_name_one_fit_twice(method: Any, settings: dict[str, Any], expected: int) -> None:
    found = SearchConfig(method=method, **settings).settings(1e-8, 0)
    assert len(found) == len({fit_name(setting, 0) for setting in found}) == expected


@pytest.mark.parametrize("lambda_w", [0, 1, np.float32(0.5)])
def test_settings__of_whole_numbers_have_names(lambda_w: Any) -> None:
    found = SearchConfig(n_trials=2, lambda_v=(1, 2)).settings(lambda_w, 0)
    assert found == (Setting(1.0, float(lambda_w)), Setting(2.0, float(lambda_w)))
    assert len({fit_name(setting, 0) for setting in found}) == 2


def test_search_config__of_numpy_values_goes_into_files() -> None:
    config = SearchConfig(
        n_trials=np.int64(4),  # type: ignore[arg-type]
        n_folds=np.int32(3),  # type: ignore[arg-type]
        tolerance=np.float32(0.25),  # type: ignore[arg-type]
        lambda_v=np.array([0.5, 1.0], dtype=np.float32),  # type: ignore[arg-type]
    )
    assert config == SearchConfig(n_trials=4, n_folds=3, tolerance=0.25, lambda_v=(0.5, 1.0))
    assert SearchConfig(**json.loads(json.dumps(config.as_dict()))) == config
    assert len(config.settings(1e-8, 0)) == 4


@pytest.mark.parametrize(
    ("settings", "code", "facts"),
    [
        ({"tolerance": 2}, "bad-setting", ("tolerance", 2, "0 to 1")),
        ({"least_gain": float("nan")}, "bad-setting", ("least_gain", "nan", "not negative")),
        ({"n_trials": 10_001}, "bad-setting", ("n_trials", 10_001, "at most 10000")),
        ({"n_trials": 0}, "bad-setting", ("n_trials", 0, "at least 1")),
        ({"n_trials": 2.0}, "bad-setting", ("n_trials", 2.0, "at least 1")),
        ({"n_folds": 101}, "bad-setting", ("n_folds", 101, "at most 100")),
        ({"n_folds": 1}, "bad-setting", ("n_folds", 1, "at least 2")),
        ({"max_batches": True}, "bad-setting", ("max_batches", True, "at least 1")),
        ({"lambda_v": 1e-3}, "bad-setting", ("lambda_v", 1e-3, "smallest", "largest")),
        ({"lambda_w": (1e-3, 1e-4)}, "bad-setting", ("lambda_w", 1e-3, 1e-4, "smallest", "largest")),
        ({"strategy": "both"}, "unknown-name", ("strategy", "'both'", "'two-stage'")),
        ({"rule": "worst"}, "unknown-name", ("rule", "'worst'", "'best'")),
    ],
)
def test_search_config__says_how_to_mend_what_it_refuses(
    settings: dict[str, Any], code: Code, facts: tuple[object, ...]
) -> None:
    with refused(code, *facts):
        SearchConfig(**settings)


def test_settings__are_two_a_decade_in_the_joint_strategy() -> None:
    found = SearchConfig().settings(lambda_w=1e-8, seed=0)
    assert [setting.lambda_v for setting in found] == pytest.approx(10.0 ** np.arange(-4, -0.9, 0.5))
    assert {setting.lambda_w for setting in found} == {1e-8}


def test_rule_for__is_the_best_of_means_of_draws_and_what_was_asked_for() -> None:
    assert [SearchConfig().rule_for(draws) for draws in (1, 2, 4)] == ["half a standard error", "best", "best"]
    assert SearchConfig(rule="one standard error").rule_for(4) == "one standard error"
