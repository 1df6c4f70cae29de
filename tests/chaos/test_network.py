"""Workers on hosts of their own, one of which is cut off from the network in the middle of a run.

The hosts are network namespaces, joined by virtual cables through the one in which scheduler and driver are. Making
them takes root and `ip`. `pytest tests/chaos -m slow` includes this.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from protodask import FitConfig, fit, load_model, sample_data, thread_engine
from protodask.prototypes.persistence import model_fingerprint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None,
        reason="network namespaces take root and the programs ip and unshare",
    ),
]

PORT = 8786
SCHEDULER = "10.77.0.1"
CONFIG = FitConfig.of("source", n_batches=2, n_candidates=200, tolerance=1e-5)
OPTIONS = ["--recipe", "source", "--batches", "2", "--candidates", "200", "--tolerance", "1e-5"]
DETECTION_SECONDS = 12
"""What a cut cable takes to be noticed: the shortest that distributed allows is 11."""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


@dataclass(frozen=True)
class Host:
    name: str

    def command(self, *arguments: str) -> list[str]:
        """A command on this host, under a host name of its own."""
        script = f'hostname {self.name} && exec "$@"'
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", script, "sh", *arguments]


@dataclass(frozen=True)
class Network:
    """A hub and two hosts, which reach each other through it."""

    hub: Host
    hosts: tuple[Host, Host]

    def cut(self, number: int) -> None:
        ip("-n", self.hub.name, "link", "set", f"cable{number}", "down")


@pytest.fixture
def network() -> Iterator[Network]:
    token = secrets.token_hex(2)
    hub = Host(f"hub-{token}")
    hosts = (Host(f"one-{token}"), Host(f"two-{token}"))
    with contextlib.ExitStack() as made:
        for host in (hub, *hosts):
            ip("netns", "add", host.name)
            made.callback(ip, "netns", "del", host.name)
            ip("-n", host.name, "link", "set", "lo", "up")
        ip("-n", hub.name, "addr", "add", f"{SCHEDULER}/32", "dev", "lo")
        subprocess.run(
            ["ip", "netns", "exec", hub.name, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True
        )
        for number, host in enumerate(hosts, start=1):
            ip("-n", hub.name, "link", "add", f"cable{number}", "type", "veth", "peer", "eth0", "netns", host.name)
            ip("-n", hub.name, "addr", "add", f"10.77.{number}.1/24", "dev", f"cable{number}")
            ip("-n", hub.name, "link", "set", f"cable{number}", "up")
            ip("-n", host.name, "addr", "add", f"10.77.{number}.2/24", "dev", "eth0")
            ip("-n", host.name, "link", "set", "eth0", "up")
            ip("-n", host.name, "route", "add", "default", "via", f"10.77.{number}.1")
        yield Network(hub, hosts)


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": f"{DETECTION_SECONDS}s",
        "DASK_PROTODASK__WORKER_TIMEOUT": "60s",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_fit__with_a_host_that_is_cut_off(network: Network, tmp_path: Path) -> None:
    data = sample_data("checker", 8_000, tmp_path / "d.zarr")
    with thread_engine(2) as engine:
        expected = fit(data, CONFIG, engine=engine).model
    common = ["--dashboard-address", "127.0.0.1:0"]
    dask = [sys.executable, "-m", "dask"]
    address = f"tcp://{SCHEDULER}:{PORT}"
    with contextlib.ExitStack() as started:

        def start(host: Host, name: str, *command: str) -> subprocess.Popen[bytes]:
            return started.enter_context(running(host.command(*command), tmp_path / f"{name}.log"))

        start(network.hub, "scheduler", *dask, "scheduler", "--host", SCHEDULER, "--port", str(PORT), *common)
        for number, host in enumerate(network.hosts, start=1):
            start(
                host, f"worker-{number}", *dask, "worker", address, "--nthreads", "1",
                "--host", f"10.77.{number}.2", "--local-directory", str(tmp_path / f"worker-{number}"), *common,
            )  # fmt: skip
        run = tmp_path / "m.zarr.run"
        driver = start(
            network.hub, "driver", sys.executable, "-m", "protodask", "fit", data.path,
            "--out", str(tmp_path / "m.zarr"), *OPTIONS, "--scheduler", address, "--insecure",
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not any(run.glob("*.log")) and driver.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)
        network.cut(2)
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()
        assert not (tmp_path / "m.zarr").exists(), "the cut is in the middle of the run"
        assert driver.wait(180) == 0, (tmp_path / "driver.log").read_text()
    assert model_fingerprint(load_model(tmp_path / "m.zarr")) == model_fingerprint(expected)
    assert (
        "Removing worker" in (tmp_path / "scheduler.log").read_text()
        or "10.77.2.2" in (tmp_path / "scheduler.log").read_text()
    )
