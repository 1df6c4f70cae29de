"""The image and the compose file, as far as they can be tried without a container engine.

The Dockerfile's own steps (a virtual environment, `pip install` of what is copied) are those of `.ci/run`; here its
inputs are checked, its health check runs against a real scheduler, and the compose file against its specification.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from cluster._started import CLUSTER, ROOT, end, environment, free_port, run, wait_until
from distributed.cli import dask_scheduler, dask_worker

from protodask.cli import app
from protodask.security.certificates import make_certificates

FOLDER = CLUSTER / "container"


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


def copied() -> dict[str, str]:
    """What of this tree the image is built from, and to where it is copied."""
    found = {}
    for instruction, rest in instructions():
        if instruction == "COPY" and "--from=" not in rest:
            *sources, target = shlex.split(rest)
            found.update(dict.fromkeys(sources, target))
    assert found
    return found


def test_dockerfile__copies_what_is_there_and_let_through() -> None:
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().split()
    for source in copied():
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored
    assert "*" in ignored


def test_dockerfile__copies_all_that_the_wheel_is_built_from() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, wheel = settings["project"], settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    description = settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    read = {*project["license-files"], *(fragment["path"] for fragment in description)}
    named = {*read, *wheel["packages"], *wheel["force-include"]}
    assert {"pyproject.toml", *named} <= copied().keys()


def test_dockerfile__pins_the_minor_version_and_is_not_root() -> None:
    bases = [rest.split()[0] for instruction, rest in instructions() if instruction == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim", base) for base in bases)
    assert len(set(bases)) == 1
    users = [rest for instruction, rest in instructions() if instruction == "USER"]
    assert users == ["10001:10001"]
    names = [instruction for instruction, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "HEALTHCHECK" in names


def test_dockerfile__installs_extras_that_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    (extras,) = re.findall(r"pip install --no-cache-dir '\.\[([a-z,]+)\]'", (FOLDER / "Dockerfile").read_text())
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)


@pytest.mark.slow
def test_dockerfile__its_copy_builds_alone(tmp_path: Path) -> None:
    # The first stage, without the download of what it depends on: what is copied is enough to build the package.
    for source, target in copied().items():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / target)
        elif target.startswith("./"):
            shutil.copy(ROOT / source, tmp_path / target)
    done = run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path / "wheel", tmp_path],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "wheel").glob("protodask-*.whl"))


def test_compose__follows_the_specification(compose: Any) -> None:
    import jsonschema

    found = importlib.util.find_spec("check_jsonschema")
    assert found is not None
    assert found.origin is not None
    place = Path(found.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(place.read_text())
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)  # for long, so once
    takes = validator(schema)
    takes.validate(compose)
    for broken_name, broken_value in (("healthchek", {}), ("volumes", 3), ("depends_on", {"scheduler": {}})):
        broken = copy.deepcopy(compose)
        broken["services"]["worker"][broken_name] = broken_value
        with pytest.raises(jsonschema.ValidationError):
            takes.validate(broken)


def test_compose__paths_exist_and_secrets_are_certificates(compose: Any) -> None:
    build = compose["services"]["worker"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).resolve() == FOLDER / "Dockerfile"
    made = make_certificates().files
    files = {name: entry["file"].rpartition("/")[2] for name, entry in compose["secrets"].items()}
    assert set(files.values()) == made.keys() - {"ca-key.pem"}
    assert all(file == f"{name}.pem" for name, file in files.items())


@pytest.mark.parametrize("role", ["scheduler", "worker", "driver"])
def test_compose__services_have_their_own_secrets_and_no_rights(role: str, compose: Any) -> None:
    service = compose["services"][role]
    client = "client" if role == "driver" else role
    assert service["secrets"] == ["ca", client, f"{client}-key"]
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert "ports" not in service
    words = " ".join([*service["entrypoint"], *service.get("command", [])])
    assert set(re.findall(r"/run/secrets/([a-z-]+)", words)) == set(service["secrets"])
    program = {
        "scheduler": dask_scheduler.main,
        "worker": dask_worker.main,
        "driver": typer.main.get_command(app).commands["fit"],  # type: ignore[attr-defined]
    }[role]
    known = {name for parameter in program.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert set(re.findall(r"(?<!\S)(--[a-z-]+)", words)) <= known


def test_compose__health_is_asked_where_the_dashboard_listens(compose: Any) -> None:
    for role in ("scheduler", "worker"):
        service = compose["services"][role]
        assert f"--dashboard-address=127.0.0.1:{service['environment']['HEALTH_PORT']}" in service["command"]


def test_compose__driver_passes_arguments_on(compose: Any, tmp_path: Path) -> None:
    # What the driver's shell would run, with a program of that name that tells what it was given.
    told = tmp_path / "protodask"
    told.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    told.chmod(0o755)
    entry = [part.replace("$$", "$") for part in compose["services"]["driver"]["entrypoint"]]
    done = subprocess.run(
        [*entry, "fit", "a b", "--out", "m"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split("\n")[:6] == ["fit", "a b", "--out", "m", "--scheduler", "tls://scheduler:8786"]


@pytest.mark.slow
def test_healthcheck__of_a_real_scheduler(tmp_path: Path) -> None:
    port = free_port()
    check = [sys.executable, FOLDER / "healthcheck.py"]
    assert run(check, tmp_path).returncode == 0
    assert run(check, tmp_path, {"HEALTH_PORT": str(port)}).returncode == 1
    command = ["-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    with open(tmp_path / "log", "wb") as log:
        scheduler = subprocess.Popen(
            [sys.executable, *command, "--dashboard-address", f"127.0.0.1:{port}"],
            env=environment(),
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: run(check, tmp_path, {"HEALTH_PORT": str(port)}).returncode == 0, "a healthy scheduler", 60)
    finally:
        end(scheduler)
