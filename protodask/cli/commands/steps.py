"""The commands of steps: their options are the fields of the steps' records."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from protodask.cli.computing import COMPUTING_HERE, Computing, perform_step
from protodask.cli.detach import Detach, detach_fit
from protodask.cli.errors import ANSWER_IS_NO, reported
from protodask.cli.grouping import Command, grouped
from protodask.cli.options import Debug, Json
from protodask.cli.showing.console import say
from protodask.cli.showing.results import show_result
from protodask.pipeline.steps import AppendStep, IngestStep, Step
from protodask.pipeline.telling.result import FilesFailedError


def step_command(kind: type[Step]) -> Command:
    """The command that does a step of this kind."""
    template = _detaching if kind.detaches else _computing if kind.computes else _here
    command = grouped(template, step=kind)
    command.__doc__ = inspect.getdoc(kind)
    return command


def _detaching(
    step: Any, computing: Computing = COMPUTING_HERE, detach: Detach = None, as_json: Json = False, debug: Debug = False
) -> None:
    with reported(debug):
        if detach is None:
            _do(step, computing, as_json)
        else:
            detach_fit(detach, step, computing, as_json)


def _computing(step: Any, computing: Computing = COMPUTING_HERE, as_json: Json = False, debug: Debug = False) -> None:
    with reported(debug):
        _do(step, computing, as_json)


def _here(step: Any, as_json: Json = False, debug: Debug = False) -> None:
    _computing(step, as_json=as_json, debug=debug)


@grouped
def ingest(
    step: IngestStep,
    append: Annotated[
        bool, typer.Option("--append", metavar="", help="Add the rows to the dataset at the output path.")
    ] = False,
    computing: Computing = COMPUTING_HERE,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a dataset from tables or arrays, or add their rows to one."""
    _computing(AppendStep(**vars(step)) if append else step, computing, as_json, debug)


def _do(step: Step, computing: Computing, as_json: bool) -> None:
    try:
        result = perform_step(step, computing)
    except FilesFailedError as error:
        if error.result is not None:
            show_result(error.result, as_json)
        raise
    show_result(result, as_json)
    advice = step.advice()
    if advice is not None and not as_json and not computing.quiet:
        say(advice)
    if result.refused:
        raise typer.Exit(ANSWER_IS_NO)
