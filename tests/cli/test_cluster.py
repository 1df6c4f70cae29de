"""`protodask cluster`, and computing on a cluster with TLS from the command line."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commands import check_failed, fingerprint_of, json_of
from support.secure_cluster import START_SECONDS, secure_cluster, tls_files

from protodask.engine import connect
from protodask.engine.connect import connect_client
from protodask.errors import Code
from protodask.security.certificates import make_certificates

Call = Callable[..., Any]

FIT = ("--recipe", "source", "--candidates", "20", "--max-iterations", "5")


@dataclass(frozen=True)
class Secure:
    """A running cluster, and the options to reach it."""

    address: str
    options: tuple[str, ...]


def _commands(printed: str) -> list[list[str]]:
    """The commands that `cluster certs` prints, in their order."""
    return [shlex.split(line) for line in printed.splitlines() if line.startswith("  ")]


@pytest.fixture(scope="module")
def secure(call: Call, tmp_path_factory: pytest.TempPathFactory, no_process_left_behind: None) -> Iterator[Secure]:
    """A cluster of two workers, started with the very commands that were printed."""
    folder = tmp_path_factory.mktemp("secure cluster")
    made = call("cluster", "certs", "--out", folder / "certs")
    assert made.exit_code == 0, made.output
    scheduler, worker, fit = _commands(made.stdout)
    assert [scheduler[:2], worker[:2], fit[:2]] == [["dask", "scheduler"], ["dask", "worker"], ["protodask", "fit"]]
    here = {"tls://HOST": "tls://127.0.0.1", "tls://SCHEDULER:8786": "SCHEDULER"}
    commands = [[here.get(part, part) for part in command] for command in (scheduler, worker)]
    options = tuple(fit[fit.index("--tls-ca") :])
    with secure_cluster(commands[0], commands[1], folder, n_workers=2) as address:
        with connect_client(address, tls_files(folder / "certs")) as client:
            client.wait_for_workers(2, timeout=START_SECONDS)
        yield Secure(address, options)


CLUSTER = """
import time
from distributed import LocalCluster

