"""The errors users see: one sentence on what was seen, one on what to do."""

from __future__ import annotations


class ProtodaskError(Exception):
    """Base of every error this package raises on purpose.

    `seen` says what was found, `remedy` what to do about it; both are full sentences.
    """

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(f"{seen} {remedy}")
        self.seen = seen
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[ProtodaskError], tuple[str, str]]:
        # Exceptions pickle by `args`, which holds the joined text: workers send errors back by pickle.
        return type(self), (self.seen, self.remedy)


class InputError(ProtodaskError, ValueError):
    """Data or a setting that cannot be used."""


class FormatError(ProtodaskError, ValueError):
    """A stored dataset, model or run that is damaged, foreign or written by a newer version."""


class OutputExistsError(ProtodaskError, FileExistsError):
    """The place to write to is taken."""


class StorageError(ProtodaskError, OSError):
    """Reading or writing failed: a full disk, a missing path, no permission."""


class ClusterError(ProtodaskError, RuntimeError):
    """The cluster cannot be reached, or it lost the work."""
