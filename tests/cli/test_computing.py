import pytest

from protodask.cli.computing import Computing
from protodask.cli.errors import WrongUseError


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
