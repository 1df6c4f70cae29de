"""Subsamples for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask.cli.console import say, say_some
from protodask.cli.wording import number, shorten

if TYPE_CHECKING:
    from protodask.pipeline.results import DatasetSubsampled


def summarize_subsample(result: DatasetSubsampled) -> str:
    """How many rows there are now, and the effective number, in one line."""
    rows = f"{result.dataset.n_rows:,} rows, which stand for {number(result.effective)}"
    return f"The subsample {shorten(result.dataset.path)} has {rows}."


def show_subsample(result: DatasetSubsampled) -> None:
    """What was kept, class by class."""
    say(summarize_subsample(result))
    say()
    by_class = zip(result.dataset.classes, result.rows, result.rates, result.kept, result.weight, strict=True)
    rows = [
        [str(label), f"{before:,}", f"{rate:.4g}", f"{kept:,}", number(weight)]
        for label, before, rate, kept, weight in by_class
    ]
    say_some(["class", "rows", "rate", "kept", "stand for"], rows)
