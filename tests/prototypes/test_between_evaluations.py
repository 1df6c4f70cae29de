"""What is kept from one evaluation to the next: found again as long as it holds, made anew where not, sent nowhere."""

import gc
import pickle
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask import PrototypeSetClassifier
from protodask.engine import Block, Engine
from protodask.prototypes import batch_kernel, kernel, objective, tiles
from protodask.prototypes.batch_kernel import Candidates
from protodask.prototypes.kernel import Standardization
from protodask.prototypes.objective import RoundProblem, WorkingSet, likelihood_block, make_problem, prepare_kernel
from protodask.prototypes.tiles import Precision

Floats = NDArray[np.float64]
Theta = Callable[[int], Floats]


@pytest.fixture(params=["float64", "float32"])
def precision(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Precision:
    """Of the kernel; of float32 some candidates are apart, now these and now those."""
    monkeypatch.setattr(kernel, "FLOAT32_REACH", 3.0)
    monkeypatch.setattr(objective, "ROW_WORK", -1e9)
    for module in (objective, batch_kernel):
        monkeypatch.setattr(module, "MOST_APART", 1e9)
    found: Precision = request.param
    return found


def make_round(seed: int = 0, precision: Precision = "float64") -> tuple[RoundProblem, Block, Theta]:
    """Three batches of candidates, a block of the rows that they are among, and weights by a number."""
    random = np.random.default_rng(seed)
    features, target = random.normal(size=(200, 4)), random.integers(0, 3, 200)
    rows = np.flatnonzero(random.random(200) < 0.3)
    rows = rows[np.argsort(target[rows], kind="stable")]
    sizes = tuple(np.bincount(target[rows]).tolist())
    standardization = Standardization(np.zeros(4), np.ones(4))
    candidates = Candidates(features[rows], target[rows], rows)
    share = np.bincount(target).astype(np.float64)
    problem = make_problem(candidates, np.ones(len(rows)), share, standardization, precision, sizes, leave_one_out=True)

    def theta(number: int) -> Floats:
        weights = np.random.default_rng(number)
        found = weights.uniform(0.1, 2, problem.n_feature_weights + problem.n_candidates)
        found[weights.random(len(found)) < 0.3] = 0
        return found

    return problem, Block(0, 0, {"features": features, "target": target.astype(np.int32)}), theta


def evaluate(problem: RoundProblem, block: Block, theta: Floats) -> bytes:
    found = likelihood_block(block, *prepare_kernel(problem, theta))
    return np.concatenate([[found.value], found.by_feature.ravel(), found.by_candidate]).tobytes()


def test_evaluations__do_not_depend_on_those_before(precision: Precision) -> None:
    problem, block, theta = make_round(precision=precision)
    dtypes = {batch.side.dtype for batch in prepare_kernel(problem, theta(0))[1].batches}
    assert dtypes == ({"float64"} if precision == "float64" else {"float32", "float64"})
    for number in (0, 0, 1, 2, 1, 0):
        assert evaluate(problem, block, theta(number)) == evaluate(replace(problem), block, theta(number))


@pytest.mark.slow
def test_evaluations__on_threads_that_share_a_problem_have_the_bits_of_one(precision: Precision) -> None:
    problem, block, theta = make_round(precision=precision)
    expected = [evaluate(replace(problem), block, theta(number)) for number in range(8)]
    wrong: list[int] = []

    def work(first: int) -> None:
        for step in range(40):
            number = (first + step * (first + 1)) % 8
            if evaluate(problem, block, theta(number)) != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_arranged__is_found_again_as_long_as_the_same_are_chosen() -> None:
    problem, _, _ = make_round()
    (candidates, *_), ones = problem.batches, np.ones((1, 4), dtype=np.bool_)
    active = np.arange(len(candidates.rows)) % 2 == 0
    found = candidates.arranged(active, ~active, ones)
    assert candidates.arranged(active.copy(), ~active, ones.copy()) is found
    others = [
        (~active, active, ones, None),
        (active, active & False, ones, None),
        (active, ~active, ones & (np.arange(4) > 0), None),
        (active, ~active, ones, active),
    ]
    for other in others:
        assert candidates.arranged(*other) is not found
        assert candidates.arranged(active, ~active, ones) is not found, "one is kept"
        found = candidates.arranged(active, ~active, ones)


def test_problems__are_sent_without_what_they_remember() -> None:
    problem, block, theta = make_round()
    unused = len(pickle.dumps(problem))
    before = evaluate(problem, block, theta(0))
    assert len(pickle.dumps(problem)) == unused
    assert evaluate(pickle.loads(pickle.dumps(problem)), block, theta(0)) == before


@given(st.lists(st.integers(-1, 40), max_size=30), st.integers(0, 20), st.integers(0, 20))
def test_within__are_the_rows_of_a_range_in_order(rows: list[int], start: int, length: int) -> None:
    numbers = np.array(rows, dtype=np.int64)
    candidates = Candidates(np.zeros((len(rows), 1)), np.zeros(len(rows), dtype=np.int64), numbers)
    places, which = candidates.within(start, start + length)
    assert sorted(which.tolist()) == [at for at, row in enumerate(rows) if start <= row < start + length]
    np.testing.assert_array_equal(places, numbers[which] - start)
    assert (np.diff(places) >= 0).all()


def test_memory__is_cut_again_where_something_else_is_wanted() -> None:
    tiles._memory.bytes, tiles._memory.cut = np.empty(0, dtype=np.uint8), (None, [])
    first = tiles._carve([(3, 4, "float32"), (2, 2, "float64")])
    assert tiles._carve([(3, 4, "float32"), (2, 2, "float64")]) is first
    other = tiles._carve([(300, 40, "float64")])
    assert other[0].shape == (300, 40)
    again = tiles._carve([(3, 4, "float32"), (2, 2, "float64")])
    assert [matrix.shape for matrix in again] == [(3, 4), (2, 2)]
    assert all(np.shares_memory(matrix, tiles._memory.bytes) for matrix in again)


def test_memory__is_let_go_before_there_is_more() -> None:
    tiles._memory.bytes, tiles._memory.cut = np.empty(0, dtype=np.uint8), (None, [])
    tracemalloc.start()
    for rows in (1000, 1100):
        tiles._carve([(rows, 1000, "float64")])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    tiles._memory.bytes, tiles._memory.cut = np.empty(0, dtype=np.uint8), (None, [])
    assert 8 * 1100 * 1000 < peak < 8 * 1200 * 1000


@pytest.mark.slow
def test_fit__leaves_no_problem_behind(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even until the garbage is collected: each keeps as much as its candidates several times."""
    problems: list[weakref.ref[RoundProblem]] = []
    made = WorkingSet.__init__

    def noted(self: WorkingSet, objective: Any, *others: Any, **named: Any) -> None:
        problems.append(weakref.ref(objective.problem))
        made(self, objective, *others, **named)

    monkeypatch.setattr(WorkingSet, "__init__", noted)
    features = np.random.default_rng(0).normal(size=(300, 3))
    gc.collect()
    gc.disable()
    try:
        PrototypeSetClassifier(n_draws=2, n_candidates=50, engine=engine).fit(features, features[:, 0] > 0)
        assert len(problems) >= 2
        assert [found() for found in problems] == [None] * len(problems)
    finally:
        gc.enable()
