"""What a policy would earn, from a log of what another one did.

The log has, for each record, the action `a` that was taken, the probability `p` with which it was taken (its
*propensity*), and the reward `r`. Of the policy that is to be judged, `m` says whether it takes the action of the
record (or, if it draws its actions, with what probability). A record kept with probability `l` stands for `1/l`.

    ips     V = sum (1/l) r m/p  /  sum 1/l                  inverse propensity scoring
    snips   V = sum (1/l) r m/p  /  sum (1/l) m/p            self-normalised
    dr      V = sum (1/l) (q + (r - q) m/p)  /  sum 1/l      doubly robust

with `q` the reward that a model of rewards expects of the action that the policy takes. What `dr` says is right where
either the propensities or these expectations are, and the better these, the less it may be off: of rewards alone the
part counts that `q` did not expect.

All are ratios, with the variance that is in `protodask.evaluation.ratio`. Rewards may be rare, so the ends of their
intervals are those of a sum of rare amounts, in `protodask.evaluation.rare_sums`: of what was earned, and of what was
lost where there are rewards below zero. With `Y` and `Y'` for both sums, `l`, `u`, `l'` and `u'` for their ends, the
interval of `Y - Y'` is (Zou and Donner's rule)

    Y - Y' - sqrt((Y - l)^2 + (u' - Y')^2)   to   Y - Y' + sqrt((u - Y)^2 + (Y' - l')^2)

The interval of dr is that of ips of the rewards less what was expected, to the square of which on either side is added
by how much, if at all, the variance of V is above that of this part.

Where nothing was dropped, ips divides by a number
that is known, and is unbiased. Else the divisor is itself an estimate, and so it is for snips: both are biased then by
a share of about the square of its relative error, which falls with the number of rows faster than the interval does.
snips lies between the smallest and the largest reward, and adding a constant to all rewards adds it to the value; where
rewards are all of about one size, its errors are smaller.

Where none but records of reward zero were dropped and their number is known, the rows that are left say all that the
whole log says to ips: the sum is the same to the last bit, and it is divided by the number of all records.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protodask.data.format.schema import INCLUSION, WEIGHT
from protodask.engine import Block, EngineLike, Reduction, Source, add_records, identity
from protodask.engine.records import Floats, merged_by
from protodask.errors import InputError
from protodask.evaluation.given_rows import check_rows, reading, row_numbers, source_of
from protodask.evaluation.interval import Interval, check_confidence, normal_quantile
from protodask.evaluation.rare_sums import Moments, moments, rare_interval, unseen_amount
from protodask.evaluation.ratio import (
    NO_ROWS,
    RatioSums,
    ratio_error,
    ratio_sums,
    too_large,
    zero_rows,
)

Estimator = Literal["ips", "snips", "dr"]

MATCH = "match"
REWARD = "reward"
PROPENSITY = "propensity"
EXPECTED = "expected"

NEEDED = "Give one of each for each row, or a source that holds them."

MOST_DROPPED = 10**30
"""Nobody counts more, and their number is still an exact integer beside sums of rewards."""


@dataclass(frozen=True)
class PolicyQuestion:
    """How a log is to be read."""

    estimator: Estimator = "ips"
    dropped_zeros: int | None = None
    """Records of reward zero that the log had and that are not among its rows; None if nobody counted them."""
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.estimator not in get_args(Estimator):
            raise InputError("unknown-name", f"estimator is {self.estimator!r}.", 'Give "ips", "snips" or "dr".')
        check_confidence(self.confidence)
        if self.dropped_zeros is None:
            return
        whole = hasattr(self.dropped_zeros, "__index__") and not isinstance(self.dropped_zeros, bool)
        if not whole or self.dropped_zeros < 0:
            raise InputError(
                "bad-setting",
                f"The number of dropped records is {self.dropped_zeros!r}.",
                "Give a whole number, 0 or more.",
            )
        if self.dropped_zeros > MOST_DROPPED:
            raise InputError(
                "bad-setting", "The number of dropped records is above 10^30.", "Give the number that were counted."
            )
        if self.estimator != "ips":
            needs = "the propensities" if self.estimator == "snips" else "what was expected"
            raise InputError(
                "settings-conflict",
                f"The estimator {self.estimator} needs {needs} of dropped records, not their number.",
                "Leave the number out and give inclusion probabilities, or use the estimator ips.",
            )


@dataclass(frozen=True)
class PolicySums:
    """What the rows of a log contribute to a policy's value; merges as a monoid."""

    rows: int
    matched: int
    """Rows with an action that the policy may take."""
    records: float
    """`sum 1/l`: records that the rows stand for."""
    ratio: RatioSums
    """Of the rewards; for dr, of what is left of them."""
    whole: RatioSums
    """For dr, of these and what was expected; else of no rows."""
    gains: Moments
    """Of rewards above zero of matching rows, as they enter the value."""
    losses: Moments
    """The same of rewards below zero."""
    rewards_above: Moments
    """Of rewards above zero of any rows, each as often as it stands for a record."""
    rewards_below: Moments
    """The same of rewards below zero."""
    matching: Moments
    """Of `m/p` of matching rows, weighed by the records that they stand for."""
    any_rows: Moments
    """Of `1/p` of all rows."""
    least: float = field(metadata=merged_by(min))
    """The smallest reward."""
    most: float = field(metadata=merged_by(max))
    """The largest reward."""


