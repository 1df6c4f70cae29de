"""From exceptions to messages and exit codes."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from support.commands import check_failed, run_command
from support.errors import refused

from protodask import FitConfig, fit, ingest, sample_data
from protodask.cli.errors import WrongUseError, reported, wrong_use
from protodask.cli.progress import TerminalReporter, reporting
from protodask.errors import ClusterError, InputError, ProtodaskError
from protodask.pipeline.file.definition import Pipeline
from protodask.pipeline.file.values import as_keys
from protodask.pipeline.state.runner import check_pipeline
from protodask.pipeline.steps.fit import FitStep
from protodask.prototypes import ConvergenceWarning


def _exit_code(error: BaseException, debug: bool = False) -> int:
    with pytest.raises(typer.Exit) as caught, reported(debug):
        raise error
    return caught.value.exit_code


@pytest.mark.parametrize(
    "error", [InputError("bad-value", "Seen.", "Do this."), ClusterError("bad-value", "Seen.", "Do this.")]
)
def test_reported__says_what_was_seen_and_what_to_do(error: ProtodaskError, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(error) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Error: Seen. [bad-value]\nDo this.\n")


@pytest.mark.parametrize(
    ("text", "options", "keys"),
    [
        ("Treat it as none (unseen='zero').", "Treat it as none (--unseen zero).", "Treat it as none (unseen: zero)."),
        ("max_fraction is 7.0.", "--max-fraction is 7.0.", "max-fraction is 7.0."),
        ("Leave it out with --drop.", "Leave it out with --drop.", "Leave it out with `drop`."),
        (
            "--max-fraction, in Python max_fraction=0.5.",
            "--max-fraction, in Python max_fraction=0.5.",
            "`max-fraction`, in Python max_fraction=0.5.",
        ),
        ("Give --scheduler, --dropped.", "Give --scheduler, --dropped.", "Give --scheduler, --dropped."),
        ("Say `--new` of x/--new/y.", "Say `--new` of x/--new/y.", "Say `new` of x/--new/y."),
        ("Raise `n_candidates` or tolerance.", "Raise --candidates or tolerance.", "Raise `candidates` or tolerance."),
        ("seed is -1.", "--seed is -1.", "seed is -1."),
        ("Say calibrated=True.", "Say --calibrated.", "Say calibrated: true."),
        ("Train with weighted=False.", "Train with --unweighted.", "Train with weighted: false."),
        ("Say overwrite=False.", "Say overwrite=False.", "Say overwrite: false."),
        ("Give `label` or `roc_auc`.", "Give --positive or --roc-auc.", "Give `positive` or `roc-auc`."),
        (
            "Say what it is (categorical=['a b']).",
            "Say what it is (--categorical 'a b').",
            "Say what it is (categorical: [a b]).",
        ),
        (
            "Fewer (n_candidates=900, n_draws=2).",
            "Fewer (--candidates 900 --average-draws 2).",
            "Fewer (candidates: 900, average-draws: 2).",
        ),
        ("Say (unseen='a, b', n_folds=3).", "Say (--unseen 'a, b' --folds 3).", "Say (unseen: a, b, folds: 3)."),
        ("Give (n_folds=3, x=1).", "Give (--folds 3, x=1).", "Give (folds: 3, x=1)."),
        (
            "More (memory_bytes=314572800), fewer `threads`.",
            "More (--memory-limit 300MiB), fewer --threads.",
            "More (--memory-limit 300MiB), fewer --threads.",
        ),
        ("Give (memory_limit=1000).", "Give (--memory-limit 1000).", "Give (--memory-limit 1000)."),
        (
            "Leave it out (`drop` of `ingest()`).",
            "Leave it out (--drop of `protodask ingest`).",
            "Leave it out (`drop` of `protodask ingest`).",
        ),
        (
            "Name it with `Registry.promote()`.",
            "Name it with `protodask registry promote`.",
            "Name it with `protodask registry promote`.",
        ),
        (
            "Say what it is with --categorical max_iterations.",
            "Say what it is with --categorical max_iterations.",
            "Say what it is with `categorical` max_iterations.",
        ),
        *(
            (same, same, same)
            for same in (
                "Column 'max_fraction' of /a/max_fraction.csv.",
                "insecure=True in Python",
                "Say `rows.exact_means()` or `Dataset.open()`.",
                "Give batches.",
                "There is nothing at hold_out.csv.",
                "hold_out.csv is empty.",
                "hold_out is no table.",
                "The columns are held_out, max_iterations and lambda_v.",
                "Nothing is in seed=1/part.csv.",
                "The model seed=1.zarr has 2 batches.",
                "The model seed=1-a.zarr, seed=2.x.zarr has 2 batches.",
                "Write it like rows=1000.",
                "There C=0.5 is no rate.",
                "Train without that column (`protodask ingest --drop`).",
            )
        ),
    ],
)
def test_reported__speaks_of_options_and_files_of_keys(
    text: str, options: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code(InputError("bad-value", "Seen.", text)) == 1
    assert capsys.readouterr().err.splitlines()[1] == options
    assert as_keys(text) == keys
    pipeline = Pipeline("p.yaml", (FitStep("a", "b", max_fraction=7.0),))
    with refused("bad-setting", "step 1 (fit): max-fraction is 7.0"):
        check_pipeline(pipeline)


def test_messages__of_an_error_seen_three_ways(tmp_path: Path) -> None:
    table, out = tmp_path / "t.csv", tmp_path / "d.zarr"
    table.write_text("a,b\n1,x\n2,y\n")
    with refused("setting-missing", "Name it with `target`."):
        ingest(str(table), out)
    check_failed(run_command("ingest", table, "--out", out), 1, "setting-missing", "Name it with --target.")
    steps = f"state: {tmp_path}/state\nsteps: [ingest: {{sources: {table}, out: {out}}}]\n"
    (tmp_path / "p.yaml").write_text(steps)
    check_failed(run_command("run", tmp_path / "p.yaml"), 1, "setting-missing", "Name it with `target`.")


def test_messages__of_a_warning_seen_three_ways(tmp_path: Path) -> None:
    data = sample_data("checker", 500, tmp_path / "d.zarr")
    with pytest.warns(ConvergenceWarning, match=r"raise `max_iterations` or `tolerance`\."):
        fit(data, FitConfig.of("source", n_candidates=20, max_iterations=3))
    settings = ("--recipe", "source", "--candidates", 20, "--max-iterations", 3)
    done = run_command("fit", data.path, "--out", tmp_path / "m.zarr", *settings)
    assert "raise --max-iterations or --tolerance." in done.stderr
    step = f"data: {data.path}, out: {tmp_path}/p.zarr, recipe: source, candidates: 20, max-iterations: 3"
    (tmp_path / "p.yaml").write_text(f"state: {tmp_path}/state\nsteps: [fit: {{{step}}}]\n")
    for quiet in ((), ("--quiet",), ("--log", "json")):
        done = run_command("run", tmp_path / "p.yaml", "--from", "1", *quiet)
        assert "raise `max-iterations` or `tolerance`." in done.stderr


def test_messages__of_a_result_seen_three_ways(tmp_path: Path) -> None:
    data = sample_data("checker", 500, tmp_path / "d.zarr")
    model = fit(data, FitConfig.of("source", n_candidates=20, tolerance=1e-2)).model
    model.save(tmp_path / "m.zarr")
    with refused("not-fitted", "`calibrate_model()`"):
        model.predict_proba(np.zeros((1, 2)), calibrated=True)
    given = (tmp_path / "m.zarr", data.path)
    refusal = run_command("evaluate", *given, "--calibrated")
    check_failed(refusal, 1, "not-fitted", "`protodask calibrate`")
    done = run_command("calibrate", *given, "--out", tmp_path / "c.zarr")
    assert "--calibrated asks for" in done.stdout
    step = f"model: {given[0]}, data: {given[1]}, out: {tmp_path}/p.zarr"
    (tmp_path / "p.yaml").write_text(f"state: {tmp_path}/state\nsteps: [calibrate: {{{step}}}]\n")
    done = run_command("run", tmp_path / "p.yaml")
    assert "calibrated: true asks for" in done.stdout


def test_reported__refusing_imports_little(tmp_path: Path) -> None:
    """What refuses a command need not wait for what would do its work."""
    (tmp_path / "there.zarr").mkdir()
    commands = (
        "fit there.zarr --out there.zarr",
        "fit none.zarr --out m.zarr",
        "fit there.zarr --out m.zarr --max-fraction 7",
        "tune none.zarr --out m.zarr --threads 2 --workers 2",
        "predict none.zarr none.csv --out p.zarr",
        "predict there.zarr there.zarr --out there.zarr",
        "evaluate none.zarr none.csv",
        "policy there.zarr there.zarr --match x",
        "ingest none.csv --out d.zarr --target y",
        "ingest none.csv --out d.zarr --append --overwrite",
        "decide none.zarr --out d.zarr",
        "decide there.zarr --out d.zarr --loss nonsense",
        "report there.zarr none.csv --out r.html",
        "info none.zarr",
        "run none.yaml",
    )
    code = (
        "import sys\nfrom typer.main import get_command\nfrom protodask.cli import app\n"
        "run = get_command(app)\n"
        f"for command in {commands!r}:\n"
        "    try:\n        run(command.split())\n"
        "    except SystemExit as error:\n        assert error.code in (1, 2), command\n"
        "    heavy = {'zarr', 'dask', 'distributed', 'pandas', 'pyarrow', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "    assert not heavy, (command, heavy)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, timeout=120, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Error: ") == len(commands)


def test_reported__wrong_use_has_a_code_of_its_own() -> None:
    assert _exit_code(WrongUseError("bad-value", "Seen.", "Do this.")) == 2
    with refused("bad-value", "Seen.", "Do this.", kind=WrongUseError), wrong_use():
        raise InputError("bad-value", "Seen.", "Do this.")


def test_reported__unexpected_errors_advise_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(ZeroDivisionError("by zero")) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError: by zero" in err
    assert "--debug" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), InputError("bad-value", "Seen.", "Do this.")])
def test_reported__debug_shows_the_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(error, debug=True) == 1
    assert "Traceback" in capsys.readouterr().err


def test_reported__a_full_disk_behind_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == 1
    err = capsys.readouterr().err
    assert "[disk-full]" in err
    assert "unexpected" not in err


class _Full(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "code"), [(InputError("bad-value", "Seen.", "Do this."), 1), (KeyboardInterrupt(), 130)]
)
def test_reported__keeps_its_code_where_nothing_can_be_said(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", _Full())
    assert _exit_code(error, debug=True) == code


@pytest.mark.parametrize("terminal", [False, True])
def test_reporting__goes_on_where_nothing_can_be_said(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log's disk is full, or a terminal was closed."""
    monkeypatch.setattr(_Full, "isatty", lambda _: terminal)
    monkeypatch.setattr(sys, "stderr", _Full())
    monkeypatch.setenv("TERM", "xterm")
    with reporting() as reporter:
        assert isinstance(reporter, TerminalReporter) == terminal
        reporter.line("batch 1 begins")


@pytest.mark.parametrize(
    ("error", "code", "said"), [(KeyboardInterrupt(), 130, "Stopped."), (SystemExit(143), 143, "Ended from outside.")]
)
def test_reported__interrupt(error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(error) == code
    assert capsys.readouterr().err == f"{said} What was finished before stays; nothing is left half-written.\n"


def test_reported__leaves_other_exits_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="5"), reported(debug=False):
        sys.exit(5)
    assert capsys.readouterr().err == ""


def test_reported__leaves_the_end_of_a_pipe_to_the_framework(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError), reported(debug=False):
        raise BrokenPipeError(errno.EPIPE, "broken pipe")
    assert capsys.readouterr().err == ""


def test_reported__text_from_outside_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(InputError("bad-value", "Column \x1b[2J.", "Do this.")) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_reported__an_unforeseen_error_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), reported(debug=True):
        raise RuntimeError("no such bucket: s3://me:hush-hush@host/data?token=hush-hush")
    shown = capsys.readouterr().err
    assert "RuntimeError" in shown
    assert "hush-hush" not in shown
