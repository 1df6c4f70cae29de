"""The spread `nu` by brute force, from its definition, and the table of it that the tests compare with.

`python tests/reference/spread.py tests/robust/spread_table.csv` writes the table anew (a minute).
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SIGMAS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
N_MEANS = 10


def log_bound(mean: Floats, sigma: float, t: Floats) -> Floats:
    """`h_{m,sg}(t)`, the logarithm of the largest `E exp(t X)` at a mean, for `abs(m) < 1`."""
    q = sigma * sigma
    with np.errstate(divide="ignore"):
        rest = np.log(np.maximum(q - mean * mean, 0.0))
        right = np.logaddexp(2 * np.log(1 - mean) + t * (mean - q) / (1 - mean), rest + t) - np.log(1 - 2 * mean + q)
        left = np.logaddexp(2 * np.log(1 + mean) + t * (mean + q) / (1 + mean), rest - t) - np.log(1 + 2 * mean + q)
    return np.where(t >= 0, right, left)


def excess(mean: Floats, t: Floats, low: float, high: float, sigma: float) -> Floats:
    """The `k^2` that a mean and a `t` ask for."""
    return 2 * (log_bound(mean, sigma, t) - np.maximum(low * t, high * t)) / (t * t)


def nu_by_brute_force(low: float, high: float, sigma: float) -> float:
    """`nu`, from below, by a grid over means and `t` of either sign that closes in on its best places."""
    if low == high and abs(low) >= sigma:
        return 0.0  # a point
    # As t goes to 0, only the end of the means matters: the variance there.
    best = sigma * sigma - min(low * low, high * high)
    size = np.geomspace(2e-3, 4000.0, 601)
    least, most = max(low, -1 + 1e-12), min(high, 1 - 1e-12)  # at a mean of -1 or 1 there is a point
    means = np.linspace(least, most, 321)
    for t in (size, -size[::-1]):
        values = excess(means[:, None], t[None, :], low, high, sigma)
        best = max(best, float(values.max()))
        # There may be several maxima: follow all that could win.
        rows, columns = np.nonzero(values > values.max() - 0.05 * abs(values.max()))
        places = zip(rows.tolist(), columns.tolist(), strict=True)
        tops = [(i, j) for i, j in places if values[i, j] >= _around(values, i, j)]
        for i, j in tops:
            found_mean, found_t = float(means[i]), float(t[j])
            step_mean, ratio = (most - least) / 320, size[1] / size[0]
            for _ in range(12):
                near = np.linspace(max(least, found_mean - step_mean), min(most, found_mean + step_mean), 9)
                times = found_t * np.geomspace(1 / ratio, ratio, 9)
                closer = excess(near[:, None], times[None, :], low, high, sigma)
                a, b = np.unravel_index(int(closer.argmax()), closer.shape)
                best = max(best, float(closer[a, b]))
                found_mean, found_t = float(near[a]), float(times[b])
                step_mean, ratio = step_mean / 2, math.sqrt(ratio)
    return math.sqrt(best)


def _around(values: Floats, i: int, j: int) -> float:
    return float(values[max(0, i - 1) : i + 2, max(0, j - 1) : j + 2].max())


def table() -> list[tuple[float, float, float, float]]:
    """`(sigma, m-, m+, nu)` for all `m- <= m+` of 10 equally spaced means in [-sigma, sigma]."""
    rows = []
    for sigma in SIGMAS:
        means = [float(mean) for mean in np.linspace(-sigma, sigma, N_MEANS)]
        rows += [
            (sigma, low, high, nu_by_brute_force(low, high, sigma)) for i, low in enumerate(means) for high in means[i:]
        ]
    return rows


def main(path: Path) -> None:
    lines = [f"{sigma},{low:.17g},{high:.17g},{spread:.7f}" for sigma, low, high, spread in table()]
    path.write_text("\n".join(["sigma,mean_low,mean_high,nu", *lines]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
