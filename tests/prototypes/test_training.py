"""The whole classifier against the formulas, and what must hold of a fit whatever the data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import classifier as oracle
from support.errors import refused

from protodask.data.format.schema import row_weights
from protodask.engine import Block, Engine, thread_engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.engine.threads import ThreadScheduler
from protodask.prototypes import rounds as rounds_module
from protodask.prototypes.config import FeatureWeights, FitConfig
from protodask.prototypes.convergence import ConvergenceWarning
from protodask.prototypes.draws import held_out_parts
from protodask.prototypes.fitted import familiarity, probabilities
from protodask.prototypes.history import BatchDone, BatchRecord, BatchStarted, FitEvent, IterationDone
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.objective import START_WEIGHT, likelihood_block
from protodask.prototypes.scores import MemoryScores
from protodask.prototypes.solver import Solution, solve, solver_scale
from protodask.prototypes.training import Training, first_model, make_batch
from protodask.prototypes.training_data import TrainingData

Arrays = dict[str, NDArray[Any]]
MakeRows = Callable[..., Arrays]
MakeData = Callable[..., TrainingData]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]

QUICK: dict[str, Any] = {"tolerance": 1e-6, "lambda_w": 1e-3}
"""A penalty with which a batch is done after a few dozen iterations: in hundreds, the rounding of two block sizes would
grow until their paths part."""

SHORT: dict[str, Any] = {**QUICK, "max_iterations": 8}
"""Where some iterations are as good as all."""

ROWS = 100
"""Of those that are compared with the formulas."""

pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)


@pytest.fixture(scope="module")
def serial() -> Iterator[Engine]:
    with thread_engine(1, 2**30) as opened:
        yield opened


def train(
    engine: Engine, data: TrainingData, config: FitConfig, start: PrototypeSet | None = None
) -> tuple[PrototypeSet, list[BatchRecord]]:
    return Training(data, config, engine, MemoryScores()).run(start)


@pytest.mark.parametrize(
    ("n_classes", "standardize", "feature_weights", "weights"),
    [
        (3, True, "shared", ""),
        (2, False, "shared", "weight inclusion"),
        (3, True, "class", "weight"),
    ],
)
def test_training__ends_every_round_where_the_formulas_have_a_minimum(
    serial: Engine,
    make_rows: MakeRows,
    training_data: MakeData,
    weights: str,
    n_classes: int,
    standardize: bool,
    feature_weights: FeatureWeights,
) -> None:
    """Which way the solver took is its own affair: value, slope and draw are computed from the formulas at its end."""
    arrays = make_rows(ROWS, 2, n_classes=n_classes, weights=weights)
    config = FitConfig.of(
        "source",
        n_batches=2,
        n_candidates=20,
        lambda_v=1e-3,
        lambda_w=1e-3,
        alpha_v=0.8,
        alpha_w=0.6,
        max_fraction=0.4,
        precision="float64",
        tolerance=1e-10,
        standardize=standardize,
        seed=5,
        feature_weights=feature_weights,
    )
    model, history = train(serial, training_data(arrays, 64, n_classes), config)
    width = 1 if feature_weights == "shared" else n_classes
    assert model.round_ends == (0, width, 2 * width)
    assert {record.status for record in history} <= {"converged", "stationary"}
    features, target = arrays["features"], arrays["target"].astype(np.int64)
    sample = row_weights(Block(0, 0, arrays))
    sample = np.ones(ROWS) if sample is None else sample
    center, scale = oracle.moments(features, sample) if standardize else (np.zeros(3), np.ones(3))
    x = (features - center) / scale
    marginals = oracle.class_weights(target, sample, n_classes) / sample.sum()
    np.testing.assert_allclose(model.marginals, marginals, rtol=1e-14)
    penalty = oracle.Penalty(1e-3, 1e-3, 0.8, 0.6)
    q, fresh = np.tile(marginals, (ROWS, 1)), make_rows(60, 8)["features"]
    fresh_q = [np.tile(marginals, (60, 1))]
    rounds = [model.batches[:width], model.batches[width:]]
    for record, batches in zip(history, rounds, strict=True):
        rows = oracle.draw_candidates(q, target, sample, 20, 0.4, 5, record.batch)
        assert record.candidates.tolist() == sorted(rows.tolist())
        number = np.zeros(len(rows), dtype=np.int64) if feature_weights == "shared" else target[rows]
        formula = oracle.dense_objective(x, target, sample, rows, number, q, penalty)
        v, w = np.zeros((width, 3)), np.zeros(len(rows))
        for place, batch in enumerate(batches):
            v[place, batch.feature_index] = batch.feature_weight
            w[[rows.tolist().index(row) for row in batch.row]] = batch.prototype_weight  # no two are equivalent
        value, *slopes = formula(v, w)
        assert record.value == pytest.approx(value, rel=1e-9)
        assert value < formula(np.full((width, 3), 10 / 3), np.full(len(rows), START_WEIGHT))[0]
        assert record.active_features == np.count_nonzero(v.any(axis=0))
        assert record.prototypes == np.count_nonzero(w)
        # At the bound, only a slope that leads away from it counts.
        by_theta = np.concatenate([slope.ravel() for slope in slopes])
        slope = np.abs(oracle.projected(np.concatenate([v.ravel(), w]), by_theta)).max()
        assert record.gradient_norm == pytest.approx(slope, rel=1e-4)
        assert slope <= 1e-5 * solver_scale(3, 1)[0]
        fresh_q.append(fresh_q[-1])
        for place, batch in enumerate(batches):
            own = number == place
            expected = oracle.merge_prototypes(v[place], w[own], x[rows[own]], target[rows[own]], rows[own])
            assert batch.row.tolist() == expected.row.tolist()
            assert batch.prototype_class.tolist() == expected.prototype_class.tolist()
            np.testing.assert_array_equal(batch.prototypes, features[batch.row][:, batch.feature_index])
            q = q + oracle.batch_mass(expected, x, n_classes)
            fresh_q[-1] = fresh_q[-1] + oracle.batch_mass(expected, (fresh - center) / scale, n_classes)
    for scores, wanted in zip(model.scores(fresh, model.round_ends), fresh_q, strict=True):
        np.testing.assert_allclose(probabilities(scores), oracle.normalized(wanted), rtol=0, atol=1e-8)
        np.testing.assert_allclose(familiarity(scores), wanted.sum(axis=1) - 1, rtol=1e-7, atol=1e-8)


def test_training__goes_on_in_float64_where_float32_finds_no_descent_and_counts_both(
    serial: Engine, make_rows: MakeRows, training_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    solutions, events = list[Solution](), list[FitEvent]()

    def failing(*arguments: Any) -> Solution:
        solutions.append(solve(*arguments))
        return replace(solutions[0], status="line search failed") if len(solutions) == 1 else solutions[-1]

    monkeypatch.setattr(rounds_module, "solve", failing)
    data = training_data(make_rows(300, 2), 512)
    config = FitConfig.of("source", n_candidates=40, **QUICK)
    _, (record,) = Training(data, config, serial, MemoryScores(), callbacks=[events.append]).run()
    single, double = solutions
    assert record.status == double.status
    assert record.evaluations == single.evaluations + double.evaluations
    assert record.iterations == single.iterations + double.iterations
    done = [event for event in events if isinstance(event, IterationDone)]
    assert [event.iteration for event in done] == list(range(1, record.iterations + 1))
    assert done[-1].evaluations == record.evaluations


def test_training__keeps_what_float32_found_where_float64_finds_nothing(
    serial: Engine, make_rows: MakeRows, training_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    solutions = list[Solution]()

    def failing(*arguments: Any) -> Solution:
        solutions.append(solve(*arguments))
        held_out = solutions[0].held_out if len(solutions) == 1 else float("nan")  # not an iteration was made
        return replace(solutions[-1], status="line search failed", held_out=held_out)

    monkeypatch.setattr(rounds_module, "solve", failing)
    config = FitConfig.of("source", n_candidates=40, hold_out=0.25, **QUICK)
    (data,) = held_out_parts(serial, training_data(make_rows(300, 2), 512), config, grouped=False)
    with pytest.warns(ConvergenceWarning, match="line search failed"):
        _, (record,) = Training(data, config, serial, MemoryScores()).run()
    assert len(solutions) == 2
    assert record.prototypes > 0
    assert record.held_out == solutions[0].held_out


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_training__of_another_block_size_draws_the_same_candidates_and_agrees_within_rounding(
    serial: Engine, make_rows: MakeRows, training_data: MakeData, precision: str
) -> None:
    arrays = make_rows(300, 2)
    config = FitConfig.of(
        "source", n_batches=2, n_candidates=40, precision="float32" if precision == "float32" else "float64", **SHORT
    )
    fresh = make_rows(50, 9)["features"]
    found = {}
    for block_rows in (64, 512):
        model, history = train(serial, training_data(arrays, block_rows), config)
        found[block_rows] = history, probabilities(model.scores(fresh, [2])[0])
    for history, p in found.values():
        for record, other in zip(history, found[512][0], strict=True):
            assert record.candidates.tolist() == other.candidates.tolist()
        np.testing.assert_allclose(p, found[512][1], atol=1e-8 if precision == "float64" else 2e-3)


def test_training__of_float32_is_near_that_of_float64(
    serial: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    data = training_data(make_rows(300, 2), 512)
    config = FitConfig.of("source", n_candidates=40, **QUICK)
    (_, (single,)), (_, (double,)) = (train(serial, data, replace(config, precision=p)) for p in ("float32", "float64"))
    assert single.candidates.tolist() == double.candidates.tolist()
    assert single.value == pytest.approx(double.value, rel=1e-3)


def test_training__does_not_see_an_offset_of_the_features(
    serial: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    arrays, fresh = make_rows(200, 3), make_rows(40, 4)["features"]
    config = FitConfig.of("source", n_candidates=30, **QUICK)
    plain, _ = train(serial, training_data(arrays, 256), config)
    moved, _ = train(serial, training_data({**arrays, "features": arrays["features"] + 2.0**20}, 256), config)
    np.testing.assert_allclose(
        probabilities(moved.scores(fresh + 2.0**20, [1])[0]), probabilities(plain.scores(fresh, [1])[0]), atol=1e-2
    )


def test_training__without_regard_to_rows_of_no_weight(
    serial: Engine, make_rows: MakeRows, training_data: MakeData, assert_same_bits: SameBits
) -> None:
    arrays = make_rows(200, 3, weights="weight")
    idle = arrays["weight"] == 0
    other = {name: values.copy() for name, values in arrays.items()}
    other["features"][idle] = 77.0
    other["target"][idle] = 1 - other["target"][idle]
    config = FitConfig.of("source", n_batches=2, n_candidates=30, **SHORT)
    model, history = train(serial, training_data(arrays), config)
    assert_same_bits(train(serial, training_data(other), config)[0], model)
    assert not idle[np.concatenate([record.candidates for record in history])].any()


def test_training__an_inclusion_probability_is_a_divisor_of_the_weight(
    serial: Engine, make_rows: MakeRows, training_data: MakeData, assert_same_bits: SameBits
) -> None:
    arrays = make_rows(200, 3, weights="weight inclusion")
    joined = {name: arrays[name] for name in ("features", "target")}
    joined["weight"] = arrays["weight"] / arrays["inclusion"]
    config = FitConfig.of("source", n_batches=2, n_candidates=30, **SHORT)
    assert_same_bits(train(serial, training_data(arrays), config)[0], train(serial, training_data(joined), config)[0])


class CountingScheduler(ThreadScheduler):
    """Notes what each submission computes."""

    def __init__(self) -> None:
        super().__init__(2, 2**28)
        self.submitted: list[Any] = []

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        self.submitted.append(work.map)
        return super().run(work, groups, advance)


def test_training__submits_once_for_each_evaluation(make_rows: MakeRows, training_data: MakeData) -> None:
    scheduler = CountingScheduler()
    config = FitConfig.of("source", n_batches=2, n_candidates=30, **SHORT)
    with Engine(scheduler) as counting:
        _, history = train(counting, training_data(make_rows(200)), config)
    evaluations = sum(record.evaluations for record in history)
    assert scheduler.submitted.count(likelihood_block) == evaluations > 10
    # And besides for each batch a draw and a taking of its rows, and between the two a scoring.
    assert len(scheduler.submitted) == evaluations + 2 * 2 + 1


@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_training__of_further_batches_gives_the_bits_of_all_at_once(
    serial: Engine, make_rows: MakeRows, training_data: MakeData, assert_same_bits: SameBits, precision: str
) -> None:
    data = training_data(make_rows(150, weights="weight"))
    config = FitConfig.of(
        "source", n_batches=3, n_candidates=30, precision="float32" if precision == "float32" else "float64", **SHORT
    )
    whole, history = train(serial, data, config)
    first, history_1 = train(serial, data, config.with_batches(1))
    second, history_2 = train(serial, data, config.with_batches(1), first)
    third, history_3 = train(serial, data, config.with_batches(1), second)
    assert_same_bits(third, whole)
    assert_same_bits(train(serial, data, config.with_batches(2), first)[0], whole)
    resumed = [*history_1, *history_2, *history_3]
    assert [record.batch for record in resumed] == [1, 2, 3]
    for found, expected in zip(resumed, history, strict=True):
        assert found.candidates.tolist() == expected.candidates.tolist()
        assert (found.value, found.evaluations) == (expected.value, expected.evaluations)


def test_training__of_no_batch_is_the_marginals(serial: Engine, make_rows: MakeRows, training_data: MakeData) -> None:
    arrays = make_rows(100, weights="weight")
    model, history = train(serial, training_data(arrays), FitConfig.of("source", n_batches=0))
    assert history == []
    expected = np.bincount(arrays["target"], weights=arrays["weight"]) / arrays["weight"].sum()
    np.testing.assert_allclose(model.scores(arrays["features"][:2], [0])[0], [expected] * 2, rtol=1e-14)


def test_training__a_batch_that_ends_empty_keeps_its_place(
    serial: Engine, make_rows: MakeRows, training_data: MakeData, assert_same_bits: SameBits
) -> None:
    data = training_data(make_rows(200))
    heavy = FitConfig.of("source", n_batches=2, n_candidates=30, lambda_w=100.0, alpha_w=0.0)
    model, history = train(serial, data, heavy)
    assert model.n_batches == 2
    for number, (batch, record) in enumerate(zip(model.batches, history, strict=True), start=1):
        assert (batch.n_features, batch.n_prototypes, batch.prototypes.shape) == (0, 0, (0, 0))
        assert (record.batch, record.prototypes, record.active_features) == (number, 0, 0)
        share = model.marginals
        assert record.value == pytest.approx(-float(share @ np.log(share)), rel=0.05)
    assert history[0].candidates.tolist() != history[1].candidates.tolist()
    for scores in model.scores(np.zeros((1, 3)), [0, 1, 2]):
        np.testing.assert_array_equal(scores[0], model.marginals)
    # The next batch is the third, as its draw shows.
    config = FitConfig.of("source", n_candidates=30, **SHORT)
    third, (record,) = train(serial, data, config, model)
    assert (record.batch, third.n_batches) == (3, 3)
    assert third.batches[2].n_prototypes > 0
    np.testing.assert_array_equal(record.candidates, np.sort(record.candidates))
    _, fresh = train(serial, data, config)
    assert record.candidates.tolist() != fresh[0].candidates.tolist()


def test_training__merges_candidates_that_are_copies(
    serial: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    arrays = {name: np.tile(values, (4, *[1] * (values.ndim - 1))) for name, values in make_rows(60).items()}
    model, (record,) = train(serial, training_data(arrays), FitConfig.of("source", n_candidates=100, **SHORT))
    batch = model.batches[0]
    copies = set((record.candidates % 60).tolist())
    assert len(copies) < len(record.candidates), "else there is nothing to merge"
    keys = [(int(label), *point) for label, point in zip(batch.prototype_class, batch.prototypes.tolist(), strict=True)]
    assert len(keys) == len(set(keys)) == batch.n_prototypes
    for row in batch.row:
        same = [other for other in record.candidates if other % 60 == row % 60]
        assert row == min(same)


def test_make_batch__of_features_alone_or_prototypes_alone_has_nothing_to_look_at(
    serial: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    data = training_data(make_rows(100))
    training = Training(data, FitConfig.of("source", n_candidates=10), serial, MemoryScores())
    drawn = training._draw(data.source, first_model(data, training.config), 1)
    standardization = training._standardization()
    n_drawn = len(drawn.rows)
    no_weights = make_batch(drawn, np.ones(3), np.zeros(n_drawn), standardization, np.arange(3))
    assert (no_weights.n_features, no_weights.n_prototypes) == (0, 0)
    # Without features every kernel is 1: one prototype for each class, and its weight.
    no_features = make_batch(drawn, np.zeros(3), np.ones(n_drawn), standardization, np.arange(3))
    assert (no_features.n_features, no_features.prototype_class.tolist()) == (0, [0, 1])
    assert no_features.prototype_weight.sum() == n_drawn


def test_training__tells_what_it_does(serial: Engine, make_rows: MakeRows, training_data: MakeData) -> None:
    events: list[FitEvent] = []
    config = FitConfig.of("source", n_batches=2, n_candidates=30, **SHORT)
    _, history = Training(
        training_data(make_rows(200)), config, serial, MemoryScores(), callbacks=(events.append,)
    ).run()
    started = [event for event in events if isinstance(event, BatchStarted)]
    iterations = [event for event in events if isinstance(event, IterationDone)]
    done = [event.record for event in events if isinstance(event, BatchDone)]
    assert [event.batch for event in started] == [1, 2]
    assert [event.n_batches for event in started] == [2, 2], "the batches the model will have"
    assert done == history
    for record in history:
        mine = [event for event in iterations if event.batch == record.batch]
        assert [event.iteration for event in mine] == list(range(1, record.iterations + 1))
        assert mine[-1].value == record.value
        assert record.values == tuple(event.value for event in mine)
        assert mine[-1].active_features == record.active_features
        assert mine[-1].candidates >= record.prototypes
        assert record.seconds > 0


def test_training__refuses_a_model_of_other_classes_or_features(
    serial: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    data = training_data(make_rows(100))
    model, _ = train(serial, data, FitConfig.of("source", n_batches=0))
    with refused("columns-differ", ["a", "b"], [0, 1]):
        train(serial, data, FitConfig.of("source"), replace(model, classes=("a", "b")))
    with refused("columns-differ", "3 features"):
        train(serial, data, FitConfig.of("source"), replace(model, feature_names=("x1", "x0", "x2")))


def test_training__with_too_few_candidates_wanted_says_so(
    serial: Engine, make_rows: MakeRows, training_data: MakeData
) -> None:
    with refused("bad-setting", "3 classes", "`n_candidates` is 1"):
        train(serial, training_data(make_rows(100, n_classes=3), n_classes=3), FitConfig.of("source", n_candidates=1))
