"""The likelihood of a round of batches: its value and gradient, tile by tile.

The batches of a round are trained together, each with feature weights `v_b` and candidates `J_b` of its own:

    q_nk = prev_nk + sum_b u_bnk,    u_bnk = sum_{j in J_b, y_j = k} w_bj K_{v_b}(x_n, s_j)
    c_nk = r_n (1 / Q_n - [k = y_n] / q_ny),    Q_n = sum_k q_nk
    dl/dw_bj = sum_n c_{n y_j} K_{v_b}(x_n, s_j)
    dl/dv_bd = - v_bd sum_n sum_{j in J_b} c_{n y_j} w_bj K_{v_b}(x_n, s_j) (x_nd - s_jd)^2

Given `c` the batches do not know of each other: a tile takes the kernels and class sums of all, then `c`, then the
gradients. Letters are those of `kernel`; sums of tiles are float64 whatever the precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import Floats
from protodask.prototypes.batch_kernel import BatchKernel, Pairs
from protodask.prototypes.kernel import RowSide, row_side
from protodask.prototypes.round_sums import RoundSums, Rows, stretches
from protodask.prototypes.tiles import Array, Precision


@dataclass(frozen=True)
class Likelihood:
    """Partial of the likelihood: value, gradient by the feature weights of every batch (B, all features) and by
    candidate weights (J,).
    """

    value: float
    by_feature: Floats
    by_candidate: Floats
    held_out: float = 0.0
    """`- sum_n h_n log(q_y / Q)` over the rows that are held out, of weights `h_n`."""


@dataclass(frozen=True, eq=False)
class LikelihoodKernel:
    """Value and gradient of `- sum_n r_n log(q_y / Q)` for a round of batches, for many blocks on any threads.

    All batches have the same standardisation.
    """

    batches: tuple[BatchKernel, ...]
    """A batch with candidates apart is there twice."""
    row_sides: dict[Precision, RowSide]
    """Of all features that any batch of a precision looks at."""

    def evaluate(
        self,
        features: Array,
        target: NDArray[np.integer],
        weight: Floats,
        previous: Floats,
        held_out: Floats | None = None,
        standardized: Array | None = None,
        itself: Sequence[Pairs] | None = None,
    ) -> Likelihood:
        """Sum over the rows given: `weight` are the `r_n`, `held_out` the `h_n`, `previous` the unscaled probabilities
        of the earlier rounds, (rows, K) or (K,), `standardized` the features in standard units, where they are known,
        and `itself` says, for each of the `batches` here, which rows some of its candidates are: no row looks at itself
        then.

        Rows where `r_n` is 0 have no part in the gradient and are left out; of those that are held out the class sums
        are taken alone, by candidates with positive weight.
        """
        counted = max(int(np.count_nonzero(rows)) for rows in (weight, held_out) if rows is not None)
        rows = Rows(features, standardized, previous, itself)
        sums = RoundSums(self.batches, self.row_sides, counted, rows)
        value, held_out_value = 0.0, 0.0
        for index in stretches(weight, sums.stretch):
            unscaled, own, share = sums.take(index), target[index], weight[index]
            for tile in sums.tiles():
                sums.add_class_sums(tile, unscaled)
                loss, slopes = likelihood_slopes(unscaled[:, tile], own[tile], share[tile])
                value += loss
                sums.add_gradients(tile, slopes)
            sums.end_stretch()
        if held_out is not None:
            for index in stretches(held_out, sums.stretch):
                unscaled = sums.take(index)
                for tile in sums.tiles():
                    sums.add_class_sums(tile, unscaled, alone=True)
                held_out_value += likelihood_value(unscaled, target[index], held_out[index])
        return Likelihood(value, *sums.gradients(), held_out_value)


def likelihood_kernel(batches: Sequence[BatchKernel]) -> LikelihoodKernel:
    """Some batches as a round."""
    looked_at: dict[Precision, list[NDArray[np.int64]]] = {}
    for batch in batches:
        looked_at.setdefault(batch.side.dtype, []).append(batch.side.active)
    sides = {
        dtype: row_side(
            active[0] if len(active) == 1 else np.unique(np.concatenate(active)),
            batches[0].standardization,
            batches[0].columns,
            dtype,
        )
        for dtype, active in looked_at.items()
    }
    return LikelihoodKernel(tuple(batches), sides)


def likelihood_value(unscaled: Floats, target: NDArray[np.integer], weight: Floats) -> float:
    """`- sum_n h_n log(q_y / Q)` for `q` (K, T)."""
    share = unscaled[target, np.arange(len(target))] / unscaled.sum(axis=0)
    return -float(weight @ np.log(share))


def likelihood_slopes(unscaled: Floats, target: NDArray[np.integer], weight: Floats) -> tuple[float, Floats]:
    """Value `- sum_n r_n log(q_y / Q)` and its derivative `r_n (1 / Q_n - [k = y_n] / q_ny)` by `q_kn`, (K, T)."""
    total = unscaled.sum(axis=0)
    index = np.arange(len(target))
    own = unscaled[target, index]
    share = own / total
    value = -float(weight @ np.log(share))
    slope = np.empty_like(unscaled)
    slope[...] = weight / total
    slope[target, index] = weight * (share - 1) / own
    return value, slope
