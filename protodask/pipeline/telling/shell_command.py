"""Giving a text to a command of the user's, such as one that sends mail or calls somebody."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress

from protodask.places import mask_text

MOST_SAID = 200
"""Bytes of what the command said of its failure that are repeated."""


def run_command(command: str, text: str, variables: Mapping[str, str], timeout: float) -> str | None:
    """Run a command of the shell with a text as its input and further variables in its environment.

    Gives what went wrong, in a few words; None if it ended well. One that takes longer than `timeout` seconds is ended,
    with what it started.
    """
    # Files, not pipes: a command that reads nothing, or leaves something running behind it, holds nobody up.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(text.encode("utf-8", "replace"))
        given.seek(0)
        try:
            process = subprocess.Popen(
                command,
                shell=True,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return type(error).__name__
        try:
            code = process.wait(timeout)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                return f"it did not end within {timeout:g} seconds"
            raise
        if code == 0:
            return None
        said.seek(0)
        words = " ".join(said.read(MOST_SAID).decode("utf-8", "replace").split())
        return f"it ended with code {code}{words and ': '}{mask_text(words)}"


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
