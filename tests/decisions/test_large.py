"""Decisions for many items: against exact ones, whatever the blocks, threads and passes, and in known valleys."""

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
from protodask.decisions.large import best_number, decide_normal, decide_source
from protodask.decisions.ranked import Ranking
from protodask.engine import Engine, array_source, thread_engine
from protodask.engine.threads import ThreadScheduler
from protodask.evaluation.score_bins import bin_scores

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


@pytest.mark.slow  # half a minute: the general exact method at 1,200 items
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_decide_normal__costs_no_more_than_the_exact_decision(shape: str, loss: str) -> None:
    _check_against_exact(SHAPES[shape][:1200], loss)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", [*LOSS_NAMES, "f2", "f0.5"])
def test_decide_normal__costs_no_more_than_the_exact_decision_of_fewer(shape: str, loss: str) -> None:
    _check_against_exact(SHAPES[shape][::16], loss)


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


Integers = NDArray[np.int64]


def ranking_of(n: int) -> Ranking:
    probability = np.random.default_rng(0).beta(0.5, 2, size=n)
    return Ranking.of(bin_scores(probability, np.stack([probability, probability * (1 - probability)], axis=1)), 100.0)


@pytest.mark.parametrize("n", [1, 2, 7, 1000, 100_000])
@pytest.mark.parametrize("share", [0.0, 0.003, 0.4, 0.98, 1.0])
def test_best_number__of_one_valley_is_its_bottom(n: int, share: float) -> None:
    bottom = round(share * n)
    assert best_number(ranking_of(n), lambda k: ((k - bottom) / n) ** 2 + 1) == bottom


def test_best_number__of_several_valleys_is_the_deepest() -> None:
    def value(k: Integers) -> Floats:
        places, depths = np.array([[400], [31_234], [90_000]]), np.array([[0.2], [0.1], [0.15]])
        lowest: Floats = np.min(((k - places) / 1e5) ** 2 + depths, axis=0)
        return lowest

    assert best_number(ranking_of(100_000), value) == 31_234


def test_best_number__of_a_plain_is_the_smallest() -> None:
    rounding = np.random.default_rng(0).normal(scale=1e-16, size=10_001)
    assert best_number(ranking_of(10_000), lambda k: 0.5 + rounding[k]) == 0


def test_best_number__looks_at_few_places_of_many() -> None:
    seen: list[int] = []
    asked: list[int] = []

    def value(k: Integers) -> Floats:
        seen.extend(k.tolist())
        asked.append(len(k))
        return np.abs(k - 77_777) / 1e6

    assert best_number(ranking_of(1_000_000), value, [5]) == 77_777
    assert 5 in seen
    assert len(seen) == len(set(seen)) < 1000
    assert len(asked) < 10
