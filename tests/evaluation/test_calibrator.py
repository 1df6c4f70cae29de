"""Calibration splines against exact fractions, by their properties, and on simulated scores of known truth."""

from __future__ import annotations

import pickle
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.calibrator import Points, control_points, spline
from sklearn.base import clone
from support.errors import refused

from protodask.engine import Engine, Source, array_source, thread_engine
from protodask.engine.sources import ArraySource
from protodask.errors import Code
from protodask.evaluation import Calibrator, log_loss
from protodask.evaluation import control_points as fitting
from protodask.prototypes.splines import Spline

Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats, Floats]

KINDS = ("two-valued", "general")


@st.composite
def rows(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS, smallest: int = 2) -> Rows:
    """Scores, tied ones among them, outcomes of at least two values, and whole weights, some of them zero."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_rows = draw(st.integers(smallest, 60))
    distinct = draw(st.sampled_from([1, 2, 5, 1000]))
    ladder = rng.normal(size=distinct) * 10.0 ** draw(st.integers(-3, 3))
    score = ladder[rng.integers(0, distinct, n_rows)]
    general = draw(st.sampled_from(kinds)) == "general"
    outcome = rng.integers(-8, 9, n_rows) / 4 if general else rng.integers(0, 2, n_rows).astype(np.float64)
    outcome[:2] = 0, 1
    weight = rng.integers(0, draw(st.sampled_from([2, 10])), n_rows).astype(np.float64)
    weight[:2] = rng.integers(1, 4, 2)
    return score, outcome, weight


def points_of(spline: Spline) -> list[tuple[float, float]]:
    return list(zip(spline.score.tolist(), spline.outcome.tolist(), strict=True))


def assert_same_points(found: Spline, expected: Points) -> None:
    assert len(found.score) == len(expected)
    np.testing.assert_allclose(points_of(found), [(float(x), float(y)) for x, y in expected], rtol=1e-12, atol=1e-12)


@settings(max_examples=50)
@given(rows(), st.integers(1, 25), st.booleans(), st.sampled_from([None, False, True]))
def test_fit__is_that_of_exact_fractions(given_rows: Rows, n_bins: int, monotone: bool, ends: bool | None) -> None:
    score, outcome, weight = given_rows
    found = Calibrator(n_bins, monotone, ends).fit(score, outcome, weight)
    expected = control_points(
        score.tolist(),
        outcome.tolist(),
        weight.tolist(),
        n_bins,
        monotone=monotone,
        supported_ends=ends,
    )
    assert_same_points(found.splines_[0], expected)
    assert (found.rows_, found.weight_, found.n_classes_) == ((weight > 0).sum(), weight.sum(), None)
    at = np.concatenate([score, score + 0.1, [-1e6, 1e6]])
    np.testing.assert_allclose(
        found.transform(at), [float(spline(expected, x)) for x in at.tolist()], rtol=1e-9, atol=1e-9
    )


def test_fit__by_hand() -> None:
    """Two bins of weight 4: scores 1 and 3 come to 0 and 1, of weights 3 and 1; then scores 5 and 7, to 1 and 0."""
    found = Calibrator(2, supported_ends=False).fit([1, 3, 5, 7], [0, 1, 1, 0], [3, 1, 2, 2])
    assert points_of(found.splines_[0]) == [(1, 0), (1.5, 0.25), (6, 0.5), (7, 1)]
    assert found.transform(np.array([0, 1.25, 3.75, 6.5, 9])).tolist() == [0, 0.125, 0.375, 0.75, 1]


def test_fit__bounds_by_half_a_row() -> None:
    """Bins 0 0 | 0 1 | 1 1 of weight 1: two rows at either end, so 1/6 and 5/6; with weight 3 the same."""
    score, outcome = np.arange(6.0), np.array([0, 0, 0, 1, 1, 1])
    for weight in (1.0, 3.0):
        found = Calibrator(3).fit(score, outcome, np.full(6, weight))
        np.testing.assert_allclose(found.splines_[0].outcome, [1 / 6, 1 / 6, 1 / 2, 5 / 6, 5 / 6], rtol=1e-15)


def test_fit__bounds_count_zeros_that_stand_for_many() -> None:
    """30 zeros of weight 10, then a one of weight 1: half a one beside 150 rows, half a zero of 10 beside 151."""
    score = np.arange(31.0)
    outcome = (score == 30).astype(np.float64)
    found = Calibrator(2).fit(score, outcome, np.where(outcome == 1, 1.0, 10.0)).splines_[0]
    assert found.outcome[0] == pytest.approx(0.5 / (150 + 5.5))
    one = Calibrator(31).fit(score, outcome).splines_[0]
    assert one.outcome[0] == pytest.approx(0.5 / (30 + 1))
    assert one.outcome[-1] == pytest.approx(1 - 0.5 / (1 + 1))


@settings(max_examples=50)
@given(rows(("two-valued",)), st.integers(1, 30), st.booleans())
def test_fit__probabilities_are_never_0_or_1(given_rows: Rows, n_bins: int, monotone: bool) -> None:
    calibrated = Calibrator(n_bins, monotone).fit(*given_rows).transform(given_rows[0])
    assert calibrated.min() > 0
    assert calibrated.max() < 1


@settings(max_examples=50)
@given(rows(smallest=20), st.integers(1, 12))
def test_fit__bins_have_equal_weight_but_for_a_tied_score_at_each_edge(given_rows: Rows, n_bins: int) -> None:
    score, outcome, weight = given_rows
    found = Calibrator(n_bins).fit(score, outcome, weight).splines_[0]
    values, place = np.unique(score[weight > 0], return_inverse=True)
    heaviest = np.bincount(place, weights=weight[weight > 0]).max()
    # A bin is from the middle of the weight of one score to that of another one; a point is the mean of some bin.
    inner = found.score[(found.score > values[0]) & (found.score < values[-1])]
    below = np.array([weight[score < x].sum() for x in inner])
    assert (np.diff(below) <= 2 * weight.sum() / n_bins + 2 * heaviest + 1e-9).all()
    assert len(found.score) <= n_bins + 2


@settings(max_examples=50)
@given(rows(), st.integers(1, 20))
def test_monotone__is_so_and_keeps_the_mean(given_rows: Rows, n_bins: int) -> None:
    score, outcome, weight = given_rows
    plain, monotone = (
        Calibrator(n_bins, flag, supported_ends=False).fit(score, outcome, weight) for flag in (False, True)
    )
    grid = np.sort(np.concatenate([score, np.linspace(score.min() - 1, score.max() + 1, 200)]))
    assert (np.diff(monotone.transform(grid)) >= 0).all()
    assert monotone.splines_[0].score.tolist() == plain.splines_[0].score.tolist()
    if (np.diff(plain.splines_[0].outcome) >= 0).all():
        np.testing.assert_allclose(monotone.splines_[0].outcome, plain.splines_[0].outcome, rtol=1e-12, atol=1e-15)


def test_transform__has_the_mean_of_the_outcomes() -> None:
    rng = np.random.default_rng(0)
    score = rng.random(50_000)
    outcome = (rng.random(50_000) < score**2).astype(np.float64)
    weight = rng.integers(1, 4, 50_000).astype(np.float64)
    calibrated = Calibrator().fit(score, outcome, weight).transform(score)
    assert np.average(calibrated, weights=weight) == pytest.approx(np.average(outcome, weights=weight), abs=2e-3)
    assert np.abs(calibrated - score**2).max() < 0.03


def test_fit__general_outcomes_reach_their_ends() -> None:
    rng = np.random.default_rng(1)
    score = rng.normal(size=5000)
    outcome = 3 * score + rng.normal(size=5000)
    found = Calibrator().fit(score, outcome)
    assert found.transform(np.array([-100, 100])).tolist() == [outcome.min(), outcome.max()]
    middle = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(found.transform(middle), 3 * middle, atol=0.2)


@settings(max_examples=50)
@given(rows(), st.integers(1, 20), st.integers(0, 100))
def test_fit__does_not_depend_on_the_order_of_rows(given_rows: Rows, n_bins: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(given_rows[0]))
    one = Calibrator(n_bins).fit(*given_rows).splines_[0]
    other = Calibrator(n_bins).fit(*(values[order] for values in given_rows)).splines_[0]
    np.testing.assert_allclose(points_of(other), points_of(one), rtol=1e-12, atol=1e-14)


@settings(max_examples=50)
@given(rows(), st.integers(1, 20))
def test_fit__weights_are_repetitions(given_rows: Rows, n_bins: int) -> None:
    score, outcome, weight = given_rows
    times = weight.astype(int)
    one = Calibrator(n_bins, supported_ends=False).fit(score, outcome, weight).splines_[0]
    other = Calibrator(n_bins, supported_ends=False).fit(np.repeat(score, times), np.repeat(outcome, times)).splines_[0]
    np.testing.assert_allclose(points_of(other), points_of(one), rtol=1e-12, atol=1e-14)


@settings(max_examples=50)
@given(rows(), st.integers(1, 20), st.sampled_from([0.125, 7.0, 1024.0]))
def test_fit__the_unit_of_weights_plays_no_part(given_rows: Rows, n_bins: int, unit: float) -> None:
    score, outcome, weight = given_rows
    one = Calibrator(n_bins).fit(score, outcome, weight).splines_[0]
    other = Calibrator(n_bins).fit(score, outcome, unit * weight).splines_[0]
    np.testing.assert_allclose(points_of(other), points_of(one), rtol=1e-12, atol=1e-14)


def many_rows(n_rows: int = 20_000) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(5)
    score = rng.random(n_rows) ** 3
    return {
        "score": score,
        "outcome": (rng.random(n_rows) < score).astype(np.float64),
        "weight": rng.random(n_rows),
    }


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_fit__has_the_same_bits_for_any_number_of_threads(threads: int) -> None:
    source = array_source(many_rows(), 1024)
    with thread_engine(1) as one, thread_engine(threads) as other:
        expected = Calibrator().fit(source, engine=one).splines_[0]
        found = Calibrator().fit(source, engine=other).splines_[0]
    assert found.score.tobytes() == expected.score.tobytes()
    assert found.outcome.tobytes() == expected.outcome.tobytes()


@pytest.mark.parametrize("block_rows", [1, 256, 32768])
def test_fit__agrees_for_any_blocks(block_rows: int) -> None:
    arrays = many_rows(1000)
    found = Calibrator().fit(array_source(arrays, block_rows)).splines_[0]
    expected = Calibrator().fit(arrays["score"], arrays["outcome"], arrays["weight"]).splines_[0]
    np.testing.assert_allclose(points_of(found), points_of(expected), rtol=1e-12)


def test_fit__passes_are_few_and_cut_only_where_edges_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    run_pass = Engine.run_pass

    def counted(self: Engine, work: Any, numbers: Any) -> Any:
        passes.append(len(numbers))
        return run_pass(self, work, numbers)

    monkeypatch.setattr(Engine, "run_pass", counted)
    Calibrator().fit(array_source(many_rows(50_000), 4096))
    assert 1 <= sum(number > 1 for number in passes) <= 4


@pytest.mark.parametrize("narrow", [16, 200])
def test_fit__few_narrow_bins_cost_passes_and_no_accuracy(monkeypatch: pytest.MonkeyPatch, narrow: int) -> None:
    source = array_source(many_rows(4000), 256)
    expected = Calibrator(8).fit(source).splines_[0]
    monkeypatch.setattr(fitting, "NARROW_BINS", narrow)
    np.testing.assert_allclose(points_of(Calibrator(8).fit(source).splines_[0]), points_of(expected), rtol=1e-12)


def test_fit__edges_within_the_stated_share_where_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a coarse share the points are those of bins that are off by no more than it."""
    monkeypatch.setattr(fitting, "STRADDLING_SHARE", 0.01)
    score = np.random.default_rng(2).random(20_000) * 1e-4 + 0.7  # all in one narrow bin of the first cut
    outcome = (score > 0.70005).astype(np.float64)
    found = Calibrator(4, supported_ends=False).fit(score, outcome).splines_[0]
    monkeypatch.undo()
    exact = Calibrator(4, supported_ends=False).fit(score, outcome).splines_[0]
    assert len(found.score) == len(exact.score)
    np.testing.assert_allclose(found.score, exact.score, atol=1e-4 * 0.02)


