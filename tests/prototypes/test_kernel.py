"""The block kernel against the naive loops of the oracle."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.classifier import Batch as ReferenceBatch
from reference.classifier import batch_mass
from reference.objective import Penalty, dense_objective, finite_difference, loss_weights

from protodask.engine import Engine, Source, add_records, array_source, thread_engine
from protodask.prototypes import batch_kernel as batch_kernel_module
from protodask.prototypes import kernel as kernel_module
from protodask.prototypes import tiles as tiles_module
from protodask.prototypes.batch_kernel import Candidates, batch_kernels
from protodask.prototypes.kernel import ScoreKernel, Standardization, exponential
from protodask.prototypes.likelihood import (
    Likelihood,
    LikelihoodKernel,
    likelihood_kernel,
    likelihood_slopes,
)
from protodask.prototypes.objective import LIKELIHOOD, RoundProblem, make_problem
from protodask.prototypes.tiles import (
    Lengths,
    LikelihoodShape,
    Precision,
    RowShape,
    alias_padding,
    kernel_tile,
    likelihood_lengths,
    likelihood_memory,
    stretch_widths,
    strips,
    tile_rows,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TOLERANCE: dict[Precision, float] = {"float64": 1e-12, "float32": 1e-5}
PRECISIONS: list[Precision] = ["float64", "float32"]
UNPENALISED = Penalty(0, 0, 0, 0)


@dataclass(frozen=True)
class Case:
    """Rows, candidates among them, and weights; `raw` are the float32 numbers both sides begin with."""

    raw: NDArray[np.float32]
    standardization: Standardization
    target: Integers
    weights: Floats
    rows: Integers
    """Of the candidates, ascending by batch and by class."""
    batch: Integers
    """Of each candidate."""
    v: Floats
    """(B, D)"""
    w: Floats
    previous: Floats
    n_classes: int
    together: bool = False
    """Whether the batches meet the rows together."""
    apart: int | None = None
    """By what those candidates are drawn that are apart from the others."""

    @property
    def standardized(self) -> Floats:
        return (self.raw.astype(np.float64) - self.standardization.center) / self.standardization.scale

    @property
    def row_weight(self) -> Floats:
        return loss_weights(self.target, self.weights, self.rows, self.n_classes)

    @property
    def data(self) -> tuple[Floats, Integers, Floats, Integers, Integers, Floats]:
        previous = np.broadcast_to(self.previous, (len(self.target), self.n_classes))
        return self.standardized, self.target, self.weights, self.rows, self.batch, previous

    def kernel(self, precision: Precision, asleep: NDArray[np.bool_] | None = None) -> LikelihoodKernel:
        sizes = tuple(np.bincount(self.batch, minlength=len(self.v)).tolist())
        parts = [(0, np.arange(len(self.rows)), self.v, sizes)]
        if not self.together:
            parts = [(number, np.flatnonzero(self.batch == number), v, ()) for number, v in enumerate(self.v)]
        apart = None
        if self.apart is not None:
            apart = np.random.default_rng(self.apart).random(len(self.rows)) < 0.4
        batches = []
        for number, own, v, sizes in parts:
            rows = self.rows[own]
            candidates = Candidates(self.standardized[rows], self.target[rows], rows, sizes)
            batches += batch_kernels(
                candidates,
                v,
                self.w[own],
                self.standardization,
                precision,
                asleep=None if asleep is None else asleep[own],
                apart=None if apart is None else apart[own],
                first=(number, int(np.count_nonzero(self.batch < number))),
            )
        return likelihood_kernel(batches)

    def evaluate(self, precision: Precision) -> Likelihood:
        return self.kernel(precision).evaluate(
            self.raw.astype(precision), self.target.astype(np.int32), self.row_weight, self.previous
        )

    def term_norms(self) -> tuple[float, float]:
        """Norms of the gradients with the absolute value of each term in place of the term.

        Terms are the share of each row and candidate, and the three parts of `(z - s)^2`, which are summed one by one.
        """
        rows, candidates = self.standardized[:, None, :], self.standardized[self.rows][None, :, :]
        squares, parts = (rows - candidates) ** 2, (np.abs(rows) + np.abs(candidates)) ** 2
        values = np.exp(-0.5 * (squares * self.v[self.batch] ** 2).sum(axis=2))
        q = self.data[-1] + (values * self.w) @ np.eye(self.n_classes)[self.target[self.rows]]
        own = q[np.arange(len(q)), self.target][:, None]
        same = self.target[:, None] == self.target[self.rows][None, :]
        share = np.abs(values / q.sum(axis=1)[:, None] - same * values / own) * self.row_weight[:, None]
        by_feature = np.zeros_like(self.v)
        np.add.at(by_feature, self.batch, self.v[self.batch] * np.einsum("nj,njd->jd", self.w * share, parts))
        return float(np.linalg.norm(by_feature)), float(np.linalg.norm(share.sum(axis=0)))


def make_case(
    seed: int,
    n_rows: int = 40,
    n_features: int = 3,
    n_classes: int = 3,
    n_candidates: int = 8,
    n_present: int | None = None,
    shared_previous: bool = False,
    zeros: float = 0.2,
    n_batches: int = 1,
) -> Case:
    rng = np.random.default_rng(seed)
    target = rng.integers(0, n_classes if n_present is None else n_present, n_rows)
    rows = np.sort(rng.choice(n_rows, n_candidates, replace=False))
    rows = rows[np.argsort(target[rows], kind="stable")]
    raw = rng.normal(size=n_features) * 10 + rng.normal(size=(n_rows, n_features)) * rng.uniform(0.3, 3, n_features)
    single = raw.astype(np.float32)
    center = single.mean(axis=0).astype(np.float64)
    weights = rng.uniform(0.2, 3, n_rows)
    weights[rng.random(n_rows) < zeros] = 0
    v, w = rng.uniform(0.05, 2, (n_batches, n_features)), rng.uniform(0, 2, n_candidates)
    v[rng.random(v.shape) < zeros] = 0
    w[rng.random(n_candidates) < zeros] = 0
    previous = rng.dirichlet(np.full(n_classes, 3.0), size=n_rows) * rng.uniform(1, 3, (n_rows, 1)) + 1e-3
    batch = rng.integers(0, n_batches, n_candidates)
    order = np.lexsort((target[rows], batch))
    rows, batch = rows[order], batch[order]
    return Case(
        single,
        Standardization(center, single.astype(np.float64).std(axis=0)),
        target,
        weights,
        rows,
        batch,
        v,
        w,
        previous[0] / previous[0].sum() if shared_previous else previous,
        n_classes,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n_rows = draw(st.integers(8, 60))
    n_classes = draw(st.integers(2, 20))
    case = make_case(
        draw(st.integers(0, 2**20)),
        n_rows,
        draw(st.integers(1, 6)),
        n_classes,
        draw(st.integers(1, min(n_rows - 3, 24))),
        draw(st.integers(1, n_classes)),
        draw(st.booleans()),
        draw(st.sampled_from([0.0, 0.2, 0.6])),
        draw(st.integers(1, 3)),
    )
    return replace(case, together=draw(st.booleans()), apart=draw(st.none() | st.integers(0, 2**20)))


def distance(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(found - expected))


def assert_agrees(
    found: Likelihood, value: float, by_v: Floats, by_w: Floats, tolerance: float, scales: tuple[float, float]
) -> None:
    assert abs(found.value - value) <= tolerance * abs(value)
    for part, expected, scale in ((found.by_feature, by_v, scales[0]), (found.by_candidate, by_w, scales[1])):
        assert part.dtype == np.float64
        assert distance(part, expected) <= tolerance * scale


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=200)
@given(case=cases(), longest=st.sampled_from([1, 3, 7, 16, 2048]), reach=st.sampled_from([1.0, 3.0, 177.0]))
def test_evaluate__agrees_with_the_formula(precision: Precision, case: Case, longest: int, reach: float) -> None:
    value, by_v, by_w = dense_objective(*case.data, UNPENALISED)(case.v, case.w)
    norm_v, norm_w = float(np.linalg.norm(by_v)), float(np.linalg.norm(by_w))
    with (
        mock.patch.object(tiles_module, "LONGEST_TILE", longest),
        mock.patch.object(kernel_module, "FLOAT32_REACH", reach),  # of some parts of a round and not of others
        mock.patch.object(batch_kernel_module, "MOST_APART", 1e9),
    ):
        found = case.evaluate(precision)
    # A sum whose terms cancel to next to nothing has no more digits than its terms: one feature alone has a gradient
    # that passes through zero, and so has a row that nearly is a candidate.
    terms_v, terms_w = case.term_norms()
    exact = norm_v >= 0.03 * terms_v and norm_w >= 0.1 * terms_w
    scales = (norm_v, norm_w) if exact else (terms_v, terms_w)
    assert_agrees(found, value, by_v, by_w, TOLERANCE[precision], scales)


def flagging_matmul(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """A product by a BLAS that leaves the flag of an invalid operation where it is that of a matrix and a vector."""
    multiplied: NDArray[Any] = matmul(left, right, out=out)
    if left.shape[-2] > 1 and right.shape[-1] == 1:
        np.subtract(np.inf, np.inf)
    return multiplied


matmul = np.matmul


@pytest.mark.parametrize("precision", PRECISIONS)
def test_kernels__do_not_warn_of_what_the_blas_flags(precision: Precision) -> None:
    case = make_case(0, n_candidates=1, zeros=0.0)
    columns = case.standardized[case.rows]
    scored = ScoreKernel(
        columns,
        case.target[case.rows],
        case.w,
        case.v[0],
        np.arange(3),
        case.standardization,
        case.n_classes,
        precision,
    )
    found, expected = np.zeros((2, len(case.raw), case.n_classes))
    scored.add(case.raw.astype(precision), expected)
    with mock.patch.object(np, "matmul", flagging_matmul):
        scored.add(case.raw.astype(precision), found)
        likelihood = case.evaluate(precision)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_equal(vars(likelihood), vars(case.evaluate(precision)))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("n_features", [1, 2, 4, 30])
@pytest.mark.parametrize("seed", [0, 1])
def test_evaluate__at_the_start_of_a_batch(precision: Precision, n_features: int, seed: int) -> None:
    case = make_case(seed, 600, n_features, 3, 60, zeros=0.0)
    # Classes in stripes along the first feature: with labels at random the terms of the gradient would cancel.
    target = (np.floor(case.standardized[:, 0] * 1.5) % 3).astype(np.int64)
    rows = case.rows[np.argsort(target[case.rows], kind="stable")]
    start = replace(case, target=target, rows=rows, v=np.full((1, n_features), 10 / n_features), w=np.ones(60))
    value, by_v, by_w = dense_objective(*start.data, UNPENALISED)(start.v, start.w)
    norms = float(np.linalg.norm(by_v)), float(np.linalg.norm(by_w))
    assert_agrees(start.evaluate(precision), value, by_v, by_w, TOLERANCE[precision], norms)


def themselves(case: Case) -> list[tuple[Integers, Integers]]:
    """Of the candidates of the only batch, or of those that are together, which rows they are."""
    order = np.argsort(case.rows)
    return [(case.rows[order], order)]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("n_batches", [1, 3])
def test_evaluate__rows_that_are_candidates_do_not_look_at_themselves(held: bool, n_batches: int) -> None:
    """As where a model is pruned: rows that are held out are prototypes themselves."""
    case = replace(
        make_case(4, n_rows=30, n_candidates=9, zeros=0.0, n_batches=n_batches),
        together=n_batches > 1,
    )
    nothing, weight = np.zeros(len(case.target)), np.linspace(0.5, 1.5, len(case.target))
    found = case.kernel("float64").evaluate(
        case.raw.astype(np.float64),
        case.target,
        nothing if held else weight,
        case.previous,
        held_out=weight if held else nothing,
        itself=themselves(case),
    )
    squares = (case.standardized[:, None, :] - case.standardized[case.rows][None, :, :]) ** 2
    values = np.exp(-0.5 * (squares * case.v[case.batch] ** 2).sum(axis=2))
    values[case.rows, np.arange(len(case.rows))] = 0
    q = case.data[-1] + (values * case.w) @ np.eye(case.n_classes)[case.target[case.rows]]
    loss = -weight @ np.log(q[np.arange(len(q)), case.target] / q.sum(axis=1))
    assert (found.held_out if held else found.value) == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_evaluate__rows_that_are_candidates_asleep_leave_the_others_alone(seed: int) -> None:
    case = make_case(seed, n_rows=30, n_candidates=9, zeros=0.0)
    asleep = np.arange(9) == seed
    case = replace(case, w=np.where(asleep, 0.0, case.w))
    arguments = case.raw.astype(np.float64), case.target, np.ones(30), case.previous
    found, expected = (
        case.kernel("float64", sleeping).evaluate(*arguments, itself=themselves(case)) for sleeping in (asleep, None)
    )
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    np.testing.assert_allclose(found.by_feature, expected.by_feature, rtol=1e-9)
    np.testing.assert_allclose(found.by_candidate[~asleep], expected.by_candidate[~asleep], rtol=1e-9)
    assert not found.by_candidate[asleep].any()


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=60)
@given(case=cases(), longest=st.sampled_from([3, 16, 2048]), seed=st.integers(0, 2**20))
def test_evaluate__of_rows_held_out_takes_their_loss_alone(
    precision: Precision, case: Case, longest: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    held_out = np.where(rng.random(len(case.target)) < rng.choice([0.3, 1.0]), rng.uniform(0.1, 2, len(case.target)), 0)
    trained = np.where(held_out > 0, 0.0, case.row_weight)
    arguments = case.raw.astype(precision), case.target, trained, case.previous
    with mock.patch.object(tiles_module, "LONGEST_TILE", longest):
        plain = case.kernel(precision).evaluate(*arguments)
        found = case.kernel(precision).evaluate(*arguments, held_out=held_out)
    squares = (case.standardized[:, None, :] - case.standardized[case.rows][None, :, :]) ** 2
    values = np.exp(-0.5 * (squares * case.v[case.batch] ** 2).sum(axis=2))
    q = case.data[-1] + (values * case.w) @ np.eye(case.n_classes)[case.target[case.rows]]
    expected = -held_out @ np.log(q[np.arange(len(q)), case.target] / q.sum(axis=1))
    assert found.held_out == pytest.approx(expected, rel=TOLERANCE[precision])
    assert found.value == pytest.approx(plain.value, rel=1e-6)
    tolerance = TOLERANCE[precision]
    assert distance(found.by_feature, plain.by_feature) <= tolerance * max(case.term_norms()[0], 1e-300)
    assert distance(found.by_candidate, plain.by_candidate) <= tolerance * max(case.term_norms()[1], 1e-300)


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=60)
@given(case=cases(), seed=st.integers(0, 2**20))
def test_evaluate__of_candidates_asleep_leaves_out_their_gradient_alone(
    precision: Precision, case: Case, seed: int
) -> None:
    arguments = case.raw.astype(precision), case.target, case.row_weight, case.previous
    plain = case.kernel(precision).evaluate(*arguments)
    asleep = (case.w == 0) & (np.random.default_rng(seed).random(len(case.w)) < 0.7)
    found = case.kernel(precision, asleep).evaluate(*arguments)
    assert found.value == pytest.approx(plain.value, rel=TOLERANCE[precision])
    assert distance(found.by_feature, plain.by_feature) <= TOLERANCE[precision] * max(case.term_norms()[0], 1e-300)
    assert (found.by_candidate[asleep] == 0).all()
    expected = np.where(asleep, 0, plain.by_candidate)
    assert distance(found.by_candidate, expected) <= TOLERANCE[precision] * max(case.term_norms()[1], 1e-300)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("n_rows", "longest"), [(1, 4), (4, 4), (5, 4), (63, 8), (257, 16)])
def test_evaluate__of_several_tiles_is_that_of_one(precision: Precision, n_rows: int, longest: int) -> None:
    case = make_case(5, 300, 4, 3, 20)
    part = slice(0, n_rows)
    arguments = (case.raw[part].astype(precision), case.target[part], case.row_weight[part], case.previous[part])
    whole = case.kernel(precision).evaluate(*arguments)
    with mock.patch.object(tiles_module, "LONGEST_TILE", longest):
        tiled = case.kernel(precision).evaluate(*arguments)
    tolerance = TOLERANCE[precision]
    assert tiled.value == pytest.approx(whole.value, rel=tolerance)
    assert distance(tiled.by_feature, whole.by_feature) <= tolerance * np.linalg.norm(whole.by_feature)
    assert distance(tiled.by_candidate, whole.by_candidate) <= tolerance * np.linalg.norm(whole.by_candidate)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_evaluate__of_blocks_adds_up(precision: Precision) -> None:
    case = make_case(6, 90, 3, 4, 12)
    kernel = case.kernel(precision)

    def part(rows: slice) -> Likelihood:
        return kernel.evaluate(
            case.raw[rows].astype(precision), case.target[rows], case.row_weight[rows], case.previous[rows]
        )

    merged = add_records(part(slice(0, 31)), part(slice(31, 90)))
    value, by_v, by_w = dense_objective(*case.data, UNPENALISED)(case.v, case.w)
    assert_agrees(merged, value, by_v, by_w, TOLERANCE[precision], case.term_norms())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_evaluate__of_rows_without_weight_is_zero(precision: Precision) -> None:
    case = make_case(7)
    found = case.kernel(precision).evaluate(case.raw, case.target, np.zeros(len(case.target)), case.previous)
    assert found.value == 0
    assert not found.by_feature.any()
    assert not found.by_candidate.any()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_evaluate__without_feature_weights_sees_constant_kernels(precision: Precision) -> None:
    case = make_case(8, zeros=0.0)
    flat = replace(case, v=np.zeros((1, 3)))
    value, by_v, by_w = dense_objective(*flat.data, UNPENALISED)(flat.v, flat.w)
    found = flat.evaluate(precision)
    assert not found.by_feature.any()
    assert not by_v.any()
    assert found.value == pytest.approx(value, rel=TOLERANCE[precision])
    assert distance(found.by_candidate, by_w) <= TOLERANCE[precision] * np.linalg.norm(by_w)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_evaluate__without_candidate_weights_still_has_their_gradient(precision: Precision) -> None:
    case = make_case(9, zeros=0.0)
    idle = replace(case, w=np.zeros(8))
    value, _, by_w = dense_objective(*idle.data, UNPENALISED)(idle.v, idle.w)
    found = idle.evaluate(precision)
    assert found.value == pytest.approx(value, rel=TOLERANCE[precision])
    assert not found.by_feature.any()
    assert np.linalg.norm(by_w) > 0
    assert distance(found.by_candidate, by_w) <= TOLERANCE[precision] * np.linalg.norm(by_w)


@settings(max_examples=15)
@given(cases())
def test_evaluate__gradient_is_that_of_finite_differences(case: Case) -> None:
    inside = replace(case, v=case.v + 0.1, w=case.w + 0.1)
    width = case.v.size

    def value(theta: Floats) -> float:
        moved = replace(case, v=theta[:width].reshape(case.v.shape), w=theta[width:])
        return moved.evaluate("float64").value

    found = inside.evaluate("float64")
    slope = finite_difference(value, np.concatenate([inside.v.ravel(), inside.w]))
    np.testing.assert_allclose(
        np.concatenate([found.by_feature.ravel(), found.by_candidate]), slope, rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("weight", [1e-170, 1e-50, 1e-42, 1e-25, 1e7, 1e10])
@pytest.mark.parametrize(("n_batches", "extremes"), [(1, 1), (3, 1), (3, 3)])
def test_evaluate__of_feature_weights_next_to_nothing_and_of_very_large_ones(
    precision: Precision, weight: float, n_batches: int, extremes: int
) -> None:
    case = replace(make_case(13, zeros=0.0, n_batches=n_batches), together=n_batches > 1)
    one = (np.arange(3) == 1) & (np.arange(n_batches) < extremes)[:, None]
    extreme = replace(case, v=np.where(one, weight, case.v))
    found = extreme.evaluate(precision)
    value, by_v, by_w = dense_objective(*extreme.data, UNPENALISED)(extreme.v, extreme.w)
    assert_agrees(found, value, by_v, by_w, TOLERANCE[precision], extreme.term_norms())
    far = replace(extreme, raw=extreme.raw + np.float32(1e15))
    assert np.isfinite(far.evaluate(precision).by_feature).all()


def test_evaluate__of_large_offsets_in_float32_keeps_its_digits() -> None:
    rng = np.random.default_rng(3)
    spread = rng.normal(size=(200, 3))
    raw = 1e6 + spread
    center = raw.mean(axis=0).astype(np.float32).astype(np.float64)
    case = make_case(3, 200, 3, 3, 30)
    standardization = Standardization(center, raw.std(axis=0))
    candidates = Candidates(standardization.apply(raw[case.rows]), case.target[case.rows], case.rows)
    kernel = likelihood_kernel(batch_kernels(candidates, case.v[0], case.w, standardization, "float32"))
    found = kernel.evaluate(raw, case.target, case.row_weight, case.previous)
    data = ((raw - center) / raw.std(axis=0), case.target, case.weights, case.rows, case.batch, case.previous)
    value, by_v, by_w = dense_objective(*data, UNPENALISED)(case.v, case.w)
    assert found.value == pytest.approx(value, rel=1e-5)
    assert distance(found.by_feature, by_v) <= 1e-5 * np.linalg.norm(by_v)
    assert distance(found.by_candidate, by_w) <= 1e-5 * np.linalg.norm(by_w)


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**20), exponent=st.floats(0, 8))
def test_kernel__never_makes_a_denormal_number(precision: Precision, seed: int, exponent: float) -> None:
    case = make_case(seed, zeros=0.0)
    far = replace(case, raw=(case.raw * np.float32(10**exponent)))
    kernel = case.kernel(precision)
    side = kernel.batches[0].side
    tile = side.tile(len(far.raw))
    values = side.kernel(kernel.row_sides[side.dtype].standardize(far.raw.astype(precision), tile.standardized), tile)
    assert (values >= np.finfo(precision).tiny).all()
    # Both ends of the exponent are rounded at the size of the squares they are the difference of.
    assert (values <= 1 + 1e-3).all()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("distance_in_deviations", [30.0, 1e4, 1e15])
def test_evaluate__far_from_all_candidates_is_that_of_the_earlier_batches(
    precision: Precision, distance_in_deviations: float
) -> None:
    case = make_case(11, zeros=0.0)
    far = case.raw + np.float32(distance_in_deviations)
    found = case.kernel(precision).evaluate(far.astype(precision), case.target, case.row_weight, case.previous)
    share = case.previous[np.arange(40), case.target] / case.previous.sum(axis=1)
    assert found.value == pytest.approx(-float(case.row_weight @ np.log(share)), rel=1e-5)
    assert np.isfinite(found.by_feature).all()
    # 2^-115 in place of zero, times a squared distance.
    assert abs(found.by_feature).max() <= 1e-30 * max(distance_in_deviations, 1.0) ** 2
    assert abs(found.by_candidate).max() < 1e-30


def test_likelihood_slopes__by_hand() -> None:
    value, slope = likelihood_slopes(np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([1, 0]), np.array([2.0, 0.5]))
    assert value == pytest.approx(-2 * np.log(0.75) - 0.5 * np.log(0.5), rel=1e-15)
    np.testing.assert_allclose(slope, [[2 / 4, 0.5 / 4 - 0.5 / 2], [2 / 4 - 2 / 3, 0.5 / 4]], rtol=1e-15)


@given(st.integers(0, 10**7), st.integers(1, 10**8))
def test_tile_rows__cover_the_rows_within_the_bounds(n_rows: int, entries: int) -> None:
    length = tile_rows(n_rows, entries)
    assert 1 <= length <= 2 * tiles_module.LONGEST_TILE
    assert length == 1 or length * entries <= 2 * tiles_module.MOST_ENTRIES


@given(st.integers(1, 5000), st.integers(0, 10**7))
def test_strips__follow_one_another_over_all_rows(rows: int, multiplications: int) -> None:
    found = strips(rows, multiplications)
    assert [strip.start for strip in found] == [0, *(strip.stop for strip in found[:-1])]
    assert found[-1].stop == rows
    assert all(strip.stop > strip.start for strip in found)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("columns", [1, 512, 1000, 1024])
def test_likelihood_memory__arrays_share_no_memory(precision: Precision, columns: int) -> None:
    shapes = [LikelihoodShape(3, columns, 2, 16, precision), LikelihoodShape(5, 40, 1, 16, "float64")]
    found = likelihood_memory(Lengths(32, 96), RowShape(4, 7, {precision: 6, "float64": 6}), shapes)
    own = [buffer for batch in found.batches for buffer in (batch.left, batch.pull, batch.sums)]
    shared = [found.unscaled, found.scratch, found.weighted, *found.rows.values(), *found.values.values()]
    buffers = [*own, *shared]
    for number, buffer in enumerate(buffers):
        buffer.fill(number)
    assert all((buffer == number).all() for number, buffer in enumerate(buffers))
    assert all(buffer.ctypes.data % tiles_module.ALIGNMENT == 0 for buffer in buffers)
    assert [batch.left.shape for batch in found.batches] == [(96, 5), (96, 7)]
    assert [batch.sums.shape for batch in found.batches] == [(2, 32, 16), (1, 32, 16)]
    assert sum(len(values) for values in found.values.values()) == 32 * (columns + 40)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("columns", [1, 512, 1000, 1024])
def test_alias_padding__keeps_rows_out_of_the_same_cache_sets(precision: Precision, columns: int) -> None:
    width = columns + alias_padding(columns, precision)
    assert width * np.dtype(precision).itemsize % tiles_module.ALIASED_BYTES != 0
    case = make_case(0, n_rows=1200, n_candidates=columns, zeros=0.0)
    kernel = case.kernel(precision)
    side = kernel.batches[0].side
    assert side.operand[0].nbytes % tiles_module.ALIASED_BYTES != 0
    tile = side.tile(1200)
    standardized = kernel.row_sides[side.dtype].standardize(case.raw.astype(precision), tile.standardized)
    assert side.kernel(standardized, tile).shape == (1200, side.n_prototypes)


@settings(max_examples=60)
@given(
    n_rows=st.integers(1, 10**6),
    n_classes=st.integers(1, 40),
    row_width=st.integers(1, 500),
    batches=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 2000), st.integers(0, 60)), min_size=1, max_size=12),
)
def test_likelihood_lengths__hold_no_more_than_is_allowed_or_one_tile(
    n_rows: int, n_classes: int, row_width: int, batches: list[tuple[int, int, int]]
) -> None:
    shapes = [LikelihoodShape(d, columns, panels, 16, "float32") for d, columns, panels in batches]
    rows = RowShape(n_classes, row_width, {"float32": max(d for d, _, _ in batches)})
    found = likelihood_lengths(n_rows, rows, shapes)
    assert found.stretch % found.tile == 0
    assert found.stretch < n_rows + found.tile
    held = found.stretch * sum(stretch_widths(rows, shapes))
    assert held <= tiles_module.STRETCH_ENTRIES or found.stretch == found.tile


def test_kernel_tile__is_the_same_memory_again_in_a_thread_and_another_in_another_thread() -> None:
    first = kernel_tile(50, 3, 40, "float32").values
    assert np.shares_memory(kernel_tile(50, 3, 40, "float32").values, first)
    with ThreadPoolExecutor(1) as other:
        elsewhere = other.submit(kernel_tile, 50, 3, 40, "float32").result().values
    assert not np.shares_memory(elsewhere, first)


@pytest.mark.parametrize("precision", PRECISIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_score_kernel__agrees_with_the_loops(precision: Precision, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    n_rows, n_features, n_classes = (data.draw(st.integers(1, most)) for most in (40, 5, 20))
    n_prototypes, n_active = data.draw(st.integers(0, 30)), data.draw(st.integers(0, n_features))
    index = np.sort(rng.choice(n_features, n_active, replace=False))
    center, scale = rng.normal(size=n_features), rng.uniform(0.5, 2, n_features)
    center = center.astype(np.float32).astype(np.float64)
    standardization = Standardization(center, scale)
    raw = (center + scale * rng.normal(size=(n_rows, n_features))).astype(np.float32)
    prototypes = rng.normal(size=(n_prototypes, n_features))
    classes = np.sort(rng.integers(0, n_classes, n_prototypes))
    weight, v = rng.uniform(0.1, 3, n_prototypes), np.zeros(n_features)
    v[index] = rng.uniform(0.1, 2, n_active)
    kernel = ScoreKernel(
        prototypes[:, index], classes, weight, v[index], index, standardization.select(index), n_classes, precision
    )
    earlier = rng.uniform(size=(n_rows, n_classes))
    scores = earlier.copy()
    with (
        mock.patch.object(tiles_module, "LONGEST_TILE", data.draw(st.sampled_from([1, 3, 8, 2048]))),
        mock.patch.object(kernel_module, "FLOAT32_REACH", data.draw(st.sampled_from([1.0, 3.0, 177.0]))),
        mock.patch.object(kernel_module, "LEAST_NEAR", 1),
    ):
        kernel.add(raw.astype(precision), scores)
    expected = batch_mass(
        ReferenceBatch(v, prototypes, classes, weight, np.arange(n_prototypes)), standardization.apply(raw), n_classes
    )
    tolerance = TOLERANCE[precision]
    np.testing.assert_allclose(scores - earlier, expected, rtol=tolerance, atol=tolerance * max(expected.max(), 1.0))


@pytest.mark.parametrize(("n_near", "n_far"), [(100, 3), (10, 3), (100, 0), (0, 3), (0, 0)])
def test_score_kernel__takes_float64_for_those_far_out_alone(n_near: int, n_far: int) -> None:
    rng = np.random.default_rng(0)
    prototypes = rng.normal(size=(n_near + n_far, 4))
    prototypes[n_near:, 0] += 1000
    classes = np.arange(len(prototypes)) % 2
    standardization = Standardization(np.zeros(4), np.ones(4))
    features = np.concatenate([prototypes, prototypes + 0.3 * rng.normal(size=prototypes.shape)]).astype(np.float32)

    def scores(precision: Precision) -> Floats:
        found, weight, v = np.zeros((len(features), 2)), np.ones(len(prototypes)), np.full(4, 0.9)
        kernel = ScoreKernel(prototypes, classes, weight, v, np.arange(4), standardization, 2, precision)
        kernel.add(features, found)
        if precision == "float32":
            dtypes = [matrix.side.dtype for matrix in kernel._matrices]
            assert dtypes == (["float32"] * (n_near >= 60 or n_far == 0) + ["float64"] * (n_far > 0))
        return found

    np.testing.assert_allclose(scores("float32"), scores("float64"), rtol=2e-5, atol=1e-6)


ROWS, WIDTH, CANDIDATES = 20_000, 30, 1000


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block_rows", [4096, 32768])
def test_evaluate__through_the_engine_holds_no_matrix_of_rows_and_candidates(threads: int, block_rows: int) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "features": rng.normal(size=(ROWS, WIDTH)).astype(np.float32),
        "target": rng.integers(0, 10, ROWS).astype(np.int32),
    }
    rows = np.sort(rng.choice(ROWS, CANDIDATES, replace=False))
    rows = rows[np.argsort(arrays["target"][rows], kind="stable")]
    candidates = Candidates(arrays["features"][rows].astype(np.float64), arrays["target"][rows].astype(np.int64), rows)
    standardization = Standardization(np.zeros(WIDTH), np.ones(WIDTH))
    counts = np.bincount(arrays["target"], minlength=10).astype(np.float64)
    problem = make_problem(candidates, np.ones(CANDIDATES), counts, standardization, "float32")
    theta = np.concatenate([np.full(WIDTH, 10 / WIDTH), np.ones(CANDIDATES)])
    source = array_source(arrays, block_rows)
    block_bytes = source.read(0).nbytes
    allowed = 64 * 2**20 + 2 * block_bytes * threads
    if block_rows >= ROWS:
        assert allowed < 4 * ROWS * CANDIDATES + 2**20, "else a matrix of rows and candidates could hide in it"
    with thread_engine(threads) as engine:
        assert peak_of(engine, source, problem, theta) < allowed


def peak_of(engine: Engine, source: Source, problem: RoundProblem, theta: Floats) -> int:
    """Traced peak of the second evaluation, above what was held before."""
    engine.reduce(source, LIKELIHOOD, problem, theta)
    tracemalloc.start()
    try:
        engine.reduce(source, LIKELIHOOD, problem, theta)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


VECTORS = {"exp": {"ff": {"current": "AVX2"}}, "exp2": {"ff": {"current": "baseline(SSE2)"}}}


@pytest.mark.parametrize(("known", "natural"), [(VECTORS, True), ({}, False)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponential__is_as_exact_as_its_exponent(dtype: Precision, known: Any, natural: bool) -> None:
    with mock.patch.object(kernel_module, "opt_func_info", return_value=known):
        found = exponential.__wrapped__(dtype)
    assert (found.function is np.exp) == (natural and dtype == "float32")
    values = np.concatenate([np.linspace(found.floor, 0.5, 20_001), [0.0]]).astype(dtype)
    exact = np.exp(values.astype(np.longdouble) / np.longdouble(found.root) ** 2)
    power = found.function(values)
    # Rounding the exponent alone makes a relative error of its size times half a unit.
    assert np.all(np.abs(power / exact - 1) <= np.finfo(values.dtype).eps * (3 + np.abs(values)))
    assert power[-1] == 1
    assert power.min() >= np.finfo(values.dtype).tiny
