import math
from contextlib import suppress
from functools import cache
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.decisions import NAMED, Counted, loss_table, losses_of_counts, subset_counts
from support.errors import refused

from protodask.data.arrays.rows import read_rows
from protodask.decisions import Cut, Loss, decide, deciding, expected_loss, expected_losses
from protodask.decisions.deciding import fewest_of_least, is_outside_memory, item_source, select_items
from protodask.engine import array_source
from protodask.errors import InputError

Floats = NDArray[np.float64]


def weighted(tp: int, fp: int, fn: int, tn: int) -> float:
    return (fn + 2 * fp) / (2 + tp)


LOSSES: dict[str, tuple[Counted, str | Loss]] = {name: (counted, name) for name, counted in NAMED.items()}
"""By counts, and as it is given."""


def shares_of(n: int) -> dict[str, tuple[Counted, str | Loss]]:
    """With a user's coefficients (counts become shares) and a user's function, too."""
    coefficients = Loss.linear_fractional((0, -3, 2, 1), (2 / n, 1, 0, 0))
    function = Loss("capped", lambda u, v, p: np.minimum(p - u, 0.3) + 0.2 * (v - u) ** 2)
    return {
        **LOSSES,
        "weighted": (weighted, coefficients),
        "capped": (lambda tp, fp, fn, tn: min(fn / n, 0.3) + 0.2 * (fp / n) ** 2, function),
    }


TEN = {
    "spread": np.random.default_rng(0).uniform(size=10),
    "rare": np.random.default_rng(1).beta(0.1, 3, size=10),
    "tied": np.random.default_rng(2).choice([0.1, 0.3, 0.5], size=10),
    "certain": np.array([0, 1, 0, 1, 0.4, 0.4, 0.05, 1, 0, 0.6]),
    "none": np.zeros(10),
    "all": np.ones(10),
}


@pytest.mark.parametrize("shape", TEN)
@pytest.mark.parametrize("name", shares_of(10))
def test_decide__is_the_best_of_all_selections(name: str, shape: str) -> None:
    check_best(TEN[shape], counts_of_ten(shape), *shares_of(10)[name])


@cache
def counts_of_ten(shape: str) -> Floats:
    return subset_counts(TEN[shape])


@settings(max_examples=60)
@given(
    probability=st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5, 0.1]), min_size=1, max_size=7),
    name=st.sampled_from(list(shares_of(1))),
)
def test_decide__is_the_best_of_all_selections_whatever_is_given(probability: list[float], name: str) -> None:
    values = np.array(probability)
    check_best(values, subset_counts(values), *shares_of(len(values))[name])


@settings(max_examples=80)
@given(
    over=st.tuples(*[st.integers(-3, 3)] * 4),
    under=st.tuples(*[st.integers(0, 3)] * 4),
    at_zero=st.sampled_from([0, 0, 1, -1]),
    probability=st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.5]), min_size=1, max_size=5),
)
def test_decide__is_the_best_for_any_linear_fractional_loss(
    over: tuple[int, ...], under: tuple[int, ...], at_zero: float, probability: list[float]
) -> None:
    """Numerator and denominator by their values at TP, FP, FN and TN; both vanish in many places."""
    over = tuple(value if below else 0 for value, below in zip(over, under, strict=True))
    if falling(over, under, at_zero) is None:  # what rises falls with its sign changed
        over, at_zero = tuple(-value for value in over), -at_zero
    loss = falling(over, under, at_zero)
    if loss is None:
        reject()

    def counted(*counts: int) -> float:
        below = sum(value * count for value, count in zip(under, counts, strict=True))
        return sum(value * count for value, count in zip(over, counts, strict=True)) / below if below else at_zero

    values = np.array(probability)
    check_best(values, subset_counts(values), counted, loss)


def falling(over: tuple[int, ...], under: tuple[int, ...], at_zero: float) -> Loss | None:
    """The loss, unless it is refused."""
    with suppress(InputError):
        return Loss.linear_fractional(coefficients(*over), coefficients(*under), at_zero=at_zero)
    return None


def coefficients(tp: int, fp: int, fn: int, tn: int) -> tuple[int, int, int, int]:
    """Those of 1, u, v and p."""
    return tn, tp - fp - fn + tn, fp - tn, fn - tn