NO_SPREAD = 1e-24
"""A share of the sum of squares that is rounding."""


@dataclass(frozen=True)
class PolicyEstimate:
    """The value of a policy and what it rests on."""

    interval: Interval
    rows: int
    matched: int
    """Rows with an action that the policy may take."""
    records: float
    """Records of the whole log: counted, or estimated as `sum 1/l`."""


def policy_value(
    match: ArrayLike | Source,
    reward: ArrayLike | None = None,
    propensity: ArrayLike | None = None,
    inclusion: ArrayLike | None = None,
    estimator: Estimator = "ips",
    *,
    expected: ArrayLike | None = None,
    dropped_zeros: int | None = None,
    confidence: float = 0.95,
    engine: EngineLike = None,
) -> Interval:
    """The mean reward of a policy, estimated from a log in one pass, with its confidence interval.

    `match` says for each row whether the policy takes the logged action, or with what probability; `propensity` is the
    probability with which it was taken, above 0 and at most 1, and so is `inclusion`, with which the row was kept. They
    are arrays of NumPy, dask or Zarr, or one source whose blocks hold arrays of these names.

    `expected` is for the estimator "dr": the reward that a model of rewards expects in each row of the action that the
    policy takes there, whichever was logged. The policy takes one action then, and `match` is 0 or 1.

    `dropped_zeros` is the number of records of reward zero that were dropped, if it is known: then the log has that
    many records more than rows, whatever `inclusion` says of rows of reward zero, and no other row may have been at
    risk. It is for the estimator "ips".

    Without a row that matches, "snips" is an error; "ips" is 0 then, as it is where all matching rows have reward 0.
    The interval says even so how large the value may be, judged by the rewards of the other rows; where no row has a
    reward, nothing is known of their size, and it has no ends.
    """
    question = PolicyQuestion(estimator, dropped_zeros, confidence)
    given = {MATCH: match, REWARD: reward, PROPENSITY: propensity, INCLUSION.name: inclusion, EXPECTED: expected}
    if expected is not None and estimator != "dr":
        raise InputError(
            "settings-conflict",
            f"Expected rewards are given, and the estimator {estimator} has no use for them.",
            'Use the estimator "dr", or leave them out.',
        )
    source = check_rows(source_of(given, dict.fromkeys((REWARD, PROPENSITY), NEEDED)))
    with reading(source, match, engine) as opened:
        sums = opened.reduce(source, POLICY, question, label="policy value")
    return finish_policy(sums, question).interval


