"""From exceptions to messages and exit codes.

0: done. 1: it failed. 2: the command was used wrongly. 3: a command that was asked whether something is so says no.
130: the user stopped it. 143: it was ended from outside.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import typer

from protodask.cli.showing.console import complain
from protodask.errors import InputError, ProtodaskError
from protodask.pipeline.file.setting_words import as_options
from protodask.places import mask_text

FAILED = 1
WRONG_USE = 2
ANSWER_IS_NO = 3
INTERRUPTED = 130

UNEXPECTED = "unexpected"
"""The code of what went wrong for a reason that nobody foresaw."""


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
        (stopped or partial(typer.echo, err=True))(
            "Stopped. What was finished before stays; nothing is left half-written."
        )
        raise typer.Exit(INTERRUPTED) from error
    except ProtodaskError as error:
        _show_traceback(debug)
        complain(as_options(error.seen), as_options(error.remedy), error.code)
        raise typer.Exit(WRONG_USE if isinstance(error, WrongUseError) else FAILED) from error
    except Exception as error:
        # The reader of the output went away, as `head` does; the framework knows how to end quietly.
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise
        _show_traceback(debug)
        said = f": {error}" if str(error) else ""
        advice = "The lines above say where it happened." if debug else "Repeat the command with --debug to see where."
        complain(f"Something unexpected happened ({type(error).__name__}{said}).", advice, UNEXPECTED)
        raise typer.Exit(FAILED) from error


def _show_traceback(debug: bool) -> None:
    if debug:
        typer.echo(mask_text(traceback.format_exc()), err=True)