def check_best(probability: Floats, counts: Floats, counted: Counted, loss: str | Loss) -> None:
    n = len(probability)
    every = losses_of_counts(counts, loss_table(counted, n))
    decision = decide(probability, loss, "exact")
    assert decision.selected is not None
    number = int(decision.selected @ (1 << np.arange(n)))
    assert abs(every[number] - every.min()) <= 1e-12
    assert decision.expected_loss == pytest.approx(every[number], abs=1e-12)
    assert decision.loss_at_half == pytest.approx(every[int((probability >= 0.5) @ (1 << np.arange(n)))], abs=1e-12)
    assert decision.k == decision.selected.sum()
    assert decision.n == n
    assert decision.threshold == (probability[decision.selected].min() if decision.k else math.inf)
    np.testing.assert_array_equal(decision.cut.select(probability), decision.selected)


def test_decide__says_by_which_method() -> None:
    probability = [0.9, 0.5, 0.4, 0.01]
    assert decide(probability).method == "quadratic"
    assert decide(probability).loss == "f1"
    assert decide(probability, "am").method == "general"
    assert decide(probability, Loss.f_beta(3**0.25)).method == "general"
    assert decide(probability, "am", "normal").method == "normal"
    assert decide(np.full(40_000, 0.5)).method == "normal"
    assert decide(np.full(4_000, 0.001), "am").method == "general"


def test_decide__first_of_tied_items() -> None:
    decision = decide([0.2, 0.6, 0.2, 0.2, 0.6, 0.2], Loss("two", lambda u, v, p: np.abs(v - 3 / 6)))
    np.testing.assert_array_equal(decision.selected, [True, True, False, False, True, False])
    assert decision.cut.splits_ties
    assert (decision.cut.tied, decision.cut.taken) == (4, 1)


def test_decide__fewest_of_equal_losses() -> None:
    assert decide([0.5] * 40, "am").k == 0  # whatever is selected, half of what is expected goes wrong
    assert decide([0.9, 0.8, 0.1], "auc").k == 0
    assert fewest_of_least(np.array([3.0, 1.0 + 1e-14, 1.0, 1.0 + 1e-14, 2.0])) == 1
    assert fewest_of_least(np.array([3.0, 1.0 + 1e-12, 1.0, 2.0])) == 2


def test_decide__beats_half_where_positives_are_rare() -> None:
    probability = np.random.default_rng(3).beta(0.1, 2, size=2000)
    decision = decide(probability)
    assert 0 < decision.threshold < 0.5
    # The best threshold of F1 is half the best F1: exactly in the limit, nearly for many items.
    assert decision.threshold == pytest.approx((1 - decision.expected_loss) / 2, abs=0.01)
    assert decision.loss_at_half > decision.expected_loss + 0.01


@pytest.mark.parametrize("loss", ["f1", "g_tp_pr", "am"])
def test_decide__first_minimum_is_the_first(loss: str) -> None:
    generator = np.random.default_rng(4)
    for _ in range(20):
        probability = generator.beta(0.3, 1, size=30)
        losses = expected_losses(probability, loss)
        first = next(k for k in range(1, 31) if k == 30 or losses[k] <= losses[k + 1])
        decision = decide(probability, loss, first_minimum=True)
        assert decision.k == (first if losses[first] < losses[0] else 0)
        assert decision.expected_loss == pytest.approx(losses[decision.k], abs=1e-14)
        assert decision.loss_at_half == pytest.approx(losses[(probability >= 0.5).sum()], abs=1e-13)


def test_decide__first_minimum_need_not_be_the_least() -> None:
    probability = [0.68, 0.295, 0.295, 0.25]
    assert decide(probability, "f1", first_minimum=True).k == 1
    assert decide(probability, "f1").k == 3
    assert decide(probability, "f1").expected_loss < decide(probability, "f1", first_minimum=True).expected_loss - 0.004


def test_decide__first_minimum_selects_nothing_where_that_is_as_good() -> None:
    for probability in ([0.5], [0.5, 0.0, 0.0]):
        assert decide(probability, "f1").k == decide(probability, "f1", first_minimum=True).k == 0


def test_decide__first_minimum_looks_no_further() -> None:
    largest = 0.0

    def watched(u: Floats, v: Floats, p: Floats) -> Floats:
        nonlocal largest
        largest = max(largest, float(np.max(v)))
        return 3 * (p - u) + (v - u)

    probability = np.linspace(1, 0, 101)
    decision = decide(probability, Loss("watched", watched, monotone=True), first_minimum=True)
    assert decision.k == 75  # an item is worth it above 1 / 4
    assert largest == pytest.approx(76 / 101)


