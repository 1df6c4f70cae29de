from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protodask.engine.placement import MOST_UNITS, Placement, Share, runs_of, unit_blocks

threads_of = st.dictionaries(st.integers(0, 9).map(lambda n: f"w{n}"), st.integers(1, 16), min_size=1)
numbers_of_blocks = st.integers(1, 300) | st.sampled_from([MOST_UNITS - 1, MOST_UNITS + 3, 2 * MOST_UNITS + 5])


def owners(shares: list[Share]) -> dict[int, str]:
    """The worker of each block; none may have two."""
    found: dict[int, str] = {}
    for share in shares:
        for run in share.runs:
            assert not found.keys() & set(run)
            found |= dict.fromkeys(run, share.worker)
    return found


def whole(placement: Placement, n_blocks: int, threads: Mapping[str, int]) -> dict[int, str]:
    return owners(placement.shares("data", n_blocks, range(n_blocks), threads))


def moved(before: Mapping[int, str], after: Mapping[int, str]) -> int:
    return sum(after[number] != worker for number, worker in before.items())


@given(numbers_of_blocks, st.lists(threads_of, min_size=1, max_size=5))
def test_shares__are_all_blocks_and_go_by_threads_whoever_came_and_left(
    n_blocks: int, crews: list[dict[str, int]]
) -> None:
    placement, size = Placement(), unit_blocks(n_blocks)
    for threads in crews:
        shares = placement.shares("data", n_blocks, range(n_blocks), threads)
        assert owners(shares).keys() == set(range(n_blocks))
        assert len({share.worker for share in shares}) == len(shares)
        for share in shares:
            assert share.worker in threads
            even = n_blocks * threads[share.worker] / sum(threads.values())
            assert share.n_blocks <= even + 1 + 2 * size
        assert whole(placement, n_blocks, threads) == owners(shares), "a second pass finds everything where it was"


@given(st.data(), st.integers(1, 300), threads_of)
def test_shares__of_some_blocks_are_even_and_change_nothing_for_all(
    data: st.DataObject, n_blocks: int, threads: dict[str, int]
) -> None:
    placement = Placement()
    before = whole(placement, n_blocks, threads)
    numbers = sorted(data.draw(st.sets(st.integers(0, n_blocks - 1), min_size=1)))
    shares = placement.shares("data", n_blocks, numbers, threads)
    assert sorted(owners(shares)) == numbers
    even = {worker: len(numbers) * count / sum(threads.values()) for worker, count in threads.items()}
    for share in shares:
        assert share.n_blocks <= even[share.worker] + 1
    for worker in threads:  # whoever has them keeps them, up to a share that is rounded up
        there = [number for number in numbers if before[number] == worker]
        assert sum(owners(shares)[number] == worker for number in there) >= min(len(there), even[worker])
    assert whole(placement, n_blocks, threads) == before


@given(st.integers(1, 300), st.integers(2, 30))
def test_shares__of_workers_that_join_one_by_one_move_what_the_newcomer_takes(n_blocks: int, n_workers: int) -> None:
    placement = Placement()
    before = whole(placement, n_blocks, {"w0": 2})
    for count in range(2, n_workers + 1):
        after = whole(placement, n_blocks, {f"w{number}": 2 for number in range(count)})
        # Shares are whole blocks: where they do not divide evenly, one block for each may change hands beside.
        assert moved(before, after) <= n_blocks / count + count
        before = after


@given(st.integers(1, 500) | st.just(MOST_UNITS + 1), st.integers(2, 100), st.data())
def test_shares__of_a_worker_that_leaves_are_all_that_moves(n_blocks: int, n_workers: int, data: st.DataObject) -> None:
    placement = Placement()
    crew = {f"w{number}": 16 for number in range(n_workers)}
    before = whole(placement, n_blocks, crew)
    gone = data.draw(st.sampled_from(sorted(crew)))
    after = whole(placement, n_blocks, {worker: 16 for worker in crew if worker != gone})
    lost = sum(worker == gone for worker in before.values())
    assert lost <= moved(before, after) <= lost + n_workers * unit_blocks(n_blocks)


def test_ran__elsewhere_is_where_the_blocks_are_from_then_on() -> None:
    placement, threads = Placement(), {"w0": 1, "w1": 1}
    first, second = placement.shares("data", 8, range(8), threads)
    placement.ran("data", 8, first, "w1")
    placement.ran("data", 8, second, "w0")
    assert whole(placement, 8, threads) == dict.fromkeys(range(4), "w1") | dict.fromkeys(range(4, 8), "w0")


def test_shares__are_forgotten_with_their_source_and_never_known_of_what_is_in_memory() -> None:
    placement = Placement()
    crew, newcomer = {"w0": 1, "w1": 1}, {"w2": 1, "w1": 1}
    for key in ("data", ""):
        placement.shares(key, 4, range(4), crew)
    placement.forget("data")
    for key in ("data", ""):
        found = owners(placement.shares(key, 4, range(4), newcomer))
        assert found == {0: "w2", 1: "w2", 2: "w1", 3: "w1"}


@given(st.sets(st.integers(0, 99), min_size=1))
def test_runs_of__are_maximal(numbers: set[int]) -> None:
    runs = runs_of(np.array(sorted(numbers)))
    assert [number for run in runs for number in run] == sorted(numbers)
    assert all(left.stop < right.start for left, right in pairwise(runs))


@given(st.integers(1, 10**7))
def test_unit_blocks__are_the_fewest_of_which_there_are_not_too_many(n_blocks: int) -> None:
    size = unit_blocks(n_blocks)
    assert -(-n_blocks // size) <= MOST_UNITS
    assert size == 1 or -(-n_blocks // (size // 2)) > MOST_UNITS
