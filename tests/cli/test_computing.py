import pytest
from support.errors import refused

from protodask.cli.computing import Computing
from protodask.cli.errors import WrongUseError
from protodask.cli.options import Connection


def test_check__refuses_a_memory_limit_that_nothing_fits_into() -> None:
    with refused("bad-setting", "10 MiB", "250 MiB", kind=WrongUseError):
        Computing(memory_limit=10 * 2**20).check()
    Computing(memory_limit=2**30).check()


@pytest.mark.parametrize(
    ("computing", "options"),
    [
        (Computing(scheduler="tcp://a:1", workers=2), ("--scheduler", "--workers")),
        (Computing(scheduler="tcp://a:1", threads=2), ("--scheduler", "--threads")),
        (Computing(workers=2, threads=2), ("--workers", "--threads")),
        (Computing(scheduler="tcp://a:1", memory_limit=2**30), ("--scheduler", "--memory-limit")),
    ],
)
def test_check__refuses_options_that_contradict_each_other(computing: Computing, options: tuple[str, ...]) -> None:
    with refused("settings-conflict", *options, kind=WrongUseError):
        computing.check()


@pytest.mark.parametrize("connection", [Connection(insecure=True), Connection("ca.pem", "client.pem", "key.pem")])
def test_check__refuses_options_on_a_connection_without_a_scheduler(connection: Connection) -> None:
    with refused("settings-conflict", "--scheduler", "--insecure", kind=WrongUseError):
        Computing(connection=connection).check()


def test_check__refuses_schedulers_in_the_clear_elsewhere() -> None:
    with refused("not-secure", "tcp://10.0.0.1:8786", "tls://", "--insecure", kind=WrongUseError):
        Computing(scheduler="tcp://10.0.0.1:8786").check()
    Computing(scheduler="tcp://10.0.0.1:8786", connection=Connection(insecure=True)).check()
    Computing(scheduler="tls://10.0.0.1:8786").check()
