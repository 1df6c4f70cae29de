"""Commands in processes of their own, for what only those show: signals, exit codes, what is imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 200
"""What a process may take before it counts as stuck; less than the limit of a test, so that its message is seen."""


def environment(**values: str) -> dict[str, str]:
    """The variables of this process, with which another one imports what this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **values}


def run_python(
    *arguments: object, folder: Path | None = None, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the interpreter to its end; `before` are words of a command that starts it."""
    return subprocess.run(
        [*before, sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=folder,
        env=environment(COLUMNS="200"),
        check=False,
    )


def start_command(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Begin a command; what it says goes nowhere, unless `options` say otherwise."""
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(
        [sys.executable, "-m", "protodask", *map(str, arguments)],
        text=True,
        env=environment(PYTHONFAULTHANDLER="1"),
        **{**streams, **options},
    )


def error_of(process: subprocess.Popen[str], seconds: float = SECONDS) -> str:
    """What a command says on its standard error until it ends; where it does not, with what all its threads do."""
    try:
        return process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        state = "is stuck" if process.poll() is None else f"ended with {process.returncode}, and left some behind"
        process.send_signal(signal.SIGABRT)  # Python shows the stacks then
        try:
            said = process.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired as waiting:  # whoever it began has the stream open
            said = (waiting.stderr or b"").decode()
        raise AssertionError(f"The command {state}. It said: {said}") from None


def wait_until(
    happened: Callable[[], object], process: subprocess.Popen[str] | None = None, says: Callable[[], str] = str
) -> None:
    """Wait for a condition, while the process runs that is to bring it about."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert process is None or process.poll() is None, f"it ended before that, with {process.returncode}"
        assert time.monotonic() < deadline, says()
        time.sleep(0.01)
