"""The oracle itself, against hand-computed cases, finite differences, and what the model must satisfy."""

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reference.classifier import (
    Batch,
    Model,
    Penalty,
    allocate,
    batch_mass,
    bins,
    class_weights,
    dense_objective,
    draw_candidates,
    familiarity,
    finite_difference,
    gradient,
    kernel,
    loss_weights,
    merge_prototypes,
    minimum_count,
    mix,
    moments,
    objective,
    penalty_value,
    priority,
    probabilities,
    projected,
    unscaled,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """One round of batches to be fitted, with everything its objective depends on."""

    v: Floats
    w: Floats
    features: Floats
    target: Integers
    weights: Floats
    candidates: Integers
    batch: Integers
    q_previous: Floats
    penalty: Penalty
    leave_one_out: bool = False

    @property
    def data(self) -> tuple[Floats, Integers, Floats, Integers, Integers, Floats, Penalty, bool]:
        return (
            self.features, self.target, self.weights, self.candidates, self.batch, self.q_previous, self.penalty,
            self.leave_one_out,
        )  # fmt: skip

    def value(self, v: Floats, w: Floats) -> float:
        return objective(v, w, *self.data)

    def gradient(self) -> tuple[Floats, Floats]:
        return gradient(self.v, self.w, *self.data)


def make_case(seed: int, n_rows: int, n_features: int, n_classes: int, n_candidates: int, n_batches: int = 1) -> Case:
    rng = np.random.default_rng(seed)
    target = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n_rows - n_classes)])
    # The first row of every class stays out of the draw and has a weight, so that no class is used up.
    candidates = np.sort(rng.choice(np.arange(n_classes, n_rows), n_candidates, replace=False))
    weights = rng.uniform(0.2, 3.0, n_rows)
    weights[n_classes:][rng.random(n_rows - n_classes) < 0.2] = 0.0
    v, w = rng.uniform(0.0, 2.0, (n_batches, n_features)), rng.uniform(0.0, 2.0, n_candidates)
    v[rng.random(v.shape) < 0.2] = 0.0
    w[rng.random(n_candidates) < 0.2] = 0.0
    return Case(
        v,
        w,
        rng.normal(size=(n_rows, n_features)),
        target,
        weights,
        candidates,
        rng.integers(0, n_batches, n_candidates),
        rng.uniform(0.05, 1.0, (n_rows, n_classes)),
        Penalty(*rng.uniform(0.0, 0.5, 2), *rng.uniform(0.0, 1.0, 2)),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n_classes = draw(st.integers(2, 5))
    n_candidates = draw(st.integers(1, 5))
    n_rows = n_classes + n_candidates + draw(st.integers(0, 6))
    seed, n_features, n_batches = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    case = make_case(seed, n_rows, n_features, n_classes, n_candidates, n_batches)
    return replace(case, leave_one_out=draw(st.booleans()))


@settings(max_examples=25)
@given(cases())
def test_gradient__is_the_slope_of_the_objective(case: Case) -> None:
    by_v, by_w = case.gradient()
    slope_v = finite_difference(lambda v: case.value(v.reshape(case.v.shape), case.w), case.v.ravel())
    slope_w = finite_difference(lambda w: case.value(case.v, w), case.w)
    np.testing.assert_allclose(by_v.ravel(), slope_v, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(by_w, slope_w, rtol=1e-6, atol=1e-8)


@settings(max_examples=50)
@given(cases())
def test_dense_objective__equals_the_loops(case: Case) -> None:
    value, by_v, by_w = dense_objective(*case.data)(case.v, case.w)
    loop_v, loop_w = case.gradient()
    assert value == pytest.approx(case.value(case.v, case.w), rel=1e-13)
    np.testing.assert_allclose(by_v, loop_v, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(by_w, loop_w, rtol=1e-11, atol=1e-13)


def test_finite_difference__is_exact_on_a_quadratic() -> None:
    slope = finite_difference(lambda x: float(x[0] ** 2 - 3 * x[0] * x[1]), np.array([2.0, 5.0]))
    np.testing.assert_allclose(slope, [2 * 2 - 3 * 5, -3 * 2], rtol=1e-9)


def test_objective__of_one_candidate_by_hand() -> None:
    # Class 0: rows 0, 1; class 1: rows 2, 3, 4. Row 1 is the candidate, so class 0 counts 2 / (2 - 1) times.
    features = np.array([[0.0], [1.0], [2.0], [1.0], [5.0]])
    target = np.array([0, 0, 1, 1, 1])
    q_previous = np.tile([0.4, 0.6], (5, 1))
    near = 3.0 * math.exp(-0.5 * 0.5**2)
    expected = -(2 / 1 / 5) * math.log((0.4 + near) / (1 + near))
    for distance in (1.0, 0.0, 4.0):
        mass = 3.0 * math.exp(-0.5 * (0.5 * distance) ** 2)
        expected -= (1 / 5) * math.log(0.6 / (1 + mass))
    expected += 0.1 * (0.25 / 2 * 0.5**2 + 0.75 * 0.5) + 0.01 * (0.5 / 2 * 3.0**2 + 0.5 * 3.0)
    data = (features, target, np.ones(5), np.array([1]), np.array([0]), q_previous, Penalty(0.1, 0.01, 0.25, 0.5))
    assert objective(np.array([[0.5]]), np.array([3.0]), *data) == pytest.approx(expected, rel=1e-14)


def test_objective__of_two_batches_by_hand() -> None:
    # The candidates are rows 1 (class 0, v = 0.5) and 4 (class 1, v = 2).
    features = np.array([[0.0], [1.0], [2.0], [1.0], [5.0]])
    target = np.array([0, 0, 1, 1, 1])
    q_previous = np.tile([0.4, 0.6], (5, 1))
    expected = 0.0
    for x, k in ((0.0, 0), (2.0, 1), (1.0, 1)):
        first = 3.0 * math.exp(-0.5 * (0.5 * (x - 1)) ** 2)
        second = 4.0 * math.exp(-0.5 * (2.0 * (x - 5)) ** 2)
        own = 0.4 + first if k == 0 else 0.6 + second
        expected -= (2 / 1 / 5 if k == 0 else 3 / 2 / 5) * math.log(own / (1 + first + second))
    data = (features, target, np.ones(5), np.array([1, 4]), np.array([0, 1]), q_previous, Penalty(0, 0, 0, 0))
    assert objective(np.array([[0.5], [2.0]]), np.array([3.0, 4.0]), *data) == pytest.approx(expected, rel=1e-14)


@settings(max_examples=25)
@given(cases(), st.data())
def test_objective__a_weight_of_two_is_a_row_repeated(case: Case, data: st.DataObject) -> None:
    times = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(case.target), max_size=len(case.target))))
    times[: case.q_previous.shape[1]] = 1
    weighted = replace(case, weights=times.astype(np.float64), leave_one_out=False)

    # Copies of a candidate leave the scored rows with it; as prototypes they weigh nothing.
    copies = np.repeat(np.arange(len(times)), times)
    first = np.searchsorted(copies, case.candidates)
    present = times[case.candidates] > 0
    extra = first[times[case.candidates] == 2] + 1
    repeated = Case(
        case.v,
        np.concatenate([case.w[present], np.zeros(len(extra))]),
        case.features[copies],
        case.target[copies],
        np.ones(len(copies)),
        np.concatenate([first[present], extra]),
        np.concatenate([case.batch[present], np.zeros(len(extra), dtype=np.int64)]),
        case.q_previous[copies],
        case.penalty,
    )
    # A row without weight is never a candidate: as one that weighs nothing it changes nothing.
    kept = np.where(present, case.w, 0.0)
    assert weighted.value(case.v, kept) == pytest.approx(repeated.value(case.v, repeated.w), rel=1e-12)


