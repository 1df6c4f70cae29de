"""The area under the ROC curve of scores: exact, and within its bound where it is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.delong import delong
from sklearn.metrics import roc_auc_score
from support.errors import refused

from protodask.engine import Block, Engine, Source, array_source, thread_engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.engine.threads import ThreadScheduler
from protodask.errors import Code
from protodask.evaluation import AucResult, Interval, auc
from protodask.evaluation.auc import FIRST_PASS, GRID_SUMS, MOST_PASSES
from protodask.evaluation.rank_cells import cells_of_bins, cut_cells
from protodask.evaluation.roc import curve_bytes
from protodask.evaluation.score_bins import BoundedBins

Floats = NDArray[np.float64]
Numbers = NDArray[np.floating[Any]]
Rows = tuple[Numbers, NDArray[np.int64], Floats | None]

NEARLY = 1e-12


def by_pairs(score: NDArray[Any], label: NDArray[Any], weight: Floats | None = None) -> float:
    """All pairs, one by one; scikit-learn takes no infinite scores."""
    own = np.ones(len(score)) if weight is None else weight
    positive, negative = label == 1, label == 0
    won = (score[positive][:, None] > score[negative]) + 0.5 * (score[positive][:, None] == score[negative])
    return float(own[positive] @ won @ own[negative] / (own[positive].sum() * own[negative].sum()))


def in_bins(rows: Rows, share: float = 0.5, block_rows: int = 64, threads: int = 2, **settings: Any) -> AucResult:
    """The area with a share of the memory that an exact one needs, so that bins have to do."""
    score, label, weight = rows
    arrays: dict[str, NDArray[Any]] = {"score": score, "label": label}
    if weight is not None:
        arrays["weight"] = weight
    with thread_engine(threads, memory_bytes=int(share * curve_bytes(len(score), 2))) as engine:
        return auc(array_source(arrays, block_rows), engine=engine, **settings)


@st.composite
def drawn_rows(draw: st.DrawFn) -> Rows:
    """Scores of all sizes with many ties, both classes among them."""
    size = draw(st.integers(2, 60))
    values = st.one_of(
        st.sampled_from([0.0, -0.0, 0.5, 1.0, math.inf, -math.inf, 5e-324, -5e-324]), st.floats(allow_nan=False)
    )
    score = np.array(draw(st.lists(values, min_size=size, max_size=size)))
    label = np.array([0, 1, *draw(st.lists(st.integers(0, 1), min_size=size - 2, max_size=size - 2))])
    weights = st.sampled_from([0.25, 1.0, 3.0, 0.1])
    weight = draw(st.none() | st.lists(weights, min_size=size, max_size=size).map(np.array))
    return score, label, weight


@settings(max_examples=50)
@given(rows=drawn_rows())
def test_auc__is_exact_where_it_fits(rows: Rows) -> None:
    score, label, weight = rows
    found = auc(score, label, weight)
    assert found.value == pytest.approx(by_pairs(score, label, weight), abs=NEARLY)
    assert (found.error_bound, found.passes) == (0.0, 1)
    assert (found.positives, found.negatives) == (np.sum(label == 1), np.sum(label == 0))


@settings(max_examples=40)
@given(rows=drawn_rows())
def test_auc__in_bins_lies_within_its_bound(rows: Rows) -> None:
    found = in_bins(rows, block_rows=8)
    assert abs(found.value - by_pairs(*rows)) <= found.error_bound + NEARLY
    assert 0 <= found.low <= found.value <= found.high <= 1


def random_rows(size: int, seed: int, weighted: bool = False, apart: float = 1.0) -> Rows:
    random = np.random.default_rng(seed)
    label = (random.random(size) < 0.3).astype(np.int64)
    score = 1 / (1 + np.exp(-random.normal(size=size) - apart * label))
    return score, label, random.exponential(size=size) if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [2, 16])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_auc__is_that_of_scikit_learn(weighted: bool, decimals: int, dtype: Any) -> None:
    score, label, weight = random_rows(5000, 0, weighted)
    score = score.round(decimals).astype(dtype)
    arrays: dict[str, NDArray[Any]] = {"score": score, "label": label}
    if weight is not None:
        arrays["weight"] = weight
    found = auc(array_source(arrays, 512))
    assert found.value == pytest.approx(roc_auc_score(label, score, sample_weight=weight), abs=NEARLY)


def clumped(random: np.random.Generator, size: int) -> Numbers:
    return 0.5 + 1e-13 * random.integers(0, 4000, size)


def at_two_scales(random: np.random.Generator, size: int) -> Numbers:
    near = 0.5 + 1e-14 * random.integers(0, 90, size)
    return np.where(random.random(size) < 0.5, near, 0.5 + 1e-5 * random.random(size))


SHAPES: dict[str, Callable[[np.random.Generator, int], Numbers]] = {
    "even": lambda random, size: random.random(size),
    "in one bin": clumped,
    "in one bin, at two scales": at_two_scales,
    "all tied": lambda random, size: np.full(size, 0.3),
    "two neighbouring scores": lambda random, size: np.where(random.random(size) < 0.5, 0.3, np.nextafter(0.3, 1)),
    "two far scores": lambda random, size: np.where(random.random(size) < 0.5, -1e300, 1e300),
    "denormal": lambda random, size: 5e-324 * random.integers(0, 10**6, size),
    "of all sizes": lambda random, size: np.exp(random.uniform(-700, 700, size)) * random.choice([-1, 1], size),
    "often infinite": lambda random, size: random.choice([-np.inf, 0.1, 0.2, np.inf], size),
    "float32": lambda random, size: random.random(size).astype(np.float32),
    "rare high ones": lambda random, size: np.where(random.random(size) < 1e-3, 1.0, 1e-4 * random.random(size)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_auc__in_bins_lies_within_its_bound_for_any_shape(shape: str, weighted: bool) -> None:
    random = np.random.default_rng(1)
    size = 20_000
    score = SHAPES[shape](random, size)
    order = np.argsort(np.argsort(score, kind="stable"), kind="stable") / size
    label = (random.random(size) < 0.2 + 0.6 * order).astype(np.int64)
    weight = random.exponential(size=size) ** 3 if weighted else None
    found = in_bins((score, label, weight), block_rows=1024)
    ranks = np.unique(score, return_inverse=True)[1]  # the same order, in numbers that scikit-learn takes
    wanted = roc_auc_score(label, ranks, sample_weight=weight)
    assert abs(found.value - wanted) <= found.error_bound + NEARLY
    # Some 400 places in a pass are few for scores at two scales, which are told apart one after the other.
    assert found.error_bound < (0.2 if shape == "in one bin, at two scales" else 2e-3)
    if shape in ("all tied", "two neighbouring scores", "two far scores", "often infinite"):
        assert found.error_bound == 0
        assert found.value == pytest.approx(wanted, abs=NEARLY)


def test_auc__bound_becomes_as_small_as_is_asked_for() -> None:
    rows = random_rows(200_000, 2)
    wanted = roc_auc_score(rows[1], rows[0])
    passes = []
    for most_error in (0.1, 2e-4, 9e-5):
        found = in_bins(rows, 0.5, 4096, most_error=most_error)
        assert abs(found.value - wanted) <= found.error_bound <= most_error
        passes.append(found.passes)
    assert passes == [1, 2, 3]


@pytest.mark.slow
def test_auc__ends_with_the_bound_it_has() -> None:
    rows = random_rows(20_000, 3)
    found = in_bins(rows, 0.1, 1024, most_error=0.0)
    assert found.passes == MOST_PASSES
    assert abs(found.value - roc_auc_score(rows[1], rows[0])) <= found.error_bound
    assert 0 < found.error_bound < 0.01
    around = found.deviation
    assert around.low == pytest.approx(found.value - found.half_width - found.error_bound)
    assert around.high == pytest.approx(found.value + found.half_width + found.error_bound)
    wanted = delong(rows[0].astype(float), rows[1] == 1)
    assert wanted is not None
    assert abs(found.low - wanted[0] + found.error_bound) < 2 * found.error_bound
    assert abs(found.high - wanted[1] - found.error_bound) < 2 * found.error_bound


class CountingScheduler(ThreadScheduler):
    """Counts submissions."""

    submissions = 0

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        self.submissions += 1
        return super().run(work, groups, advance)


def test_auc__memory_decides_between_exact_and_bins() -> None:
    score, label, _ = random_rows(5000, 4)
    for less, exact in ((0, True), (1, False)):
        scheduler = CountingScheduler(2, curve_bytes(5000, 2) - less)
        with Engine(scheduler) as engine:
            found = auc(score, label, engine=engine)
        assert (found.error_bound == 0) == exact
        assert found.passes == scheduler.submissions


@pytest.mark.parametrize("share", [2.0, 0.3])
def test_auc__does_not_depend_on_blocks_and_threads(share: float) -> None:
    # Few bins, of which there are as many however many tasks there are; rows that count once add up exactly.
    rows = random_rows(3000, 5)
    small = 0.02 * share if share < 1 else share
    found = {
        in_bins(rows, small, block_rows, threads).value for block_rows, threads in ((64, 1), (64, 2), (64, 5), (512, 2))
    }
    assert len(found) == 1


@pytest.mark.parametrize("share", [2.0, 0.3])
def test_auc__weighted_does_not_depend_on_threads(share: float) -> None:
    rows = random_rows(3000, 6, weighted=True)
    small = 0.02 * share if share < 1 else share
    assert len({in_bins(rows, small, 64, threads) for threads in (1, 2, 5)}) == 1


@settings(max_examples=40)
@given(rows=drawn_rows(), first=st.integers(0, 60), second=st.integers(0, 60), most=st.integers(2, 8))
def test_reductions__are_monoids(rows: Rows, first: int, second: int, most: int) -> None:
    score, label, _ = rows
    weight = np.where(np.arange(len(score)) % 3, 1.0, 0.25)  # adds up exactly
    low, high = sorted((min(first, len(score)), min(second, len(score))))

    def block(rows: slice) -> Block:
        return Block(0, 0, {"score": score[rows], "label": label[rows], "weight": weight[rows]})

    parts = [block(slice(0, low)), block(slice(low, high)), block(slice(high, None))]
    whole = block(slice(None))
    curve = FIRST_PASS.map(whole, most).curve
    assert isinstance(curve, BoundedBins)
    grid = cut_cells(cells_of_bins(curve.bins), 0.0, 64, 1)
    reductions: list[tuple[Any, tuple[Any, ...]]] = [(FIRST_PASS, (None,)), (FIRST_PASS, (most,))]
    if grid is not None:
        reductions.append((GRID_SUMS, (grid,)))
    for reduction, args in reductions:
        a, b, c = (reduction.map(part, *args) for part in parts)
        wanted = asdict(reduction.map(whole, *args))
        for merged in (
            reduction.merge(reduction.merge(a, b), c),
            reduction.merge(a, reduction.merge(b, c)),
        ):
            np.testing.assert_equal(asdict(merged), wanted)


def test_auc__takes_arrays_of_every_kind(tmp_path: Path) -> None:
    score, label, weight = random_rows(4000, 7, weighted=True)
    assert weight is not None
    inclusion = np.random.default_rng(8).uniform(0.2, 1.0, 4000)
    wanted = roc_auc_score(label, score, sample_weight=weight / inclusion)
    stored = zarr.create_array(str(tmp_path / "score.zarr"), data=score, chunks=(512,))
    sources: list[tuple[Any, ...]] = [
        (score, label, weight),
        (da.from_array(score, chunks=700), da.from_array(label, chunks=900), weight),
        (stored, label.astype(bool), weight),
        (str(tmp_path / "score.zarr"), label.astype(np.float32), weight),
        (score.tolist(), label.tolist(), weight.tolist()),
    ]
    for memory in (None, 100_000):
        with thread_engine(2, memory) as engine:
            for arrays in sources:
                found = auc(*arrays, inclusion=inclusion, engine=engine)
                assert abs(found.value - wanted) <= found.error_bound + NEARLY


def test_auc__is_an_interval_around_its_value() -> None:
    score, label, _ = random_rows(1000, 9)
    found = auc(score, label, confidence=0.9)
    assert isinstance(found, Interval)
    rho = label.mean()
    half = math.sqrt(math.log(2 / 0.1) / (2 * rho * (1 - rho) * 1000))
    assert found.half_width == pytest.approx(half, rel=1e-12)
    around = found.deviation
    assert (around.low, around.high) == pytest.approx((found.value - half, found.value + half))
    assert (found.low, found.high) == pytest.approx(delong(score.astype(float), label == 1, 0.9))
    few = auc([0.1, 0.9], [0, 1])
    assert (few.value, few.low, few.high) == (1.0, 0.0, 1.0)


def test_auc__constant_rates_within_classes_leave_value_and_interval_alone() -> None:
    score, label, _ = random_rows(1000, 10)
    plain, weighted = auc(score, label), auc(score, label, inclusion=np.where(label == 1, 0.7, 0.01))
    assert weighted.value == pytest.approx(plain.value, rel=1e-12)
    assert weighted.half_width == pytest.approx(plain.half_width, rel=1e-12)
    varying = auc(score, label, inclusion=np.where(score < 0.5, 0.7, 0.01))
    assert varying.half_width > 2 * plain.half_width
    assert (weighted.low, weighted.high) == pytest.approx((plain.low, plain.high), rel=1e-12)
    assert (varying.low, varying.high) == (varying.deviation.low, varying.deviation.high)


def test_auc__rows_without_weight_do_not_count() -> None:
    score, label, _ = random_rows(300, 11)
    weight = np.arange(300) % 2.0
    kept = weight > 0
    for memory in (None, 1000):
        with thread_engine(1, memory) as engine:
            assert auc(score, label, weight, engine=engine) == auc(score[kept], label[kept], engine=engine)


@pytest.mark.parametrize("memory", [None, 1000])
def test_auc__is_nan_where_one_class_only_occurs(memory: int | None) -> None:
    with thread_engine(1, memory) as engine:
        found = auc(np.arange(100.0), np.ones(100), engine=engine)
    assert all(math.isnan(value) for value in (found.value, found.low, found.high, found.half_width))
    assert (found.error_bound, found.positives, found.negatives) == (0.0, 100, 0)


def test_auc__heavy_weights_do_not_overflow() -> None:
    score, label, _ = random_rows(300, 12)
    for memory in (None, 5000):
        with thread_engine(1, memory) as engine:
            found = auc(score, label, np.full(300, 1e150), engine=engine)
            assert abs(found.value - roc_auc_score(label, score)) <= found.error_bound + NEARLY


GOOD = np.array([0.1, 0.2, 0.3])
LABELS = np.array([0, 1, 0])


def _source(**arrays: Any) -> Source:
    return array_source({name: np.asarray(array) for name, array in arrays.items()})


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ((GOOD,), "setting-missing", ("score", "label")),
        ((np.array([0.1, np.nan, 0.2]), LABELS), "bad-value", ("row 1", "score")),
        ((np.array(["a", "b", "c"]), LABELS), "wrong-type", ("<U1", "scores")),
        ((GOOD, np.array([0, 1, 2])), "bad-value", ("row 2", "label", 0, 1)),
        ((GOOD, np.array([0, 1, np.nan])), "bad-value", ("row 2", "label", 0, 1)),
        ((GOOD, np.array(["no", "yes", "no"])), "wrong-type", ("<U3", "labels")),
        ((GOOD, LABELS[:2]), "wrong-shape", ("(2,)", "(3,)", "label", "score")),
        ((GOOD[:, None], LABELS), "wrong-shape", ("(3, 1)", "score")),
        (
            (GOOD, LABELS, np.array([1, -1, 1])),
            "bad-value",
            ("row 1", "weight"),
        ),
        (
            (GOOD, LABELS, np.array([1, np.inf, 1])),
            "bad-value",
            ("row 1", "weight"),
        ),
        ((GOOD, LABELS, np.full(3, 1e308)), "overflow", ("weights",)),
        ((np.zeros(3), LABELS, np.full(3, 1e308)), "overflow", ("weights",)),
        ((GOOD, LABELS, np.zeros(3)), "no-rows", ("weight",)),
        ((GOOD[:0], LABELS[:0]), "no-rows", ()),
        ((_source(score=GOOD, label=LABELS), LABELS), "settings-conflict", ("label",)),
        ((_source(score=GOOD, target=LABELS),), "column-missing", ('"score"', '"label"', "target")),
    ],
)
def test_auc__says_what_is_wrong_with_its_arguments(
    arguments: tuple[Any, ...], code: Code, facts: tuple[object, ...]
) -> None:
    with refused(code, *facts):
        auc(*arguments)


@pytest.mark.parametrize(
    ("settings", "code", "facts"),
    [
        ({"confidence": 1.0}, "bad-setting", ("between 0 and 1", "confidence", "1.0")),
        ({"most_error": -1.0}, "bad-setting", ("from 0 to below 1", "most_error", "-1.0")),
        ({"most_error": math.nan}, "bad-setting", ("from 0 to below 1", "most_error", "nan")),
        ({"inclusion": [0.5, 0.0, 1.0]}, "bad-value", ("row 1", "above 0 and at most 1", "inclusion")),
        ({"inclusion": [0.5, 1.5, 1.0]}, "bad-value", ("row 1", "above 0 and at most 1", "inclusion")),
    ],
)
def test_auc__says_what_is_wrong_with_its_settings(
    settings: dict[str, Any], code: Code, facts: tuple[object, ...]
) -> None:
    with refused(code, *facts):
        auc(GOOD, LABELS, **settings)


@pytest.mark.parametrize("weight", [5e-324, 1e-310, 1e-170, 1e200, 1e300])
def test_auc__is_that_of_one_however_small_or_large_the_weights(weight: float) -> None:
    score, label = np.array([0.1, 0.4, 0.4, 0.9, 0.2, 0.8]), np.array([0, 1, 0, 1, 1, 0])
    found = auc(score, label, np.full(6, weight))
    assert found.value == pytest.approx(by_pairs(score, label), abs=1e-12)
    assert found.low == 0
    assert found.high == 1


@pytest.mark.parametrize(
    ("settings", "code", "facts"),
    [
        ({"weight": ["a", "b"]}, "wrong-type", ("<U1", "weight")),
        ({"weight": np.ma.array([1.0, 2.0], mask=[True, False])}, "bad-value", ("weight",)),
        ({"inclusion": [5e-324, 1.0]}, "bad-value", ("row 0", "weight")),
        ({"inclusion": ["a", "b"]}, "wrong-type", ("<U1", "inclusion")),
        ({"inclusion": [None, 1.0]}, "wrong-type", ("object", "inclusion")),
        ({"most_error": "x"}, "bad-setting", ("'x'", "from 0 to below 1", "most_error")),
        ({"confidence": "x"}, "bad-setting", ("between 0 and 1", "confidence", "'x'")),
        ({"confidence": None}, "bad-setting", ("between 0 and 1", "confidence", None)),
    ],
)
def test_auc__refuses_what_is_no_number(settings: dict[str, Any], code: Code, facts: tuple[object, ...]) -> None:
    with refused(code, *facts):
        auc([0.1, 0.9], [0, 1], **settings)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("large", [2**53, 2**60, 2**63 - 2])
def test_auc__refuses_whole_numbers_that_rounding_would_tie(dtype: type[np.integer[Any]], large: int) -> None:
    with refused("bad-value", "row 1", "Subtract", "2^53"):
        auc(np.array([2**52, large + 1], dtype=dtype), [0, 1])
    negative = np.array([2**52, -large - 1], dtype=np.int64)
    with refused("bad-value", "row 1"):
        auc(negative, [0, 1])


def test_auc__takes_whole_numbers_that_float64_holds() -> None:
    exact = [-(2**63), -(2**53), 2**53 - 1, 2**53, 2**53 + 2, 2**60, 2**60 + 256]
    assert auc(np.array(exact), [0, 0, 0, 0, 0, 0, 1]).value == 1
    assert auc(np.array([2**63, 2**63 + 2048], dtype=np.uint64), [0, 1]).value == 1


def test_auc__refuses_scores_of_several_lengths() -> None:
    with refused("wrong-shape", "one length"):
        auc([[1.0], [1.0, 2.0]], [0, 1])
