"""One BLAS thread per task, whatever the environment says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_users = 0
_limit: Any = None


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    # Listing the loaded libraries takes milliseconds; NumPy's BLAS is loaded by the time this is first called.
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any task of this process is inside.

    The setting is the process's, not the thread's: the first task to come in sets it, the last to leave restores it.
    """
    global _users, _limit
    with _lock:
        if _users == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()
                _limit = None
