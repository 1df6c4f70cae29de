"""Datasets that were written, for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask.cli.wording import count, shorten

if TYPE_CHECKING:
    from protodask.pipeline.results import DatasetSplit, DatasetWritten


def summarize_written(result: DatasetWritten | DatasetSplit) -> str:
    """What datasets have, and what was new, in one line."""
    from protodask.pipeline.results import DatasetSplit

    if isinstance(result, DatasetSplit):
        return (
            f"{shorten(result.training.path)} has {result.training.n_rows:,} rows to train on, "
            f"{shorten(result.held_out.path)} the {result.held_out.n_rows:,} held out."
        )
    dataset = result.dataset
    line = (
        f"The dataset {shorten(dataset.path)} has {dataset.n_rows:,} rows, "
        f"{count(dataset.n_features, 'feature')} and {len(dataset.classes)} classes."
    )
    if result.taken is None:
        return line
    if not result.taken:
        return f"Nothing is new. {line}"
    rows = sum(segment.rows for segment in result.taken)
    return f"{line} New: {count(rows, 'row')} from {count(len(result.taken), 'source')}."
