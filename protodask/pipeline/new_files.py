"""Whether anything is new for the steps that take what is new of their sources: light to import."""

from __future__ import annotations

from protodask.pipeline.steps import IngestStep, PredictStep


def news(step: IngestStep | PredictStep) -> str | None:
    """What is new, in a few words; None if nothing is."""
    match step:
        case IngestStep():
            from protodask.pipeline.new_sources import news_of_ingest

            return news_of_ingest(step)
        case PredictStep():
            from protodask.pipeline.new_scores import news_of_predict

            return news_of_predict(step)