def test_fit__a_heavy_score_takes_its_bins_and_leaves_the_others_theirs() -> None:
    """60 per cent of the weight at 0.5: a point there with its own share, and bins of equal weight on both sides."""
    score = np.concatenate([np.linspace(0, 0.4, 40), np.full(120, 0.5), np.linspace(0.6, 1, 40)])
    outcome = (np.arange(200) % 4 == 0).astype(np.float64)
    found = Calibrator(10).fit(score, outcome).splines_[0]
    assert 0.5 in found.score.tolist()
    assert found.outcome[found.score == 0.5].tolist() == [0.25]
    assert ((found.score > 0) & (found.score < 0.5)).sum() == 2
    assert ((found.score > 0.5) & (found.score < 1)).sum() == 2


def test_fit__a_heavy_score_at_an_end_is_no_promise() -> None:
    """Rows of the highest score came to 1 in a half of cases: that is known, and they are not promised 1."""
    score = np.concatenate([np.linspace(0, 0.5, 50), np.full(50, 0.9)])
    found = Calibrator(5).fit(score, (np.arange(100) % 2).astype(np.float64))
    assert found.transform(np.array([0.9, 2.0])).tolist() == [0.5, 0.5]


def test_fit__of_one_score_is_the_mean() -> None:
    found = Calibrator().fit(np.full(10, 0.3), [0, 0, 0, 0, 0, 0, 0, 1, 1, 1])
    assert points_of(found.splines_[0]) == [(0.3, 0.3)]
    assert found.transform(np.array([0.0, 0.3, 1.0])).tolist() == [0.3, 0.3, 0.3]


