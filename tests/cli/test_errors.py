"""From exceptions to messages and exit codes."""

import errno

import pytest
import typer
from support.errors import refused

from protodask.cli.errors import WrongUseError, reported, wrong_use
from protodask.errors import ClusterError, InputError, ProtodaskError


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


def test_reported__interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(KeyboardInterrupt()) == 130
    assert "Stopped." in capsys.readouterr().err


def test_reported__leaves_the_end_of_a_pipe_to_the_framework(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError), reported(debug=False):
        raise BrokenPipeError(errno.EPIPE, "broken pipe")
    assert capsys.readouterr().err == ""


def test_reported__text_from_outside_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(InputError("bad-value", "Column \x1b[2J.", "Do this.")) == 1
    assert "\x1b" not in capsys.readouterr().err
