"""The way for newcomers in the README of the pipelines, gone as they would, in an empty folder."""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support.commands import run_command

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "pipelines"
FILES = sorted(path for path in FOLDER.rglob("*.*") if path.is_file() and path.suffix != ".pyc")
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- (?P<kind>[\w:]+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)
COMMAND = re.compile(r"`(protodask [^`]+)`")
INSTALLED = re.compile(r"pip install '(?:protodask|\.)\[([\w,]+)\]'")

HOUR = 3600.0


def blocks(kind: str) -> list[str]:
    return [found["code"] for found in BLOCK.finditer(TEXT) if found["kind"] == kind]


@dataclass(frozen=True)
class Newcomer:
    """Somebody in a folder of their own."""

    folder: Path

    def run(self, code: str) -> str:
        """What a block of commands prints; all of them have to work."""
        # The scripts of this environment come first, whether or not it has been activated.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PROTODASK_")}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=self.folder,
            env={**environment, "PATH": path, "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def step(self, name: str) -> str:
        (code,) = blocks(f"run:{name}")
        return self.run(code)

    def wait_an_hour(self) -> None:
        """Files are as old as they will be then."""
        for path in (self.folder / "inbox").iterdir():
            os.utime(path, (time.time() - HOUR, time.time() - HOUR))

    def scores(self) -> pandas.DataFrame:
        return pandas.read_parquet(self.folder / "scores.parquet")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_readme__from_an_empty_folder_to_hourly_predictions(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    newcomer.step("data")

    said = newcomer.step("train")
    assert "to do" in said
    assert "champion" in said

    said = newcomer.step("score")
    assert re.search(r"monday-1999 +(late|in time) ", said)
    assert newcomer.scores()["id"].tolist() == [f"monday-{number}" for number in range(2000)]

    said = newcomer.step("again")
    assert "nothing to do" in said
    assert sorted(newcomer.scores()["id"]) == sorted(f"{d}-{n}" for d in ("monday", "tuesday") for n in range(2000))

    (crontab,) = blocks("cron")
    (job,) = re.findall(r"^5 \* \* \* \* +(.*)$", crontab, re.MULTILINE)
    job = job.replace("/srv/protodask", str(tmp_path))
    newcomer.run("python parcels.py wednesday > inbox/wednesday.csv")
    newcomer.run(job)
    assert len(newcomer.scores()) == 4000, "a file that was just written may not be complete"
    newcomer.wait_an_hour()
    newcomer.run(job)
    assert newcomer.scores()["id"].value_counts().tolist() == [1] * 6000
    said = newcomer.step("log")
    ended = json.loads(said.splitlines()[0])
    assert (ended["event"], ended["status"]) == ("run-ended", "done")
    metrics = text_string_to_metric_families((tmp_path / "metrics" / "score.prom").read_text())  # type: ignore[no-untyped-call]
    figures = {sample.name: sample.value for family in metrics for sample in family.samples}
    assert figures["protodask_run_success"] == 1
    assert figures["protodask_step_rows"] == 2000

    said = newcomer.step("refresh")
    assert "champion" in said
    assert "nothing to do" in said or "The run ends here" in said, "the second time"

    newcomer.step("systemd")
    assert {path.name for path in tmp_path.glob("protodask*@*")} == {
        "protodask@.service",
        "protodask@.timer",
        "protodask-failed@.service",
    }

    said = newcomer.step("broken")
    assert "exit code 1" in said
    assert "broken.csv" in said
    assert "6,000" in newcomer.step("info")
    assert len(newcomer.scores()) == 6000


def test_readme__every_block_of_commands_is_run() -> None:
    kinds = [found["kind"] for found in BLOCK.finditer(TEXT) if not found["language"]]
    # The first installs the package from the network.
    assert kinds == [
        None,
        "run:data",
        "run:train",
        "run:score",
        "run:again",
        "cron",
        "run:log",
        "run:systemd",
        "run:refresh",
        "run:broken",
        "run:info",
    ]


def test_readme__extras_that_it_names_are_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for found in INSTALLED.findall(TEXT) for extra in found.split(",")}
    assert named == {"tabular", "pipelines"}
    assert named <= set(extras)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files__what_they_install_reads_and_writes_tables(path: Path) -> None:
    text = path.read_text()
    extras = INSTALLED.findall(text)
    assert len(extras) == text.count("pip install")
    assert all("tabular" in found.split(",") for found in extras)


@pytest.mark.parametrize("command", sorted(set(COMMAND.findall(TEXT))))
def test_readme__commands_in_running_text_are_known(command: str) -> None:
    words = command.split(">", maxsplit=1)[0].split()[1:]
    shown = run_command(*_with_help(words))
    assert shown.exit_code == 0, shown.stderr
    for option in (word for word in words if word.startswith("--")):
        assert option in shown.stdout


def _with_help(words: Sequence[str]) -> list[str]:
    """The command of some words without its arguments, asked for help; options stay where it is one with values."""
    groups = {"registry", "budget", "robust", "cluster"}
    if words[0] == "STEP":
        return ["--help"]
    return [*words[: 2 if words[0] in groups else 1], "--help"]