def test_classes__two_columns_are_calibrated_by_the_second() -> None:
    arrays = many_rows(2000)
    p, y = arrays["score"], arrays["outcome"]
    found = Calibrator().fit(np.column_stack([1 - p, p]), y.astype(np.int64), arrays["weight"])
    plain = Calibrator().fit(p, y, arrays["weight"])
    assert found.n_classes_ == 2
    assert points_of(found.splines_[0]) == points_of(plain.splines_[0])
    calibrated = found.transform(np.column_stack([1 - p, p]))
    np.testing.assert_array_equal(calibrated[:, 1], plain.transform(p))
    np.testing.assert_array_equal(calibrated[:, 0], 1 - calibrated[:, 1])


def test_classes__more_have_a_spline_each_and_add_up_to_one() -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet([1, 2, 3], 3000)
    truth = np.square(p) / np.square(p).sum(axis=1, keepdims=True)
    y = (rng.random(3000)[:, None] > np.cumsum(truth, axis=1)).sum(axis=1)
    for k, own in enumerate(Calibrator(10).fit(p[:200], y[:200]).splines_):
        scores, outcomes = p[:200, k].tolist(), (y[:200] == k).tolist()
        assert_same_points(own, control_points(scores, outcomes, [1.0] * 200, 10, supported_ends=True))
    found = Calibrator(10).fit(p, y)
    calibrated = found.transform(p)
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, rtol=1e-15)
    assert log_loss(calibrated, y) < log_loss(p, y) - 0.01


