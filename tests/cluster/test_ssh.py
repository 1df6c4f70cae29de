"""Workers started through ssh, for real: an sshd on loopback with keys, port and configuration of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from cluster._started import (
    CLUSTER,
    FIT,
    ROOT,
    Problem,
    end,
    environment,
    fingerprint,
    free_port,
    make_certificates,
    run,
    wait_until,
)

SCRIPT = CLUSTER / "ssh" / "train.sh"
SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))

pytestmark = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="no sshd is installed here, or no ssh to reach it with"
)


@dataclass(frozen=True)
class Server:
    """An ssh server, and the options with which it is reached."""

    process: psutil.Process
    folder: Path
    options: tuple[str, ...]

    def command(self, hosts: str, *rest: object) -> list[object]:
        """The script on a list of hosts."""
        listed = self.folder / "hosts"
        listed.write_text(hosts)
        dask = Path(sys.executable).parent / "dask"
        return [SCRIPT, "--hosts", listed, "--memory", "700MiB", "--remote-dask", dask, *self.options, *rest]

    def sessions(self) -> list[psutil.Process]:
        """What runs on behalf of those who are logged in."""
        children: list[psutil.Process] = self.process.children(recursive=True)
        return children


class Knocking:
    """Connects to a port again and again without a certificate, and notes whether it was turned away."""

    def __init__(self, port: int) -> None:
        self.seen: list[bool] = []
        self._port = port
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._knock)

    def __enter__(self) -> Knocking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    def _knock(self) -> None:
        # Whoever asks does not check the other side, so that only the other side can refuse.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        while not self._ended.wait(0.5):
            try:
                plain = socket.create_connection(("127.0.0.1", self._port), timeout=5)
            except OSError:
                continue  # nobody listens yet, or any more
            with plain:
                try:
                    with context.wrap_socket(plain) as encrypted:
                        self.seen.append(not encrypted.recv(1))
                except ssl.SSLError as error:
                    self.seen.append("CERTIFICATE_REQUIRED" in str(error).upper().replace(" ", "_"))
                except OSError:
                    continue  # the scheduler ended meanwhile


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, no_process_left_behind: None) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's own condition for running as root
    port = free_port()
    # Whatever chooses the BLAS kernels has to be the same on both sides for the same bits.
    chosen = {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
    variables = " ".join(f"{name}={value}" for name, value in {"PYTHONPATH": ROOT, **chosen}.items())
    (folder / "config").write_text(
        f"""
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv {variables}
""".lstrip()
    )
    options = (
        f"--ssh-option=-p{port}",
        f"--ssh-option=-i{folder}/user",
        f"--ssh-option=-oUserKnownHostsFile={folder}/known",
        "--ssh-option=-oStrictHostKeyChecking=accept-new",
        "--ssh-option=-oIdentitiesOnly=yes",
    )
    with open(folder / "log", "wb") as log:
        started = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(folder / "config")], stderr=log)
    try:
        wait_until(lambda: b"Server listening" in (folder / "log").read_bytes(), "sshd", 30)
        yield Server(psutil.Process(started.pid), folder, options)
    finally:
        end(started)


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["loopback", "tls"])
def test_train__workers_through_ssh(secure: bool, server: Server, problem: Problem, tmp_path: Path) -> None:
    model = tmp_path / "model.zarr"
    hosts = "# a comment, and an empty line\n\n127.0.0.1 2\nlocalhost\n"
    certificates = ["--certs", make_certificates(tmp_path)] if secure else []
    command = server.command(hosts, *certificates, "fit", problem.data, "--out", model, *FIT)
    if secure:
        # A port that is chosen before, so that somebody without a certificate can knock at it.
        port = free_port()
        command[1:1] = ["--port", port]
        with Knocking(port) as refused:
            done = run(command, tmp_path)
        assert refused.seen
        assert all(refused.seen)
    else:
        done = run(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert fingerprint(model) == problem.fingerprint
    wait_until(lambda: not server.sessions(), "the end of the workers", 30)
    assert "Accepted publickey" in (server.folder / "log").read_text()


@pytest.mark.slow
def test_train__names_a_host_that_does_not_answer(server: Server, problem: Problem, tmp_path: Path) -> None:
    model = tmp_path / "model.zarr"
    done = run(server.command("127.0.0.1\nnobody.invalid 2\n", "fit", problem.data, "--out", model, *FIT), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "nobody.invalid are not there any more" in done.stderr
    assert fingerprint(model) == problem.fingerprint


@pytest.mark.slow
def test_train__killed_leaves_no_worker(server: Server, problem: Problem, tmp_path: Path) -> None:
    model = tmp_path / "model.zarr"
    command = server.command(
        "127.0.0.1\n", "fit", problem.data, "--out", model, "--candidates", "200", "--batches", "50"
    )
    started = subprocess.Popen(
        list(map(str, command)),
        cwd=tmp_path,
        env=environment(TMPDIR=str(tmp_path)),  # what is killed cannot clean up
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    children: list[psutil.Process] = []
    try:
        wait_until(lambda: any(Path(f"{model}.run").glob("batch-*.log")), "the first evaluation")
        children = psutil.Process(started.pid).children(recursive=True)
        assert server.sessions()
        os.kill(started.pid, signal.SIGKILL)
        started.wait(30)
        # Nobody told the far side anything: it saw that nobody wants its worker any more.
        wait_until(lambda: not server.sessions(), "the end of the workers", 30)
    finally:
        end(started)
        # The scheduler and the driver of a killed script go on until they notice; here they are not waited for.
        for child in children:
            if child.is_running():
                child.kill()
        psutil.wait_procs(children, timeout=20)


def test_train__refuses_other_machines_without_certificates(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1\n")
    done = run([SCRIPT, "--hosts", tmp_path / "hosts", "--address", "10.0.0.1", "fit", "d", "--out", "m"], tmp_path)
    assert done.returncode == 2
    assert "protodask cluster certs" in done.stderr


@pytest.mark.slow
def test_train__says_how_it_is_used(tmp_path: Path) -> None:
    for arguments in ([], ["--hosts", "none", "fit"], ["fit", "d"]):
        done = run([SCRIPT, *arguments], tmp_path)
        assert done.returncode == 2
        assert "hosts" in done.stderr
    (tmp_path / "empty").write_text("# nobody\n")
    done = run([SCRIPT, "--hosts", tmp_path / "empty", "fit", "d", "--out", "m"], tmp_path)
    assert done.returncode == 2
    assert "names none" in done.stderr
