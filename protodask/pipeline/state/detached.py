"""Detached jobs: the driver itself runs elsewhere, and goes on when the terminal that started it is gone."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import yaml

from protodask.data.places.locations import locate, storage_errors
from protodask.data.places.own_folder import make_folder
from protodask.data.places.storage import check_free
from protodask.data.places.whole_files import check_file_free
from protodask.errors import ClusterError, InputError, refusing
from protodask.pipeline.file.yaml_file import read_mapping
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.steps.training import run_directory
from protodask.pipeline.steps.tune import TuneStep
from protodask.prototypes.persistence import MODEL
from protodask.prototypes.run_progress import DRIVER_LOG

Platform = Literal["local", "slurm", "kubernetes"]

SUBMIT_SECONDS = 60
"""A busy Slurm controller or Kubernetes server may take its time; one that does not answer must not hold us up."""

SBATCH_OPTIONS = "PROTODASK_SBATCH_OPTIONS"
JOB_TEMPLATE = "PROTODASK_JOB_TEMPLATE"
IMAGE = "PROTODASK_IMAGE"
NAMESPACE = "PROTODASK_NAMESPACE"


@dataclass(frozen=True)
class Work:
    """What a detached job is to do."""

    arguments: tuple[str, ...]
    """Of the command `protodask`."""
    run_dir: str | None
    """Whom to ask for progress; None for work that keeps no such directory."""
    output: str
    """File for what the driver prints, where the platform has no place of its own for it."""


@dataclass(frozen=True)
class Job:
    """A job that was handed over."""

    platform: Platform
    name: str
    """Process id, number of the Slurm job, or name of the Kubernetes job."""
    output: str
    """A command that shows what the driver prints."""
    progress: str
    """A command that says how far the job is."""
    stop: str
    """A command that ends the job."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {"kind": "job", **asdict(self)}