def test_classes__one_that_does_not_occur_keeps_a_small_share() -> None:
    p = np.random.default_rng(4).dirichlet([1, 1, 1], 400)
    found = Calibrator(4).fit(p, np.argmax(p[:, :2], axis=1))
    calibrated = found.transform(p)
    half_a_row = found.splines_[2].outcome
    assert half_a_row.tolist() == [1 / (2 * (400 + 1))] * len(half_a_row)
    assert calibrated[:, 2].min() > 0


def test_classes__all_zero_falls_back_to_the_raw_probabilities() -> None:
    """As they are, splines of classes that are never where their probability is low are 0 at the low end of each."""
    p = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]] * 20)
    found = Calibrator(20, supported_ends=False).fit(p, np.argmax(p, axis=1))
    row = np.array([[0.1, 0.1, 0.1]]) / 0.3
    zero = np.array([[0.05, 0.05, 0.9]])
    assert found.transform(zero).tolist() == [[0, 0, 1]]
    low = np.array([[0.1, 0.1, 0.1]])
    np.testing.assert_allclose(found.transform(low), row)


@pytest.mark.parametrize("rate", [1.0, 0.1, 0.01])
def test_fit__undoes_training_on_subsampled_zeros_without_weights(rate: float) -> None:
    """Scores as a model of the subsample would have them; calibrated with weights 1/l they are right for the whole."""
    rng = np.random.default_rng(7)

    def draw(n_rows: int) -> tuple[Floats, Floats, Floats]:
        logit = 1.8 * rng.normal(size=n_rows) - 5.5
        truth = 1 / (1 + np.exp(-logit))
        raw = 1 / (1 + np.exp(-logit + np.log(rate)))
        return raw, truth, (rng.random(n_rows) < truth).astype(np.float64)

    raw, _, y = draw(200_000)
    kept = (y == 1) | (rng.random(len(y)) < rate)
    found = Calibrator().fit(raw[kept], y[kept], np.where(y[kept] == 1, 1, 1 / rate))
    raw, truth, _ = draw(100_000)
    calibrated = found.transform(raw)

    def loss(p: Floats) -> float:
        return float(-np.mean(truth * np.log(p) + (1 - truth) * np.log1p(-p)))

    assert loss(calibrated) < loss(truth) + 0.001
    assert calibrated.mean() == pytest.approx(truth.mean(), rel=0.1)
    if rate < 1:
        assert loss(raw) > loss(calibrated) + 0.01


