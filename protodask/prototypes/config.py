"""The settings of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from protodask.errors import InputError
from protodask.prototypes.setting_checks import (
    check_choice,
    check_count,
    check_flag,
    check_range,
    is_number,
    unwrap_numbers,
)
from protodask.prototypes.tiles import Precision

MOST_DRAWS = 100
"""More make a model larger and hardly better."""

LARGEST_PENALTY = 1e12
"""The likelihood is of the order of 1: a penalty of this size wins over it many times, and still squares safely."""


DRAWS_OF_FEW, DRAWS, DRAWN_ROWS = 4, 2, 2000
"""Draws where no number is given, up to so many rows and beyond: averaging serves most where rows are few, candidates
where they are many. Of twenty tables with few rows four lose 0.8 per cent more than five, and three 2.3."""

FEWEST_CANDIDATES, MOST_CANDIDATES = 500, 2000
CANDIDATES_BY_ROOT = 14
"""Times `sqrt(N K / 2)`, of `N` rows of `K` classes, that a draw has as candidates where no number is given and rows
are not few, within these limits. With 20 the log-loss of 35 tables is 0.8 per cent less, and a fit takes a sixth
longer. Were it `sqrt(N)` however many classes there are, 26 letters would lose 0.226 in place of 0.154."""

MOST_GROWN = 4000
"""Candidates up to which they grow where no numbers are given, see the module `growing`."""

MOST_GROWN_NUMBERS = 10_000_000
"""Of candidates that grow, times forms of their features: of more than 2,500 forms, 830 features, candidates grow less.
Training holds about 220 bytes for each: of 2,000 rows of 20,000 features, a plan with all as candidates says 19 GiB,
and 6 GiB with 500."""

MOST_STEPPED, LOOKED_AT_PAIRS = 8000, 8_000_000_000
"""Where a round begins with small steps, there are at least `MOST_CANDIDATES` and at most so many, as long as pairs of
a row and a candidate are no more. On 229,000 rows of flights 2,000 lose 0.450, 6,700 lose 0.436 and 8,000 0.434;
XGBoost 0.438."""

DRAWN_PAIRS, STEPPED_PAIRS = 80_000_000, 300_000_000
"""Of a row and a candidate in an evaluation of all draws, beyond which there are fewer draws; the same where a round
begins with small steps."""

FEW_ROWS = 500
"""Rows up to which the kernel is float64: there it takes no longer, and a row alone and among others has the same
probabilities to 1e-12, where float32 rounds by 1e-6."""

STEPPED_ROWS = 12_288
"""From which on a round begins with small steps, see the module `steps`. Fewer are learnt by heart on the way: of 2,000
to 11,000 rows a draw loses 1 per cent more (rooms), 6 (lending) or 19 (cells); of 13,700 2 per cent less (storms)."""

MOST_STAGED_BYTES = 92 * 2**20
"""Of the rows that small steps are taken on, in memory. 660,000 rows of 30 features."""

FeatureWeights = Literal["shared", "class", "both"]
FeatureForms = Literal["plain", "scores", "both", "all"]
Recipe = Literal["averaged", "source"]
"""What settings are that nobody gave: those of `FitConfig`, or those of `SOURCE_RECIPE`."""


@dataclass(frozen=True)
class FitConfig:
    """How a prototype set is trained; `alpha` is the share of the l2 part of a penalty.

    What is 0 and can be chosen by the numbers of rows and classes is chosen by `for_rows`, before anything is fitted.
    """

    n_batches: int = 1
    """Rounds of batches to add."""
    feature_weights: FeatureWeights = "both"
    """By all prototypes of a round, which is one batch then, or by each "class" its own: a batch for each class. With
    "both", draws take turns, the first by class: on most tables the mean of such draws is ahead of either. Where rules
    over several features decide, those by class have a batch for each region of a class, if forms are "all": see the
    module `regions`."""
    feature_forms: FeatureForms = "all"
    """Numbers enter as they are ("plain"), as normal scores ("scores"), in "both" forms, or in "all", with levels that
    rise where classes change, and differences of those that go together: see the module `forms`."""
    n_candidates: int = 0
    """`M`: rows tried as prototypes in a round of a draw; 0 for 500 up to 2,000 rows, then 14 times `sqrt(N K / 2)`, of
    `N` rows of `K` classes, up to 2,000. Of 12,288 rows or more, where a round begins with small steps, they are 2,000
    to 8,000, beyond a million fewer again, 2,000 of four million; those that small steps find of no use are let go
    before all rows are looked at."""
    most_candidates: int = 0
    """Up to which they grow where more of them tell classes apart, see the module `growing`; 0 for 4,000, or fewer of
    more than 830 features, where `n_candidates` is not given, and for none where it is. Where a round begins with small
    steps, no rows are held out, or candidates are left out, there are no more in any case; nor where `n_candidates` is
    the number of rows or more, as it is of 500 rows where it is not given."""
    max_fraction: float = 0.5
    """`eta`: largest share of a bin of rows that may become candidates before they grow."""
    lambda_v: float = 1e-4
    lambda_w: float = 1e-10
    alpha_v: float = 0.95
    alpha_w: float = 0.95
    standardize: bool = True
    """Feature weights refer to features of mean 0 and standard deviation 1; else to the raw units."""
    precision: Precision | Literal["auto"] = "auto"
    """Of the kernel; sums over rows are float64 in any case. "auto" is float64 up to `FEW_ROWS`, float32 beyond."""
    tolerance: float = 3e-6
    """Stop when an iteration lowers the objective by less than this share of its size, on average over the last ten:
    after eleven at the earliest."""
    max_iterations: int = 5000
    """Iterations of the solver for a round, after its small steps."""
    seed: int = 0
    """Of the draw of candidates."""
    n_draws: int = 0
    """Independent draws of candidates, each trained by itself; the model is their mean. 0 for four, two of more than
    2,000 rows, and one where rows times candidates are more than 150 million: of more than 48,000 rows, of many classes
    of fewer."""
    hold_out: float = 0.2
    """Share of the rows of each class, whole groups where there are such, that a round is not trained on until it
    finishes: of its iterates that one is kept at which they lose least. It is one part of `round(1 / hold_out)`,
    another one for each draw. 0: a round ends at its optimum."""
    finish: bool = True
    """From the iterate that is kept, the last round goes on for a while on all rows, also those held out, the longer
    the less these lose; not where it began with small steps."""
    progressive: bool = True
    """Where rows are many and some held out, a round begins with small steps: see the module `steps`."""
    leave_one_out: bool = True
    """Rows that are candidates are trained on like all others, though none looks at itself; else they are left out,
    which of few rows leaves half."""
    weighted: bool = True
    """Rows of a dataset count by its weights and inclusion probabilities; else every row counts once."""

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        check_count("n_batches", self.n_batches, 0)
        check_count("n_candidates", self.n_candidates, 0)
        check_count("most_candidates", self.most_candidates, 0)
        check_count("n_draws", self.n_draws, 0, MOST_DRAWS)
        check_count("max_iterations", self.max_iterations, 1)
        check_count("seed", self.seed, 0)
        for name in ("lambda_v", "lambda_w"):
            check_range(
                name,
                getattr(self, name),
                0.0,
                LARGEST_PENALTY,
                f"Penalties must be finite and not negative. Above {LARGEST_PENALTY:.0e} no model is left.",
            )
        for name in ("alpha_v", "alpha_w"):
            check_range(name, getattr(self, name), 0.0, 1.0, "Give the share of the l2 part, from 0 to 1.")
        check_range("tolerance", self.tolerance, 0.0, 1.0, "Give a relative change of the objective from 0 to 1.")
        if not is_number(self.max_fraction) or not 0.0 < self.max_fraction < 1.0:
            raise InputError(
                "bad-setting", f"max_fraction is {self.max_fraction!r}.", "Give a share strictly between 0 and 1."
            )
        if not is_number(self.hold_out) or not (self.hold_out == 0 or 0.01 <= self.hold_out <= 0.5):
            raise InputError(
                "bad-setting",
                f"hold_out is {self.hold_out!r}.",
                "Give a share of the rows from 0.01 to 0.5, or 0 to train on all of them.",
            )
        for name in ("standardize", "weighted", "finish", "progressive", "leave_one_out"):
            check_flag(name, getattr(self, name))
        check_choice("feature_weights", self.feature_weights, get_args(FeatureWeights))
        check_choice("feature_forms", self.feature_forms, get_args(FeatureForms))
        check_choice("precision", self.precision, ("auto", *get_args(Precision)))

    @classmethod
    def of(cls, recipe: Recipe, **given: Any) -> FitConfig:
        """The settings that were given, and those of a recipe for what was not."""
        check_choice("recipe", recipe, get_args(Recipe))
        return cls(**({**SOURCE_RECIPE, **given} if recipe == "source" else given))

    def for_rows(self, n_rows: int, n_classes: int = 2, n_forms: int = 1) -> FitConfig:
        """The same settings, with what is left to the numbers of rows and classes, and of forms of features where there
        are too many for small steps: candidates, draws and precision.
        """
        candidates, grown, draws, precision = self.n_candidates, self.most_candidates, self.n_draws, self.precision
        few = n_rows <= DRAWN_ROWS
        if precision == "auto":
            precision = "float64" if n_rows <= FEW_ROWS else "float32"
        staged = staged_rows(n_rows, stage_row_bytes(n_forms, 0, precision))
        stepped = self.progressive and self.hold_out > 0 and staged > 0
        if not candidates:
            candidates = FEWEST_CANDIDATES if few else _candidates_of(n_rows, n_classes, stepped)
            may_grow = not stepped and self.hold_out > 0 and self.leave_one_out
            grown = (grown or min(MOST_GROWN, MOST_GROWN_NUMBERS // max(n_forms, 1))) if may_grow else 0
        if not draws:
            most = DRAWS_OF_FEW if few else DRAWS
            pairs = STEPPED_PAIRS if stepped else DRAWN_PAIRS
            draws = min(max(pairs // max(n_rows * candidates, 1), 1), most)
        return replace(self, n_candidates=candidates, most_candidates=grown, n_draws=draws, precision=precision)

    @property
    def kernel_precision(self) -> Precision:
        """The precision of the kernel, once `for_rows` has chosen it."""
        return "float64" if self.precision == "float64" else "float32"

    def feature_weights_of(self, draw: int) -> FeatureWeights:
        """Whose feature weights are in the rounds of a draw, counted from 0."""
        if self.feature_weights != "both":
            return self.feature_weights
        return "shared" if draw % 2 else "class"

    def with_batches(self, n_batches: int) -> FitConfig:
        """The same settings for another number of batches."""
        return replace(self, n_batches=n_batches)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for files; those of settings that came later only where they are not as it was before."""
        return {name: value for name, value in asdict(self).items() if name not in BEFORE or value != BEFORE[name]}


