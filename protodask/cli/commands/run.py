"""`protodask run`: the steps of a pipeline file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from protodask.cli.console import Answer, give
from protodask.cli.detach import Detach, detach_pipeline
from protodask.cli.errors import ANSWER_IS_NO, WRONG_USE, WrongUseError, reported, wrong_use
from protodask.cli.grouping import grouped
from protodask.cli.options import Computing, Debug, Json, computing_engine
from protodask.cli.run_options import Telling, Told, tell_of_wrong_use, waiting_text
from protodask.errors import count
from protodask.pipeline.file.values import as_keys
from protodask.pipeline.steps.base import Option
from protodask.pipeline.telling.result import Piece, Table, describe_seconds, size, to_json

if TYPE_CHECKING:
    from protodask.cli.progress import Reporter
    from protodask.engine import Engine
    from protodask.pipeline.file.definition import Pipeline
    from protodask.pipeline.state.dry_run import Cost
    from protodask.pipeline.state.runner import Part
    from protodask.pipeline.steps.base import Step
    from protodask.pipeline.steps.fit import FitStep
    from protodask.pipeline.telling.events import RunEnded
    from protodask.pipeline.telling.result import Result
    from protodask.prototypes.planning import Plan

app = typer.Typer(add_completion=False)


WrongOptionsError: type[Any] = typer.BadParameter.__bases__[0]
"""All that the framework refuses; it has a name for one kind alone."""


ONLY_LOOKS = {"--dry-run", "--graph", "--detach"}
"""Options of a run that does no step here: nobody waits for its end."""


class RunCommand(TyperCommand):
    """Tells options that the framework refuses to those who wait for the end of the run, too."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options, and those that can be read where others are wrong."""
        words = list(args)  # of `args` the framework takes what it has read
        try:
            return super().make_context(info_name, args, parent, **extra)
        except WrongOptionsError as error:
            given = None if ONLY_LOOKS.intersection(word.partition("=")[0] for word in words) else self._given(words)
            if given is not None:
                tell_of_wrong_use(given, error.format_message())
                if given["log"] == "json":
                    raise typer.Exit(WRONG_USE) from error
            raise

    def _given(self, words: list[str]) -> dict[str, Any] | None:
        """What can be read of the words; None if that is no pipeline file."""
        # A word that cannot be understood is left out: a flag with a value, or at the end an option without one.
        flags = [place for place, word in enumerate(words) if word.startswith("--") and "=" in word]
        for left_out in (None, len(words) - 1, *flags):
            some = [word for place, word in enumerate(words) if place != left_out]
            context = super().make_context(
                self.name, some, resilient_parsing=True, ignore_unknown_options=True, allow_extra_args=True
            )
            places = [context.params["pipeline"], *context.args]
            if places[0] is not None and places[0].startswith("-"):  # unknown, and its value may come before the file
                places = [word for word in places if not word.startswith("-")][-1:] or [None]
            if places[0] is not None:
                return {**context.params, "pipeline": places[0]}
        return None


def _show_text(option: typer.CallbackParam, asked: bool) -> None:
    if asked:
        from protodask.pipeline.file.reference import reference, schema_text

        typer.echo(schema_text() if option.name == "schema" else reference(), nl=False)
        raise typer.Exit


_prints: Callable[..., Any] = partial(typer.Option, metavar="", is_eager=True, callback=_show_text)


