"""How a command is ended from outside: by SIGTERM, or by Ctrl-C.

Both raise an exception wherever the program happens to be, so that everything on the way out is tidied up. In a few
places Python only reports an exception and goes on: in finalizers, and in callbacks of weak references, which every
import runs. One of a hundred signals that came during imports was lost there, and the command went on to its end.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

TERMINATED = 143
"""Exit code after SIGTERM, as shells have it."""

AGAIN_AFTER = 0.01
"""Seconds from an exception that was lost to the next try."""


def end_on_signals() -> None:
    """End this process on SIGTERM as on Ctrl-C, with nothing left half-written, wherever it is.

    Whoever started it may have had SIGINT ignored, as shells do for what a script starts with `&`. Then it stays so:
    Ctrl-C at that terminal is meant for what is in the foreground. SIGTERM ends such a process, too.
    """
    signal.signal(signal.SIGTERM, _terminate)
    if hasattr(signal, "setitimer"):
        sys.unraisablehook = _try_again


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(TERMINATED)


def _try_again(lost: UnraisableHookArgs) -> None:
    """Raise once more, a moment later, what was meant to end the process; report what else could not be raised."""
    error = lost.exc_type
    if error not in (SystemExit, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        sys.__unraisablehook__(lost)
        return

    def end(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED) if error is SystemExit else KeyboardInterrupt

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_AFTER)


LOOP_SECONDS = 10.0
"""How long the thread that reads from stores may take to end, on a machine that is busy with other things."""


def stop_reading() -> None:
    """Let the event loop that zarr reads with come to its end, if there is one.

    Zarr itself waits a fifth of a second for it and then fails to close it, with a traceback after all is done.
    """
    zarr = sys.modules.get("zarr.core.sync")
    loop, thread = (getattr(zarr, name, [None])[0] for name in ("loop", "iothread"))
    if loop is not None and thread is not None and not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LOOP_SECONDS)