def policy_sums(block: Block, question: PolicyQuestion) -> PolicySums:
    """The contribution of a block that holds "match", "reward", "propensity", maybe "inclusion", for dr "expected"."""
    match, reward, propensity = _read_log(block)
    stands_for = _records(block, reward, question)
    expected = _expected(block, match) if question.estimator == "dr" else None
    weight: Floats | None
    if expected is not None:
        reward = reward - expected
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what is not finite is refused below
        likelihood = match / propensity
        earned = reward * match / propensity
        product = earned if stands_for is None else stands_for * earned
        records = float(block.n_rows if stands_for is None else stands_for.sum())
        amount = reward if stands_for is None else stands_for * reward
        if question.estimator == "snips":
            weight, value = likelihood if stands_for is None else stands_for * likelihood, reward
        else:
            weight, value = stands_for, earned
    remedy = "Leave out rows of so small a probability, or rescale the rewards: the quotient is too large to be stored."
    _require(block, np.isfinite(likelihood) & np.isfinite(earned), PROPENSITY, remedy)
    if stands_for is not None and weight is not None:
        _require(block, np.isfinite(weight) & np.isfinite(product), INCLUSION.name, remedy)
    return PolicySums(
        rows=block.n_rows,
        matched=int(np.count_nonzero(match)),
        records=records,
        ratio=ratio_sums(weight, product, value),
        whole=NO_ROWS if expected is None else _whole(stands_for, expected + earned),
        gains=moments(np.maximum(product, 0)),
        losses=moments(np.maximum(-product, 0)),
        rewards_above=moments(np.maximum(amount, 0)),
        rewards_below=moments(np.maximum(-amount, 0)),
        matching=moments(likelihood, stands_for),
        any_rows=moments(1 / propensity, stands_for),
        least=float(reward.min()),
        most=float(reward.max()),
    )


def _read_log(block: Block) -> tuple[Floats, Floats, Floats]:
    """Match, reward and propensity of each row, or an error that names the first row that cannot be used."""
    if WEIGHT.name in block:
        raise InputError(
            "unsupported",
            "The rows of the log have weights, and a policy's value has no use for them.",
            "Give the log without weights; for rows that were kept by chance, give inclusion probabilities.",
        )
    match, reward, propensity = (_numbers(block, name) for name in (MATCH, REWARD, PROPENSITY))
    fits = (match >= 0) & (match <= 1)
    _require(block, fits, MATCH, "Say with 0 or 1, or with a probability, whether the policy takes the logged action.")
    _require(block, np.isfinite(reward), REWARD, "Give a finite reward for every row.")
    fits = (propensity > 0) & (propensity <= 1)
    remedy = "Give the probability with which the logged action was taken, above 0 and at most 1."
    _require(block, fits, PROPENSITY, remedy)
    return match, reward, propensity


def _expected(block: Block, match: Floats) -> Floats:
    """What is expected of the policy's action in each row."""
    expected = _numbers(block, EXPECTED)
    _require(block, np.isfinite(expected), EXPECTED, "Give a finite expected reward for every row.")
    remedy = "Say with 0 or 1 whether the policy takes the logged action, or use another estimator than dr."
    _require(block, (match == 0) | (match == 1), MATCH, remedy)
    return expected


def _whole(stands_for: Floats | None, value: Floats) -> RatioSums:
    return ratio_sums(stands_for, value if stands_for is None else stands_for * value, value)


def _records(block: Block, reward: Floats, question: PolicyQuestion) -> Floats | None:
    """How many records each row stands for, `1/l`; None where each stands for itself."""
    if INCLUSION.name not in block:
        return None
    inclusion = _numbers(block, INCLUSION.name)
    fits = (inclusion > 0) & (inclusion <= 1)
    remedy = "Give the probability with which the row was kept, above 0 and at most 1."
    _require(block, fits, INCLUSION.name, remedy)
    if question.dropped_zeros is None:
        with np.errstate(over="ignore"):
            return 1 / inclusion
    # Those of reward zero that are left need not stand for others: these have been counted.
    remedy = "Rows with a reward may have been dropped, too: leave out the number of dropped records."
    _require(block, (inclusion == 1) | (reward == 0), INCLUSION.name, remedy)
    return None


