"""`protodask` and `python -m protodask`: the command line."""

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
"""Exit code after Ctrl-C, as shells have it."""


def main() -> None:
    """Import the command line and run it; until a command has begun, Ctrl-C ends it at once.

    An exception would be lost in some imports, or be one of theirs; others come while the framework reads the options,
    and it ends without a word. Until then nothing is looked through for garbage, and what was imported never is: help
    would take a seventh longer.
    """
    may_be_interrupted = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if may_be_interrupted:
        signal.signal(signal.SIGINT, _stop)
    if not os.environ.get("COLUMNS", "1").strip("0"):
        del os.environ["COLUMNS"]  # of a terminal that does not know its width: help would be empty
    gc.disable()
    from protodask.cli import main as run

    gc.freeze()

    def begin() -> None:
        gc.enable()
        if may_be_interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        run(begin)
    except KeyboardInterrupt:  # after a command, which says itself what became of it
        _tell()
        sys.exit(INTERRUPTED)
    finally:
        _leave_to_the_system()


def _stop(*_: object) -> NoReturn:
    _tell()
    os._exit(INTERRUPTED)


def _leave_to_the_system() -> None:
    """Let signals end the process at once: there is nothing left to tidy up, and nobody to handle an exception."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)  # in which an exception that was lost would be raised again
    for number in {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _tell() -> None:
    with suppress(Exception):
        print("Stopped.", file=sys.stderr, flush=True)


if __name__ == "__main__":  # worker processes import this module under another name
    main()
