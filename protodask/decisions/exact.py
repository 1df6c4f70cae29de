"""The exact expected loss of selecting the `k` items of largest probability, for any loss and every `k`.

Items are sorted by probability, largest first. With the tables `C_k` of how many of the first `k` items are positive
and `D_k` of how many of the others,

    L_k = sum_{k1, k2} C_k[k1] D_k[k2] phi(k1 / n, k / n, (k1 + k2) / n).

`C_k` grows item by item, all `D_k` come from one pass from the end. The sums run over the entries the tables keep,
about `sqrt(n)` of `n` each way (see `counts`), so that all `k` take `O(n^2)` evaluations of the loss, and at most
`n^3 / 6`. What is dropped is below 1e-20 of the loss's range, less than float64 resolves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from protodask.decisions.counts import CountTable, count_table, neighbouring_tables
from protodask.decisions.losses import LinearFractional, Loss, as_loss
from protodask.decisions.probabilities import read_probabilities
from protodask.decisions.quadratic import quadratic_losses, spread, whole_denominator
from protodask.engine.records import Floats
from protodask.errors import InputError

STEP_TERMS = 5000
"""Of one `k`: what its calls of numpy take."""


def expected_loss(probability: ArrayLike, k: int, loss: str | Loss | Callable[..., Any]) -> float:
    """Expected loss of selecting the `k` items of largest probability, in any order; exact."""
    values = np.sort(read_probabilities(probability))[::-1]
    if k not in range(len(values) + 1):
        raise InputError(
            "bad-setting", f"k is {k!r}.", f"Give a whole number from 0 to {len(values)}, the number of items."
        )
    k = int(k)
    return _expectation(as_loss(loss), len(values), k, count_table(values[:k]), count_table(values[k:]))


def expected_losses(probability: ArrayLike, loss: str | Loss | Callable[..., Any], *, general: bool = False) -> Floats:
    """Expected losses of selecting the 0, 1, .. n items of largest probability (n + 1,); exact.

    F-beta, Jaccard and other linear-fractional losses take a faster way unless `general` is asked for.
    """
    values = np.sort(read_probabilities(probability))[::-1]
    found = as_loss(loss, len(values))
    quick = None if general else quick_losses(values, found)
    return general_losses(values, found) if quick is None else quick


def quick_losses(ordered: Floats, loss: Loss) -> Floats | None:
    """All `L_k` by the quadratic method; None if the loss is not linear-fractional with suitable coefficients."""
    if isinstance(loss.form, LinearFractional) and (whole := whole_denominator(loss.form)) is not None:
        return quadratic_losses(ordered, loss.form, whole)
    return None


def exact_terms(probability: Floats, loss: Loss) -> float:
    """About how many terms all `L_k` take to add, each some 4 to 9 ns: what a decision by exact sums costs.

    The general method has tables of about 20 standard deviations of a count, and with either method a `k` takes as long
    as `STEP_TERMS` at least.
    """
    n = len(probability)
    if isinstance(loss.form, LinearFractional) and (whole := whole_denominator(loss.form)) is not None:
        return n * (n * max(spread(whole), 1) / 2 + STEP_TERMS)
    deviation = float(np.sqrt(np.sum(probability * (1 - probability)) / 2))
    return n * (min(20 * deviation + 20, n / 2) ** 2 + STEP_TERMS)


def general_losses(ordered: Floats, loss: Loss) -> Floats:
    """All `L_k` by the double sum."""
    return np.fromiter(iterate_losses(ordered, loss), dtype=np.float64, count=len(ordered) + 1)


def iterate_losses(ordered: Floats, loss: Loss) -> Iterator[float]:
    """`L_0`, `L_1` and so on, each computed when it is asked for."""
    for k, (before, after) in enumerate(neighbouring_tables(ordered)):
        yield _expectation(loss, len(ordered), k, before, after)


def _expectation(loss: Loss, n: int, k: int, before: CountTable, after: CountTable) -> float:
    selected, others = before.counts[:, None], after.counts
    value = loss(selected / n, k / n, (selected + others) / n)
    return float(before.probability @ value @ after.probability)