options = {"protocol": "tcp", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **options) as cluster:
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_fit__whose_scheduler_dies_says_so_without_a_traceback(example: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "protodask", "fit", example.data, "--out", tmp_path / "m.zarr", "--tolerance", "0"]
    cluster = subprocess.Popen([sys.executable, "-c", CLUSTER], stdout=subprocess.PIPE, cwd=tmp_path, text=True)
    try:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        process = subprocess.Popen([*command, "--scheduler", address], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        seen = next(line for line in process.stderr if "begins with" in line)
    finally:
        cluster.kill()
        cluster.communicate()
    _, told = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 1, seen + told
    assert "[connection-lost]" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_fit__over_tls_gives_the_same_model(secure: Secure, call: Call, example: Any, tmp_path: Path) -> None:
    here = call("fit", example.data, "--out", tmp_path / "here.zarr", *FIT)
    options = ("--scheduler", secure.address, *secure.options)
    there = call("fit", example.data, "--out", tmp_path / "there.zarr", *FIT, *options)
    assert here.exit_code == 0, here.output
    assert there.exit_code == 0, there.output
    assert fingerprint_of(tmp_path / "here.zarr") == fingerprint_of(tmp_path / "there.zarr")


@pytest.mark.slow
def test_run__carries_out_a_pipeline_over_tls(secure: Secure, call: Call, tmp_path: Path) -> None:
    steps = tmp_path / "steps.yaml"
    data = tmp_path / "data.zarr"
    steps.write_text(f"steps:\n  - sample-data: {{kind: checker, rows: 2000, out: {data}}}\n")
    done = call("run", steps, "--scheduler", secure.address, *secure.options)
    assert done.exit_code == 0, done.output
    assert data.is_dir()


def test_fit__without_the_right_certificate_is_refused(
    secure: Secure, call: Call, example: Any, tmp_path: Path
) -> None:
    make_certificates().write(tmp_path / "foreign")
    (tmp_path / "out").mkdir()
    ca = secure.options[1]
    names = ("--tls-cert", tmp_path / "foreign" / "client.pem", "--tls-key", tmp_path / "foreign" / "client-key.pem")
    refusals: tuple[tuple[tuple[object, ...], Code, str], ...] = (
        ((), "not-secure", "--tls-ca, --tls-cert and --tls-key"),
        (("--tls-ca", ca, *names), "refused", "the certificate of this client"),
        (("--tls-ca", tmp_path / "foreign" / "ca.pem", *names), "refused", "The certificate of the scheduler"),
    )
    for options, code, fact in refusals:
        out = tmp_path / "out" / "model.zarr"
        done = call("fit", example.data, "--out", out, "--scheduler", secure.address, *options)
        check_failed(done, 1, code, secure.address, fact)
        assert os.listdir(tmp_path / "out") == []


def test_check__of_a_cluster_that_is_fit(secure: Secure, call: Call, example: Any, tmp_path: Path) -> None:
    storage = ("--storage", tmp_path, "--storage", example.data)
    done = call("cluster", "check", secure.address, *secure.options, *storage)
    assert done.exit_code == 0, done.output
    assert "encrypted" in done.stdout
    assert "2 with 2 threads, 2 GiB" in done.stdout
    assert "protodask scheduler" in done.stdout
    assert "written to by 2 of 2 workers" in done.stdout
    assert done.stdout.endswith("No problem found.\n")
    found = json_of("cluster", "check", secure.address, *secure.options)
    assert found["kind"] == "cluster"
    assert found["encrypted"]
    assert [one["of"] for one in found["certificates"]] == ["scheduler", "client", "CA"]
    assert all(364 < one["days_left"] <= 365 for one in found["certificates"])


def test_check__with_a_problem_exits_with_3(secure: Secure, call: Call, tmp_path: Path) -> None:
    done = call("cluster", "check", secure.address, *secure.options, "--storage", tmp_path / "nothing")
    assert done.exit_code == 3
    assert "Problem: " in done.stdout
    assert "1 problem found." in done.stdout
    found = call("cluster", "check", secure.address, *secure.options, "--storage", tmp_path / "nothing", "--json")
    assert found.exit_code == 3
    assert [problem["about"] for problem in json.loads(found.stdout)["problems"]] == ["storage"]


def test_check__of_nothing_exits_with_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "CONNECT_SECONDS", 1)
    done = call("cluster", "check", "tcp://127.0.0.1:1")
    check_failed(done, 1, "no-answer", "tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        (("check", "tcp://10.0.0.1:8786"), "not-secure", ["tcp://10.0.0.1:8786", "tls://", "--insecure"]),
        (("check", "tls://10.0.0.1:8786", "--insecure"), "settings-conflict", ["tls://10.0.0.1:8786", "insecure"]),
        (("check", "tls://10.0.0.1:8786", "--tls-ca", "ca.pem"), "setting-missing", ["--tls-cert and --tls-key"]),
        (("certs", "--out", "certs", "--days", "0"), "bad-setting", ["0 days", "1 to 3650"]),
        (("certs", "--out", "certs", "--host", "tls://node:1"), "bad-setting", ["'tls://node:1'"]),
        (("certs", "--out", "s3://key:secret@bucket/certs"), "not-local", ["certificates"]),
    ],
)
def test_cluster__wrong_use(
    options: tuple[str, ...],
    code: Code,
    facts: list[str],
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("cluster", *options)
    check_failed(done, 2, code, *facts)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("command", "missing"), [("check", "ADDRESS"), ("certs", "--out")])
def test_cluster__names_the_argument_that_is_missing(command: str, missing: str, call: Call) -> None:
    done = call("cluster", command)
    assert done.exit_code == 2
    assert missing in done.stderr
    assert not any(Path.cwd().iterdir())


@pytest.mark.slow
def test_certs__as_json_and_once_more(call: Call, tmp_path: Path) -> None:
    found = json_of("cluster", "certs", "--out", tmp_path / "certs", "--host", "node-1", "--days", 7)
    assert found["hosts"] == ["localhost", "127.0.0.1", "::1", "node-1"]
    assert Path(found["worker"]["key"]).is_file()
    again = call("cluster", "certs", "--out", tmp_path / "certs")
    check_failed(again, 1, "exists", tmp_path / "certs", "--overwrite")
    assert call("cluster", "certs", "--out", tmp_path / "certs", "--overwrite").exit_code == 0
