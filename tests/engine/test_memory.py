from hypothesis import given
from hypothesis import strategies as st

from protodask.engine.memory import (
    INTERPRETER_BYTES,
    RESIDENT_COPIES,
    RESIDENT_SHARE,
    THREAD_BYTES,
    cache_budget,
    process_memory_limit,
)


@given(st.integers(0, 2**45), st.integers(1, 512))
def test_cache_budget__leaves_room_for_the_interpreter_every_thread_and_the_rest(memory: int, threads: int) -> None:
    budget = cache_budget(memory, threads)
    assert budget >= 0
    if budget:
        resident = RESIDENT_COPIES * RESIDENT_SHARE * memory
        assert budget + INTERPRETER_BYTES + threads * THREAD_BYTES + resident <= memory + 1
        assert budget <= 0.4 * memory


def test_cache_budget__grows_to_its_share_of_a_large_limit() -> None:
    assert cache_budget(100 * 2**30, 2) == 40 * 2**30


def test_process_memory_limit__is_what_a_machine_could_have() -> None:
    assert 2**27 < process_memory_limit() < 2**50
