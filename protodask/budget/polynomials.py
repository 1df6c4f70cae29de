"""Polynomials of one variable, as rows of coefficients, constant first: `p(n) = sum_k c_k n^k`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def evaluate(coefficients: Floats, sizes: ArrayLike) -> Floats:
    """`p(n)` by Horner's rule: coefficients (..., d + 1) and sizes that broadcast against all axes but the last.

    All costs of the package are computed here, in this order of operations, so that equal costs compare as equal.
    """
    n = np.asarray(sizes, dtype=np.float64)
    value = coefficients[..., -1]
    if coefficients.shape[-1] == 1:
        return np.broadcast_arrays(value, n)[0].copy()
    for power in range(coefficients.shape[-1] - 2, -1, -1):
        value = value * n + coefficients[..., power]
    return np.asarray(value, dtype=np.float64)
