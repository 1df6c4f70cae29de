"""Running pipelines without a command line."""

from pathlib import Path

from protodask.engine import Engine
from protodask.pipeline.file.definition import Pipeline, read_pipeline
from protodask.pipeline.state.runner import WHOLE, Part, run_pipeline
from protodask.pipeline.steps.base import Step
from protodask.pipeline.telling.events import Listener, RunEnded, RunEvent, nobody
from protodask.pipeline.telling.result import Result


class Killed(BaseException):
    """The process was ended: nothing that follows happens."""


def run_steps(
    pipeline: Pipeline,
    engine: Engine,
    *,
    part: Part = WHOLE,
    heard: list[RunEvent] | None = None,
    listen: Listener = nobody,
) -> RunEnded:
    """Run a pipeline on an engine that is open."""

    def do(step: Step) -> Result:
        return step.perform(engine, listen)

    return run_pipeline(pipeline, do, part=part, listen=nobody if heard is None else heard.append)


def results_of(pipeline: Pipeline, engine: Engine, listen: Listener = nobody) -> list[Result]:
    """What the steps made in a run that did all of them."""
    made = [outcome.made for outcome in run_steps(pipeline, engine, listen=listen).steps]
    found = [result for result in made if result is not None]
    assert len(found) == len(pipeline.steps)
    return found


def written_pipeline(folder: Path, text: str) -> Pipeline:
    """A pipeline file in a folder, read; `${folder}` in it is that folder, and what runs remember lies there, too."""
    path = folder / "pipeline.yaml"
    path.write_text(f"state: '{folder}/state'\nvariables: {{folder: '{folder}'}}\n{text}")
    return read_pipeline(str(path))