def test_objective__of_all_rows_but_what_each_says_of_itself_is_a_mean_over_models_without_it() -> None:
    case = replace(make_case(seed=5, n_rows=14, n_features=2, n_classes=2, n_candidates=6), leave_one_out=True)
    value = 0.0
    for n, s in enumerate(case.weights):
        others = case.candidates != n
        alone = replace(
            case,
            weights=np.where(np.arange(14) == n, s, 0.0),
            candidates=case.candidates[others],
            batch=case.batch[others],
        )
        if s > 0:
            none = replace(alone, penalty=Penalty(0, 0, 0, 0))
            value += s / case.weights.sum() * none.value(case.v, case.w[others])
    assert case.value(case.v, case.w) == pytest.approx(value + penalty_value(case.v.ravel(), case.w, case.penalty))


def test_loss_weights__keep_the_weight_of_every_class() -> None:
    case = make_case(seed=3, n_rows=30, n_features=2, n_classes=3, n_candidates=9)
    r = loss_weights(case.target, case.weights, case.candidates, 3)
    assert not r[case.candidates].any()
    share = class_weights(case.target, case.weights, 3) / case.weights.sum()
    np.testing.assert_allclose(class_weights(case.target, r, 3), share, rtol=1e-13)


def test_kernel__by_hand() -> None:
    assert kernel(np.array([2.0, 0.0, 1.0]), np.array([0.5, 7.0, -1.0])) == pytest.approx(math.exp(-1.0), rel=1e-15)


