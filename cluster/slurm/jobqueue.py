r"""Run one protodask command on workers that come and go as Slurm jobs, through dask-jobqueue.

    pip install '.[slurm]'
    python cluster/slurm/jobqueue.py --config jobqueue.yaml --jobs 8 --certs certs \
        fit /shared/data.zarr --out /shared/model.zarr

Scheduler and driver run where this is started: a login node, or a job of its own (`sbatch --wrap "python ..."`).
Workers are asked for as there is work: a job that is lost, or that reaches its time limit, is replaced by another.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.config
import yaml
from distributed.security import Security

from protodask.pipeline.file.yaml_file import read_mapping

CERTIFICATES = ("ca", "scheduler", "scheduler-key", "worker", "worker-key", "client", "client-key")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of this program, and in `command` those of the command to run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("jobqueue.yaml"), help="of the jobs")
    parser.add_argument("--jobs", type=int, default=2, help="worker jobs at most")
    parser.add_argument("--certs", type=Path, help="folder on shared storage, made by `protodask cluster certs`")
    parser.add_argument("--insecure", action="store_true", help="no TLS, where nobody else can reach the nodes")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="of protodask, with its arguments")
    parsed = parser.parse_args(arguments)
    if not parsed.command:
        parser.error("name the command to run, such as: fit DATA --out MODEL")
    if parsed.jobs < 1:
        parser.error("--jobs must be at least 1")
    return parsed


def secured(certs: Path | None, insecure: bool, loopback: bool) -> tuple[dict[str, Any], list[str]]:
    """What secures the connections: arguments of the cluster, and options of the command."""
    if certs is not None:
        files = {name: str((certs / f"{name}.pem").resolve()) for name in CERTIFICATES}
        security = Security(
            tls_ca_file=files["ca"],
            tls_scheduler_cert=files["scheduler"],
            tls_scheduler_key=files["scheduler-key"],
            tls_worker_cert=files["worker"],
            tls_worker_key=files["worker-key"],
            tls_client_cert=files["client"],
            tls_client_key=files["client-key"],
            require_encryption=True,
        )
        options = ["--tls-ca", files["ca"], "--tls-cert", files["client"], "--tls-key", files["client-key"]]
        return {"protocol": "tls://", "security": security}, options
    if loopback:
        return {}, []
    if insecure:
        return {}, ["--insecure"]
    raise SystemExit(
        "Without TLS whoever reaches the nodes can run code on them.\n"
        "Make certificates with 'protodask cluster certs --out certs' and give --certs certs, or say --insecure."
    )


def main() -> int:
    """Start the cluster, run the command on it, and return its exit code."""
    options = parse()
    # Ended in order: the driver first, then the jobs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    dask.config.update(dask.config.config, read_mapping(options.config, yaml.SafeLoader), priority="new")
    from dask_jobqueue.slurm import SLURMCluster

    loopback = dask.config.get("jobqueue.slurm.interface") == "lo"
    arguments, driver = secured(options.certs, options.insecure, loopback)
    # TLS does not cover the dashboard, and nothing switches its HTTP server off.
    with SLURMCluster(scheduler_options={"dashboard_address": "127.0.0.1:0"}, **arguments) as cluster:
        # Not scale(): it does not replace jobs that are lost.
        cluster.adapt(minimum_jobs=1, maximum_jobs=options.jobs)
        # -P: the working folder has data, perhaps of others, and is no place for modules.
        command = [sys.executable, "-P", "-m", "protodask", *options.command, "--scheduler", cluster.scheduler_address]
        return drive([*command, *driver])


def drive(command: list[str]) -> int:
    """Run the driver and return its exit code; one that is to stop is told so, and waited for."""
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except (KeyboardInterrupt, SystemExit) as stop:
        # Ctrl-C reaches the driver by itself, from the terminal.
        if isinstance(stop, SystemExit):
            process.terminate()
        code = process.wait()
        return code if isinstance(stop, KeyboardInterrupt) else 143


if __name__ == "__main__":
    sys.exit(main())
