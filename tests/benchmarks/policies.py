"""What a policy's value loses where records of reward zero were dropped: spread and intervals, by the share kept.

Logs of `--records` visits to a site of four pages: each page was shown with a probability of its own, the policy would
always show the best, and there is a click in three of a hundred visits then, in one otherwise. Of the records without
a click a share is kept, with its inclusion probability. `spread` is the standard deviation of the estimates over many
logs, over that of the same estimator with all records; `width` the mean width of the intervals, over the same; `covers`
the share of the intervals of 95 per cent that have the true value. `counted` knows how many records were dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from protodask.engine import Engine, thread_engine
from protodask.evaluation import policy_value

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

SHOWN = np.array([0.4, 0.3, 0.2, 0.1])
CLICKS, BEST_CLICKS = 0.01, 0.03
KINDS: tuple[Literal["ips", "snips", "counted"], ...] = ("ips", "snips", "counted")

LEAST_COVERED, MOST_COVERED = 0.93, 0.98


@dataclass(frozen=True)
class Result:
    """One estimator on logs of which a share of the records without a click is kept."""

    estimator: str
    kept: float
    rows: float
    """Of a log, in the mean."""
    spread: float
    width: float
    covers: float


def measure(kind: Literal["ips", "snips", "counted"], share: float, logs: int, records: int, engine: Engine) -> Result:
    values, widths, rows = np.empty(logs), np.empty(logs), np.empty(logs)
    covered = 0
    for number in range(logs):
        random = np.random.default_rng(number)  # the same logs for all
        page, best = random.choice(4, records, p=SHOWN), random.integers(0, 4, records)
        match = page == best
        clicked = random.random(records) < np.where(match, BEST_CLICKS, CLICKS)
        kept = clicked | (random.random(records) < share)
        log = (match[kept].astype(float), clicked[kept].astype(float), SHOWN[page[kept]])
        if kind == "counted":
            found = policy_value(*log, dropped_zeros=int((~kept).sum()), engine=engine)
        else:
            found = policy_value(*log, np.where(clicked, 1.0, share)[kept], kind, engine=engine)
        values[number], widths[number], rows[number] = found.value, found.high - found.low, kept.sum()
        covered += found.low <= BEST_CLICKS <= found.high
    return Result(kind, share, rows.mean(), values.std(), widths.mean(), covered / logs)


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--logs", type=common.positive, default=1000, help="logs of each kind")
    parser.add_argument("--records", type=common.positive, default=20_000, help="records of a log")
    parser.add_argument(
        "--kept", type=common.fractions, default=[1.0, 0.1, 0.01, 0.001], help="shares of the records without a click"
    )
    settings = parser.parse_args()
    measured_on = common.start("policies")
    table = common.Table(
        f"{settings.logs} logs of {settings.records:,} records",
        ("estimator", "kept", "rows", "spread", "width", "covers"),
    )
    results: list[Result] = []
    checks: list[common.Check] = []
    with thread_engine(1) as engine:
        for kind in KINDS:
            whole = measure(kind, 1.0, settings.logs, settings.records, engine)
            for share in settings.kept:
                found = measure(kind, share, settings.logs, settings.records, engine)
                results.append(found)
                spread = found.spread / whole.spread
                table.row(kind, share, found.rows, spread, found.width / whole.width, found.covers)
                name = f"{kind}, {share:g} kept"
                checks.append(common.Check(f"covered, {name}", found.covers, ">=", LEAST_COVERED))
                checks.append(common.Check(f"covered, {name}", found.covers, "<=", MOST_COVERED))
    common.finish("policies", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
