"""The option `--detach`: hand the command over to a platform that runs it as a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from protodask.cli.console import Answer
from protodask.cli.errors import wrong_use
from protodask.cli.options import COMPUTING, Computing
from protodask.pipeline.file.values import key_of
from protodask.pipeline.steps.base import Option
from protodask.pipeline.telling.result import Pairs

if TYPE_CHECKING:
    from protodask.pipeline.file.definition import Pipeline
    from protodask.pipeline.state.detached import Platform, Work
    from protodask.pipeline.steps.fit import FitStep
    from protodask.pipeline.steps.tune import TuneStep

Detach = Annotated[
    Literal["local", "slurm", "kubernetes"] | None,
    Option(
        "Hand this command over as a job and return: local (a process that outlives the terminal), slurm, kubernetes. "
        "Options of the platforms are in cluster/README.md.",
        "PLATFORM",
        panel=COMPUTING,
    ),
]


def detach_fit(platform: Platform, step: FitStep | TuneStep, computing: Computing) -> Answer:
    """Submit the `fit` or `tune` of this command line."""
    from protodask.pipeline.file.places import check_step
    from protodask.pipeline.state.detached import fit_work

    with wrong_use():
        computing.check()
        check_step(step)
        work = fit_work(step, arguments_of_job(computing, platform), platform)
    return _submit(platform, work)


def detach_pipeline(platform: Platform, pipeline: Pipeline, computing: Computing) -> Answer:
    """Submit the `run` of this command line."""
    from protodask.pipeline.state.detached import pipeline_work
    from protodask.pipeline.state.runner import check_pipeline

    with wrong_use():
        computing.check()
        check_pipeline(pipeline)
    return _submit(platform, pipeline_work(pipeline.path, arguments_of_job(computing, platform)))


def arguments_of_job(computing: Computing, platform: Platform) -> tuple[str, ...]:
    """The command line of the job: that of this one, with what its options have from the environment.

    Files of this machine are not those of a container.
    """
    from protodask.pipeline.state.detached import with_options, without_detach

    of_environment: dict[str, Any] = {"scheduler": computing.scheduler}
    if platform != "kubernetes":
        of_environment |= vars(computing.connection)
    arguments = without_detach(sys.argv[1:])
    added: list[str] = []
    for name, value in of_environment.items():
        option = f"--{key_of(name)}"
        if value not in (None, False) and not any(one == option or one.startswith(f"{option}=") for one in arguments):
            added += [option] if value is True else [option, str(value)]
    return with_options(arguments, added)


def _submit(platform: Platform, work: Work) -> Answer:
    from protodask.pipeline.state.detached import submit

    job = submit(platform, work)
    said = f"The job {job.name} was handed to {platform}. It goes on without this terminal."
    how = Pairs([("progress", job.progress), ("output", job.output), ("stop", job.stop)])
    return Answer(job.describe, [said, how])