def make_model(seed: int, n_batches: int = 2) -> Model:
    rng = np.random.default_rng(seed)
    batches = tuple(
        Batch(
            rng.uniform(0.1, 2, 3),
            rng.normal(size=(4, 3)),
            np.array([0, 0, 1, 2]),
            rng.uniform(0.1, 2, 4),
            np.arange(4),
        )
        for _ in range(n_batches)
    )
    return Model(np.array([0.5, 0.3, 0.2]), rng.normal(size=3), rng.uniform(0.5, 2, 3), batches)


def test_probabilities__are_a_distribution() -> None:
    p = probabilities(make_model(0), np.random.default_rng(1).normal(size=(20, 3)))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
    assert (p > 0).all()


def test_probabilities__of_no_batch_are_the_marginals() -> None:
    model, x = make_model(0), np.random.default_rng(1).normal(size=(5, 3))
    np.testing.assert_allclose(probabilities(model, x, 0), np.tile(model.marginals, (5, 1)), rtol=1e-15)


def test_probabilities__far_from_all_prototypes_are_the_marginals() -> None:
    model, x = make_model(0), np.full((1, 3), 1e4)
    np.testing.assert_allclose(probabilities(model, x)[0], model.marginals, rtol=1e-15)
    np.testing.assert_allclose(familiarity(model, x), 0.0, atol=1e-15)


def test_unscaled__of_some_batches_is_that_of_the_shorter_model() -> None:
    model, x = make_model(0, n_batches=3), np.random.default_rng(1).normal(size=(5, 3))
    for count in range(4):
        shorter = replace(model, batches=model.batches[:count])
        np.testing.assert_array_equal(unscaled(model, x, count), unscaled(shorter, x))


def test_familiarity__at_a_prototype_holds_its_weight() -> None:
    batch = Batch(np.array([100.0]), np.array([[0.0], [1.0]]), np.array([0, 1]), np.array([2.5, 4.0]), np.array([3, 8]))
    model = Model(np.array([0.5, 0.5]), np.array([10.0]), np.array([2.0]), (batch,))
    np.testing.assert_allclose(familiarity(model, np.array([[10.0], [12.0]])), [2.5, 4.0], rtol=1e-12)
    np.testing.assert_allclose(unscaled(model, np.array([[12.0]])), [[0.5, 4.5]], rtol=1e-12)


def test_mix__gives_the_published_stream_of_splitmix64() -> None:
    # The first outputs of splitmix64 for the seed 0 are the finaliser of one, two and three increments.
    increment = 0x9E3779B97F4A7C15
    stream = [mix(step * increment % 2**64) for step in (1, 2, 3)]
    assert stream == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_priority__depends_on_seed_batch_and_row_alone() -> None:
    whole = priority(5, 2, range(50))
    assert priority(5, 2, range(20, 30)) == whole[20:30]
    assert priority(5 + 2**64, 2, [7]) == [whole[7]]
    assert len({*whole, *priority(5, 1, range(50)), *priority(6, 2, range(50)), *priority(-5, 2, range(50))}) == 200
    assert all(0 <= rank < 2**64 for rank in whole)