def _numbers(block: Block, name: str) -> Floats:
    if name not in block:
        raise InputError(
            "column-missing",
            f"The rows have no {name}.",
            f'Give "{MATCH}", "{REWARD}" and "{PROPENSITY}", and for the estimator dr "{EXPECTED}".',
        )
    values = block[name]
    if values.ndim == 1 and values.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            return values.astype(np.float64)
    return row_numbers(block, name)


def _require(block: Block, fits: NDArray[np.bool_], name: str, remedy: str) -> None:
    if not fits.all():
        row = int(np.argmin(fits))
        raise InputError(
            "bad-value", f"The {name} of row {block.start + row} is {block[name][row]} (rows count from 0).", remedy
        )


POLICY: Reduction[PolicySums, PolicySums] = Reduction(policy_sums, add_records, identity)


def finish_policy(sums: PolicySums, question: PolicyQuestion) -> PolicyEstimate:
    """The value that the sums amount to."""
    if question.estimator == "snips" and sums.matched == 0:
        raise InputError(
            "no-rows",
            "No row of the log has an action that the policy takes, so there is nothing to divide by.",
            "Give a longer log, or use the estimator ips.",
        )
    dropped = question.dropped_zeros or 0
    ratio = sums.ratio + zero_rows(int(dropped)) if dropped else sums.ratio
    interval = _interval(sums, ratio, question)
    if question.estimator == "dr":
        interval = _with_expected(interval, sums, question.confidence)
    return PolicyEstimate(interval, sums.rows, sums.matched, sums.records + dropped)


def _with_expected(left: Interval, sums: PolicySums, confidence: float) -> Interval:
    """The interval of dr, given that of what is left of the rewards. If no reward in all the log is above what was
    expected of it, nothing is known of how large those may be that did not come.
    """
    value, error, _ = ratio_error(sums.whole)
    _, own, _ = ratio_error(sums.ratio)
    if not (math.isfinite(error) and math.isfinite(left.low) and sums.rewards_above.weight):
        return Interval(value, -math.inf, math.inf)
    more = normal_quantile(confidence) * math.sqrt(max(error**2 - own**2, 0.0))
    down, up = math.hypot(left.value - left.low, more), math.hypot(left.high - left.value, more)
    return Interval(value, value - down, value + up)


def _interval(sums: PolicySums, ratio: RatioSums, question: PolicyQuestion) -> Interval:
    value, error, divisor = ratio_error(ratio)
    gains, losses = sums.gains, sums.losses
    known = gains.squares + losses.squares
    if not math.isfinite(known):
        raise too_large()
    if not math.isfinite(error):  # of a single row
        return Interval(value, -math.inf, math.inf)
    # Where no two rewards differ, that says no more than that fewer than one in all rows may.
    share = max((error * divisor / math.sqrt(known)) ** 2, NO_SPREAD) if known > 0 else 1.0
    if share == NO_SPREAD:
        share = 1 / ratio.rows
    likelihoods = sums.matching if sums.matching.weight > 0 else sums.any_rows
    ends: list[tuple[float, float]] = []
    for came, rewards in ((gains, sums.rewards_above), (losses, sums.rewards_below)):
        amount = unseen_amount(came, rewards, likelihoods)
        ends.append((0.0, 0.0) if amount is None else rare_interval(came, amount, share, question.confidence))
    if ends == [(0.0, 0.0)] * 2:
        return Interval(value, -math.inf, math.inf)
    (low, high), (low_loss, high_loss) = ends
    down = math.hypot(max(gains.total - low, 0), max(high_loss - losses.total, 0)) / divisor
    up = math.hypot(max(high - gains.total, 0), max(losses.total - low_loss, 0)) / divisor
    # It lies between the smallest and the largest reward; where all are one, nothing is known of how they differ.
    if question.estimator == "snips" and sums.least < sums.most:
        return Interval(value, max(value - down, min(value, sums.least)), min(value + up, max(value, sums.most)))
    return Interval(value, value - down, value + up)
