"""The commands of steps: their options are the fields of the steps' records."""

from __future__ import annotations

import inspect
from itertools import chain
from typing import Annotated, Any

from protodask.cli.console import Answer
from protodask.cli.detach import Detach, detach_fit
from protodask.cli.errors import ANSWER_IS_NO
from protodask.cli.grouping import Command, grouped
from protodask.cli.options import COMPUTING_HERE, Computing, perform_step
from protodask.pipeline.steps.base import Option, Step
from protodask.pipeline.steps.ingest import AppendStep, IngestStep
from protodask.pipeline.telling.result import FilesFailedError


def step_command(kind: type[Step]) -> Command:
    """The command that does a step of this kind."""
    template = _detaching if kind.detaches else _computing if kind.computes else _here
    command = grouped(template, step=kind)
    command.__doc__ = inspect.getdoc(kind)
    return command


def _detaching(step: Any, computing: Computing = COMPUTING_HERE, detach: Detach = None) -> Answer:
    return _computing(step, computing) if detach is None else detach_fit(detach, step, computing)


def _here(step: Any) -> Answer:
    return _computing(step)


@grouped
def ingest(
    step: IngestStep,
    append: Annotated[bool, Option("Add the rows to the dataset at the output path.")] = False,
    computing: Computing = COMPUTING_HERE,
) -> Answer:
    """Make a dataset from tables or arrays, or add their rows to one."""
    return _computing(AppendStep(**vars(step)) if append else step, computing)


def _computing(step: Any, computing: Computing = COMPUTING_HERE) -> Answer:
    try:
        result = perform_step(step, computing)
    except FilesFailedError as error:
        if error.result is None:
            raise
        return Answer(error.result.describe, error.result.told(), error=error)
    advice = None if computing.quiet else step.advice()
    told = chain(result.told(), () if advice is None else (advice,))
    return Answer(result.describe, told, ANSWER_IS_NO if result.refused else 0)
