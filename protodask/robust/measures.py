"""How well a plane does on uncertain points of known label, as sums that merge.

With weights `s`, labels `y` and what `certified.certify` says of each point:

    nominal error             share of the points whose side is not their label
    expected certified error  mean of 1 where the side is not the label, else of the certified eps
    certified fraction        share of the points certified to be on the side of their label, at a given eps
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.engine import Block, Reduction, identity
from protodask.robust.certified import Certificates
from protodask.robust.terms import Floats


@dataclass(frozen=True)
class CertifiedSums:
    """Sums over points of weight `s`; merges as a monoid, divided once."""

    count: int
    weight: float
    wrong: float
    """`sum s` of the points whose side is not their label."""
    certified_error: float
    """`sum s e`, `e` 1 where the side is not the label, else the certified eps."""
    certified: float
    """`sum s` of the points certified on their side at the eps asked for."""

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
    certificates: Certificates, y: NDArray[np.generic], eps: float, weights: Floats | None = None
) -> CertifiedSums:
    """The sums of some points with labels `y` (N,) of -1 and 1; `eps` is the one the fraction is asked for."""
    weight = np.ones(len(certificates.side)) if weights is None else weights
    right = certificates.side == y
    error = np.where(right, certificates.eps, 1.0)
    return CertifiedSums(
        len(weight),
        float(weight.sum()),
        float(weight[~right].sum()),
        float(np.sum(weight * error)),
        float(weight[right & (certificates.eps <= eps)].sum()),
    )


def merge_sums(left: CertifiedSums, right: CertifiedSums) -> CertifiedSums:
    """The sums of two sets of points together."""
    return CertifiedSums(
        left.count + right.count,
        left.weight + right.weight,
        left.wrong + right.wrong,
        left.certified_error + right.certified_error,
        left.certified + right.certified,
    )


PointsOfBlock = Callable[[Block], tuple[Certificates, NDArray[np.generic], Floats | None]]
"""What a plane says of a block's points, their labels as -1 and 1, and their weights if they have any."""


def _of_block(block: Block, points_of: PointsOfBlock, eps: float) -> CertifiedSums:
    certificates, y, weights = points_of(block)
    return certified_sums(certificates, y, eps, weights)


CERTIFIED_SUMS: Reduction[CertifiedSums, CertifiedSums] = Reduction(_of_block, merge_sums, identity)
"""The sums over a dataset. Arguments: a picklable `PointsOfBlock`, which knows the plane and the columns, and eps."""