def test_fit__supported_ends_keep_the_mean_where_scores_crowd() -> None:
    """The reason for them: 0 and 1 as ends promise the upper half of the last bin far too much."""
    rng = np.random.default_rng(8)
    truth = 0.05 / (1 + np.exp(-4 * rng.normal(size=300_000)))
    y = (rng.random(300_000) < truth).astype(np.float64)
    kept = (y == 1) | (rng.random(300_000) < 0.05)
    raw = truth / (truth + (1 - truth) * 0.05)
    weight = np.where(y == 1, 1.0, 20.0)
    plain, supported = (
        Calibrator(supported_ends=ends).fit(raw[kept], y[kept], weight[kept]).transform(raw).mean() / truth.mean()
        for ends in (False, None)
    )
    assert plain > 1.5
    assert supported == pytest.approx(1, abs=0.05)


def test_fit__supported_ends_of_general_outcomes_on_request() -> None:
    """Outcomes 2 x with a rare outlier of 1000 near the top: the line goes on to 2, not to 1000."""
    score = np.linspace(0, 1, 1001)
    outcome = 2 * score
    outcome[800] = 1000
    plain, supported = (Calibrator(supported_ends=ends).fit(score, outcome) for ends in (None, True))
    assert plain.transform(np.array([1.0])).tolist() == [1000]
    np.testing.assert_allclose(supported.transform(np.array([0, 0.5, 1])), [0, 1, 2], atol=1e-9)


def test_dask__is_fitted_block_by_block_and_mapped_lazily() -> None:
    arrays = many_rows(5000)
    score, outcome = (da.from_array(arrays[name], chunks=chunk) for name, chunk in (("score", 700), ("outcome", 999)))
    found = Calibrator().fit(score, outcome, arrays["weight"])
    expected = Calibrator().fit(*arrays.values())
    np.testing.assert_allclose(points_of(found.splines_[0]), points_of(expected.splines_[0]), rtol=1e-12)
    calibrated = found.transform(score)
    assert calibrated.chunks == score.chunks
    np.testing.assert_array_equal(calibrated.compute(), found.transform(arrays["score"]))


