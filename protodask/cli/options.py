"""Options that several commands share, and the engine that those on where to compute mean."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protodask.cli.console import remark
from protodask.cli.errors import WrongUseError, wrong_use
from protodask.cli.progress import Reporter, reporting
from protodask.errors import InputError
from protodask.pipeline.file.values import as_options
from protodask.pipeline.steps.base import Option
from protodask.pipeline.telling.events import nobody
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.engine import Engine, TlsFiles
    from protodask.pipeline.steps.base import Step
    from protodask.pipeline.telling.result import Result

BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")

UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}


def parse_bytes(text: str) -> int:
    """Bytes from "1GiB", "800MB", "1.5 GiB" or a plain number."""
    found = BYTES.fullmatch(str(text).strip())
    factor = UNITS.get(found[2].lower()) if found else None
    if found is None or factor is None or float(found[1]) * factor < 1:
        raise typer.BadParameter(f"{text!r} is no amount of memory. Write it like 1GiB, 800MB or 1000000000.")
    return int(float(found[1]) * factor)


COMPUTING = "Where to compute"

where = partial(Option, panel=COMPUTING)

Json = Annotated[bool, typer.Option("--json", metavar="", help="Print the result as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", metavar="", help="Show the traceback of an error.")]


@dataclass(frozen=True)
class Connection:
    """The options on how to connect to a scheduler."""

    tls_ca: Annotated[
        str | None,
        where("CA of a scheduler at a tls:// address; else Dask's own settings.", "FILE", of_environment=True),
    ] = None
    tls_cert: Annotated[str | None, where("Certificate to show to it.", "FILE", of_environment=True)] = None
    tls_key: Annotated[
        str | None, where("Key of that certificate, without a password.", "FILE", of_environment=True)
    ] = None
    insecure: Annotated[
        bool,
        where(
            "Allow a scheduler of another machine without encryption: all on the network can read and compute there.",
            of_environment=True,
        ),
    ] = False

    @property
    def tls(self) -> TlsFiles | None:
        """The files, if they are named; some without the others are wrong use."""
        files = {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        missing = [name for name, file in files.items() if file is None]
        if len(missing) == len(files):
            return None
        if self.tls_ca is None or self.tls_cert is None or self.tls_key is None:
            raise WrongUseError(
                "setting-missing",
                f"TLS files are given without {' and '.join(missing)}.",
                "Give --tls-ca, --tls-cert and --tls-key.",
            )
        from protodask.engine import TlsFiles

        return TlsFiles(self.tls_ca, self.tls_cert, self.tls_key)


NOTHING_SAID = Connection()


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


def check_connection(address: str, connection: Connection) -> None:
    """Refuse an address that may not be connected to like that, before anything is begun."""
    from protodask.engine.connect import check_address

    with wrong_use():
        check_address(address, connection.tls, connection.insecure)


def _engine(computing: Computing) -> AbstractContextManager[Engine]:
    from protodask.engine import cluster_engine, thread_engine

    if computing.scheduler is not None:
        engine = cluster_engine(computing.scheduler, computing.connection.tls, computing.connection.insecure)
        # That the scheduler is lost comes back as an exception; Dask need not tell it with a traceback before.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        return engine
    if computing.workers is not None:
        from protodask.engine.choose import local_engine

        return local_engine(computing.workers, computing.memory_limit)
    return thread_engine(computing.threads, computing.memory_limit)


@contextmanager
def computing_engine(
    computing: Computing,
    show: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
    words: Callable[[str], str] = as_options,
) -> Iterator[tuple[Engine, Reporter]]:
    """An engine and the reporter it reports to.

    `show` takes the reporter's lines in place of standard error, and `warn` hears warnings in its place, where `words`
    are what settings are called.
    """
    computing.check()
    if computing.quiet:
        show, warn = nobody, warn or _warn
    with reporting(show, warn, words) as reporter, _engine(computing) as engine:
        yield engine.with_progress(reporter.hear), reporter


def _warn(text: str) -> None:
    remark(f"Warning: {text}")


def perform_step(step: Step, computing: Computing) -> Result:
    """Carry out a step, showing how far it is."""
    from protodask.pipeline.file.places import check_step, check_there, outputs

    with wrong_use():
        computing.check()
        check_step(step)
        for place in outputs(step):
            _check_stays(place)
    check_there(step)
    with computing_engine(computing) as (engine, reporter):
        return step.perform(engine, reporter.hear)


def _check_stays(place: str) -> None:
    """Refuse to write into the memory of this process: that is for programs, and for the steps of a pipeline."""
    if "memory://" in place:
        raise InputError(
            "unsupported",
            f"{mask(place)} is in the memory of this command, and gone when it ends.",
            "Write to a path, or to the URL of a store that stays.",
        )


def without_contradicted(given: dict[str, Any], from_environment: Set[str]) -> dict[str, Any]:
    """What is given, but for what the environment says and options contradict, or have no use for."""
    found = dict(given)

    def drop(*names: str) -> None:
        for name in from_environment & {*names}:
            found[name] = False if name == "insecure" else None

    if any(found.get(name) is not None for name in ("workers", "threads", "memory_limit")):
        drop("scheduler")
    scheduler = found.get("scheduler", "tls://")  # a command without that option has an argument for it
    if scheduler is None:
        drop("insecure")
    if scheduler is None or not scheduler.startswith("tls://"):
        drop("tls_ca", "tls_cert", "tls_key")
    return found
