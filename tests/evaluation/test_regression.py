import math
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mean_squared_error
from support.errors import refused

from protodask.engine import Block, add_records, array_source
from protodask.errors import Code
from protodask.evaluation import squared_error
from protodask.evaluation.metrics import ErrorSums, error_sums

RANDOM = np.random.default_rng(0)
PREDICTION, TARGET, WEIGHT = RANDOM.normal(size=3000), RANDOM.normal(size=3000), RANDOM.exponential(size=3000)


def test_squared_error__is_scikit_learns() -> None:
    assert squared_error(PREDICTION, TARGET) == pytest.approx(mean_squared_error(TARGET, PREDICTION), rel=1e-13)
    wanted = mean_squared_error(TARGET, PREDICTION, sample_weight=WEIGHT)
    assert squared_error(PREDICTION, TARGET, WEIGHT) == pytest.approx(wanted, rel=1e-13)


def test_squared_error__rows_that_were_kept_by_chance_stand_for_others() -> None:
    arrays = {"prediction": PREDICTION, "target": TARGET, "weight": WEIGHT, "inclusion": RANDOM.uniform(0.1, 1, 3000)}
    wanted = mean_squared_error(TARGET, PREDICTION, sample_weight=WEIGHT / arrays["inclusion"])
    assert squared_error(array_source(arrays, 64)) == pytest.approx(wanted, rel=1e-13)


@settings(max_examples=25)
@given(st.integers(0, 3000), st.sampled_from([1, 16, 4096]))
def test_squared_error__order_and_blocks_do_not_matter(seed: int, block_rows: int) -> None:
    order = np.random.default_rng(seed).permutation(100)
    arrays = {"prediction": PREDICTION[:100], "target": TARGET[:100], "weight": WEIGHT[:100]}
    shuffled = {name: values[order] for name, values in arrays.items()}
    assert squared_error(array_source(shuffled, block_rows)) == pytest.approx(
        squared_error(array_source(arrays)), rel=1e-12
    )


def test_squared_error__of_dask_arrays() -> None:
    lazy = [da.from_array(values, chunks=(700,)) for values in (PREDICTION, TARGET, WEIGHT)]
    assert squared_error(*lazy) == pytest.approx(squared_error(PREDICTION, TARGET, WEIGHT), rel=1e-12)


def test_add_records__is_a_monoid() -> None:
    one, two, three = (
        error_sums(Block(0, 0, {"prediction": PREDICTION[part], "target": TARGET[part], "weight": WEIGHT[part]}))
        for part in (slice(0, 10), slice(10, 11), slice(11, 30))
    )
    left, right = add_records(add_records(one, two), three), add_records(one, add_records(two, three))
    assert (left.weight, left.squares) == pytest.approx((right.weight, right.squares), rel=1e-14)
    assert add_records(one, ErrorSums(0.0, 0.0)) == one == add_records(ErrorSums(0.0, 0.0), one)


def test_squared_error__rows_of_weight_zero_do_not_count() -> None:
    assert squared_error([1.0, math.nan, 5.0], [3.0, 1.0, math.inf], [2.0, 0.0, 0.0]) == 4.0


def test_squared_error__of_whole_numbers() -> None:
    assert squared_error([1, 2], [3, 2]) == 2.0


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ({"prediction": [1.0, math.nan]}, "bad-value", ("row 1", "prediction")),
        ({"target": [math.inf, 1.0]}, "bad-value", ("row 0", "target")),
        ({"weight": [1.0, -1.0]}, "bad-value", ("row 1", "weight")),
        ({"weight": [1.0, math.nan]}, "bad-value", ("row 1", "weight")),
        ({"weight": [0.0, 0.0]}, "no-rows", ("weights", 0)),
        ({"prediction": ["a", "b"]}, "wrong-type", ("(2,)", "<U1", "prediction")),
        ({"prediction": [1.0]}, "wrong-shape", ("(2,)", "(1,)", "target", "prediction")),
        ({"prediction": [], "target": []}, "no-rows", ()),
        ({"target": None}, "setting-missing", ("prediction", "target")),
    ],
)
def test_squared_error__arguments_that_cannot_be_used(
    arguments: dict[str, Any], code: Code, facts: tuple[object, ...]
) -> None:
    fine: dict[str, Any] = {"prediction": [1.0, 2.0], "target": [1.0, 2.0]}
    with refused(code, *facts):
        squared_error(**fine | arguments)


def test_squared_error__inclusion_of_zero() -> None:
    source = array_source({"prediction": np.ones(2), "target": np.ones(2), "inclusion": np.array([1.0, 0.0])})
    with refused("bad-value", "row 1", "above 0 and at most 1", "inclusion"):
        squared_error(source)


def test_squared_error__source_with_arrays_besides() -> None:
    source = array_source({"prediction": PREDICTION, "target": TARGET})
    with refused("settings-conflict", "target"):
        squared_error(source, TARGET)


def test_squared_error__says_that_weights_add_up_to_too_much() -> None:
    with refused("overflow", "weights"):
        squared_error([1.0, 2.0], [2.0, 2.0], [1e308, 1e308])
