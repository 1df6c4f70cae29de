"""What the fits of a cross-validation share: the data of each fold's training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from protodask.data.format.schema import FEATURES, TARGET, WEIGHT
from protodask.data.format.summary import summarize
from protodask.engine import Engine, Source
from protodask.engine.together import Company, all_together
from protodask.prototypes.config import FitConfig
from protodask.prototypes.held_out import held_out_parts, without_fold
from protodask.prototypes.training import TrainingData
from protodask.selection.holdout import JUDGED, marginal_loss


@dataclass(frozen=True)
class FoldData:
    """What one fold's fits are trained on, and how the marginals alone do on the fold."""

    fold: int
    data: TrainingData
    marginal_loss: float


def fold_parts(
    engine: Engine,
    folded: Source,
    data: TrainingData,
    n_folds: int,
    config: FitConfig,
    grouped: bool,
    company: Company,
    most: int,
) -> list[FoldData]:
    """The data of each fold's training: what is standardised, and how, is a matter of the rows trained on.

    The settings may hold some of those out in turn, whole groups if the rows are `grouped`.
    """
    sources = [without_fold(folded, fold, JUDGED) for fold in range(n_folds)]
    n_classes = len(data.classes)
    names, every = (FEATURES.name, TARGET.name, WEIGHT.name), data.summary.class_weight

    def part(fold: int, own: Engine) -> FoldData:
        summary = summarize(own, sources[fold], n_classes)
        kept = replace(data, source=sources[fold], array_names=names, summary=summary)
        (trained,) = held_out_parts(own, kept, config, grouped)
        return FoldData(fold, trained, marginal_loss(trained.summary.class_weight, every - summary.class_weight))

    return all_together(engine, [partial(part, fold) for fold in range(n_folds)], company=company, most=most)
