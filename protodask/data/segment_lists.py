"""The list of sources of a dataset while it is written: what it was, what is added, and what commits it."""

from __future__ import annotations

from collections.abc import Sequence

from protodask.data.checksums import hash_json
from protodask.data.commits import changing
from protodask.data.dataset import Dataset
from protodask.data.metadata import Metadata
from protodask.data.segments import Segment, segments_content, whole_segment
from protodask.data.storage import locate
from protodask.errors import StorageError


def segments_before(dataset: Dataset, added: Sequence[Segment] | None) -> tuple[Segment, ...] | None:
    """The segments a dataset has before an append, or None if it will have none after it either.

    That of all rows, where they are the first. The caller holds the lock, so what was new may turn out to be there.
    """
    if dataset.metadata.segments is not None:
        before = dataset.segments
    elif added is None:
        return None
    else:
        before = (whole_segment(dataset.path, dataset.key, dataset.n_rows),)
    known = {segment.digest for segment in before}
    if added is not None and any(segment.digest in known for segment in added):
        raise StorageError(
            "written-by-another",
            f"Someone else added the same rows to {dataset.path} meanwhile.",
            "Repeat: what is there is not added again.",
        )
    segments_content([*before, *(added or ())])  # that there are not too many, before the rows are read
    return before


def appended_segment(metadata: Metadata, first_row: int) -> Segment:
    """The rows from `first_row` on, of unknown origin: told by that number and by all that the dataset now holds."""
    return Segment("", hash_json(["appended", metadata.fingerprint, first_row]), metadata.n_rows - first_row)


def add_empty_segments(path: str, added: Sequence[Segment]) -> Dataset:
    """Note sources without a single row in the dataset at a path, so that they are not looked into again."""
    with changing(locate(path)) as change:
        before = segments_before(change.dataset, added) or ()
        noted = change.with_segments(change.dataset.metadata, (*before, *added))
        change.make_durable()
        return change.commit(noted)
