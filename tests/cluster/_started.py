"""Starting programs for the tests of cluster/: bounded in time, and ended by their process ids."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from protodask import load_model
from protodask.prototypes.persistence import model_fingerprint

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
FIT = ("--recipe", "source", "--candidates", "20", "--batches", "2", "--tolerance", "1e-4")
SECONDS = 150
"""Bound on anything that is started; on an idle machine none takes a tenth of it."""


@dataclass(frozen=True)
class Problem:
    """A dataset, and the fingerprint of the model that `FIT` makes of it without any cluster."""

    data: Path
    fingerprint: str


def fingerprint(model: Path) -> str:
    """Of a model on disk."""
    return model_fingerprint(load_model(model))


def environment(**more: str) -> dict[str, str]:
    """The environment of what is started: this interpreter's programs and this tree's package come first."""
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "PYTHONWARNINGS": "ignore",
        **more,
    }


def run(
    command: Sequence[object], folder: Path, variables: Mapping[str, str] | None = None, seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, for a bounded time; ended by SIGTERM first, so that it can end what it started."""
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=folder,
        env=environment(**(variables or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=20)
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def make_certificates(folder: Path) -> Path:
    """Certificates as the command makes them, in a new folder."""
    place = folder / "certs"
    done = run([sys.executable, "-m", "protodask", "cluster", "certs", "--out", place], folder)
    assert done.returncode == 0, done.stderr
    return place


def wait_until(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Look again and again until something holds; a failure names what did not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} seconds")
        time.sleep(0.1)


def free_port() -> int:
    """A TCP port of loopback on which nobody listens now."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
    return port


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started here, gently if it lets itself."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(20)


@dataclass(frozen=True)
class Slurm:
    """A Slurm cluster of this machine alone."""

    folder: Path
    variables: dict[str, str]

    def ask(self, *command: object) -> str:
        """What a Slurm command prints."""
        return run(command, self.folder, self.variables, 30).stdout.strip()

    def state(self, job: str) -> str:
        """The state of a job in Slurm's words."""
        fields = dict(field.partition("=")[::2] for field in self.ask("scontrol", "show", "job", job).split())
        return fields.get("JobState", "")


def slurm_is_missing() -> str | None:
    missing = [name for name in ("munged", "mungekey", "slurmctld", "slurmd", "sbatch") if _daemon(name) is None]
    if missing:
        return f"Slurm is not installed here (no {', '.join(missing)})"
    if os.geteuid() != 0:
        return "slurmd starts jobs as their users, which takes root"
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    except OSError:
        addresses = set()
    if not addresses or not all(address.startswith("127.") for address in addresses):
        return "the host name of this machine is not a name of loopback, and Slurm would listen beyond it"
    return None


def _daemon(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))


@contextlib.contextmanager
def slurm_cluster() -> Iterator[Slurm]:
    """Slurm on loopback, with ports, keys and folders of its own."""
    # Slurm and munge want their folders open to others and their sockets' names short.
    folder = Path(mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    host = socket.gethostname().split(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""".lstrip()
    )
    variables = {"SLURM_CONF": str(configuration)}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: object) -> None:
        with open(folder / f"{name}.log", "wb") as log:
            started.append(
                subprocess.Popen(
                    [str(_daemon(name)), *map(str, arguments)],
                    env=environment(**variables),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    found = Slurm(folder, variables)
    try:
        subprocess.run([str(_daemon("mungekey")), "--create", "--keyfile", str(folder / "munge.key")], check=True)
        start(
            "munged", "--foreground", "--force", "--key-file", folder / "munge.key",
            "--seed-file", folder / "munge.seed", "--socket", folder / "munge.socket",
            "--pid-file", folder / "munged.pid", "--log-file", folder / "munge.log",
        )  # fmt: skip
        wait_until((folder / "munge.socket").exists, "munged", 30)
        start("slurmctld", "-D", "-f", configuration)
        start("slurmd", "-D", "-f", configuration, "-N", host)
        wait_until(lambda: "idle" in found.ask("sinfo", "--noheader", "--format=%T"), f"Slurm, see {folder}", 60)
        yield found
        found.ask("scancel", "--user=root")
        wait_until(lambda: not found.ask("squeue", "--noheader"), "the end of all jobs", 60)
    finally:
        for process in reversed(started):
            end(process)
    shutil.rmtree(folder, ignore_errors=True)
