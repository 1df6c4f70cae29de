"""Forms of a feature: as it is, as its normal score or level, or as what it has beyond another one.

A kernel feels the scale of a feature: heavy tails and lumps cost it much. The normal score of a value is the quantile
of the standard normal distribution at the share of rows below it, half of those that equal it among them,

    g(x) = Phi^-1(F(x)),    F(x) = (share below x) + (share at x) / 2,

cut off at -3 and 3, and linear between at most `MOST_KNOTS` values: monotone, and of one column alone. The shares are
those of a sample of rows, which depends on their numbers only. A feature may enter a model in several forms, so that
the feature weights choose; what it is shown as is its raw value in any case.

Where classes change at thresholds, distances say little: of two values close to a threshold on either side of it, and
of two far apart on one. The level of a value is how much the classes change from the least one up to it,

    h(x) = sum_i r_i(x) H(p_i, p_{i+1}),    H(p, q)^2 = sum_k (sqrt p_k - sqrt q_k)^2,

with `p_i` the shares of the `K` classes between the thresholds `t_{i-1}` and `t_i` (of their counts and 1/2 each), of
which there are those of a decision tree of this column alone. Where exactly one lies, rows leave open: `r_i` rises
from 0 to 1 over all values around `t_i` at which a threshold would say less by `UNSURE_BITS` at most, so that a model
is not sure of rows there. A threshold has to say more of the classes of `n` rows than it takes to state it, where there
are `m` values:

    (K - 1) / 2 log2 n + log2(m - 1) bits,    n = (sum w)^2 / sum w^2

with `w` the weights of the rows. Without the second term, every third column of noise has a threshold by chance, and
since the forms are those of all draws, the rows that a draw holds out cannot say so. Levels are spread half as much as
standardised features, and where `n` is below 500 less in proportion, so that weights choose them where they are worth
it: else small tables are learnt by heart. On 52 tables (tests/benchmarks/tables.py) the log-loss falls by 4 per cent in
the geometric mean, by half where thresholds are all there is.

Where columns go together, what tells classes apart may be how little they differ: a stone that is not as deep as one of
its width should be. Of either column that is a sliver, which weights that make all else alike cannot open. So pairs
whose correlation `r` is large enter as their difference, too,

    u = x_i - f x_j,    f = sign(r) s_i / s_j,    of the scale s_i sqrt(2 (1 - |r|)),

with `s` the standard deviations: in the units of `x_i`, and the same in all rows where one column says what the other
does. The log-loss of diamonds falls by a fifth, that of nine smaller tables by 5 per cent in the mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET, Column, row_weights
from protodask.data.format.summary import Summary
from protodask.engine import Block, Engine, Reduction, Source, identity, one_blas_thread
from protodask.engine.records import Floats, Integers
from protodask.prototypes.candidates import Sample, merge_samples, sample_of
from protodask.prototypes.config import FeatureForms, FitConfig
from protodask.prototypes.kernel import Differences, Knots, Line, Standardization, product
from protodask.prototypes.regions import Regions, effective, learn_regions, saved_bits
from protodask.prototypes.setting_checks import given_settings
from protodask.prototypes.tiles import Precision

MOST_KNOTS = 32
FARTHEST_SCORE = 3.0
NEARLY_LINEAR = 0.99
"""Correlation of a feature with its normal scores from which on the two are one."""

GO_TOGETHER, ALL_BUT_ONE = 0.8, 1 - 1e-12
"""Correlations of columns from which on their difference is a form, and beyond which one is the other in other units.
With 0.7 or 0.9 nine tables lose as much."""

MOST_DIFFERENCES = 20
"""Those of largest correlation."""

MOST_COMPARED = 1000
"""Numbers beyond which none are compared: there are half a million pairs."""

LEAST_LEFT = 100
"""Times the rounding of the largest values that what is left of them is spread."""

MOSTLY = 0.5
"""Share of the rows that lack nothing from which on they alone say what goes together: a mean that stands for a missing
value does not."""

MOST_LEVELS = 16
"""With 8 fifty-two tables lose as much."""

FEWEST_IN_LEVEL, LEVEL_SHARE = 5, 1 / 500
"""Rows of the sample, and share of them, that a level has at least."""

UNSEEN = 0.5
"""Added to the count of each class in a level: with 5, or with all changes of one size, small tables lose more."""

LEVEL_SPREAD = 0.5
"""Standard deviation of levels. The log-loss of 31 tables of at most 11,000 rows is 0.974 of that without levels with
1, 0.965 with 0.7, 0.959 with 0.5, 0.977 with 0.35."""

SURE_ROWS = 500
"""Below which they are spread less in proportion: of 105 rows of two features of iris the log-loss of ten splits is
0.53 without levels and so, 0.62 with the whole spread (tests/benchmarks/quality.py)."""

UNSURE_BITS = 8.0
"""Less that a threshold may say and might still be where classes change, in proportion again where rows are few. With
none the rows between two thresholds are told wrongly and with certainty: 5,000 rows of three thresholds
(tests/benchmarks/synthetic.py) lose 0.0071 then, with 4 bits 0.0039, with 8 0.0026, with 16 0.0028."""

RARE = 0.25
"""Of the log-loss of 152 tables with categories it takes 0.8 per cent; 0.1 takes nothing, 0.35 and 0.5 take 1 but do
harm to more of them. The standard deviation is as large where one row in fifteen has a category."""

MOST_ROWS, FEWEST_ROWS = 20_000, 1_000
MOST_SAMPLED = 2**23
"""Numbers in the sample, where there are many features."""


@dataclass(frozen=True)
class Forms:
    """What a model is trained on: `D'` forms of `D` features."""

    columns: Integers
    """The feature that each is a form of, ascending (D',); of several, the feature as it is comes first, then its
    normal score, then its level. After them all, the first of those that each difference is of."""
    knots: Knots | None = None
    """Of normal scores and levels; None where there are none."""
    differences: Differences | None = None
    narrow: Floats | None = None
    """Of each form, how much less it is spread than its feature (D',): 1 but for differences."""
    least: Floats | None = None
    """The scale that each has at least (D',), see `least_scale`; None where any will do."""
    regions: Regions | None = None
    """Of the rows, where rules over several features decide."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that it is made of, to be remembered."""
        found: dict[str, NDArray[Any] | None] = {"columns": self.columns, "narrow": self.narrow, "least": self.least}
        for part in (self.knots, self.differences, self.regions):
            found |= {} if part is None else {field.name: getattr(part, field.name) for field in fields(part)}
        return {name: values for name, values in found.items() if values is not None}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Forms:
        """What such arrays were made of."""
        knots = Knots(arrays["values"], arrays["scores"], arrays.get("levels")) if "values" in arrays else None
        differences = Differences(arrays["others"], arrays["factor"]) if "others" in arrays else None
        nodes = {field.name: arrays[field.name] for field in fields(Regions) if field.name in arrays}
        regions = Regions(**nodes) if nodes else None
        return cls(arrays["columns"], knots, differences, arrays.get("narrow"), arrays.get("least"), regions)

    def looked_at(self, active: Integers) -> Integers:
        """The features that some of the forms are of, ascending."""
        others = np.full(len(self.columns), -1) if self.differences is None else self.differences.others
        found = np.unique(np.concatenate([self.columns[active], others[active]]))
        return found[found >= 0]

    def standardization(self, center: Floats, scale: Floats) -> Standardization:
        """Of the forms, given centre and scale of each feature as it is (D,)."""
        found, scale = center[self.columns], scale[self.columns]
        if self.least is not None:
            scale = np.maximum(scale, self.least)
        if self.knots is not None:
            found[self.knots.places], scale[self.knots.places] = 0.0, 1.0
        if self.differences is not None and self.narrow is not None:
            places = self.differences.places
            found[places] -= self.differences.factor[places] * center[self.differences.others[places]]
            scale = scale * self.narrow
        return Standardization(found, scale, self.knots, self.differences)


def least_scale(forms: Forms, summary: Summary) -> Floats:
    """What forms of two values `a < b` are divided by at least, `RARE (b - a)`, and 0 of others (D',).

    If one row in `n` has the rarer one, the standard deviation is `1 / sqrt(n)` of their difference: in its units that
    row is far from all others, whatever else it has in common with them.
    """
    least = np.where(summary.two_valued, RARE * (summary.maximum - summary.minimum), 0.0)[forms.columns]
    if forms.differences is not None:
        least[forms.differences.places] = 0
    return least


def expected_forms(columns: Sequence[Column], wanted: FeatureForms) -> Forms:
    """As many forms as there may be, before a row is seen: all that is a number has normal scores and levels, and goes
    together with others.
    """
    ends = np.array([-FARTHEST_SCORE, FARTHEST_SCORE])
    score, level = Line(ends, ends), Line(ends, ends, is_level=True)
    numeric = _numeric(columns)
    compared = np.flatnonzero(numeric) if sum(numeric) <= MOST_COMPARED else np.zeros(0, dtype=np.int64)
    pairs = list(itertools.islice(itertools.combinations(compared.tolist(), 2), MOST_DIFFERENCES))
    found = [Pair(first, second, 1.0, 1.0) for first, second in pairs]
    scores, levels = ([line if number else None for number in numeric] for line in (score, level))
    return arranged(scores, wanted, levels, found)


def settled(config: FitConfig | None, n_rows: int, columns: Sequence[Column], n_classes: int) -> FitConfig:
    """The settings of a fit to so many rows of such columns and classes, with what is left to these: all, if None."""
    given = given_settings(FitConfig, config)
    return given.for_rows(n_rows, n_classes, len(expected_forms(columns, given.feature_forms).columns))


def sample_rows(n_features: int) -> int:
    """Rows from which forms of so many features are learned."""
    return max(FEWEST_ROWS, min(MOST_ROWS, MOST_SAMPLED // max(n_features, 1)))


def _sample_block(block: Block, seed: int, most: int) -> Sample:
    weights = row_weights(block)
    rows = block.rows if weights is None else block.rows[weights > 0]
    return sample_of(rows, np.zeros(len(rows), dtype=np.int64), 1, seed, 0, most)


def learn_forms(
    engine: Engine,
    source: Source,
    array_names: Sequence[str],
    columns: Sequence[Column],
    wanted: FeatureForms,
    seed: int,
    precision: Precision = "float64",
    by_region: bool = False,
) -> Forms:
    """The forms that are `wanted` of the features of a source; other than as they are, it takes two passes.

    With all of them, and if they are asked for, the same rows say whether there are regions of their own.

    Normal scores and levels are of values in the `precision` of the kernel, which tells no others apart.

    Numbers alone have normal scores and levels: categories stay as they are, ordered or not.
    """
    numeric = _numeric(columns)
    n_features = len(numeric)
    if wanted == "plain":
        return Forms(np.arange(n_features))
    most = min(sample_rows(n_features), source.layout.n_rows)
    sampling: Reduction[Sample, Sample] = Reduction(_sample_block, partial(merge_samples, most), identity)
    sample = engine.reduce(source, sampling, seed, most, label="sample")
    taken = engine.take(source, np.sort(sample.rows), list(array_names), label="take")
    weights = row_weights(Block(0, 0, taken))
    features = taken[FEATURES.name]
    weight = np.ones(len(features)) if weights is None else weights
    with one_blas_thread():  # several round otherwise
        scores: list[Line | None] = [None] * n_features
        levels = scores.copy()
        for place in np.flatnonzero(numeric).tolist():
            values = features[:, place].astype(precision).astype(np.float64)
            scores[place] = normal_scores(values, weight)
            levels[place] = levels_of(values, taken[TARGET.name], weight) if wanted == "all" else None
        if wanted != "all":
            return arranged(scores, wanted)
        known = np.flatnonzero(~features[:, _marks(columns)].any(axis=1))
        if weight[known].sum() < MOSTLY * weight.sum():
            known = np.arange(len(features))
        found = arranged(scores, wanted, levels, alike(features[known], weight[known], np.flatnonzero(numeric)))
        return replace(found, regions=learn_regions(features, taken[TARGET.name], weight)) if by_region else found


def _marks(columns: Sequence[Column]) -> list[int]:
    """Which features say that a number is missing."""
    marked = [
        column.marked and column.kind == "numeric" and name != column.name
        for column in columns
        for name in column.feature_names
    ]
    return [place for place, mark in enumerate(marked) if mark]


def _numeric(columns: Sequence[Column]) -> list[bool]:
    """Which features are numbers."""
    return [column.kind == "numeric" and name == column.name for column in columns for name in column.feature_names]


class Pair(NamedTuple):
    """Two features that go together, `u = x_first - factor x_second`, and how narrow that is."""

    first: int
    second: int
    factor: float
    narrow: float


def alike(features: NDArray[Any], weight: Floats, compared: Integers) -> list[Pair]:
    """The pairs of the features to be `compared` that go together most, in the order of the features."""
    if len(features) == 0 or len(compared) > MOST_COMPARED:
        return []
    compared = np.array(
        [place for place in compared.tolist() if not _has_two_values(features[:, place])], dtype=np.int64
    )
    if len(compared) < 2:
        return []
    values = features[:, compared].astype(np.float64)
    largest = np.maximum(values.max(axis=0), -values.min(axis=0))
    share = weight / weight.sum()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"), one_blas_thread():  # several round otherwise
        values -= share @ values
        values *= np.sqrt(share)[:, None]
        spread = np.sqrt(np.einsum("nd,nd->d", values, values))
        values /= spread
        correlation = np.triu(product(values.T, values), 1)
        size = np.abs(correlation)
        narrow = np.sqrt(2 * np.clip(1 - size, 0.0, 1.0))
        # What is lost of either column, in the units of the first.
        rounding = np.finfo(np.result_type(features, np.float32)).eps
        lost = LEAST_LEFT * rounding * spread[:, None] * np.maximum.outer(largest / spread, largest / spread)
        left = spread[:, None] * narrow > lost
    size = np.where(np.isfinite(size) & (size > GO_TOGETHER) & (size < ALL_BUT_ONE) & left, size, 0.0)
    order = np.argsort(-size, axis=None, kind="stable")[:MOST_DIFFERENCES]
    places = sorted(np.unravel_index(int(place), size.shape) for place in order if size.flat[place] > 0)
    return [
        Pair(
            int(compared[first]),
            int(compared[second]),
            float(np.sign(correlation[first, second]) * spread[first] / spread[second]),
            float(narrow[first, second]),
        )
        for first, second in places
    ]


def _has_two_values(values: NDArray[Any]) -> bool:
    """Or fewer, as a column that says yes or no."""
    return bool(((values == values.min()) | (values == values.max())).all())


def arranged(
    scores: Sequence[Line | None], wanted: FeatureForms, levels: Sequence[Line | None] = (), pairs: Sequence[Pair] = ()
) -> Forms:
    """The forms that are `wanted`, given normal scores and levels of the features that have some, and what goes
    together.
    """
    columns: list[int] = []
    knots: list[Line | None] = []
    for column, (score, level) in enumerate(itertools.zip_longest(scores, levels)):
        lines = [
            *([None] if wanted != "scores" or score is None else []),
            *([score] if wanted != "plain" and score is not None else []),
            *([level] if wanted == "all" and level is not None else []),
        ]
        columns += [column] * len(lines)
        knots += lines
    if wanted != "all" or not pairs:
        return Forms(np.array(columns, dtype=np.int64), Knots.of(knots, MOST_KNOTS))
    alone = len(columns)
    columns += [pair.first for pair in pairs]
    knots += [None] * len(pairs)
    return Forms(
        columns=np.array(columns, dtype=np.int64),
        knots=Knots.of(knots, MOST_KNOTS),
        differences=Differences(
            np.array([-1] * alone + [pair.second for pair in pairs], dtype=np.int64),
            np.array([0.0] * alone + [pair.factor for pair in pairs]),
        ),
        narrow=np.array([1.0] * alone + [pair.narrow for pair in pairs]),
    )


def normal_scores(values: Floats, weight: Floats) -> Line | None:
    """Values of a feature, ascending, and their normal scores; None where they would be no other feature."""
    from scipy.special import ndtri

    distinct, place = np.unique(values, return_inverse=True)
    if len(distinct) <= 2:
        return None
    mass = np.bincount(place, weights=weight).astype(np.float64)
    up_to = np.cumsum(mass)
    share = np.clip((up_to - mass / 2) / up_to[-1], 0.0, 1.0)
    score = np.clip(ndtri(share), -FARTHEST_SCORE, FARTHEST_SCORE)
    if _correlation(distinct, score, mass) > NEARLY_LINEAR:
        return None
    if len(distinct) > MOST_KNOTS:
        kept = _chosen(score)
        distinct, score = distinct[kept], score[kept]
    return Line(distinct, score)


def levels_of(values: Floats, target: Integers, weight: Floats) -> Line | None:
    """Values of a feature on either side of where every threshold may be at which the classes of `target` change, and
    their levels, of mean 0 and standard deviation `LEVEL_SPREAD`, less of few rows; None where they do not.
    """
    distinct, place = np.unique(values, return_inverse=True)
    label, code = np.unique(target, return_inverse=True)
    if len(distinct) <= 2 or len(label) < 2:
        return None
    weight = effective(weight)
    worth = weight.sum()
    by_value = np.zeros((len(distinct), len(label)))
    np.add.at(by_value, (place, code), weight)
    least = max(FEWEST_IN_LEVEL, int(LEVEL_SHARE * len(values)))
    cost = (len(label) - 1) / 2 * np.log2(worth) + np.log2(len(distinct) - 1)
    sure = min(1.0, worth / SURE_ROWS)
    cuts = _cuts(by_value, np.bincount(place), least, cost, sure * UNSURE_BITS)
    if not cuts:
        return None
    mass = np.add.reduceat(by_value, [0, *(cut.place for cut in cuts)]) + UNSEEN
    share = mass / mass.sum(axis=1, keepdims=True)
    change = np.sqrt((np.diff(np.sqrt(share), axis=0) ** 2).sum(axis=1))
    ends = distinct[[position for cut in cuts for position in (cut.first - 1, cut.last)]]
    score = np.repeat(np.concatenate([[0.0], np.cumsum(change)]), 2)[1:-1]
    level, share = np.interp(distinct, ends, score), by_value.sum(axis=1) / worth
    middle = share @ level
    spread = np.sqrt(share @ (level - middle) ** 2)
    if not spread > 0:
        return None
    return Line(ends, LEVEL_SPREAD * sure / spread * (score - middle), is_level=True)


class Cut(NamedTuple):
    """Where values are cut: the position of the first one above, and the first and the last that it may be."""

    place: int
    first: int
    last: int


def _cuts(mass: Floats, rows: Integers, least: int, cost: float, unsure: float) -> list[Cut]:
    """Where values are to be cut, ascending; each has some mass in each class (m, K) and a number of rows (m,).

    The cut of most use is made first, as long as one saves more bits than it costs, with `least` rows on both sides. It
    may be anywhere around its place where it saves less by `unsure` bits at most, up to halfway to the next one.
    """
    up_to = np.concatenate([np.zeros((1, mass.shape[1])), np.cumsum(mass, axis=0)])
    rows_to = np.concatenate([[0], np.cumsum(rows)])

    def best(first: int, end: int) -> tuple[float, Cut]:
        """What the best cut of these values saves, and where it is."""
        inner = slice(first + 1, end)
        below, above = rows_to[inner] - rows_to[first], rows_to[end] - rows_to[inner]
        parts = up_to[end] - up_to[first], up_to[inner] - up_to[first], up_to[end] - up_to[inner]
        saved = np.pad(saved_bits(*parts, np.minimum(below, above) >= least), 1, constant_values=-np.inf)
        place = int(np.argmax(saved))
        if not saved[place] > 0:
            return 0.0, Cut(first, first, first)
        worse = np.flatnonzero(~(saved >= saved[place] - unsure))
        after = int(np.searchsorted(worse, place))
        return float(saved[place]), Cut(first + place, first + int(worse[after - 1]) + 1, first + int(worse[after]) - 1)

    found = {(0, len(mass)): best(0, len(mass))}
    cuts: list[Cut] = []
    while len(cuts) < MOST_LEVELS - 1:
        part = max(found, key=lambda part: found[part][0])
        saved, cut = found.pop(part)
        if saved <= cost:
            break
        cuts.append(cut)
        found |= {half: best(*half) for half in ((part[0], cut.place), (cut.place, part[1]))}
    cuts.sort()
    halfway = ((low.place + high.place) // 2 for low, high in itertools.pairwise(cuts))
    sides = itertools.pairwise([0, *halfway, len(mass)])
    return [
        Cut(cut.place, max(cut.first, low + 1), min(cut.last, high))
        for cut, (low, high) in zip(cuts, sides, strict=False)
    ]


def _chosen(score: Floats) -> Integers:
    """Positions of at most `MOST_KNOTS` of ascending scores: evenly spread, and either side of every wide jump."""
    levels, step = np.linspace(score[0], score[-1], MOST_KNOTS, retstep=True)
    kept = np.minimum(np.searchsorted(score, levels), len(score) - 1)
    kept[0] = np.searchsorted(score, score[0], side="right") - 1
    inner = np.unique(kept[1:])
    # Several levels fall into such a jump, and onto one position: there is room for the one before it.
    before = inner[score[inner] - score[inner - 1] > 2 * step] - 1
    return np.unique(np.concatenate([kept, before]))


def _correlation(first: Floats, second: Floats, weight: Floats) -> float:
    share = weight / weight.sum()
    with np.errstate(over="ignore", invalid="ignore"):
        left, right = first - share @ first, second - share @ second
        root = np.sqrt((share @ np.square(left)) * (share @ np.square(right)))
        correlation = float(share @ (left * right)) / root if root > 0 else 0.0
    return correlation if np.isfinite(correlation) else 0.0
