"""How a command ends: from exceptions to messages and exit codes, and from outside, by SIGTERM, SIGHUP or Ctrl-C.

0: done. 1: it failed. 2: the command was used wrongly. 3: a command that was asked whether something is so says no.
130: the user stopped it. 143: it was ended from outside.

All of them raise an exception wherever the program happens to be, so that everything on the way out is tidied up. In a
few places Python only reports an exception and goes on: in finalizers, and in callbacks of weak references, which every
import runs. One of a hundred signals that came during imports was lost there, and the command went on to its end.
"""

from __future__ import annotations

import errno
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from protodask.cli.console import complain, remark
from protodask.data.places.locations import is_full
from protodask.errors import InputError, ProtodaskError
from protodask.pipeline.file.values import as_options
from protodask.places import mask_text

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

FAILED = 1
WRONG_USE = 2
ANSWER_IS_NO = 3
INTERRUPTED = 130
TERMINATED = 143
"""Exit code after SIGTERM, as shells have it, and after SIGHUP."""

WHAT_STAYS = "What was finished before stays; nothing is left half-written."

AGAIN_AFTER = 0.01
"""Seconds from an exception that was lost to the next try."""

LOOP_SECONDS = 10.0
"""How long the thread that reads from stores may take to end, on a machine that is busy with other things."""


class WrongUseError(InputError):
    """Options that do not go together, or that cannot work whatever the data."""


@contextmanager
def wrong_use() -> Iterator[None]:
    """Bad input that shows inside is bad use of the command: nothing was begun."""
    try:
        yield
    except InputError as error:
        raise WrongUseError(error.code, error.seen, error.remedy) from error


@contextmanager
def reported(
    debug: bool, complain: Callable[[str, str, str], None] = complain, stopped: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Turn whatever goes wrong inside into a message in plain words, told to `complain`, and an exit code.

    That the user stopped it is told to `stopped`, or to standard error.
    """
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt as error:
        (stopped or remark)(f"Stopped. {WHAT_STAYS}")
        raise typer.Exit(INTERRUPTED) from error
    except SystemExit as error:
        if error.code != TERMINATED:
            raise
        if stopped is None:  # else the last record of a log says so
            remark(f"Ended from outside. {WHAT_STAYS}")
        raise typer.Exit(TERMINATED) from error
    except ProtodaskError as error:
        _show_traceback(debug)
        seen, remedy = (text if error.of_file else as_options(text) for text in (error.seen, error.remedy))
        complain(seen, remedy, error.code)
        raise typer.Exit(WRONG_USE if isinstance(error, WrongUseError) else FAILED) from error
    except Exception as error:
        # The reader of the output went away, as `head` does; the framework knows how to end quietly.
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise
        _show_traceback(debug)
        if is_full(error):  # where the output goes; who writes elsewhere says where
            _complain_of_full(error, complain)
            raise typer.Exit(FAILED) from error
        said = f": {error}" if str(error) else ""
        advice = "The lines above say where it happened." if debug else "Repeat the command with --debug to see where."
        complain(f"Something unexpected happened ({type(error).__name__}{said}).", advice, "unexpected")
        raise typer.Exit(FAILED) from error


@contextmanager
def output_written() -> Iterator[None]:
    """Say of output that nothing else looks after that its disk was full, and end the program."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        _complain_of_full(error, complain)
        sys.exit(FAILED)


def _complain_of_full(error: Exception, complain: Callable[[str, str, str], None]) -> None:
    complain(f"The disk was full ({error}).", "Free some space, or write elsewhere, and repeat.", "disk-full")


def _show_traceback(debug: bool) -> None:
    if debug:
        remark(mask_text(traceback.format_exc()))


def end_on_signals() -> None:
    """End this process on SIGTERM as on Ctrl-C, with nothing left half-written, wherever it is, and on SIGHUP likewise,
    which comes when the terminal is closed or a connection lost, unless it is ignored, as `nohup` has it.

    Whoever started it may have had SIGINT ignored, as shells do for what a script starts with `&`. Then it stays so:
    Ctrl-C at that terminal is meant for what is in the foreground. SIGTERM ends such a process, too.
    """
    signal.signal(signal.SIGTERM, _terminate)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _terminate)
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


def stop_reading() -> None:
    """Let the event loop that zarr reads with come to its end, if there is one.

    Zarr itself waits a fifth of a second for it and then fails to close it, with a traceback after all is done.
    """
    zarr = sys.modules.get("zarr.core.sync")
    loop, thread = (getattr(zarr, name, [None])[0] for name in ("loop", "iothread"))
    if loop is not None and thread is not None and not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LOOP_SECONDS)
