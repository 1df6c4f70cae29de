"""The files that come with the package, printed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import check_failed
from support.errors import refused
from typer.testing import Result

from protodask.cli.commands import example
from protodask.cli.commands.example import shipped_files
from protodask.errors import FormatError

Call = Callable[..., Result]
SOURCE = Path(__file__).parents[2] / "pipelines"


def test_example__lists_them(call: Call) -> None:
    done = call("example")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert any(line.split() == ["protodask@.timer", "for", "systemd"] for line in lines)
    assert any(line.startswith("quickstart.yaml ") and "sample data" in line for line in lines)


def test_example__prints_one_as_it_is(call: Call) -> None:
    for path in SOURCE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            done = call("example", path.name)
            assert done.exit_code == 0, done.output
            assert done.stdout == path.read_text(encoding="utf-8")
    assert call("example", "quickstart").stdout == (SOURCE / "quickstart.yaml").read_text(encoding="utf-8")


def test_example__names_are_told_apart() -> None:
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(shipped_files()) == len(files)


@pytest.mark.parametrize("name", ["none", "../pyproject.toml", "/etc/passwd", ""])
def test_example__one_that_is_none(name: str, call: Call) -> None:
    done = call("example", name)
    check_failed(done, 2, "unknown-name", f"{name!r}", "quickstart.yaml")


def test_example__an_installed_package_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "FOLDERS", (tmp_path / "examples", tmp_path / "pipelines"))
    with refused("damaged", kind=FormatError):
        shipped_files()
    for folder in ("pipelines", "examples"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.yaml").write_text("steps: []\n")
        assert list(shipped_files()) == [f"{folder}.yaml"]
