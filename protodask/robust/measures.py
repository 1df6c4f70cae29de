"""How well planes do on uncertain points of known class, as sums that merge.

With weights `s`, true classes, the classes predicted and their certified eps:

    nominal error             share of the points whose predicted class is not theirs
    expected certified error  mean of 1 where it is not, else of the certified eps
    certified fraction        share of the points certified to be of their class, at a given eps
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import TARGET
from protodask.engine import Block, EngineLike, Reduction, Source, add_records, open_engine
from protodask.engine.records import Floats
from protodask.evaluation.given_rows import check_rows, check_weight, usable_weights
from protodask.robust.certified import BOUNDS
from protodask.robust.formulations import check_eps
from protodask.robust.kept_terms import RowsOfBlock
from protodask.robust.model import RobustModel
from protodask.robust.passes import tiles


@dataclass(frozen=True)
class CertifiedSums:
    """Sums over points of weight `s`; merges as a monoid, divided once."""

    count: int
    weight: float
    wrong: float
    """`sum s` of the points whose predicted class is not theirs."""
    certified_error: float
    """`sum s e`, `e` 1 where the predicted class is not theirs, else the certified eps."""
    certified: float
    """`sum s` of the points certified to be of their class at the eps asked for."""
    by: tuple[float, ...] = (0.0,) * len(BOUNDS)
    """The same by each of the bounds."""

    @property
    def nominal_error(self) -> float:
        return self.wrong / self.weight

    @property
    def expected_certified_error(self) -> float:
        return self.certified_error / self.weight

    @property
    def certified_fraction(self) -> float:
        return self.certified / self.weight


NOTHING = CertifiedSums(0, 0.0, 0.0, 0.0, 0.0)


def certified_sums(
    right: NDArray[np.bool_],
    certified: Floats,
    eps: float,
    weights: Floats | None = None,
    by: NDArray[np.int8] | None = None,
) -> CertifiedSums:
    """The sums of some points: whether each prediction is right, and its certified eps (N,), by which bound.

    `eps` is the one the fraction is asked for.
    """
    weight = np.ones(len(right)) if weights is None else weights
    counted = right & (certified <= eps)
    bounds = np.zeros(len(right), dtype=np.int8) if by is None else by
    error = np.where(right, certified, 1.0)
    with np.errstate(over="ignore"):  # who divides them refuses sums that are not finite
        return CertifiedSums(
            len(weight),
            float(weight.sum()),
            float(weight[~right].sum()),
            float(np.sum(weight * error)),
            float(weight[counted].sum()),
            tuple(np.bincount(bounds[counted], weight[counted], len(BOUNDS)).tolist()),
        )


def checked_sums(sums: CertifiedSums) -> CertifiedSums:
    """The sums, if there is any weight to divide them by."""
    check_weight(sums.weight)
    return sums


def _of_block(
    block: Block, model: RobustModel, rows_of: RowsOfBlock, codes: NDArray[np.int64], formulation: str, eps: float
) -> CertifiedSums:
    sums = NOTHING
    for tile in tiles(block):
        rows = rows_of(tile)
        right = model.predict(rows) == codes[tile[TARGET.name]]
        weights = usable_weights(tile)
        certified, by = model.certified(rows, formulation)
        sums = add_records(sums, certified_sums(right, certified, eps, weights, by))
    return sums


CERTIFIED_SUMS: Reduction[CertifiedSums, CertifiedSums] = Reduction(_of_block, add_records, checked_sums)
"""The sums over a source. Arguments: the model, a `RowsOfBlock`, the model's class of each target code, the name of a
formulation, and eps."""


def evaluate_robust(
    model: RobustModel,
    source: Source,
    rows_of: RowsOfBlock,
    codes: NDArray[np.int64],
    engine: EngineLike = None,
    *,
    formulation: str | None = None,
    eps: float | None = None,
) -> CertifiedSums:
    """The measures over a source whose targets stand for the classes `codes` of the model.

    Certified by what `formulation` knows, see `RobustModel.certifying`; the fraction is of those certified at
    `eps`, by default the one of training.
    """
    name = model.certifying(formulation)
    asked = model.config.eps if eps is None else eps
    check_eps(asked)
    with open_engine(engine) as opened:
        sums = opened.reduce(
            check_rows(source),
            CERTIFIED_SUMS,
            opened.share(model),
            rows_of,
            codes,
            name,
            asked,
            label="evaluate",
        )
        opened.forget(source)
    return sums
