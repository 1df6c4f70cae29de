"""The step that divides a dataset."""

from __future__ import annotations

from protodask.data import Dataset
from protodask.engine import Engine
from protodask.evaluation.splitting import split
from protodask.pipeline.results import DatasetSplit
from protodask.pipeline.steps import SplitStep


def split_dataset(step: SplitStep, engine: Engine) -> DatasetSplit:
    """Write the rows to train on and those held out."""
    parts = split(
        Dataset.open(step.data),
        step.out,
        step.held_out,
        share=step.share,
        seed=step.seed,
        engine=engine,
        overwrite=step.overwrite,
    )
    return DatasetSplit(*parts)
