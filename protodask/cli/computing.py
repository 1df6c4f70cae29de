"""From the options on where to compute to an engine that reports to the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from protodask.cli.errors import WrongUseError, wrong_use
from protodask.cli.options import COMPUTING, NOTHING_SAID, Connection, parse_bytes, where
from protodask.cli.progress.reporter import Reporter, reporting
from protodask.cli.showing.console import plain

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.steps.base import Step
    from protodask.pipeline.telling.result import Result


@dataclass(frozen=True)
class Computing:
    """The options on where to compute."""

    memory_limit: Annotated[
        int | None,
        typer.Option(
            "--memory-limit",
            parser=parse_bytes,
            metavar="BYTES",
            help="Memory of each process that computes, such as 1GiB or 800MB; by default, what there is.",
            rich_help_panel=COMPUTING,
        ),
    ] = None
    threads: Annotated[
        int | None, where("Threads of this process; by default, one a processor, and at most 4.", least=1)
    ] = None
    scheduler: Annotated[
        str | None,
        where(
            "Compute on the Dask cluster with this scheduler, such as tls://10.0.0.1:8786.",
            "ADDRESS",
            of_environment=True,
        ),
    ] = None
    workers: Annotated[
        int | None, where("Compute in so many worker processes of this machine, started for this run.", least=1)
    ] = None
    connection: Connection = NOTHING_SAID
    quiet: Annotated[bool, where("Say nothing but the result, warnings and errors.")] = False

    def check(self) -> None:
        """Refuse options that contradict each other."""
        if self.scheduler is not None and self.workers is not None:
            raise WrongUseError(
                "settings-conflict",
                "Both --scheduler and --workers are given.",
                "Choose a running cluster or new worker processes.",
            )
        if self.threads is not None and (self.scheduler is not None or self.workers is not None):
            raise WrongUseError(
                "settings-conflict",
                "--threads is given together with --scheduler or --workers.",
                "Leave it out: it is for computing in this process, and workers have threads of their own.",
            )
        if self.memory_limit is not None and self.scheduler is not None:
            raise WrongUseError(
                "settings-conflict",
                "--memory-limit is given together with --scheduler.",
                "Leave it out: the workers of a running cluster were given their limits when they were started.",
            )
        if self.scheduler is not None:
            check_connection(self.scheduler, self.connection)
        elif self.connection != NOTHING_SAID:
            raise WrongUseError(
                "settings-conflict",
                "Options on the connection to a scheduler are given, and no scheduler.",
                "Add --scheduler with its address, or leave out --tls-ca, --tls-cert, --tls-key and --insecure.",
            )

        if self.memory_limit is not None:
            from protodask.engine.memory import INTERPRETER_BYTES

            if self.memory_limit < INTERPRETER_BYTES:
                raise WrongUseError(
                    "bad-setting",
                    f"The memory limit is {self.memory_limit / 2**20:.0f} MiB; Python with its libraries takes more.",
                    f"Give at least {INTERPRETER_BYTES // 2**20} MiB, and about 180 MiB more for each thread.",
                )


COMPUTING_HERE = Computing()
"""What a command gets that is not called from the command line."""


def check_connection(address: str, connection: Connection) -> None:
    """Refuse an address that may not be connected to like that, before anything is begun."""
    from protodask.engine.connect import check_address

    with wrong_use():
        check_address(address, connection.tls, connection.insecure)


def _engine(computing: Computing) -> AbstractContextManager[Engine]:
    from protodask.engine import cluster_engine, thread_engine

    if computing.scheduler is not None:
        return cluster_engine(computing.scheduler, computing.connection.tls, computing.connection.insecure)
    if computing.workers is not None:
        from protodask.engine.choose import local_engine

        return local_engine(computing.workers, computing.memory_limit)
    return thread_engine(computing.threads, computing.memory_limit)


@contextmanager
def computing_engine(
    computing: Computing,
    show: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Iterator[tuple[Engine, Reporter]]:
    """An engine and the reporter it reports to.

    `show` takes the reporter's lines in place of standard error, and `warn` hears warnings in its place.
    """
    with wrong_use():
        computing.check()
    if computing.quiet:
        show, warn = _unsaid, warn or _warn
    with reporting(show, warn) as reporter, _engine(computing) as engine:
        yield engine.with_progress(reporter.hear), reporter


def _unsaid(text: str) -> None:
    """For lines that nobody wants."""


def _warn(text: str) -> None:
    typer.echo(plain(f"Warning: {text}"), err=True)


def perform_step(step: Step, computing: Computing) -> Result:
    """Carry out a step, showing how far it is."""
    from protodask.pipeline.file.places import check_there

    with wrong_use():
        computing.check()
        step.check()
    check_there(step)
    with computing_engine(computing) as (engine, reporter):
        return step.perform(engine, reporter.hear)
