"""The step that takes what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask.data.new_sources import check_new
from protodask.errors import InputError
from protodask.pipeline.steps import AppendStep, IngestStep

if TYPE_CHECKING:
    from protodask.engine import Engine
    from protodask.pipeline.results import DatasetWritten


def ingest_new_sources(step: IngestStep, engine: Engine) -> DatasetWritten:
    """Take the sources that the dataset, or the other one, does not have; `overwrite` is for `unless_in` alone."""
    from protodask.data.ingest_news import ingest_news
    from protodask.data.ingest_schema import Roles, Wanted, orders_of
    from protodask.pipeline.results import DatasetWritten

    wanted = Wanted(
        Roles(step.target, step.weight, step.inclusion, step.group),
        step.categorical,
        orders_of(step.ordinal),
        step.drop,
        step.dtype,
        step.missing,
        step.text_is_categorical,
    )
    found = ingest_news(
        list(step.sources),
        step.out,
        wanted,
        new=step.new,
        unless_in=step.unless_in,
        settle=step.settle,
        overwrite=step.overwrite and not step.new,
        engine=engine,
    )
    return DatasetWritten(found.dataset, found.taken, found.left)


def check_ingest(step: IngestStep) -> None:
    """Refuse settings that contradict each other."""
    append = isinstance(step, AppendStep)
    if append and step.overwrite:
        raise InputError("settings-conflict", "Both append and overwrite are asked for.", "Choose one.")
    check_new(step.new, step.unless_in, step.settle, append, step.overwrite, step.out)