def test_priority__draws_every_row_equally_often() -> None:
    rows, drawn, draws = 20, 5, 2000
    counts = np.zeros(rows)
    for batch in range(1, draws + 1):
        ranks = priority(11, batch, range(rows))
        counts[sorted(range(rows), key=lambda row: ranks[row])[:drawn]] += 1
    # The variance of a count is draws * p * (1 - p) with p = drawn / rows, and the counts add up to a constant.
    share = drawn / rows
    statistic = ((counts - draws * share) ** 2 / (draws * share * (1 - share))).sum() * (rows - 1) / rows
    assert statistic < 43.8, "the 0.1 per cent quantile of chi-squared with 19 degrees of freedom"


def remains(count: int, max_fraction: float) -> bool:
    """Whether each split of a class into two bins leaves a candidate and a scored row, were bins drawn to the full."""
    for correct in range(count + 1):
        drawn = sum(math.floor(max_fraction * size + 0.5) for size in (correct, count - correct))
        if drawn < 1 or drawn > count - 1:
            return False
    return True


@pytest.mark.parametrize("max_fraction", [0.01, 0.1, 0.25, 0.3, 0.5, 0.6, 0.75, 0.8, 0.9, 0.95, 0.99])
def test_minimum_count__is_the_smallest_that_always_leaves_both(max_fraction: float) -> None:
    smallest = minimum_count(max_fraction)
    assert all(remains(count, max_fraction) for count in range(smallest, smallest + 12))
    assert not any(remains(count, max_fraction) for count in range(smallest))


def test_minimum_count__for_one_half_is_three() -> None:
    assert minimum_count(0.5) == 3


@pytest.mark.parametrize(
    ("sizes", "wanted", "max_fraction", "expected"),
    [
        ([100, 100, 100, 100], 40, 0.5, [10, 10, 10, 10]),
        ([100, 100, 100, 100], 42, 0.5, [11, 11, 11, 11]),  # 10.5 rounds up
        ([100, 0, 0, 100], 40, 0.5, [20, 0, 0, 20]),
        ([4, 100, 100, 100], 32, 0.5, [2, 10, 10, 10]),
        ([100, 4, 3, 100], 43, 0.5, [20, 2, 2, 20]),  # 1.5 is taken of three; then 41.5, and 39.5 for two
        ([5, 1, 3, 7], 1000, 0.5, [3, 1, 2, 4]),  # 2.5, 0.5, 1.5 and 3.5, each half up
        ([10, 10, 10, 10], 20, 0.5, [5, 5, 5, 5]),
        ([0, 0, 0, 0], 8, 0.5, [0, 0, 0, 0]),
        ([6, 6], 3, 0.25, [2, 2]),  # an even share of exactly eta g = 1.5
        ([8, 2, 9, 2], 12, 0.5, [4, 1, 5, 1]),  # 1, 1, then 5 a bin is more than 4; 6 more than 4.5
    ],
)
def test_allocate__by_hand(sizes: list[int], wanted: int, max_fraction: float, expected: list[int]) -> None:
    assert allocate(sizes, wanted, max_fraction) == expected


@given(
    st.lists(st.integers(0, 200), min_size=2, max_size=12), st.integers(1, 500), st.sampled_from([0.1, 0.3, 0.5, 0.8])
)
def test_allocate__is_monotone_and_bounded(sizes: list[int], wanted: int, max_fraction: float) -> None:
    drawn = allocate(sizes, wanted, max_fraction)
    assert all(h <= math.floor(max_fraction * size + 0.5) for h, size in zip(drawn, sizes, strict=True))
    assert abs(sum(drawn) - min(wanted, max_fraction * sum(sizes))) <= len(sizes) / 2 + 1e-9
    by_size = sorted(zip(sizes, drawn, strict=True))
    assert [h for _, h in by_size] == sorted(h for _, h in by_size)


def test_bins__for_the_marginals_hold_the_most_frequent_class_as_correct() -> None:
    target = np.array([0, 1, 1, 2, 1])
    q = np.tile([0.2, 0.6, 0.2], (5, 1))
    assert bins(q, target, np.array([1, 1, 0, 1, 2.0])).tolist() == [0, 3, -1, 4, 3]


def test_bins__with_tied_classes_hold_no_sample_as_correct() -> None:
    assert bins(np.tile([0.5, 0.5], (2, 1)), np.array([0, 1]), np.ones(2)).tolist() == [0, 2]


