import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from protodask.engine import Block, Reduction, array_source, identity, thread_engine
from protodask.engine.blas import one_blas_thread


def blas_threads() -> set[int]:
    """Threads of all BLAS libraries: NumPy and SciPy have one each."""
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def several_blas_threads() -> Iterator[set[int]]:
    """The setting outside; a machine with one processor, or a BLAS told to use one, has nothing to show."""
    outside = blas_threads()
    if outside == {1}:
        pytest.skip("BLAS has one thread anyway")
    yield outside
    assert blas_threads() == outside


def test_one_blas_thread__holds_inside_and_is_undone_after(several_blas_threads: set[int]) -> None:
    with one_blas_thread():
        assert blas_threads() == {1}
    assert blas_threads() == several_blas_threads


def test_one_blas_thread__nests() -> None:
    with one_blas_thread():
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}


def test_one_blas_thread__is_undone_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        1 / 0  # noqa: B018


def test_one_blas_thread__holds_until_the_last_thread_leaves() -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> set[int]:
        with one_blas_thread():
            entered.set()
            assert leave.wait(timeout=30)
            return blas_threads()

    with ThreadPoolExecutor(1) as pool:
        with one_blas_thread():
            staying = pool.submit(stay)
            assert entered.wait(timeout=30)
        inside = blas_threads()
        leave.set()
        assert staying.result() == {1}
    assert inside == {1}


def test_one_blas_thread__of_many_threads_restores() -> None:
    def enter_often(_: int) -> None:
        for _ in range(20):
            with one_blas_thread():
                assert blas_threads() == {1}

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enter_often, range(4)))


def observe(block: Block) -> frozenset[int]:
    return frozenset(blas_threads())


def observe_blas_threads(block: Block) -> frozenset[int]:
    # Several threads take part in a pass, and any may be the first in or the last out.
    time.sleep(0.001)
    return frozenset(blas_threads())


def unite(left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
    return left | right


OBSERVE: Reduction[frozenset[int], frozenset[int]] = Reduction(observe_blas_threads, unite, identity)


def test_engine__computes_every_pass_with_one_blas_thread(several_blas_threads: set[int]) -> None:
    with thread_engine(4) as engine:
        source = array_source({"x": np.zeros(128)}, 8)
        for _ in range(10):
            assert engine.reduce(source, OBSERVE) == {1}
            assert blas_threads() == several_blas_threads


def test_engine__computes_with_one_blas_thread_whatever_the_caller_set() -> None:
    with threadpool_limits(limits=2, user_api="blas"), thread_engine(2) as engine:
        assert engine.reduce(array_source({"x": np.zeros(64)}, 8), OBSERVE) == {1}
        assert blas_threads() == {2}


LATE = """
import sys
import numpy
from threadpoolctl import threadpool_info
from protodask.engine.blas import one_blas_thread

def threads():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

with one_blas_thread():
    pass
assert "scipy" not in sys.modules
outside = threads()
with one_blas_thread():
    import scipy.linalg
    with one_blas_thread():
        assert threads() == {1}, threads()
    assert threads() == {1}, threads()
assert threads() == outside, threads()
with one_blas_thread():
    assert threads() == {1}, threads()
assert threads() == outside, threads()
"""


MEANWHILE = """
import sys, threading
import numpy
from threadpoolctl import threadpool_info
from protodask.engine.blas import one_blas_thread

def threads():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

def enter_often():
    while not done.is_set():
        with one_blas_thread():
            seen.set()
    with one_blas_thread():
        everybody.wait(30)
        inside.append(threads())
        everybody.wait(30)

outside, inside = threads(), []
done, seen, everybody = threading.Event(), threading.Event(), threading.Barrier(3)
workers = [threading.Thread(target=enter_often, daemon=True) for _ in range(3)]
for worker in workers:
    worker.start()
assert seen.wait(30)
assert "scipy" not in sys.modules
import scipy.optimize, scipy.spatial
done.set()
for worker in workers:
    worker.join(30)
assert inside == [{1}] * 3, inside
assert threads() == outside, threads()
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [LATE, MEANWHILE], ids=["later", "meanwhile"])
def test_one_blas_thread__holds_for_libraries_that_are_loaded(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr
