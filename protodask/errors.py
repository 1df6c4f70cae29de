"""The errors users see: what kind of problem it is, one sentence on what was seen, one on what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from protodask.places import mask_text

Name = TypeVar("Name", bound=Hashable)

Code = Literal[
    # What was asked for.
    "bad-setting",  # a setting has a value that it cannot have
    "setting-missing",  # something has to be said that was not
    "settings-conflict",  # what was asked for contradicts itself
    "unknown-name",  # a name that is none of those there are: of a choice, a class, a version, a step
    "unknown-key",  # a file or a mapping has a key that nothing reads
    "unsupported",  # what is not done here, and what is done in its place
    "over-limit",  # more than a stated limit: rows, features, bytes, seconds
    "over-memory",  # more than the memory that may be used
    # What was given.
    "wrong-type",  # an object, an array or a column of a kind that is of no use here
    "wrong-shape",  # arrays that do not go together, or with other dimensions than expected
    "bad-value",  # a value in the data that is missing, infinite or out of its range
    "overflow",  # values too large to be added up
    "no-rows",  # nothing to work on, or nothing of positive weight
    "too-few",  # fewer rows, groups or prototypes than it takes
    "one-class",  # all rows are of one class, where there have to be two
    "column-missing",  # a column that has to be there is not
    "named-twice",  # two things of one name
    "columns-differ",  # other columns, features or classes than those it is to go with
    "user-code",  # a function or an object of the caller failed
    "not-fitted",  # what has to be there first: a model, a calibration
    # What is stored.
    "not-found",  # nothing is there
    "nothing-yet",  # nothing is there so far
    "exists",  # the place to write to is taken
    "wrong-kind",  # something else is there
    "newer-format",  # written by a later version
    "unreadable",  # it is there, and reading failed
    "unwritable",  # writing failed
    "disk-full",  # no space is left
    "damaged",  # not what was once written
    "unfinished",  # writing never ended
    "changed-meanwhile",  # replaced or removed while it was read
    "written-by-another",  # someone else writes to it
    "other-run",  # it belongs to a run or a fit with other settings or data
    "not-local",  # a URL where a folder of this machine is needed, or a place that cannot be used as one
    "places-overlap",  # one place to read or to write lies in another one, or is it
    "unsafe",  # reading it could do harm, unless it is allowed
    "package-missing",  # a library or a program that is not installed
    # The cluster.
    "no-answer",  # nothing answers at the address
    "not-secure",  # without the encryption or the certificates it takes
    "refused",  # a certificate, a handshake or a job was refused
    "no-workers",  # nobody takes the work
    "connection-lost",  # the scheduler went away
    "task-lost",  # workers died with a task
    "engine-closed",  # the engine was closed
    # The rest.
    "files-failed",  # some of many files could not be used; the others were
    "unexpected",  # an error that nobody foresaw
    "no-convergence",  # a solver found no solution that is good enough
]
"""The kind of a problem in a short name. It stays when wording changes: test for this, never for a sentence."""


class ProtodaskError(Exception):
    """Base of every error this package raises on purpose.

    `code` is the kind of problem, `seen` says what was found, `remedy` what to do about it; the last two are full
    sentences. URLs in them lose their secrets: errors are shown, logged and sent from process to process.
    """

    of_file = False
    """Whether it names settings as pipeline files have them, and no longer as Python does."""

    def __init__(self, code: Code, seen: str, remedy: str) -> None:
        self.code: Code = code
        self.seen = mask_text(seen)
        self.remedy = mask_text(remedy)
        super().__init__(f"{self.seen} {self.remedy}")

    def __reduce__(self) -> tuple[type[ProtodaskError], tuple[Code, str, str]]:
        # Exceptions pickle by `args`, which holds the joined text: workers send errors back by pickle.
        return type(self), (self.code, self.seen, self.remedy)


class InputError(ProtodaskError, ValueError):
    """Data or a setting that cannot be used."""


@contextmanager
def needed(seen: str, remedy: str) -> Iterator[None]:
    """Say what a library that is not installed is needed for, where importing it fails."""
    try:
        yield
    except ImportError as error:
        raise InputError("package-missing", seen, remedy) from error


@contextmanager
def refusing(
    kinds: type[Exception] | tuple[type[Exception], ...],
    code: Code,
    seen: str,
    remedy: str,
    refusal: type[ProtodaskError] = InputError,
) -> Iterator[None]:
    """Say what cannot be used, where an error of these kinds shows that it cannot; what that error says follows.

    Of any `Exception` at all, as code of the caller raises, its kind is told, too.
    """
    try:
        yield
    except kinds as error:
        told = f"{type(error).__name__}: {error}" if kinds is Exception else str(error)
        raise refusal(code, f"{seen} ({told}).", remedy) from error


class NothingYetError(InputError):
    """What there is to work on has not come yet: in a scheduled pipeline, a matter of time."""


class FormatError(ProtodaskError, ValueError):
    """A stored dataset, model or run that is damaged, foreign or written by a newer version."""


class OutputExistsError(ProtodaskError, FileExistsError):
    """The place to write to is taken."""


class StorageError(ProtodaskError, OSError):
    """Reading or writing failed: a full disk, a missing path, no permission."""


class ClusterError(ProtodaskError, RuntimeError):
    """The cluster cannot be reached, or it lost the work."""


class LostTaskError(ClusterError):
    """A task was given up, since workers died with it; the cluster may well do others."""


def some(names: Sequence[object], most: int = 10) -> str:
    """The first of many names, for an error to list, and how many there are besides."""
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def count(amount: int, one: str, many: str | None = None) -> str:
    """A number of things."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def named_twice(names: Iterable[Name]) -> list[Name]:
    """The names that come more than once, each once, in the order in which they come."""
    return [name for name, times in Counter(names).items() if times > 1]