def without_detach(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line without its option `--detach`."""
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return (*kept, argument, *rest)
        if argument == "--detach":
            next(rest, None)
        elif not argument.startswith("--detach="):
            kept.append(argument)
    return tuple(kept)


def fit_work(step: FitStep | TuneStep, arguments: Sequence[str], platform: Platform) -> Work:
    """The job of a fit or a search. Its run directory stays, also if it is the default one: it is asked for progress.

    On this machine's file system, an output that is taken is refused now, not by the job.
    """
    here = platform != "kubernetes"
    if here:
        check_free(locate(step.out), step.overwrite, MODEL)
        if isinstance(step, TuneStep) and step.table is not None:
            check_file_free(step.table, step.overwrite)
    run_dir = run_directory(step.out, step.run_dir)
    added = [] if step.run_dir is not None else ["--run-dir", run_dir]
    if here:
        run_dir = locate(run_dir)
    return Work(with_options(arguments, added), run_dir, os.path.join(run_dir, DRIVER_LOG))


def pipeline_work(pipeline: str, arguments: Sequence[str]) -> Work:
    """The job of a pipeline file: what it prints goes beside the file."""
    return Work(tuple(arguments), None, f"{locate(pipeline)}.log")


def with_options(arguments: Sequence[str], added: Sequence[str]) -> tuple[str, ...]:
    """A command line with further options."""
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return (*arguments[:place], *added, *arguments[place:])


def submit(platform: Platform, work: Work, variables: Mapping[str, str] = os.environ) -> Job:
    """Hand the work over and return at once. `variables` are those of the environment that platforms look at."""
    match platform:
        case "local":
            return _start_process(work)
        case "slurm":
            return _submit_slurm(work, variables)
        case "kubernetes":
            return _create_kubernetes(work, variables)


def _driver(work: Work) -> list[str]:
    # Without the working folder among the places of modules: it has data, perhaps of others.
    return [sys.executable, "-P", "-m", "protodask", *work.arguments]


def _prepare_output(work: Work) -> str:
    with storage_errors(work.output, "writing"):
        make_folder(os.path.realpath(os.path.dirname(work.output)))
        # What one attempt printed stays when the same command is given again.
        open(work.output, "ab").close()
    return work.output


def _job(
    platform: Platform,
    work: Work,
    name: str,
    output: Sequence[str],
    queue: Sequence[str],
    stop: Sequence[str],
    inside: Sequence[str] = (),
) -> Job:
    """The job, given its commands: how far it is, its run directory says, looked at from `inside`, or else `queue`."""
    progress = queue if work.run_dir is None else [*inside, "protodask", "info", work.run_dir]
    return Job(platform, name, *map(shlex.join, (output, progress, stop)))


def _start_process(work: Work) -> Job:
    place = _prepare_output(work)
    with open(place, "ab") as output:
        # In a session of its own: the terminal's hang-up and Ctrl-C do not reach it.
        process = subprocess.Popen(
            _driver(work), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    # It outlives this process, which therefore does not wait for it.
    process.returncode = 0
    show, number = ["tail", "-f", place], str(process.pid)
    return _job("local", work, number, show, show, ["kill", number])


def _submit_slurm(work: Work, variables: Mapping[str, str]) -> Job:
    sbatch = _program("sbatch", "Submit from a machine of the Slurm cluster, or choose another platform.")
    with refusing(ValueError, "bad-setting", f"{SBATCH_OPTIONS} cannot be split into options", "Close its quotes."):
        options = shlex.split(variables.get(SBATCH_OPTIONS, ""))
    place = _prepare_output(work)
    command = [
        sbatch,
        "--parsable",
        "--job-name=protodask",
        f"--chdir={os.getcwd()}",
        f"--output={place.replace('%', '%%')}",
        "--open-mode=append",
        "--requeue",  # a driver that is lost with its machine goes on from its record when it starts again
        *options,
    ]
    answer = _ask(command, f"#!/bin/sh\nexec {shlex.join(_driver(work))}\n", "Slurm")
    number, _, cluster = answer.partition(";")
    where = [f"--clusters={cluster}"] if cluster else []
    queue, stop = ["squeue", *where, "--job", number], ["scancel", *where, number]
    return _job("slurm", work, number, ["tail", "-f", place], queue, stop)


def _create_kubernetes(work: Work, variables: Mapping[str, str]) -> Job:
    template = variables.get(JOB_TEMPLATE)
    if not template:
        raise InputError(
            "setting-missing",
            f"The variable {JOB_TEMPLATE} is not set.",
            "Let it name the manifest of a Job with the image, the volumes and the certificates of your cluster; "
            "cluster/kubernetes/driver-job.yaml in protodask's source is one.",
        )
    manifest = job_manifest(read_mapping(template, yaml.SafeLoader), template, work, variables.get(IMAGE))
    kubectl = _program("kubectl", "Install it, or choose another platform.")
    options = ["--namespace", variables[NAMESPACE]] if variables.get(NAMESPACE) else []
    shown = ["kubectl", *options]
    name = _ask(
        [kubectl, *options, "create", "--filename", "-", "--output", "name"], yaml.safe_dump(manifest), "Kubernetes"
    )
    logs, inside = [*shown, "logs", "--follow", name], [*shown, "exec", name, "--"]
    return _job("kubernetes", work, name, logs, logs, [*shown, "delete", name], inside)


def job_manifest(template: Mapping[str, Any], path: str, work: Work, image: str | None = None) -> dict[str, Any]:
    """The manifest of a Job like `template`, read from `path`, whose first container does this work."""
    try:
        if template["kind"] != "Job":
            raise InputError("wrong-kind", f"{path} is the manifest of a {template['kind']}.", "Give that of a Job.")
        pod = template["spec"]["template"]["spec"]
        first, *others = pod["containers"]
        driver = {**first, "args": list(work.arguments), **({} if image is None else {"image": image})}
        metadata = dict(template["metadata"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "wrong-kind",
            f"{path} is not the manifest of a Job with a container ({type(error).__name__}: {error}).",
            "Compare it with cluster/kubernetes/driver-job.yaml in protodask's source.",
        ) from error
    # Each submission is a job of its own, with a name that the server makes.
    name = metadata.pop("name", None)
    if name is not None:
        metadata.setdefault("generateName", f"{name}-")
    pod = {**pod, "containers": [driver, *others]}
    job = template["spec"]
    return {**template, "metadata": metadata, "spec": {**job, "template": {**job["template"], "spec": pod}}}


def _program(name: str, remedy: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ClusterError("package-missing", f"The command {name} is not to be found here.", remedy)
    return found


def _ask(command: Sequence[str], text: str, platform: str) -> str:
    name = os.path.basename(command[0])
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SUBMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            "no-answer",
            f"{platform} did not answer {name} within {SUBMIT_SECONDS} seconds.",
            "Look whether it took the job all the same, and repeat the command if not.",
        ) from error
    answer = done.stdout.strip()
    if done.returncode != 0 or not answer:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise ClusterError(
            "refused", f"{platform} did not take the job ({said}).", "Correct what it names, and repeat."
        )
    return answer