def test_decide__normal_is_close() -> None:
    probability = np.random.default_rng(5).beta(0.5, 5, size=300)
    for loss in ("f1", "am", "g_tp_pr"):
        exact, normal = decide(probability, loss, "exact"), decide(probability, loss, "normal")
        assert normal.selected is not None
        assert expected_loss(probability, normal.k, loss) - exact.expected_loss <= 1e-6
        assert normal.expected_loss == pytest.approx(exact.expected_loss, abs=1e-6)


def test_decide__single_precision_and_lists() -> None:
    single = np.array([0.9, 0.1, 0.4], dtype=np.float32)
    np.testing.assert_array_equal(decide(single).selected, decide(single.tolist()).selected)
    assert decide([1, 0, 1]).k == 2
    assert decide([True, False]).expected_loss == 0


@pytest.mark.parametrize("kind", ["dask", "series", "zarr", "memory map"])
def test_decide__what_is_not_in_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probability = np.round(np.random.default_rng(6).beta(0.5, 2, size=700), 2)  # many are tied
    stored = zarr.create_array(tmp_path / "items.zarr", data=probability, chunks=(90,))
    np.save(tmp_path / "items.npy", probability)
    given = {
        "dask": da.from_array(probability, chunks=160),
        "series": da.from_array(probability, chunks=160).to_dask_dataframe(columns="probability"),
        "zarr": stored,
        "memory map": np.load(tmp_path / "items.npy", mmap_mode="r"),
    }[kind]
    expected = decide(probability)
    found = decide(given)
    assert found == expected
    np.testing.assert_array_equal(found.selected, expected.selected)
    monkeypatch.setattr(deciding, "IN_MEMORY", 100)
    by_blocks = decide(given)
    assert (by_blocks.method, by_blocks.k, by_blocks.cut) == ("normal", expected.k, expected.cut)
    np.testing.assert_array_equal(by_blocks.selected, expected.selected)
    assert decide(given, method="exact") == expected


def test_decide__a_source_has_no_flags() -> None:
    probability = np.random.default_rng(7).uniform(size=500)
    decision = decide(array_source({"probability": probability}, block_rows=64))
    expected = decide(probability)
    assert decision.selected is None
    np.testing.assert_array_equal(decision.cut.select(probability), expected.selected)
    with refused("unsupported"):
        decide(array_source({"probability": probability}), method="exact")


def test_decide__refuses_shapes_outside_memory() -> None:
    with refused("wrong-shape", "(5, 2)"):
        decide(da.zeros((5, 2)))
    with refused("wrong-type"):
        decide(da.from_array(np.array(["a", "b"])))


def test_decide__refuses() -> None:
    with refused("bad-setting", "method", "'quick'"):
        decide([0.5], "f1", "quick")  # type: ignore[arg-type]
    with refused("settings-conflict", "first_minimum"):
        decide([0.5], "f1", "normal", first_minimum=True)
    with refused("bad-value", "[1]", "2.0"):
        decide([0.5, 2])
    with refused("bad-setting", "rises"):
        decide([0.5, 0.2], lambda u, v, p: u)


def test_item_source__of_chunks_of_any_and_of_unknown_length() -> None:
    values = np.linspace(0, 1, 40, dtype=np.float32)
    rows = item_source(da.from_array(values, chunks=((7, 1, 20, 12),)))
    assert not rows.resident
    np.testing.assert_array_equal(read_rows(rows, 5, 23)["probability"], values[5:23])
    assert rows.read(0)["probability"].dtype == np.float32
    array = da.from_array(values, chunks=8)
    np.testing.assert_array_equal(read_rows(item_source(array[array > 0.5]), 0, 20)["probability"], values[20:])


def test_item_source__refuses_other_shapes_and_no_items() -> None:
    with refused("wrong-shape", "(4, 3)", "decide_sets", "decide_rows"):
        item_source(da.zeros((4, 3)))
    with refused("no-rows", "no items"):
        item_source(da.zeros(0))
    array = da.from_array(np.array([0.1, 0.2]), chunks=1)
    with refused("no-rows", "no items"):
        decide(array[array > 1])


def test_is_outside_memory__not_for_arrays_and_lists() -> None:
    assert is_outside_memory(da.zeros(3))
    assert not is_outside_memory(np.zeros(3))
    assert not is_outside_memory([0.5])


def test_select_items__takes_the_first_of_the_tied_over_all_blocks() -> None:
    probability = np.array([0.5, 0.2, 0.5, 0.9, 0.5, 0.5, 0.1, 0.5])
    source = array_source({"probability": probability}, block_rows=2)
    selected = select_items(source, Cut(0.5, tied=5, taken=3))
    np.testing.assert_array_equal(np.flatnonzero(selected), [0, 2, 3, 4])
