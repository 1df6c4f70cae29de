"""The program as it is started from a shell."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protodask._version import __version__
from protodask.cli import errors
from protodask.cli.cluster import PROBLEMS_FOUND
from protodask.cli.ending import TERMINATED
from protodask.cli.plan import DOES_NOT_FIT

COMMANDS = ("ingest", "sample-data", "info", "fit", "predict", "evaluate", "run", "cluster")

SLOW_IMPORTS = ("numpy", "scipy", "pandas", "sklearn", "dask", "distributed", "zarr", "pyarrow", "yaml")


def _python(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=False,
    )


def test_help__names_every_command() -> None:
    done = _python("-m", "protodask", "--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", done.stdout)
    codes = " ".join(done.stdout.split("Exit codes", 1)[1].split())
    stated = (errors.__doc__ or "").split("\n\n", 1)[1]
    for code in (0, errors.FAILED, errors.WRONG_USE, DOES_NOT_FIT, PROBLEMS_FOUND, errors.INTERRUPTED, TERMINATED):
        assert re.search(rf"\b{code} ", codes)
        assert re.search(rf"\b{code}: ", stated)
    assert done.stderr == ""


def test_version__is_that_of_the_package() -> None:
    done = _python("-m", "protodask", "--version")
    assert (done.returncode, done.stdout) == (0, f"protodask {__version__}\n")


def test_help__imports_nothing_slow() -> None:
    code = (
        "import sys\n"
        "from protodask.cli import app\n"
        "app(['fit', '--help'], standalone_mode=False)\n"
        f"print(sorted(set({SLOW_IMPORTS!r}) & set(sys.modules)))"
    )
    done = _python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_wrong_use__exits_with_2() -> None:
    done = _python("-m", "protodask", "fit", "data.zarr")
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert done.stdout == ""


def test_whole_way__without_a_terminal_has_no_control_characters(tmp_path: Path) -> None:
    commands = [
        ["sample-data", "checker", "--rows", "2000", "--out", "data.zarr"],
        ["fit", "data.zarr", "--out", "model.zarr", "--candidates", "50", "--max-iterations", "20"],
        ["predict", "model.zarr", "data.zarr", "--out", "predictions.zarr"],
    ]
    for command in commands:
        done = _python("-m", "protodask", *command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        for output in (done.stdout, done.stderr):
            assert all(letter.isprintable() or letter == "\n" for letter in output)
    assert {path.name for path in tmp_path.iterdir()} == {"data.zarr", "model.zarr", "predictions.zarr"}


@pytest.mark.parametrize("debug", [False, True])
def test_failure__shows_a_traceback_only_with_debug(debug: bool, tmp_path: Path) -> None:
    done = _python("-m", "protodask", "info", "nothing", *(["--debug"] if debug else []), folder=tmp_path)
    assert done.returncode == 1
    assert "There is nothing at nothing." in done.stderr
    assert "Check the path." in done.stderr
    assert ("Traceback" in done.stderr) == debug


@pytest.mark.skipif(os.name != "posix", reason="signals to process groups")
def test_interrupt__ends_workers_without_tracebacks(tmp_path: Path) -> None:
    made = _python("-m", "protodask", "sample-data", "xor", "--rows", "20000", "--out", "data.zarr", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    command = ["fit", "data.zarr", "--out", "model.zarr", "--run-dir", "run", "--workers", "1", "--tolerance", "0"]
    # A job started in the background may have inherited that SIGINT is ignored; at a terminal it is not.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import protodask.cli as c; c.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, *command],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not list(tmp_path.glob("run/batch-1-*.log")):
                time.sleep(0.05)
            # As a terminal does: to the program and to its workers.
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    assert err.endswith("Stopped. What was finished before stays; nothing is left half-written.\n")
    assert "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"data.zarr", "run"}
