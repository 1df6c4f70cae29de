"""What is new for a step that takes what is new: light to import."""

from __future__ import annotations

from protodask.data.new_sources import check_new, news_for
from protodask.pipeline.steps import IngestStep


def news_of_ingest(step: IngestStep) -> str | None:
    """What a step with `new` or `unless_in` would take, in a few words; None if there is nothing."""
    check_new(step.new, step.unless_in, step.settle, False, step.overwrite, step.out)
    news = news_for(step.out, step.sources, step.new, step.unless_in, step.settle)
    return news.describe() if news.items else None
