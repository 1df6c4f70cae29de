"""Commands that are ended from outside, wherever they happen to be."""

import signal
import subprocess
import sys

import pytest

from protodask.cli.ending import TERMINATED

IN_A_CALLBACK = """
import signal, time, weakref
from protodask.cli.ending import end_on_signals

class Thing:
    pass

end_on_signals()
thing = Thing()
reference = weakref.ref(thing, lambda _: {does})
del thing
time.sleep({seconds})
"""


def _run(does: str, seconds: float) -> subprocess.CompletedProcess[str]:
    script = IN_A_CALLBACK.format(does=does, seconds=seconds)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", TERMINATED), ("SIGINT", -signal.SIGINT)])
def test_end_on_signals__ends_where_exceptions_are_only_reported(name: str, code: int) -> None:
    ended = _run(f"signal.raise_signal(signal.{name})", 30)
    assert ended.returncode == code, ended.stderr
    assert "ignored" not in ended.stderr


def test_end_on_signals__other_exceptions_are_reported_as_ever() -> None:
    ended = _run("1 / 0", 0)
    assert ended.returncode == 0
    assert "ZeroDivisionError" in ended.stderr
