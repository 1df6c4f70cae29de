import json
from typing import Any

import numpy as np
import pytest

from protodask.errors import InputError
from protodask.selection.config import SearchConfig


def test_settings__are_two_a_decade_in_the_joint_strategy() -> None:
    found = SearchConfig().settings(lambda_w=1e-8, seed=0)
    assert [setting.lambda_v for setting in found] == pytest.approx(10.0 ** np.arange(-5, -0.9, 0.5))
    assert {setting.lambda_w for setting in found} == {1e-8}


@pytest.mark.parametrize("trials", [1, 2, 7, 25, 30])
def test_settings__are_at_least_as_many_pairs_as_asked_for_on_a_grid(trials: int) -> None:
    found = SearchConfig(strategy="two-stage", n_trials=trials).settings(lambda_w=1e-8, seed=0)
    assert trials <= len(set(found)) <= trials + 6


@pytest.mark.parametrize("method", ["grid", "random"])
@pytest.mark.parametrize("strategy", ["joint", "two-stage"])
def test_settings__of_a_range_of_one_value_are_tried_once(strategy: Any, method: Any) -> None:
    search = SearchConfig(strategy, method, 4, lambda_v=(1e-3, 1e-3), lambda_w=(1, 1))  # whole numbers will do
    (found,) = search.settings(lambda_w=0, seed=0)
    assert found.lambda_v.hex() == (1e-3).hex()
    assert found.lambda_w.hex() in {(1.0).hex(), (0.0).hex()}


def test_search_config__goes_into_files_whatever_kind_its_numbers_are() -> None:
    given = SearchConfig(n_trials=np.int64(3), max_batches=np.int32(2), lambda_v=(1, np.float32(2)))  # type: ignore[arg-type]
    assert json.loads(json.dumps(given.as_dict()))["n_trials"] == 3
    assert given == SearchConfig(n_trials=3, max_batches=2, lambda_v=(1.0, 2.0))


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"strategy": "both"}, "Choose one of 'joint', 'two-stage'"),
        ({"method": "grit"}, "Choose one of 'grid', 'random'"),
        ({"rule": "two standard errors"}, "Choose one of"),
        ({"n_trials": 0}, "at least 1"),
        ({"n_trials": True}, "at least 1"),
        ({"max_batches": 0}, "at least 1"),
        ({"patience": 0}, "at least 1"),
        ({"n_folds": 1}, "at least 2"),
        ({"n_folds": 1000}, "at most 100"),
        ({"lambda_v": (1e-1, 1e-6)}, "smallest and the largest"),
        ({"lambda_v": 3}, "smallest and the largest"),
        ({"lambda_w": (0.0, 1.0)}, "smallest and the largest"),
        ({"least_gain": -1.0}, "not negative"),
        ({"least_gain": float("nan")}, "not negative"),
        ({"tolerance": "small"}, "not negative"),
    ],
)
def test_search_config__refuses_what_it_cannot_do(wrong: dict[str, Any], remedy: str) -> None:
    with pytest.raises(InputError, match=remedy):
        SearchConfig(**wrong)