SOURCE_RECIPE: Mapping[str, Any] = {
    "feature_weights": "shared",
    "feature_forms": "plain",
    "n_candidates": 1000,
    "most_candidates": 0,
    "n_draws": 1,
    "hold_out": 0.0,
    "finish": False,
    "progressive": False,
    "leave_one_out": False,
    "lambda_v": 1e-3,
    "lambda_w": 1e-8,
    "precision": "float32",
}
"""Settings of one batch after the other, each on one draw of candidates of all classes, trained on all others."""

BEFORE: Mapping[str, Any] = {
    "weighted": True,
    "feature_weights": "shared",
    "feature_forms": "plain",
    "hold_out": 0.0,
    "most_candidates": 0,
    "n_draws": 1,
    "finish": False,
    "progressive": False,
    "leave_one_out": False,
}
"""Settings that came later, as it was before."""


def _candidates_of(n_rows: int, n_classes: int, stepped: bool) -> int:
    """As many as rows that are not few are worth; `stepped` where a round begins with small steps."""
    by_root = int(CANDIDATES_BY_ROOT * (n_rows * max(n_classes, 2) / 2) ** 0.5)
    if not stepped:
        return min(by_root, MOST_CANDIDATES)
    return max(min(by_root, MOST_STEPPED, LOOKED_AT_PAIRS // n_rows), MOST_CANDIDATES)


def stage_row_bytes(n_forms: int, n_scores: int, precision: Precision) -> int:
    """Of a row that small steps are taken on, at most: features in standard units, scores if there are any, two weights
    and the target.
    """
    return n_forms * np.dtype(precision).itemsize + 8 * (n_scores + 3)


def staged_rows(n_rows: int, row_bytes: int = 1) -> int:
    """Rows that small steps are taken on, of so many; 0 where they are too few for it to pay, or too wide."""
    most = min(n_rows, MOST_STAGED_BYTES // row_bytes)
    return most if most >= STEPPED_ROWS else 0
