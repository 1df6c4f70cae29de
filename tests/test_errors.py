import pickle

import pytest

from protodask.errors import (
    ClusterError,
    FormatError,
    InputError,
    OutputExistsError,
    ProtodaskError,
    StorageError,
    some,
)

BUILT_IN = {
    InputError: ValueError,
    FormatError: ValueError,
    OutputExistsError: FileExistsError,
    StorageError: OSError,
    ClusterError: RuntimeError,
}


@pytest.mark.parametrize("kind", list(BUILT_IN))
def test_error__says_what_was_seen_and_what_to_do(kind: type[ProtodaskError]) -> None:
    error = kind("no-rows", "Column x is empty.", "Drop it.")
    assert str(error) == "Column x is empty. Drop it."
    assert (error.code, error.seen, error.remedy) == ("no-rows", "Column x is empty.", "Drop it.")
    assert isinstance(error, BUILT_IN[kind])


@pytest.mark.parametrize("kind", list(BUILT_IN))
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_error__survives_pickling(kind: type[ProtodaskError], protocol: int) -> None:
    error = kind("no-rows", "Column x is empty.", "Drop it.")
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is kind
    assert (copy.code, copy.seen, copy.remedy, str(copy)) == (error.code, error.seen, error.remedy, str(error))


def test_error__that_is_an_os_error_has_no_wrong_number() -> None:
    # OSError reads two arguments as a number and a text, and would show "[Errno ...]".
    for kind in (StorageError, OutputExistsError):
        error = kind("disk-full", "The disk is full.", "Free some space.")
        assert "Errno" not in str(error)
        assert error.errno is None


def test_some__names_the_first_of_many() -> None:
    assert some(["a", 2]) == "a, 2"
    assert some("abcde", most=3) == "a, b, c and 2 more"
    assert some([]) == ""