def test_dask__probabilities() -> None:
    p = np.random.default_rng(0).dirichlet([1, 1, 1], 1000)
    y = np.argmax(p, axis=1)
    lazy = da.from_array(p, chunks=(300, 2))
    found = Calibrator(5).fit(lazy, da.from_array(y, chunks=450))
    expected = Calibrator(5).fit(p, y).transform(p)
    np.testing.assert_allclose(found.transform(lazy).compute(), expected, rtol=1e-12)


def test_transform__of_a_source_is_a_source() -> None:
    source = array_source(many_rows(3000), 512)
    found = Calibrator().fit(source)
    view = found.transform(source)
    calibrated = np.concatenate([view.read(number)["score"] for number in range(view.layout.n_blocks)])
    np.testing.assert_array_equal(calibrated, found.transform(source.arrays["score"]))
    p = np.column_stack([1 - calibrated, calibrated])
    target = source.arrays["outcome"].astype(np.int32)
    classes = Calibrator().fit(array_source({"probability": p, "target": target}, 512))
    view = classes.transform(array_source({"probability": p, "target": target}, 512))
    assert log_loss(view) == pytest.approx(log_loss(classes.transform(p), target))


def test_source__inclusion_counts_as_weight() -> None:
    arrays = many_rows(1000)
    inclusion = np.where(arrays["outcome"] == 1, 1.0, 0.25)
    source = array_source({**arrays, "inclusion": inclusion})
    expected = Calibrator().fit(arrays["score"], arrays["outcome"], arrays["weight"] / inclusion)
    assert points_of(Calibrator().fit(source).splines_[0]) == points_of(expected.splines_[0])


def test_calibrator__is_an_estimator_that_can_be_cloned_and_pickled() -> None:
    arrays = many_rows(500)
    found = Calibrator(7, monotone=True).fit(*arrays.values())
    assert repr(found) == "Calibrator(monotone=True, n_bins=7)"
    assert found.get_params() == {"n_bins": 7, "monotone": True, "supported_ends": None}
    again = pickle.loads(pickle.dumps(found))
    assert again.transform(arrays["score"]).tobytes() == found.transform(arrays["score"]).tobytes()
    assert not hasattr(clone(found), "splines_")
    np.testing.assert_array_equal(
        Calibrator(7, monotone=True).fit_transform(*arrays.values()), found.transform(arrays["score"])
    )


GOOD = np.array([0.1, 0.2, 0.3])
CODES = np.array([0, 1, 1])
TWO = np.column_stack([1 - GOOD, GOOD])


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (([0.1, np.nan, 0.3], CODES), "bad-value", ("row 1", "score")),
        (([0.1, np.inf, 0.3], CODES), "bad-value", ("row 1", "score")),
        ((GOOD, [0, 1, np.nan]), "bad-value", ("row 2", "outcome")),
        ((GOOD, CODES, [1, -1, 1]), "bad-value", ("row 1", "weight")),
        ((GOOD, CODES, [1, np.nan, 1]), "bad-value", ("row 1", "weight")),
        ((GOOD, CODES, [0, 0, 0]), "no-rows", ("weights", 0)),
        ((GOOD, CODES[:2]), "wrong-shape", ("outcome", "(2,)", "score", "(3,)")),
        ((GOOD, CODES, [1.0]), "wrong-shape", ("weight", "(1,)", "score", "(3,)")),
        ((GOOD, [1, 1, 1]), "one-class", ("outcome",)),
        ((GOOD, CODES, [0, 1, 1]), "one-class", ("outcome",)),
        ((GOOD, ["a", "b", "b"]), "wrong-type", ("(3,)", "<U1", "outcome")),
        ((GOOD, TWO), "wrong-shape", ("outcome", "(3, 2)", "score", "(3,)")),
        (([], []), "no-rows", ("outcome",)),
        ((0.5, 1), "wrong-shape", ("score", "()")),
        ((GOOD,), "setting-missing", ("score", "outcome")),
        ((TWO, [0.0, 1.0, 1.0]), "wrong-type", ("outcomes", "float64", "integer")),
        ((TWO, [0, 1, 2]), "bad-value", ("row 2", "target", "0 to 1")),
        ((TWO * 2, CODES), "bad-value", ("row 0", "probabilities", "one")),
        ((GOOD[:, None], CODES), "wrong-shape", ("(3, 1)", "(N,)", "probabilities", "scores")),
        ((np.zeros((2, 2, 2)), CODES[:2]), "wrong-shape", ("score", "(2, 2, 2)")),
        ((TWO, [1, 1, 1]), "one-class", ("outcome",)),
        (([-1.7e308, 0, 1.7e308], CODES), "overflow", ("outcomes",)),
        ((GOOD, [0, 1e308, 1.7e308], [1, 9, 9]), "overflow", ("outcomes",)),
        ((array_source({"score": GOOD, "outcome": CODES}), CODES), "settings-conflict", ("outcome",)),
        ((array_source({"rating": GOOD, "outcome": CODES}),), "column-missing", ("rating", "score", "outcome")),
        ((array_source({"score": GOOD}),), "column-missing", ("score", "outcome")),
    ],
)
def test_fit__refuses_what_it_cannot_use(arguments: tuple[Any, ...], code: Code, facts: tuple[object, ...]) -> None:
    with refused(code, *facts):
        Calibrator().fit(*arguments)


