import pytest

from protodask.cli.computing import Computing
from protodask.cli.errors import WrongUseError
from protodask.cli.options import Connection


def test_check__refuses_a_memory_limit_that_nothing_fits_into() -> None:
    with pytest.raises(WrongUseError, match="at least 250 MiB"):
        Computing(memory_limit=10 * 2**20).check()
    Computing(memory_limit=2**30).check()


@pytest.mark.parametrize(
    "computing",
    [
        Computing(scheduler="tcp://a:1", workers=2),
        Computing(scheduler="tcp://a:1", threads=2),
        Computing(workers=2, threads=2),
        Computing(scheduler="tcp://a:1", memory_limit=2**30),
    ],
)
def test_check__refuses_options_that_contradict_each_other(computing: Computing) -> None:
    with pytest.raises(WrongUseError, match="Choose|Leave it out"):
        computing.check()


@pytest.mark.parametrize("connection", [Connection(insecure=True), Connection("ca.pem", "client.pem", "key.pem")])
def test_check__refuses_options_on_a_connection_without_a_scheduler(connection: Connection) -> None:
    with pytest.raises(WrongUseError, match="Add --scheduler"):
        Computing(connection=connection).check()


def test_check__refuses_schedulers_in_the_clear_elsewhere() -> None:
    with pytest.raises(WrongUseError, match="Use tls://"):
        Computing(scheduler="tcp://10.0.0.1:8786").check()
    Computing(scheduler="tcp://10.0.0.1:8786", connection=Connection(insecure=True)).check()
    Computing(scheduler="tls://10.0.0.1:8786").check()
