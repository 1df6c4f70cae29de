"""The errors users see: one sentence on what was seen, one on what to do."""

from __future__ import annotations

from collections.abc import Sequence

from protodask.places import mask_text


class ProtodaskError(Exception):
    """Base of every error this package raises on purpose.

    `seen` says what was found, `remedy` what to do about it; both are full sentences. URLs in them lose their secrets:
    errors are shown, logged and sent from process to process.
    """

    def __init__(self, seen: str, remedy: str) -> None:
        self.seen = mask_text(seen)
        self.remedy = mask_text(remedy)
        super().__init__(f"{self.seen} {self.remedy}")

    def __reduce__(self) -> tuple[type[ProtodaskError], tuple[str, str]]:
        # Exceptions pickle by `args`, which holds the joined text: workers send errors back by pickle.
        return type(self), (self.seen, self.remedy)


class InputError(ProtodaskError, ValueError):
    """Data or a setting that cannot be used."""


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
