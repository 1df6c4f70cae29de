import subprocess
import sys
from pathlib import Path

import pytest
from distributed.system import MEMORY_LIMIT
from hypothesis import given
from hypothesis import strategies as st

from protodask.engine import memory as memory_module
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


@given(st.integers(1, 512), st.floats(1.0, 1.4))
def test_cache_budget__of_what_threads_hardly_leave_is_not_that_of_passes(threads: int, times: float) -> None:
    memory = int(times * (INTERPRETER_BYTES + threads * THREAD_BYTES))
    left = memory - INTERPRETER_BYTES - threads * THREAD_BYTES - RESIDENT_COPIES * RESIDENT_SHARE * memory
    assert abs(cache_budget(memory, threads) - max(0.0, left)) <= 1


def test_cache_budget__grows_to_its_share_of_a_large_limit() -> None:
    assert cache_budget(100 * 2**30, 2) == 40 * 2**30


def test_process_memory_limit__is_that_of_distributed() -> None:
    assert process_memory_limit() == MEMORY_LIMIT
    assert 2**27 < process_memory_limit() < 2**50


def test_process_memory_limit__of_a_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "CONTROL_GROUP", str(tmp_path))
    alone = process_memory_limit()
    (tmp_path / "memory.max").write_text("max\n")
    assert process_memory_limit() == alone
    (tmp_path / "memory.high").write_text(f"{2**28}\n")
    assert process_memory_limit() == 2**28
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(f"{2**27}\n")
    assert process_memory_limit() == 2**27


@pytest.mark.slow
def test_fit__in_memory_imports_no_cluster() -> None:
    # Which takes a third of a second.
    code = (
        "import sys, numpy as np; from protodask import PrototypeSetClassifier; "
        "x = np.arange(40.0).reshape(20, 2); classifier = PrototypeSetClassifier(n_candidates=4, tolerance=0.1); "
        "classifier.fit(x, np.arange(20) % 2).predict(x); "
        "assert 'distributed' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
