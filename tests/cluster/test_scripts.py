"""What the scripts make of hosts, limits and signals: with stand-ins for the programs that they start."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster._started import CLUSTER, end, environment, run, wait_until

DASK = """#!/bin/sh
echo "$@" >>"$TOLD"
while [ $# -gt 0 ]; do
    if [ "$1" = --scheduler-file ]; then echo '{"address": "tcp://127.0.0.1:1"}' >"$2"; fi
    shift
done
exec sleep 30
"""
FAR = """#!/bin/sh
while [ $# -gt 1 ]; do host="$1"; shift; done
echo "$host|$1" >>"$TOLD"
exec cat
"""
DRIVER = """#!/bin/sh
i=0
while [ "$(wc -l <"$TOLD")" -lt "$LINES_WANTED" ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
"""
SRUN = """#!/bin/sh
echo "$@" >>"$TOLD"
exec sleep 30
"""


def stood_in(script: str, arguments: list[object], folder: Path, lines: int, **more: str) -> list[str]:
    """What the stand-ins were told by a script, a line each."""
    programs = folder / "programs"
    programs.mkdir()
    for name, text in {"dask": DASK, "ssh": FAR, "protodask": DRIVER, "srun": SRUN}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    told = folder / "told"
    told.touch()
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    variables = {"PATH": path, "TOLD": str(told), "LINES_WANTED": str(lines), **more}
    done = run([CLUSTER / script, *arguments], folder, variables, 60)
    assert done.returncode == 0, done.stderr
    return told.read_text().splitlines()


@pytest.mark.parametrize(
    "listed",
    [
        "node1 4\nnode2\nnode3 2",
        "node1 4\r\nnode2\r\nnode3 2\r\n",
        "# all\n\r\nnode1 4 # big\nnode2 # small\n node3\t2",
    ],
    ids=["no end of the last line", "lines of Windows", "comments"],
)
def test_ssh__every_host_of_the_list_has_its_workers(listed: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_bytes(listed.encode())
    told = stood_in("ssh/train.sh", ["--hosts", hosts, "fit", "d"], tmp_path, 4)
    workers = dict(line.split("|") for line in told if "|" in line)
    asked = {host: command.split("--nworkers")[1].split()[0] for host, command in workers.items()}
    assert asked == {"node1": "4", "node2": "1", "node3": "2"}


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"SLURM_MEM_PER_CPU": "1000"}, "3600MiB"),
        ({"SLURM_MEM_PER_NODE": "8000", "SLURM_TASKS_PER_NODE": "2"}, "1800MiB"),
        ({"SLURM_MEM_PER_NODE": "9000", "SLURM_TASKS_PER_NODE": "1,3(x2)"}, "1350MiB"),
        ({"SLURM_MEM_PER_NODE": "8000", "SLURM_NTASKS": "4"}, "900MiB"),
        ({"SLURM_MEM_PER_NODE": "0", "SLURM_TASKS_PER_NODE": "2"}, "auto"),
        ({}, "auto"),
    ],
)
def test_sbatch__workers_stay_below_what_the_job_has(given: dict[str, str], limit: str, tmp_path: Path) -> None:
    # Eight processors a task: two workers of four threads each.
    told = stood_in("slurm/train.sbatch", ["fit", "d"], tmp_path, 2, SLURM_CPUS_PER_TASK="8", **given)
    (worker,) = (line for line in told if " worker " in line)
    assert worker.split("--memory-limit")[1].split()[0] == limit


DRIVING = """
import importlib.util, signal, sys
found = importlib.util.spec_from_file_location("jobqueue_script", sys.argv[1])
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(module.drive([sys.executable, "-c", sys.argv[2], sys.argv[3]]))
"""
DRIVEN = """
import pathlib, signal, sys, time
def leave(number, frame):
    time.sleep(1)
    pathlib.Path(sys.argv[1], "tidy").touch()
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
pathlib.Path(sys.argv[1], "ready").touch()
time.sleep(30)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_jobqueue__a_driver_that_is_stopped_ends_by_itself(how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVING, str(CLUSTER / "slurm" / "jobqueue.py"), DRIVEN, str(tmp_path)]
    started = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, start_new_session=True)
    try:
        wait_until((tmp_path / "ready").exists, "the driver", 60)
        if how == signal.SIGINT:
            os.killpg(started.pid, how)  # as a terminal does
        else:
            os.kill(started.pid, how)
        _, said = started.communicate(timeout=20)
    finally:
        end(started)
    assert started.returncode == 128 + how
    assert (tmp_path / "tidy").exists()
    assert not said


def test_healthcheck__asks_loopback_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    found = importlib.util.spec_from_file_location("healthcheck", CLUSTER / "container" / "healthcheck.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        answering = threading.Thread(target=server.serve_forever)
        answering.start()
        monkeypatch.setenv("HEALTH_PORT", str(server.server_port))
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        try:
            assert module.main() == 0
        finally:
            server.shutdown()
            answering.join(20)


@pytest.mark.parametrize("arguments", [["--memory"], ["--threads", "1", "--memory"], ["--help"]])
@pytest.mark.parametrize("script", ["local/train.sh", "ssh/train.sh"])
def test_train__an_option_without_its_value_is_answered_by_how_it_is_used(
    script: str, arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1\n")
    hosts = ["--hosts", "hosts"] if script.startswith("ssh") else []
    done = run([CLUSTER / script, *hosts, *arguments], tmp_path)
    assert done.returncode == 2
    assert "COMMAND ARGUMENT" in done.stderr
    assert "unbound" not in done.stderr
