"""Settings: what is refused, and what they become in files."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.data.format.schema import Column
from protodask.prototypes.config import SOURCE_RECIPE, FitConfig
from protodask.prototypes.forms import settled

BAD: list[tuple[str, Any, str]] = [
    ("n_batches", -1, "whole number of at least 0"),
    ("n_batches", 1.0, "whole number"),
    ("n_batches", True, "whole number"),
    ("n_candidates", -1, "whole number of at least 0"),
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
    FitConfig.of(
        "source", n_batches=0, n_candidates=1, lambda_v=0.0, lambda_w=0, alpha_v=0, alpha_w=1, tolerance=0.0, seed=0
    )
    FitConfig.of("source", seed=2**63, max_fraction=0.999, max_iterations=1, precision="float64")


def test_config__takes_numpy_numbers() -> None:
    FitConfig.of("source", n_batches=np.int64(2), lambda_v=np.float64(0.1), alpha_v=np.float32(0.5))


def test_config__as_dict_is_plain_and_complete() -> None:
    config = FitConfig.of("source", n_batches=3, seed=9, precision="float64")
    assert FitConfig.of("source", **json.loads(json.dumps(config.as_dict()))) == config


def test_config__of_numpy_numbers_can_go_into_a_file() -> None:
    config = FitConfig.of("source", n_batches=np.int64(2), seed=np.int32(3))
    assert json.loads(json.dumps(config.as_dict()))["n_batches"] == 2


def test_with_batches__changes_nothing_else() -> None:
    config = FitConfig.of("source", n_batches=3, seed=9)
    assert config.with_batches(1).as_dict() == {**config.as_dict(), "n_batches": 1}


def test_recipes__differ_in_what_is_not_given() -> None:
    assert FitConfig.of("averaged") == FitConfig()
    source = FitConfig.of("source", lambda_v=0.5)
    assert source == replace(FitConfig(**SOURCE_RECIPE), lambda_v=0.5)
    assert FitConfig.of("source", hold_out=0.5, n_draws=2).hold_out == 0.5
    with refused("unknown-name", "'best'", "averaged", "source"):
        FitConfig.of("best")  # type: ignore[arg-type]


@given(
    rows=st.integers(0, 10**12) | st.integers(490, 510),
    n_classes=st.integers(0, 10**4),
    candidates=st.integers(0, 10**5),
    draws=st.integers(0, 100),
    precision=st.sampled_from(["auto", "float32", "float64"]),
)
def test_for_rows__chooses_what_was_left_open_and_nothing_else(
    rows: int, n_classes: int, candidates: int, draws: int, precision: Any
) -> None:
    config = FitConfig(n_candidates=candidates, n_draws=draws, precision=precision, seed=7)
    chosen = config.for_rows(rows, n_classes)
    assert chosen.n_candidates == candidates or (candidates == 0 and 500 <= chosen.n_candidates <= 8000)
    assert chosen.n_draws == draws or (draws == 0 and 1 <= chosen.n_draws <= 5)
    if precision == "auto":
        assert chosen.precision == ("float64" if rows <= 500 else "float32")
    assert chosen.precision == chosen.kernel_precision
    assert chosen.most_candidates == (4000 if candidates == 0 and rows < 12_288 else 0)
    given = {"n_candidates": candidates, "most_candidates": 0, "n_draws": draws, "precision": precision}
    assert replace(chosen, **given) == config
    assert chosen.for_rows(5) == chosen.for_rows(10**9, 3) == chosen, "what is chosen stays"
    # The work of an evaluation grows with the rows, and no faster than they do beyond the largest number of candidates.
    if candidates == draws == 0 and rows >= 200_000:
        assert chosen.n_draws == 1
        assert rows * chosen.n_candidates <= max(8 * 10**9, 2000 * rows)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (150, (500, 4)),
        (2000, (500, 4)),
        (2001, (626, 2)),
        (8100, (1260, 2)),
        (12_287, (1551, 2)),
        (14_400, (2000, 2)),
        (40_000, (2800, 2)),
        (50_000, (3130, 1)),
        (160_000, (5600, 1)),
        (10**6, (8000, 1)),
        (2 * 10**6, (4000, 1)),
        (10**7, (2000, 1)),
    ],
)
def test_for_rows__fewer_draws_and_more_candidates_of_more_rows(rows: int, expected: tuple[int, int]) -> None:
    chosen = FitConfig().for_rows(rows)
    assert (chosen.n_candidates, chosen.n_draws) == expected


@pytest.mark.parametrize(
    ("rows", "n_classes", "expected"),
    [
        (2000, 26, (500, 4)),
        (2001, 1, (626, 2)),
        (6300, 8, (2000, 2)),
        (14_000, 26, (5972, 2)),
        (40_000, 5, (4427, 1)),
        (10**6, 10, (8000, 1)),
        (10**7, 10, (2000, 1)),
    ],
)
def test_for_rows__more_classes_have_more_candidates(rows: int, n_classes: int, expected: tuple[int, int]) -> None:
    chosen = FitConfig().for_rows(rows, n_classes)
    assert (chosen.n_candidates, chosen.n_draws) == expected


@pytest.mark.parametrize(("n_columns", "expected"), [(100, (4427, 1)), (1000, (2000, 1))])
def test_settled__rows_too_wide_for_steps_are_worth_fewer_candidates(n_columns: int, expected: tuple[int, int]) -> None:
    columns = [Column(f"x{number}") for number in range(n_columns)]
    chosen = settled(FitConfig(), 100_000, columns, 2)
    assert (chosen.n_candidates, chosen.n_draws) == expected
    assert settled(chosen, 100_000, columns, 5) == chosen


def test_as_dict__says_that_one_is_left_out_where_it_is() -> None:
    assert FitConfig().as_dict()["leave_one_out"] is True
    assert "leave_one_out" not in FitConfig.of("source").as_dict(), "so that runs that were begun before go on"
    assert FitConfig().as_dict()["finish"] is True
    assert "finish" not in FitConfig.of("source", hold_out=0.2).as_dict()


def test_for_rows__without_steps_many_rows_are_worth_fewer_candidates_and_draws() -> None:
    for without in ({"progressive": False}, {"hold_out": 0.0}):
        chosen = FitConfig(**without).for_rows(40_000)
        assert (chosen.n_candidates, chosen.n_draws) == (2000, 1)
