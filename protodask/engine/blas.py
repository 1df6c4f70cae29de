"""One BLAS thread per task, whatever the environment says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController

_lock = threading.Lock()
_users = 0
_limit: Any = None


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    # Listing the loaded libraries takes milliseconds; NumPy's BLAS is loaded by the time this is first called.
    return ThreadpoolController()


@lru_cache(maxsize=1)
def _set_by_thread() -> ThreadpoolController:
    return _libraries().select(threading_layer="openmp")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any task of this process is inside.

    Most libraries have one setting for the process: the first task to come in sets it, the last to leave restores it.
    Those on OpenMP have one for each thread, set by each task for its own.
    """
    with _set_by_thread().limit(limits=1):
        _enter()
        try:
            yield
        finally:
            _leave()


def _enter() -> None:
    global _users, _limit
    with _lock:
        if _users == 0:
            _take_control()
            _limit = _libraries().limit(limits=1, user_api="blas")
        _users += 1


def _leave() -> None:
    global _users, _limit
    with _lock:
        _users -= 1
        if _users == 0:
            _take_control()
            _limit.restore_original_limits()
            _limit = None
            _take_control()


def _take_control() -> None:
    """Since threadpoolctl 3.8 only the thread that set OpenBLAS's limit first may change it; others are ignored."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
