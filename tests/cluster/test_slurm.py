"""Slurm, for real: a controller, a node and a queue on loopback."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from cluster._started import CLUSTER, FIT, Problem, Slurm, fingerprint, make_certificates, run, wait_until

from protodask import Dataset, FitConfig, fit
from protodask.prototypes.persistence import model_fingerprint

pytestmark = pytest.mark.slow

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def submitted(slurm: Slurm, folder: Path, *command: object, **variables: str) -> str:
    done = run(command, folder, {**slurm.variables, **variables}, 60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for_job(slurm: Slurm, job: str, log: Path) -> None:
    wait_until(lambda: slurm.state(job) in ENDED, f"the end of job {job}")
    assert slurm.state(job) == "COMPLETED", log.read_text()


@pytest.mark.parametrize("secure", [False, True], ids=["loopback", "tls"])
def test_train_sbatch__one_job_with_scheduler_workers_and_driver(
    secure: bool, slurm: Slurm, problem: Problem, tmp_path: Path
) -> None:
    model = tmp_path / "model.zarr"
    variables = {"PROTODASK_CERTS": str(make_certificates(tmp_path))} if secure else {}
    job = submitted(
        slurm, tmp_path, "sbatch", "--parsable", "--ntasks=2", "--mem-per-cpu=400M", CLUSTER / "slurm" / "train.sbatch",
        "fit", problem.data, "--out", model, *FIT, **variables,
    ).strip()  # fmt: skip
    log = tmp_path / f"protodask-{job}.log"
    wait_for_job(slurm, job, log)
    assert fingerprint(model) == problem.fingerprint
    assert "round 2" in log.read_text()


@pytest.mark.parametrize("secure", [False, True], ids=["loopback", "tls"])
def test_jobqueue__workers_are_jobs(secure: bool, slurm: Slurm, problem: Problem, tmp_path: Path) -> None:
    certificates = ["--certs", make_certificates(tmp_path)] if secure else []
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed: the extra `slurm` brings it")
    model = tmp_path / "model.zarr"
    (tmp_path / "rich.py").write_text("raise SystemExit('somebody put this beside the data')\n")
    settings = tmp_path / "jobqueue.yaml"
    text = (CLUSTER / "slurm" / "jobqueue.yaml").read_text()
    for before, after in (
        ("cores: 4", "cores: 1"),
        ("8GiB", "700MiB"),
        ("9G", "800M"),
        ("interface: null", "interface: lo"),
    ):
        assert before in text
        text = text.replace(before, after)
    settings.write_text(text)
    done = run(
        [sys.executable, CLUSTER / "slurm" / "jobqueue.py", "--config", settings, "--jobs", 1, *certificates,
         "fit", problem.data, "--out", model, *FIT],
        tmp_path, slurm.variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert fingerprint(model) == problem.fingerprint
    # The workers were jobs, and they ended with the cluster.
    assert "JobName=protodask-worker" in slurm.ask("scontrol", "show", "jobs")
    wait_until(lambda: not slurm.ask("squeue", "--noheader"), "the end of the workers' jobs")


def test_detach__to_slurm(slurm: Slurm, problem: Problem, tmp_path: Path) -> None:
    model = tmp_path / "with space %j.zarr"
    told = json.loads(
        submitted(
            slurm, tmp_path, sys.executable, "-m", "protodask", "fit", problem.data, "--out", model, *FIT, "--detach",
            "slurm", "--json", PROTODASK_SBATCH_OPTIONS="--ntasks=1 --mem=700M",
        )
    )  # fmt: skip
    assert told["stop"] == f"scancel {told['name']}"
    wait_until(lambda: slurm.state(told["name"]) in ENDED, "the end of the job")
    assert slurm.state(told["name"]) == "COMPLETED"
    assert fingerprint(model) == problem.fingerprint
    shown = json.loads(submitted(slurm, tmp_path, *shlex.split(told["progress"]), "--json"))
    assert shown["finished"]
    assert shown["progress"]["batch"] == 2
    assert json.loads(Path(shown["driver_log"]).read_text().partition("{")[2].join(["{", ""]))["kind"] == "fit"


def test_detach__a_job_that_slurm_requeues_goes_on(slurm: Slurm, problem: Problem, tmp_path: Path) -> None:
    model = tmp_path / "model.zarr"
    long = ("--candidates", "60", "--batches", "3")
    told = json.loads(
        submitted(
            slurm, tmp_path, sys.executable, "-m", "protodask", "fit", problem.data, "--out", model, *long, "--detach",
            "slurm", "--json", PROTODASK_SBATCH_OPTIONS="--ntasks=1 --mem=700M",
        )
    )  # fmt: skip
    record = tmp_path / "model.zarr.run"
    wait_until(lambda: any(record.glob("batch-*.log")), "the first evaluation")
    assert run(["scontrol", "requeue", told["name"]], tmp_path, slurm.variables, 30).returncode == 0
    wait_until(lambda: slurm.state(told["name"]) in ENDED, "the end of the job")
    assert slurm.state(told["name"]) == "COMPLETED"
    assert "Restarts=1" in slurm.ask("scontrol", "show", "job", told["name"])
    undisturbed = fit(Dataset.open(problem.data), FitConfig.of("source", n_candidates=60, n_batches=3)).model
    assert fingerprint(model) == model_fingerprint(undisturbed)
