"""Commands that are ended from outside, wherever they happen to be."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli._processes import run_python
from support.commands import run_command

from protodask.cli.errors import INTERRUPTED, TERMINATED

IN_A_CALLBACK = """
import signal, time, weakref
from protodask.cli.errors import end_on_signals

class Thing:
    pass

end_on_signals()
thing = Thing()
reference = weakref.ref(thing, lambda _: {does})
del thing
time.sleep({seconds})
"""


def _run(does: str, seconds: float) -> subprocess.CompletedProcess[str]:
    return run_python("-c", IN_A_CALLBACK.format(does=does, seconds=seconds))


def _run_in_background(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the interpreter as a shell starts what a script puts into the background: it is to ignore SIGINT."""
    shell = ("sh", "-c", "trap '' INT && exec \"$@\"", "sh")
    return run_python(*arguments, before=shell)


# No luck: it takes the signal, or it would end after these seconds with another code.
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", TERMINATED), ("SIGINT", -signal.SIGINT)])
def test_end_on_signals__ends_where_exceptions_are_only_reported(name: str, code: int) -> None:
    ended = _run(f"signal.raise_signal(signal.{name})", 30)
    assert ended.returncode == code, ended.stderr
    assert "ignored" not in ended.stderr


def test_end_on_signals__other_exceptions_are_reported_as_ever() -> None:
    ended = _run("1 / 0", 0)
    assert ended.returncode == 0
    assert "ZeroDivisionError" in ended.stderr


IN_THE_BACKGROUND = """
import signal
from protodask.cli.errors import end_on_signals

end_on_signals()
signal.raise_signal(signal.SIGINT)
print("went on", flush=True)
signal.raise_signal(signal.SIGTERM)
print("never")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals that are ignored")
def test_end_on_signals__in_the_background_leaves_ctrl_c_to_others() -> None:
    ended = _run_in_background("-c", IN_THE_BACKGROUND)
    assert (ended.returncode, ended.stdout) == (TERMINATED, "went on\n"), ended.stderr


@pytest.mark.skipif(os.name != "posix", reason="a signal of terminals")
@pytest.mark.parametrize(("before", "code"), [("SIG_DFL", TERMINATED), ("SIG_IGN", 0)])
def test_end_on_signals__ends_with_its_terminal_unless_told_otherwise(before: str, code: int) -> None:
    does = (
        f"import signal; signal.signal(signal.SIGHUP, signal.{before}); "
        "from protodask.cli.errors import end_on_signals as ends; ends(); signal.raise_signal(signal.SIGHUP)"
    )
    assert run_python("-c", does).returncode == code


A_TEST = """
import signal, subprocess, sys

def test_interrupts():
    program = "import signal; signal.raise_signal(signal.SIGINT)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals that are ignored")
def test_tests__interrupt_what_they_start_whoever_started_them(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(A_TEST)
    # With the settings of all tests, and none of this run's.
    options = ("-q", "-c", os.devnull, "--rootdir", tmp_path, "-p", "no:cacheprovider")
    done = {
        shared: _run_in_background("-m", "pytest", *options, *(["-p", "conftest"] if shared else []), tmp_path)
        for shared in (True, False)
    }
    assert done[True].returncode == pytest.ExitCode.OK, done[True].stdout
    assert done[False].returncode == pytest.ExitCode.TESTS_FAILED, "else this test would see nothing"


STOPPED_EARLY = """
import signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {at}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["protodask", "--version"]
from protodask.__main__ import main
{before}
main()
"""

WHILE_BUILT = "import typer.main; typer.main.get_command = lambda _: signal.raise_signal(signal.SIGINT)"
WHILE_READ = "import typer.core; typer.core.TyperGroup.parse_args = lambda *_: signal.raise_signal(signal.SIGINT)"


@pytest.mark.parametrize(("at", "before"), [("protodask.cli.console", ""), (None, WHILE_BUILT), (None, WHILE_READ)])
def test_main__stopped_before_a_command_begins_says_so(at: str | None, before: str) -> None:
    done = run_python("-c", STOPPED_EARLY.format(at=repr(at), before=before))
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "Stopped.\n")


STOPPED_LATE = """
import atexit, signal, sys
from protodask.__main__ import main

atexit.register(lambda: signal.raise_signal(signal.{name}))
sys.argv = ["protodask", "--version"]
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="exit codes of signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_main__stopped_after_its_end_ends_at_once(name: str) -> None:
    """An exception would be lost, and raised again by a timer, until this ended the process in its place."""
    done = run_python("-c", STOPPED_LATE.format(name=name))
    assert (done.returncode, done.stderr) == (-getattr(signal, name), "")
    assert done.stdout.startswith("protodask ")


@pytest.mark.skipif(os.name != "posix", reason="signals that are ignored")
def test_main__in_the_background_is_not_stopped_early() -> None:
    done = _run_in_background("-c", STOPPED_EARLY.format(at="'protodask.cli.console'", before=""))
    assert (done.returncode, done.stderr) == (0, "")


BUSY = """
import sys, time
from zarr.core import sync
async def nothing(): pass
sync.sync(nothing())
sync.loop[0].call_soon_threadsafe(time.sleep, 1.0)  # as on a machine that is busy with other things
sys.argv = ["protodask", "--version"]
from protodask.cli import main
main()
"""


@pytest.mark.slow
def test_main__waits_for_the_thread_that_reads() -> None:
    done = run_python("-c", BUSY)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_main__takes_closed_streams_for_ones_that_nobody_reads(closed: str, tmp_path: Path) -> None:
    """It writes where all of them are closed, and says why it does not where one of them is."""
    command = ("sample-data", "checker", "--rows", 10, "--out", tmp_path / "d.zarr")
    fails = "<" not in closed
    if fails:
        assert run_command(*command).exit_code == 0
    done = run_python("-m", "protodask", *command, before=("sh", "-c", f'exec "$@" {closed}', "sh"))
    assert ((tmp_path / "d.zarr").exists(), done.returncode) == (True, int(fails))
    assert ("exists already" in done.stderr) == (closed == ">&-")


@pytest.mark.skipif(sys.platform != "linux", reason="there is no full device elsewhere")
def test_main__says_that_the_disk_is_full_that_help_goes_to() -> None:
    done = run_python("-m", "protodask", "--version", before=("sh", "-c", 'exec "$@" >/dev/full', "sh"))
    assert (done.returncode, done.stderr.count("Error: The disk was full")) == (1, 1)
    assert "Traceback" not in done.stderr


ONE_AFTER_ANOTHER = """
import sys
from protodask.cli import main

for words in (["info", sys.argv[1]], ["fit", "--help"])[: int(sys.argv[2])]:
    sys.argv = ["protodask", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "commands"), [("ascii", 1), ("latin-1", 2)])
def test_main__writes_letters_that_the_stream_does_not_have(encoding: str, commands: int, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,\u05e9\n2,no\n3,\u05e9\n4,no\n", encoding="utf-8")
    as_locale = ("env", f"PYTHONIOENCODING={encoding}")
    made = run_command("ingest", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "d.zarr")
    assert made.exit_code == 0, made.output
    found = run_python("-c", ONE_AFTER_ANOTHER, tmp_path / "d.zarr", commands, before=as_locale)
    assert (found.returncode, found.stderr) == (0, "")
    # Click takes ASCII for a locale that nobody set, and writes UTF-8 there.
    assert ("\u05e9" if encoding == "ascii" else "\\u05e9") in found.stdout
    assert ("--candidates" in found.stdout) == (commands == 2)
