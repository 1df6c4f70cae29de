"""Unit files, crontab and DAGs: parsed, and their commands run with a stand-in for the command line."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from support.commands import run_command

FOLDER = Path(__file__).parents[2] / "pipelines"
UNITS = sorted((FOLDER / "systemd").iterdir())

STUB = """#!/bin/sh
echo "$PWD $*" >> "{log}"
echo "said why" >&2
exit {code}
"""


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _unit(name: str) -> configparser.RawConfigParser:
    parsed = _Unit(delimiters=("=",), comment_prefixes=("#",), strict=True, interpolation=None)
    parsed.read_string((FOLDER / "systemd" / name).read_text())
    return parsed


def _options_exist(command: list[str]) -> None:
    """The command line knows what is asked of it, up to the file that is not there."""
    assert command[0].rpartition("/")[2] == "protodask"
    done = run_command(*command[1:])
    assert done.exit_code == 1, done.output
    assert "not-found" in done.output


def test_units__are_what_systemd_takes(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on this machine")
    for unit in UNITS:
        # Programs that are on this machine, as their presence is checked.
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/sh", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name.replace("@.", "@score.")).write_text(text)
        (tmp_path / unit.name).write_text(text)
    units = [str(tmp_path / unit.name.replace("@.", "@score.")) for unit in UNITS]
    done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, timeout=60, check=False)
    # Whether systemd itself runs is another question than whether the files are right.
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "score" in line]
    assert said == []


def test_units__the_service_runs_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    service = _unit("protodask@.service")
    command = shlex.split(service["Service"]["ExecStart"].replace("%i", "score"))
    assert command[2] == "score.yaml"
    _options_exist(command)
    assert service["Service"]["Type"] == "oneshot"
    assert "3" not in service["Service"]["SuccessExitStatus"].split(), "a gate's no is to be seen"
    assert service["Unit"]["OnFailure"] == "protodask-failed@%n.service"
    assert service["Service"]["ReadWritePaths"] == service["Service"]["WorkingDirectory"]
    timer = _unit("protodask@.timer")
    assert timer["Timer"]["Persistent"] == "true"
    assert timer["Install"]["WantedBy"] == "timers.target"


@dataclass(frozen=True)
class Stub:
    """A `protodask` that notes how it is called."""

    folder: Path
    log: Path

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def shell(self, command: str, folder: Path) -> int:
        path = f"{self.folder}:/usr/bin:/bin"
        return subprocess.run(["/bin/sh", "-c", command], cwd=folder, env={"PATH": path}, check=False).returncode

    def printed(self, command: str, folder: Path) -> str:
        """What a command prints, of which there is mail."""
        path = f"{self.folder}:/usr/bin:/bin"
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=folder, env={"PATH": path}, check=False, capture_output=True, text=True
        )
        return done.stdout + done.stderr


def _stub(tmp_path: Path, code: int) -> Stub:
    stub = Stub(tmp_path / "bin", tmp_path / "calls")
    stub.folder.mkdir()
    (stub.folder / "protodask").write_text(STUB.format(log=stub.log, code=code))
    (stub.folder / "protodask").chmod(0o755)
    (tmp_path / "srv").mkdir()
    return stub


@pytest.mark.parametrize("code", [0, 3])
def test_crontab__its_lines_run(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = _stub(tmp_path, code)
    lines = [line for line in (FOLDER / "cron" / "crontab").read_text().splitlines() if line and line[0] != "#"]
    jobs = [line for line in lines if not re.match(r"[A-Z]+=", line)]
    assert len(jobs) == 2
    for job in jobs:
        *times, command = job.split(None, 5)
        assert all(re.fullmatch(r"[0-9*,/-]+", time) for time in times)
        assert "%" not in command, "to cron that is the end of the line"
        command = command.replace("/srv/protodask", str(tmp_path / "srv"))
        assert stub.printed(command, tmp_path) == ("said why\n" if code else ""), "what is printed is sent"
        assert "not found" in stub.printed(command.replace("protodask run", "no-such-command"), tmp_path)
    assert [call.split()[:3] for call in stub.calls()] == [
        [str(tmp_path / "srv"), "run", name] for name in ("score.yaml", "refresh.yaml")
    ]
    monkeypatch.chdir(tmp_path)
    for call in stub.calls():
        _options_exist(["protodask", *call.split()[1:]])


@dataclass
class _Airflow:
    """What a DAG file makes, from stand-ins for Airflow's classes."""

    dags: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def _airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Airflow]:
    made = _Airflow()

    class DAG:
        def __init__(self, **settings: Any) -> None:
            self.dag_id = settings["dag_id"]
            made.dags.append(settings)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return

    def operator(**settings: Any) -> None:
        made.tasks.append(settings)

    for name in ("airflow", "airflow.providers", "airflow.providers.standard", "airflow.providers.standard.operators"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name, content in (
        ("airflow.sdk", {"DAG": DAG}),
        ("airflow.providers.standard.operators.bash", {"BashOperator": operator}),
    ):
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    yield made


def test_airflow__its_tasks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = _stub(tmp_path, 3)
    names: dict[str, Any] = {}
    with _airflow(monkeypatch) as made:
        source = (FOLDER / "airflow" / "protodask_dags.py").read_text()
        exec(compile(source, "protodask_dags.py", "exec"), names)
    assert [dag["dag_id"] for dag in made.dags] == ["protodask_score", "protodask_refresh"]
    assert {"protodask_score", "protodask_refresh"} <= set(names), "Airflow finds DAGs among a module's names"
    for dag, task in zip(made.dags, made.tasks, strict=True):
        assert dag["max_active_runs"] == 1
        assert dag["catchup"] is False
        assert task["cwd"] == "/srv/protodask"
        assert stub.shell(task["bash_command"], tmp_path / "srv") == task["skip_on_exit_code"]
    monkeypatch.chdir(tmp_path)
    for call in stub.calls():
        _options_exist(["protodask", *call.split()[1:]])


def test_schedulers__name_pipelines_that_there_are() -> None:
    shipped = {path.name for path in FOLDER.glob("*.yaml")}
    text = "".join(path.read_text() for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".md")
    named = set(re.findall(r"\b(\w+)\.yaml\b", text)) - {"NAME", "PIPELINE", "i"}
    assert {f"{name}.yaml" for name in named} <= shipped
    for path in FOLDER.glob("*.yaml"):
        yaml.safe_load(path.read_text())
