"""Decisions for many items: against exact ones, whatever the blocks, threads and passes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask.decisions import LOSS_NAMES, Decision, Loss, decide, expected_losses, large
from protodask.decisions.large import decide_normal, decide_source
from protodask.engine import Engine, array_source, thread_engine
from protodask.engine.threads import ThreadScheduler

Floats = NDArray[np.float64]

RANDOM = np.random.default_rng(0)
N = 2000
SURE = RANDOM.uniform(size=N) < 0.3
SHAPES: dict[str, Floats] = {
    "uniform": RANDOM.uniform(size=N),
    "skewed": RANDOM.beta(0.05, 49.95, size=N),
    "two kinds": np.where(SURE, RANDOM.beta(20, 1, size=N), RANDOM.beta(1, 20, size=N)),
    "mostly sure": 1 - RANDOM.beta(0.3, 30, size=N),
    "tied": np.round(RANDOM.beta(1, 3, size=N), 1),
}


def test_shapes__are_skewed_as_meant() -> None:
    assert SHAPES["skewed"].mean() == pytest.approx(0.001, rel=0.2)


@pytest.mark.slow  # a minute: the general exact method at 2,000 items
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_decide_normal__costs_no_more_than_the_exact_decision(shape: str, loss: str) -> None:
    _check_against_exact(SHAPES[shape], loss)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", [*LOSS_NAMES, "f2", "f0.5"])
def test_decide_normal__costs_no_more_than_the_exact_decision_of_fewer(shape: str, loss: str) -> None:
    _check_against_exact(SHAPES[shape][::10], loss)


def _check_against_exact(probability: Floats, loss: str) -> None:
    exact = expected_losses(probability, loss)
    found = decide_normal(probability, loss)
    assert exact[found.k] - exact.min() < 1e-9
    assert found.expected_loss == pytest.approx(exact[found.k], abs=1e-9)
    assert found.loss_at_half == pytest.approx(exact[np.count_nonzero(probability >= 0.5)], abs=1e-9)
    assert found.selected is not None
    assert found.selected.sum() == found.k
    outside = probability[~found.selected].max(initial=-1)
    assert probability[found.selected].min(initial=math.inf) == found.threshold >= outside


@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]), min_size=1, max_size=12))
@settings(max_examples=25)
def test_decide_normal__of_few_items_is_the_exact_decision(values: list[float]) -> None:
    probability = np.array(values)
    for loss in ("f1", "am", "g_tp_pr"):
        exact = expected_losses(probability, loss)
        found = decide_normal(probability, loss)
        assert exact[found.k] == pytest.approx(exact.min(), abs=1e-11)


def test_decide_normal__of_a_function() -> None:
    def half_found(u: Any, v: Any, p: Any) -> Any:
        return (p - u) ** 2 + 0.3 * (v - u)

    found = decide_normal(SHAPES["uniform"][:300], half_found)
    exact = expected_losses(SHAPES["uniform"][:300], half_found)
    assert exact[found.k] == pytest.approx(exact.min(), abs=1e-10)
    assert found.loss == "half_found"


@pytest.mark.parametrize("eta", [SHAPES["uniform"][:1000], SHAPES["uniform"][:1000] ** 3])
def test_decide_normal__of_a_function_with_a_step_is_close(eta: Floats) -> None:
    loss = Loss("most of them", lambda u, v, p: (u < 0.6 * p) + v / 8, True)
    exact = expected_losses(eta, loss, general=True)
    found = decide_normal(eta, loss)
    assert exact[found.k] - exact.min() < 1e-4
    assert found.expected_loss == pytest.approx(exact[found.k], abs=1e-4)


def test_decide_normal__is_as_decide() -> None:
    for name in ("uniform", "tied"):
        probability = SHAPES[name][:400]
        expected, found = decide(probability, "f1", "exact"), decide_normal(probability, "f1")
        assert (found.k, found.cut) == (expected.k, expected.cut)
        assert found.selected is not None
        np.testing.assert_array_equal(found.selected, expected.selected)


def _in_passes(
    probability: Floats, monkeypatch: pytest.MonkeyPatch, loss: str = "am", **limits: int
) -> tuple[Decision, list[str]]:
    """The decision from coarse bins that are cut finer, and the labels of its passes."""
    for name, value in {"FEW_ROWS": 50, **limits}.items():
        monkeypatch.setattr(large, name, value)
    labels: list[str] = []
    engine = Engine(ThreadScheduler(1), lambda event: labels.append(event.label) if event.finished else None)
    with engine:
        return decide_source(array_source({"probability": probability}, 64), loss, engine), labels


@pytest.mark.parametrize("shape", SHAPES)
def test_decide_source__from_coarse_bins_is_nearly_the_exact_decision(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probability = SHAPES[shape][:700]
    exact = expected_losses(probability, "am")
    found, labels = _in_passes(probability, monkeypatch)
    assert exact[found.k] - exact.min() < 1e-7
    assert found.expected_loss == pytest.approx(exact[found.k], abs=1e-7)
    assert found.cut.select(probability).sum() == found.k
    assert len(labels) <= 6


def test_decide_source__of_one_crowded_bin_cuts_it_until_its_rows_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    # All within 1e-9 of each other: bins of first cut know nothing of their order.
    probability = 0.3 - 1e-9 * np.random.default_rng(1).uniform(size=2000)
    found, labels = _in_passes(probability, monkeypatch, "g_mean")
    assert 0 < found.k < 2000
    assert found.cut.select(probability).sum() == found.k
    assert found.cut.tied == 1
    assert "refine the threshold" in labels
    assert len(labels) <= 8


def test_decide_source__looks_where_order_counts_though_the_cut_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    # The negatives are in one bin of first cut, from 1e-9 to 3e-4 below 1.
    probability = 1 - 10.0 ** np.random.default_rng(2).uniform(-9, -3.6, size=3000)
    exact = expected_losses(probability, "am")
    found, _ = _in_passes(probability, monkeypatch, FEW_ROWS=200)
    assert exact[found.k] - exact.min() < 1e-6


def test_decide_source__is_the_same_to_the_bit_for_any_threads_and_engine_blocks_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large, "FEW_ROWS", 1000)
    probability = RANDOM.beta(0.3, 3, size=40_000)  # more than have bins of their own
    decisions = []
    for threads in (1, 3):
        with thread_engine(threads) as engine:
            decisions.append(decide_source(array_source({"probability": probability}, 2**11), "f1", engine))
    assert decisions[0] == decisions[1]
    with thread_engine(2) as engine:
        other = decide_source(array_source({"probability": probability}, 2**13), "f1", engine)
    assert other.expected_loss == pytest.approx(decisions[0].expected_loss, rel=1e-12)
    assert abs(other.k - decisions[0].k) <= 2


def test_decide_normal__of_float32_is_of_those_numbers() -> None:
    probability = SHAPES["uniform"][:300].astype(np.float32)
    expected = decide_normal(probability.astype(np.float64), "f1")
    with thread_engine(1) as engine:
        found = decide_source(array_source({"probability": probability}), "f1", engine)
    assert replace(found, selected=None) == replace(expected, selected=None)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, math.inf])
def test_decide_normal__refuses_what_is_no_probability(wrong: float) -> None:
    values = np.full(3000, 0.2)
    values[2345] = wrong
    with (
        refused("bad-value", "Row 2345", wrong),
        thread_engine(2) as engine,
    ):
        decide_source(array_source({"probability": values}, 1024), "f1", engine)


def test_decide_normal__refuses_no_rows_and_unknown_losses() -> None:
    with refused("no-rows"):
        decide_normal([], "f1")
    with thread_engine(1) as engine, refused("no-rows"):
        decide_source(array_source({"probability": np.zeros(0)}), "f1", engine)
    with refused("unknown-name", "'f-one'"):
        decide_normal([0.5], "f-one")


def test_decide_normal__of_one_item() -> None:
    for probability, k in ((0.9, 1), (0.1, 0), (0.0, 0), (1.0, 1)):
        found = decide_normal([probability], Loss.f_beta(1))
        assert (found.n, found.k) == (1, k)
