"""One BLAS thread per task, whatever the environment says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController, get_cached_controller

_lock = threading.Lock()
_users = 0
_limits: dict[str, Any] = {}
"""By the file of a library: each is limited once, whenever it comes, and gets back what it had."""


@lru_cache(maxsize=1)
def _libraries(listed: ThreadpoolController) -> tuple[ThreadpoolController, ThreadpoolController]:
    """The BLAS libraries of this process: with one setting for all threads, and on OpenMP, with one for each thread."""
    blas = listed.select(user_api="blas")
    on_openmp = blas.select(threading_layer="openmp")
    others = [library.filepath for library in blas.lib_controllers if library not in on_openmp.lib_controllers]
    return blas.select(filepath=others), on_openmp


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any task of this process is inside.

    Most libraries have one setting for the process: the first task to come in sets it, the last to leave restores it.
    Those on OpenMP have one for each thread, set by each task for its own. SciPy brings a BLAS of its own, perhaps long
    after the first pass: libraries are listed again whenever modules were imported, and limited by the next to come in.
    """
    global _users
    of_process, of_threads = _libraries(get_cached_controller())
    with of_threads.limit(limits=1):
        with _lock:
            _users += 1
            new = [library.filepath for library in of_process.lib_controllers if library.filepath not in _limits]
            if new:
                _take_control()
                _limits.update((path, of_process.select(filepath=path).limit(limits=1)) for path in new)
        try:
            yield
        finally:
            with _lock:
                _users -= 1
                if _users == 0:
                    _take_control()
                    for limit in _limits.values():
                        limit.restore_original_limits()
                    _limits.clear()
                    _take_control()


def _take_control() -> None:
    """Only the thread that set OpenBLAS's limit first may change it; others are ignored."""
    OpenBLASController.clear_controlling_thread(force=True)