@pytest.mark.parametrize("n_bins", [0, -1, 2.5, True, 1001, "20"])
def test_fit__refuses_other_than_a_number_of_bins(n_bins: Any) -> None:
    with refused("bad-setting", "from 1 to 1000", repr(n_bins)):
        Calibrator(n_bins).fit(GOOD, CODES)


def test_fit__numbers_of_bins_may_be_those_of_numpy() -> None:
    found = Calibrator(np.int64(2)).fit(GOOD, CODES)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.transform(GOOD), Calibrator(2).fit(GOOD, CODES).transform(GOOD))


MASKED = np.ma.masked_array([0.5], True)


@pytest.mark.parametrize("score", [[np.nan], [np.inf], ["a"], MASKED, da.from_array(MASKED)])
def test_transform__refuses_what_is_no_number(score: Any) -> None:
    with refused("bad-value", "scores"):
        np.asarray(Calibrator().fit(GOOD, CODES).transform(score))


def test_transform__refuses_another_shape() -> None:
    with refused("wrong-shape", "(3, 2)", "(N,)", "scores"):
        Calibrator().fit(GOOD, CODES).transform(TWO)
    with refused("wrong-shape", "(3, 3)", "(N, 2)", "scores", "probabilities"):
        Calibrator().fit(TWO, CODES).transform(np.ones((3, 3)))
    with refused("wrong-shape", "(3, 2)", "(N,)", "scores"):
        Calibrator().fit(GOOD, CODES).transform(da.from_array(TWO))


def test_source__without_rows_is_refused() -> None:
    empty: ArraySource = array_source({"score": np.zeros(0), "outcome": np.zeros(0)})
    with refused("no-rows", "outcome"):
        Calibrator().fit(empty)


@pytest.mark.parametrize(
    ("weight", "code", "facts"),
    [(1e308, "overflow", ("weights",)), (1e-310, "bad-value", ("weights", "3e-310"))],
)
def test_fit__refuses_weights_that_cannot_be_counted_with(weight: float, code: Code, facts: tuple[object, ...]) -> None:
    with refused(code, *facts):
        Calibrator().fit(GOOD, CODES, np.full(len(GOOD), weight))


def test_fit__refuses_scores_of_several_lengths() -> None:
    with refused("wrong-shape", "scores", "one length"):
        Calibrator().fit([[0.1], [0.1, 0.2]], [0, 1])


def test_calibrator__does_not_forget_the_source_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[Source] = []
    monkeypatch.setattr(Engine, "forget", lambda _, source: forgotten.append(source))
    arrays = {"score": np.arange(8.0), "outcome": np.arange(8.0) % 2}
    Calibrator(n_bins=2).fit(array_source(arrays))
    assert forgotten == []
    Calibrator(n_bins=2).fit(arrays["score"], arrays["outcome"])
    assert len(forgotten) == 1
