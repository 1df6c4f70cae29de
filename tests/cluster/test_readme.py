"""What cluster/README.md says exists: files, commands and their options; its snippets and the scripts parse."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from cluster._started import CLUSTER, ROOT

from protodask.cli import app
from protodask.pipeline.state.detached import IMAGE, JOB_TEMPLATE, NAMESPACE, SBATCH_OPTIONS
from protodask.prototypes.run_progress import DRIVER_LOG

README = (CLUSTER / "README.md").read_text()
SNIPPETS = re.findall(r"^```\w*\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
SCRIPTS = [*sorted(CLUSTER.glob("*/*.sh")), *sorted(CLUSTER.glob("*/*.sbatch"))]


def words(line: str) -> list[str]:
    return [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S*", word)]


def commands() -> list[list[str]]:
    return [words(line) for snippet in SNIPPETS for line in snippet.splitlines()]


def parameters(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def check_protodask(arguments: list[str]) -> None:
    found: Any = typer.main.get_command(app)
    rest = list(arguments)
    while hasattr(found, "commands"):
        found = found.commands[rest.pop(0)]
    assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= parameters(found), arguments


def test_readme__links_and_files_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    named = [word for command in commands() for word in command if word.startswith("cluster/") and "certs" not in word]
    assert links
    assert named
    for link in links:
        assert (CLUSTER / link).is_file(), link
    for word in named:
        assert (ROOT / word).is_file(), word


def test_readme__its_commands_of_protodask_exist() -> None:
    called = 0
    for command in commands():
        if command[0] == "protodask":
            check_protodask(command[1:])
            called += 1
        elif (
            command[0].endswith("train.sh") or "jobqueue.py" in " ".join(command) or "train.sbatch" in " ".join(command)
        ):
            # What follows the options of the script is a command of protodask.
            check_protodask(command[command.index("fit") :])
            called += 1
    assert called >= 8


def test_readme__options_of_the_scripts_exist() -> None:
    for command in commands():
        place = next((word for word in command if re.search(r"train\.sh|jobqueue\.py", word)), None)
        if place is not None:
            source = (ROOT / place).read_text()
            own = command[command.index(place) + 1 : command.index("fit")]
            for option in [word for word in own if word.startswith("--")]:
                assert re.search(rf'^ +{option}\)|"{option}"', source, re.MULTILINE), (place, option)


def test_readme__names_what_the_code_looks_at() -> None:
    for name in (SBATCH_OPTIONS, JOB_TEMPLATE, IMAGE, NAMESPACE, DRIVER_LOG):
        assert f"`{name}`" in README


@pytest.mark.parametrize("folder", ["local", "ssh", "slurm", "kubernetes", "container"])
def test_readme__has_a_section_for_each_folder(folder: str) -> None:
    assert (CLUSTER / folder).is_dir()
    assert f"cluster/{folder}/" in README


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_readme__snippets_parse(number: int) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=SNIPPETS[number], text=True, capture_output=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=[f"{script.parent.name}/{script.name}" for script in SCRIPTS])
def test_scripts__parse_and_can_be_run(script: Path) -> None:
    done = subprocess.run(["bash", "-n", script], text=True, capture_output=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    assert script.stat().st_mode & 0o111
    text = script.read_text()
    assert "set -euo pipefail" in text
    assert not re.search(r"\b(pkill|killall)\b", text)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed here")
@pytest.mark.parametrize("script", SCRIPTS, ids=[f"{script.parent.name}/{script.name}" for script in SCRIPTS])
def test_scripts__shellcheck(script: Path) -> None:
    done = subprocess.run(
        ["shellcheck", "--severity=warning", script], text=True, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", sorted(CLUSTER.glob("*/*.yaml")), ids=lambda file: f"{file.parent.name}/{file.name}")
def test_yaml__loads_safely(file: Path) -> None:
    assert all(isinstance(one, dict) for one in yaml.safe_load_all(file.read_text()))
