from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.prototypes.setting_checks import (
    check_choice,
    check_count,
    check_flag,
    check_range,
    is_number,
    unwrap_numbers,
)


@dataclass(frozen=True)
class Some:
    share: Any
    name: str


def test_unwrap_numbers__leaves_python_values() -> None:
    found = Some(np.float64(0.5), "a")
    unwrap_numbers(found)
    assert (type(found.share), found) == (float, Some(0.5, "a"))


def test_is_number__is_not_true_or_text() -> None:
    assert [is_number(value) for value in (1, 0.5, float("inf"), True, "1", None)] == [True] * 3 + [False] * 3


@pytest.mark.parametrize(("value", "remedy"), [(1, "at least 2"), (2.0, "whole"), (True, "whole"), (9, "at most 8")])
def test_check_count__names_the_setting_and_its_limit(value: object, remedy: str) -> None:
    with refused("bad-setting", f"folds is {value}", remedy):
        check_count("folds", value, 2, 8)
    check_count("folds", 8, 2, 8)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.5", True])
def test_check_range__gives_the_remedy(value: object) -> None:
    with refused("bad-setting", f"share is {value!r}", "from 0 to 1"):
        check_range("share", value, 0.0, 1.0, "Give a share from 0 to 1.")
    for allowed in (0, 1.0):
        check_range("share", allowed, 0.0, 1.0, "Give a share from 0 to 1.")


def test_check_flag__is_for_booleans() -> None:
    check_flag("weighted", False)
    with refused("bad-setting", "weighted is 0", "True or False"):
        check_flag("weighted", 0)


def test_check_choice__names_all_there_are() -> None:
    check_choice("rule", "best", ("best", "one", "two"))
    with refused("unknown-name", "rule is None", "Choose 'best', 'one' or 'two'."):
        check_choice("rule", None, ("best", "one", "two"))
