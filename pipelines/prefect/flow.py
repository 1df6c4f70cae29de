"""A pipeline file as a Prefect flow: each step is a task with retries.

    python flow.py score.yaml --cron "0 * * * *"       serve the flow: runs on schedule, and whenever one is asked for
    python flow.py score.yaml                          run it once, now

The tasks call the command line, in the folder that this is started in, so that a run by Prefect and one by hand are
the same: what was finished is not done again, and a step that was interrupted goes on where it was. A step that has
nothing to do is shown as Cached, and one whose data have not come yet as Waiting. A step that fails is tried again; a
gate's no is not, as it would be the same: the flow fails, or ends here where the gate has `if-no: stop`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from prefect import flow, get_run_logger, task
from prefect.client.schemas.objects import State
from prefect.states import Completed

GATE_SAID_NO = 3
WRONG_USE = 2

RETRY_SECONDS = [float(text) for text in os.environ.get("PROTODASK_RETRY_SECONDS", "30 120 600").split()]
"""Pauses before further attempts of a step; as many as there are numbers."""

STOP_SECONDS = 60
"""How long a command that was told to stop may take to tidy up."""


class StepFailedError(Exception):
    """A step failed; what went wrong may pass."""


class FinalError(Exception):
    """A gate said no, or the command was used wrongly: another attempt would end alike."""


def protodask(arguments: Sequence[str]) -> tuple[int, Any]:
    """Run a command; its lines go into the log of Prefect. Its exit code, and what it printed as JSON."""
    logger = get_run_logger()
    with tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-m", "protodask", *arguments]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        reader = threading.Thread(target=_pass_on, args=(process.stderr, logger), daemon=True)
        reader.start()
        try:
            code = process.wait()
        finally:  # also when Prefect cancels the run
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            reader.join(STOP_SECONDS)
        output.seek(0)
        text = output.read()
    return code, json.loads(text) if text.strip() else None


def _pass_on(stream: IO[str], logger: Any) -> None:
    for line in stream:
        logger.info(line.rstrip("\n"))


def _options(settings: dict[str, Any]) -> list[str]:
    # Text stays as it is; the setting that it is given to reads it.
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}
    return [part for name, text in texts.items() for part in ("--set", f"{name}={text}")]


def _may_pass(task_: Any, task_run: Any, state: State[Any]) -> bool:
    """Whether another attempt may end otherwise."""
    try:
        state.result()
    except FinalError:
        return False
    except BaseException:
        return True
    return False


@task(
    task_run_name="{name}",
    retries=len(RETRY_SECONDS),
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=_may_pass,
    persist_result=False,
    cache_policy=None,
)
def step(file: str, name: str, settings: dict[str, Any]) -> Any:
    """One step, after those before it, which are fresh by now."""
    code, outcome = protodask(["run", file, "--to", name, "--json", *_options(settings)])
    if code == GATE_SAID_NO:
        raise FinalError(" ".join(outcome["reasons"]))
    if code == WRONG_USE:
        raise FinalError(f"The command was used wrongly; the log of the step {name} says how.")
    if code != 0:
        raise StepFailedError(f"The step {name} ended with exit code {code}; its log says why.")
    if outcome["status"] in ("stopped", "left"):
        return Completed(name="Stopped", message=" ".join(outcome["reasons"]) or "Another run is under way.")
    (own,) = [entry for entry in outcome["steps"] if entry["name"] == name]
    match own["status"]:
        case "fresh":
            return Completed(name="Cached", message="What it would make is there.")
        case "waits":
            return Completed(name="Waiting", message="What it reads has not come yet.")
        case _:
            return Completed(message=f"Done in {own['seconds'] or 0:.1f} seconds.")


@flow(name="protodask", flow_run_name="{file}", persist_result=False, log_prints=False)
def pipeline(file: str, settings: dict[str, Any] | None = None) -> Any:
    """The steps of a pipeline file, with values for its variables."""
    values = settings or {}
    code, plan = protodask(["run", file, "--dry-run", "--json", *_options(values)])
    if code != 0:
        raise FinalError(f"{file} cannot be run; the log of the flow says why.")
    for entry in plan:
        state = step(file, entry["name"], values, return_state=True)
        if state.is_failed() or state.is_crashed() or state.is_cancelled():
            return state
        if state.name == "Stopped":
            return Completed(name="Stopped", message=state.message)
    return Completed()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the flow on a schedule, or run it once."""
    parser = argparse.ArgumentParser(description="A pipeline file as a Prefect flow.")
    parser.add_argument("file", metavar="PIPELINE.yaml")
    parser.add_argument("--name", help="name of the deployment; by default that of the file")
    parser.add_argument("--cron", help='when to run it, such as "0 * * * *"')
    parser.add_argument("--interval", type=float, metavar="SECONDS", help="run it so often, in place of --cron")
    parser.add_argument("--serve", action="store_true", help="serve it without a schedule: runs only when asked for")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="set a variable of the file")
    given = parser.parse_args(arguments)
    settings = dict(text.split("=", 1) for text in given.set)
    if not (given.cron or given.interval or given.serve):
        pipeline(given.file, settings)
        return
    pipeline.serve(
        name=given.name or Path(given.file).stem,
        cron=given.cron,
        interval=None if given.interval is None else timedelta(seconds=given.interval),
        parameters={"file": given.file, "settings": settings},
        limit=1,
        pause_on_shutdown=False,
        print_starting_message=False,
    )


if __name__ == "__main__":
    main()