@app.command("run", cls=RunCommand)
@grouped
def run(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE.yaml", help="A pipeline file.")],
    *,
    settings: Annotated[
        tuple[str, ...], Option("Set a variable of the file. Repeatable.", "NAME=VALUE", flag="--set")
    ] = (),
    dry_run: Annotated[bool, Option("Say what would be done, why, and what it costs; do nothing.")] = False,
    graph: Annotated[
        str | None,
        Option("Draw the steps and what goes from one to another, and do nothing; - prints it as text.", "FILE.svg"),
    ] = None,
    first: Annotated[
        str | None, Option("Do this step and all after it anew, and look at none before.", "STEP", flag="--from")
    ] = None,
    last: Annotated[
        str | None, Option("Look at the steps up to this one, and at none after it.", "STEP", flag="--to")
    ] = None,
    only: Annotated[str | None, Option("Look at this step alone.", "STEP")] = None,
    overlap: Annotated[
        Literal["refuse", "wait", "leave"] | None, Option("What to do while another run of the file is under way.")
    ] = None,
    schema: Annotated[bool, _prints("--schema", help="Print the JSON Schema of pipeline files.")] = False,
    reference: Annotated[bool, _prints("--reference", help="Print what all steps and their settings are.")] = False,
    telling: Telling,
    computing: Computing,
    detach: Detach = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Do what is stale of the steps of a pipeline file, in order.

    A step is done again when what it reads, its settings or the version of protodask have changed, or what it wrote is
    no longer there. Exit code 3: a gate said no.
    """
    only_looks = dry_run or graph is not None or detach is not None
    told = Told(pipeline, telling.log == "json" and not only_looks, computing.quiet)
    with reported(debug, told.complain, told.line):
        from protodask.pipeline.file.definition import parse_settings, read_pipeline
        from protodask.pipeline.state.runner import WHOLE

        if not only_looks:
            told.tell(telling, settings)
        with wrong_use():
            definition = read_pipeline(pipeline, parse_settings(settings))
            if overlap is not None:
                definition = replace(definition, overlap=overlap)
            part = _part(definition, first, last, only)
            for note in definition.notes:
                told.warn(note)
            computing.check()
        if graph is not None:
            if dry_run or detach is not None or part != WHOLE:
                raise WrongUseError(
                    "settings-conflict",
                    "--graph is given with --dry-run, --detach, --from, --to or --only.",
                    "Give it alone: it draws all steps and does nothing.",
                )
            answer = _draw(definition, graph)
        elif dry_run:
            answer = _dry_run(definition, part, computing)
        elif detach is not None:
            answer = detach_pipeline(detach, definition, computing)
        else:
            answer = _run(definition, part, computing, told, as_json)
        give(answer, as_json)


def _part(definition: Pipeline, first: str | None, last: str | None, only: str | None) -> Part:
    from protodask.pipeline.state.runner import WHOLE, Part, step_number

    if only is not None:
        if first is not None or last is not None:
            raise WrongUseError(
                "settings-conflict",
                f"Both {'--to' if first is None else '--from'} and --only are given.",
                "Choose one.",
            )
        number = step_number(definition, only)
        return Part(number, number)
    if first is None and last is None:
        return WHOLE
    begin = 1 if first is None else step_number(definition, first)
    end = None if last is None else step_number(definition, last)
    if end is not None and end < begin:
        raise WrongUseError(
            "settings-conflict", f"The step {last} of --to comes before {first} of --from.", "Exchange them."
        )
    return Part(begin, end, forced=first is not None)


def _run(definition: Pipeline, part: Part, computing: Computing, told: Told, as_json: bool) -> Answer:
    from protodask.pipeline.state.runner import check_pipeline, run_pipeline

    try:
        with ExitStack() as stack:

            @cache  # opened for the first step: a run without work needs no engine
            def opened() -> tuple[Engine, Reporter]:
                stack.callback(told.show_on, None)
                engine, reporter = stack.enter_context(computing_engine(computing, told.lines, told.warn, as_keys))
                told.show_on(reporter)
                return engine, reporter

            def perform(step: Step) -> Result:
                engine, reporter = opened()
                return step.perform(engine, reporter.hear)

            outcome = run_pipeline(definition, perform, listen=told.hear, part=part, check=wrong_use()(check_pipeline))
    except BaseException:
        if told.ended is not None and as_json:  # people are told what went wrong, programs what became of each step
            typer.echo(to_json(told.ended.describe()))
        raise
    return Answer(outcome.describe, _told_run(outcome), ANSWER_IS_NO if outcome.status == "refused" else 0)


def _draw(definition: Pipeline, place: str) -> Answer:
    from protodask.data.places.whole_files import local_file, replace_file
    from protodask.pipeline.file.graph import graph_of, graph_svg, graph_text

    if place != "-" and not place.lower().endswith(".svg"):
        raise WrongUseError("bad-setting", f"{place} does not end in .svg.", "Name such a file, or - for text.")
    with wrong_use():
        taken = place != "-" and os.path.lexists(local_file(place))
    if taken:
        raise WrongUseError("exists", f"{place} exists already.", "Name another file, or remove it first.")
    nodes = graph_of(definition)
    if place != "-":
        replace_file(place, graph_svg(nodes))
    said = f"The graph {place} shows the {len(nodes)} steps of {definition.path}."
    return Answer(
        lambda: {"kind": "graph", "steps": [asdict(node) for node in nodes]},
        [graph_text(nodes) if place == "-" else said],
    )


def _dry_run(definition: Pipeline, part: Part, computing: Computing) -> Answer:
    from protodask.pipeline.state.dry_run import dry_run

    with ExitStack() as stack:
        opened = cache(lambda: stack.enter_context(computing_engine(computing, words=as_keys)))

        def estimate(step: FitStep) -> Plan:
            from protodask.pipeline.work.settings import plan_step

            return plan_step(step, opened()[0])

        plans = dry_run(definition, part, estimate)
    rows = [[str(plan.step.number), plan.step.name, plan.verdict, _cost(plan.cost), plan.why] for plan in plans]
    told = Table(["", "step", "verdict", "cost", "why"], rows, whole=True)
    return Answer(lambda: [plan.describe() for plan in plans], [told])


def _told_run(outcome: RunEnded) -> Iterator[Piece]:
    """What the steps left behind: places first, then what it amounts to."""
    made = [entry.made for entry in outcome.steps if entry.made is not None]
    yield from (as_keys(place) for result in made if (place := result.place()) is not None)
    for result in made:
        if (judgement := result.judgement()) is not None:
            yield ""
            yield as_keys(judgement)
    match outcome.status:
        case "fresh":
            files, steps = sum(entry.waiting or 0 for entry in outcome.steps), [entry.status for entry in outcome.steps]
            idle = steps.count("waits")
            rest = f" {count(idle, 'step')} will have work when something new has come." if idle else ""
            yield f"There is nothing to do: everything is up to date{waiting_text(files)}.{rest}"
        case "left":
            yield "Another run is under way; this one leaves it to that."
        case "stopped":
            yield f"The run ends here: {' '.join(outcome.reasons)}"
        case "refused":
            yield f"A gate said no: {' '.join(outcome.reasons)}"


def _cost(cost: Cost) -> str:
    parts = []
    if cost.seconds is not None:
        about = "about " if cost.source == "estimate" else ""
        parts.append(f"{about}{describe_seconds(cost.seconds)}{' last time' if cost.source == 'last time' else ''}")
    if cost.memory_bytes is not None:
        parts.append(f"{size(cost.memory_bytes)} of memory")
    if cost.read_bytes:
        parts.append(f"reads {size(cost.read_bytes)}")
    return ", ".join(parts) or "-"
