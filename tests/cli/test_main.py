"""The program as it is started from a shell."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cli._processes import environment, error_of, run_python, start_command, wait_until
from support.commands import run_command

from protodask import cli
from protodask._version import __version__
from protodask.cli import errors
from protodask.cli.errors import TERMINATED

COMMANDS = ("ingest", "sample-data", "info", "fit", "predict", "evaluate", "run", "cluster")

SLOW_IMPORTS = ("numpy", "scipy", "pandas", "sklearn", "dask", "distributed", "zarr", "pyarrow", "yaml")


def test_help__names_every_command() -> None:
    done = run_command("--help")
    assert done.exit_code == 0
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", done.stdout)
    codes = " ".join(done.stdout.split("Exit codes", 1)[1].split())
    stated = (errors.__doc__ or "").split("\n\n", 1)[1]
    for code in (0, errors.FAILED, errors.WRONG_USE, errors.ANSWER_IS_NO, errors.INTERRUPTED, TERMINATED):
        assert re.search(rf"\b{code} ", codes)
        assert re.search(rf"\b{code}: ", stated)
    assert done.stderr == ""


def test_help__makes_no_options_of_steps_and_says_what_the_commands_say(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {word: cli.made(word, panel) for word, panel in cli.WORDS.items()}
    monkeypatch.setattr(cli, "step_command", None)
    monkeypatch.setattr(cli, "made", None)
    assert run_command("--help").exit_code == 0
    for word, command in made.items():
        listed = cli.listed(word)
        assert (listed.name, listed.help) == (command.name, command.help)
        assert (listed.rich_help_panel, listed.hidden) == (command.rich_help_panel, command.hidden)


def test_version__is_that_of_the_package() -> None:
    done = run_python("-m", "protodask", "--version")
    assert (done.returncode, done.stdout) == (0, f"protodask {__version__}\n")


def test_help__imports_nothing_slow() -> None:
    code = (
        "import sys\n"
        "from protodask.cli import app\n"
        "app(['fit', '--help'], standalone_mode=False)\n"
        f"print(sorted(set({SLOW_IMPORTS!r}) & set(sys.modules)))\n"
        "print([name for name in sys.modules if name.startswith('protodask.cli.commands.')])"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"]


def test_help__of_a_terminal_that_says_it_has_no_columns_is_shown() -> None:
    found = run_python("-m", "protodask", "--help", before=("env", "COLUMNS=0"))
    assert (found.returncode, found.stderr) == (0, "")
    assert "Usage: " in found.stdout


def test_wrong_use__exits_with_2() -> None:
    done = run_command("fit", "data.zarr")
    assert done.exit_code == 2
    assert "--out" in done.stderr
    assert done.stdout == ""


IN_ONE_PROCESS = """
import sys
from protodask.cli import app
for line in sys.argv[1:]:
    app(line.split(), standalone_mode=False)
"""


@pytest.mark.slow
def test_whole_way__without_a_terminal_has_no_control_characters(tmp_path: Path) -> None:
    done = run_python(
        "-c",
        IN_ONE_PROCESS,
        "sample-data checker --rows 100 --out data.zarr",
        "fit data.zarr --out model.zarr --recipe source --candidates 20 --max-iterations 5",
        "predict model.zarr data.zarr --out predictions.zarr",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert all(letter.isprintable() or letter == "\n" for letter in done.stdout + done.stderr)
    assert done.stdout.count("\n") > 3
    assert "round 1" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"data.zarr", "model.zarr", "predictions.zarr"}


def test_failure__of_a_process_is_its_exit_code_and_no_traceback(tmp_path: Path) -> None:
    done = run_python("-m", "protodask", "info", "nothing", folder=tmp_path)
    assert done.returncode == errors.FAILED
    seen, remedy = done.stderr.splitlines()
    assert seen.startswith("Error: ")
    assert seen.endswith(" [not-found]")
    assert remedy


def test_failure__shows_a_traceback_with_debug(tmp_path: Path) -> None:
    for debug in (False, True):
        done = run_command("info", tmp_path / "nothing", *(["--debug"] if debug else []))
        assert done.exit_code == errors.FAILED
        assert "[not-found]" in done.stderr
        assert ("Traceback" in done.stderr) == debug


def test_error_of__a_process_that_is_stuck_says_where() -> None:
    line = [sys.executable, "-c", "import time\ndef rest(): time.sleep(100)\nprint(flush=True)\nrest()"]
    shown = environment(PYTHONFAULTHANDLER="1")
    with subprocess.Popen(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shown) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(AssertionError, match=r"is stuck(.|\n)*in rest"):
            error_of(process, seconds=0.1)


@pytest.mark.skipif(os.name != "posix", reason="signals to process groups")
@pytest.mark.slow
def test_interrupt__ends_workers_without_tracebacks(tmp_path: Path) -> None:
    made = run_command("sample-data", "xor", "--rows", 20000, "--out", tmp_path / "data.zarr")
    assert made.exit_code == 0, made.output
    line = "fit data.zarr --out model.zarr --run-dir run --workers 1 --tolerance 0"
    with start_command(*line.split(), stderr=subprocess.PIPE, cwd=tmp_path, start_new_session=True) as process:
        try:
            wait_until(lambda: list(tmp_path.glob("run/batch-1-*.log")), process)
            # As a terminal does: to the program and to its workers.
            os.killpg(process.pid, signal.SIGINT)
            err = error_of(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    assert err.endswith("Stopped. What was finished before stays; nothing is left half-written.\n")
    assert "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"data.zarr", "run"}