def test_draw_candidates__keeps_the_smallest_priorities_of_every_bin() -> None:
    rng = np.random.default_rng(4)
    target, weights = rng.integers(0, 3, 90), rng.integers(0, 3, 90).astype(np.float64)
    q = rng.uniform(0.1, 1, (90, 3))
    rows = draw_candidates(q, target, weights, 30, 0.5, seed=9, batch=2)
    assert (weights[rows] > 0).all()
    assert rows.tolist() == sorted(set(rows.tolist()), key=lambda row: (target[row], row))
    assert abs(len(rows) - 30) <= 3
    ranks, bin_of_row = np.array(priority(9, 2, range(90)), dtype=np.uint64), bins(q, target, weights)
    chosen = np.isin(np.arange(90), rows)
    for number in range(6):
        inside = bin_of_row == number
        assert ranks[inside & chosen].max() < ranks[inside & ~chosen].min()
    assert rows.tolist() != draw_candidates(q, target, weights, 30, 0.5, seed=9, batch=3).tolist()


def test_merge_prototypes__joins_chains_within_a_class() -> None:
    v = np.array([2.0, 0.0])
    # Scaled by 2: rows 7, 4, 9 are 0.6e-6 apart from one to the next, row 12 is of the other class, row 5 far away.
    prototypes = np.array([[0.0, 5.0], [0.3e-6, 1.0], [0.6e-6, 2.0], [0.0, 5.0], [1.0, 5.0], [0.0, 5.0]])
    rows, classes = np.array([9, 7, 4, 12, 5, 1]), np.array([0, 0, 0, 1, 0, 0])
    batch = merge_prototypes(v, np.array([1.0, 2.0, 4.0, 8.0, 16.0, 0.0]), prototypes, classes, rows)
    assert batch.row.tolist() == [4, 5, 12]
    assert batch.prototype_weight.tolist() == [7.0, 16.0, 8.0]
    assert batch.prototype_class.tolist() == [0, 0, 1]
    np.testing.assert_array_equal(batch.prototypes, prototypes[[2, 4, 3]])
    assert batch.feature_index.tolist() == [0]


def test_merge_prototypes__scales_before_it_compares() -> None:
    prototypes, rows, classes = np.array([[0.0], [1e-4]]), np.arange(2), np.zeros(2, dtype=np.int64)
    assert len(merge_prototypes(np.array([1e-3]), np.ones(2), prototypes, classes, rows).row) == 1
    assert len(merge_prototypes(np.array([1.0]), np.ones(2), prototypes, classes, rows).row) == 2


def test_merge_prototypes__may_leave_nothing() -> None:
    batch = merge_prototypes(
        np.array([1.0, 0.0]), np.zeros(3), np.ones((3, 2)), np.array([0, 0, 1]), np.array([1, 2, 3])
    )
    assert batch.prototypes.shape == (0, 2)
    assert batch_mass(batch, np.ones((4, 2)), 2).tolist() == [[0.0, 0.0]] * 4


def test_moments__of_weighted_rows_are_those_of_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    x, times = rng.normal(5, 3, (12, 3)), rng.integers(0, 4, 12)
    x[times > 0, 1] = 0.1
    center, scale = moments(x, times.astype(np.float64))
    repeated = np.repeat(x, times, axis=0)
    np.testing.assert_allclose(center, repeated.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(scale[[0, 2]], repeated.std(axis=0)[[0, 2]], rtol=1e-13)
    assert scale[1] == 1.0


def test_projected__is_zero_exactly_where_the_conditions_of_a_minimum_hold() -> None:
    theta, gradient = np.array([0.0, 0.0, 2.0, 2.0, 2.0]), np.array([5.0, -5.0, 0.0, 7.0, -3.0])
    np.testing.assert_array_equal(projected(theta, gradient), [0.0, 5.0, 0.0, -2.0, 3.0])


def imported(source: str) -> Iterator[str]:
    """The packages that a module imports, at its top or anywhere else."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str() as module):
                yield module.partition(".")[0]


@pytest.mark.parametrize("file", sorted(Path(__file__).parent.glob("*.py")), ids=lambda file: file.name)
def test_oracles__are_independent_of_the_package(file: Path) -> None:
    # Nor may they come to it by way of what serves the tests.
    assert not {"protodask", "support"} & set(imported(file.read_text(encoding="utf-8")))
