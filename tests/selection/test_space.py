"""Settings to try: within their ranges, spread evenly, the same every time."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask.selection.space import Setting, Space

RANGES = st.tuples(st.floats(1e-12, 1e2), st.floats(1e-12, 1e2)).map(lambda pair: (min(pair), max(pair)))


def shares(space: Space, settings: tuple[Setting, ...]) -> NDArray[np.float64]:
    """Where settings lie between the logarithms of the ends."""
    found = []
    for name in ("lambda_v", "lambda_w"):
        low, high = getattr(space, name)
        values = np.array([getattr(setting, name) for setting in settings])
        found.append((np.log(values) - math.log(low)) / (math.log(high) - math.log(low)))
    return np.stack(found, axis=1)


@given(RANGES, RANGES, st.integers(1, 70), st.integers(-(2**65), 2**65))
def test_draw__stays_within_the_ranges(v: tuple[float, float], w: tuple[float, float], number: int, seed: int) -> None:
    settings = Space(v, w).draw(number, seed)
    assert len(settings) == number
    assert all(v[0] <= setting.lambda_v <= v[1] and w[0] <= setting.lambda_w <= w[1] for setting in settings)


@given(st.integers(0, 7), st.integers(0, 2**64), st.data())
def test_draw__puts_one_of_a_power_of_two_into_every_equal_box(power: int, seed: int, data: st.DataObject) -> None:
    across = data.draw(st.integers(0, power))
    space = Space()
    cells = np.floor(shares(space, space.draw(2**power, seed)) * [2**across, 2 ** (power - across)]).astype(int)
    assert len({tuple(cell) for cell in cells.tolist()}) == 2**power


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 2**40))
def test_draw__of_more_settings_begins_with_the_same(number: int, more: int, seed: int) -> None:
    assert Space().draw(number + more, seed)[:number] == Space().draw(number, seed)


@pytest.mark.slow
def test_draw__of_other_seeds_is_uniform() -> None:
    space = Space()
    first = shares(space, tuple(space.draw(1, seed)[0] for seed in range(4000)))
    # 400 expected in each tenth; the standard deviation is 19.
    for column in first.T:
        assert abs(np.histogram(column, 10, (0, 1))[0] - 400).max() < 90
    assert abs(np.asarray(np.corrcoef(first.T))[0, 1]) < 0.06


def test_draw__keeps_a_penalty_that_is_fixed() -> None:
    settings = Space(lambda_v=(1e-3, 1e-3), lambda_w=(0.0, 0.0)).draw(5)
    assert {setting.lambda_v for setting in settings} == {1e-3}
    assert {setting.lambda_w for setting in settings} == {0.0}


def test_grid__is_every_pair_in_equal_ratios_with_both_ends() -> None:
    settings = Space((1e-6, 1e-2), (1e-9, 1e-5)).grid(5, 3)
    wanted = list(itertools.product([1e-6, 1e-5, 1e-4, 1e-3, 1e-2], [1e-9, 1e-7, 1e-5]))
    found = [(setting.lambda_v, setting.lambda_w) for setting in settings]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert (found[0], found[-1]) == ((1e-6, 1e-9), (1e-2, 1e-5))


def test_grid__of_one_value_is_the_middle() -> None:
    (setting,) = Space((1e-4, 1e-2), (1e-8, 1e-8)).grid(1, 1)
    assert setting.lambda_v == pytest.approx(1e-3)
    assert setting.lambda_w == 1e-8


@pytest.mark.parametrize("limits", [(1e-2, 1e-3), (0.0, 1e-3), (1e-3,), 1e-3, "ab", (1e-3, 1e-2, 1e-1)])
def test_space__refuses_what_is_no_range(limits: Any) -> None:
    with refused("bad-setting", "lambda_w", "smallest", "largest"):
        Space(lambda_w=limits)


@pytest.mark.parametrize("value", [-1e-3, math.nan, math.inf, "x", None])
def test_space__refuses_what_is_no_penalty(value: Any) -> None:
    with refused("bad-setting", f"lambda_v is {value!r}", "finite", "not negative"):
        Space(lambda_v=(value, 1e-1))
    with refused("bad-setting", f"lambda_w is {value!r}", "finite"):
        Setting(1e-3, value)
