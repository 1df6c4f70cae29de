import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.delong import delong
from sklearn import metrics as oracle
from support.errors import refused

from protodask.engine import Block, Engine, Source, add_records, array_source, thread_engine
from protodask.engine.groups import Pass
from protodask.engine.reduction import Node
from protodask.engine.threads import ThreadScheduler
from protodask.errors import Code
from protodask.evaluation import (
    Scores,
    accuracy,
    balanced_accuracy,
    brier_score,
    confusion_matrix,
    evaluate,
    log_loss,
    roc_auc,
)
from protodask.evaluation.metrics import evaluation_partial, finish_evaluation
from protodask.evaluation.outcomes import read_outcomes

Floats = NDArray[np.float64]


def assert_close(found: Any, wanted: Any, name: str = "") -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13, err_msg=name)


@dataclass(frozen=True)
class Sample:
    probability: Floats
    target: NDArray[np.int32]
    weight: Floats | None

    @property
    def n_classes(self) -> int:
        return len(self.probability[0])

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        named: dict[str, NDArray[Any]] = {"probability": self.probability, "target": self.target}
        return named if self.weight is None else named | {"weight": self.weight}

    def source(self, block_rows: int | None = None) -> Source:
        return array_source(self.arrays, block_rows)


@st.composite
def samples(draw: st.DrawFn, largest_class_count: int = 5) -> Sample:
    """Few probability levels, so that ties within and between rows abound; classes may be missing altogether."""
    n_rows, n_classes = draw(st.integers(1, 40)), draw(st.integers(2, largest_class_count))
    levels = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=n_classes, max_size=n_classes), min_size=n_rows, max_size=n_rows)
    )
    raw = np.array(levels, dtype=np.float64)
    target = draw(st.lists(st.integers(0, n_classes - 1), min_size=n_rows, max_size=n_rows))
    weight = draw(
        st.none() | st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.0, 7.5]), min_size=n_rows, max_size=n_rows).filter(any)
    )
    return Sample(
        raw / raw.sum(axis=1, keepdims=True),
        np.array(target, dtype=np.int32),
        None if weight is None else np.array(weight),
    )


def random_sample(n_rows: int, n_classes: int, seed: int, weighted: bool = True) -> Sample:
    random = np.random.default_rng(seed)
    raw = random.exponential(size=(n_rows, n_classes)).round(2) + 0.01
    target = random.integers(0, n_classes, n_rows)
    raw[np.arange(n_rows), target] += random.exponential(size=n_rows).round(2)
    weight = random.exponential(size=n_rows) if weighted else None
    return Sample(raw / raw.sum(axis=1, keepdims=True), target.astype(np.int32), weight)


def expected_scores(sample: Sample) -> dict[str, Any]:
    """The same metrics by scikit-learn, one class or one function at a time."""
    weight = np.ones(len(sample.target)) if sample.weight is None else sample.weight
    kept = weight > 0
    weight, target, probability = weight[kept], sample.target[kept], sample.probability[kept]
    predicted = probability.argmax(axis=1)
    classes = np.arange(sample.n_classes)
    occurring = np.unique(target)
    hot = (target[:, None] == classes).astype(np.float64)
    brier = np.average(np.square(probability - hot).sum(axis=1), weights=weight)
    columns = occurring if sample.n_classes > 2 else np.array([1])
    if len(occurring) > 1:
        areas = [oracle.roc_auc_score(target == k, probability[:, k], sample_weight=weight) for k in columns]
        macro = np.mean(areas)
        weighted = np.average(areas, weights=[weight[target == k].sum() for k in columns])
    else:
        macro = weighted = np.float64(np.nan)
    return {
        "rows": int(kept.sum()),
        "weight": weight.sum(),
        "log_loss": oracle.log_loss(target, probability, sample_weight=weight, labels=classes),
        "accuracy": oracle.accuracy_score(target, predicted, sample_weight=weight),
        "balanced_accuracy": oracle.recall_score(
            target, predicted, labels=occurring, average="macro", sample_weight=weight, zero_division=0
        ),
        "brier_score": brier / 2 if sample.n_classes == 2 else brier,
        "roc_auc": macro,
        "roc_auc_weighted": weighted,
        "roc_auc_error": 0.0,
        **interval(float(macro), probability, target, weight, sample.n_classes),
        "confusion": oracle.confusion_matrix(target, predicted, labels=classes, sample_weight=weight),
    }


def interval(
    area: float, probability: Floats, target: NDArray[Any], weight: Floats, n_classes: int
) -> dict[str, list[float]]:
    """The interval of the AUC: DeLong's, or where weights vary in a class or it has no width, that of the theorem."""
    own = [weight[target == k] for k in range(2)]
    if n_classes > 2 or min(len(of_class) for of_class in own) == 0:
        return {}
    if all(of_class.max() == of_class.min() for of_class in own):
        found = delong(probability[:, 1], target == 1)
        if found is not None:
            return {"roc_auc_interval": list(found)}
    variance = 0.0
    for of_class in own:
        n, m = len(of_class), of_class.sum() ** 2 / np.square(of_class).sum()
        spread = np.sqrt(1 / m - 1 / n) if of_class.max() > of_class.min() else 0.0
        variance += min(0.5 / np.sqrt(n) + spread, 1 / np.sqrt(m)) ** 2
    half = np.sqrt(2 * np.log(2 / 0.05) * variance)
    return {"roc_auc_interval": [max(area - half, 0.0), min(area + half, 1.0)]}


def assert_scores(found: Scores, wanted: dict[str, Any]) -> None:
    values = found.as_dict()
    assert values.keys() == wanted.keys()
    for name, value in wanted.items():
        assert_close(values[name], value, name)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with thread_engine(2) as opened:
        yield opened


@settings(max_examples=50)
@given(sample=samples())
def test_evaluate__agrees_with_scikit_learn_for_ties_weights_and_missing_classes(
    sample: Sample, engine: Engine
) -> None:
    assert_scores(evaluate(sample.source(), sample.n_classes, engine), expected_scores(sample))


@settings(max_examples=40)
@given(sample=samples(), edges=st.lists(st.integers(0, 40), max_size=6))
def test_merge__uneven_and_empty_blocks_give_the_metrics_of_all_rows(sample: Sample, edges: list[int]) -> None:
    bounds = [0, *sorted(min(edge, len(sample.target)) for edge in edges), len(sample.target)]
    partials = [
        evaluation_partial(
            read_outcomes(Block(number, first, {name: array[first:last] for name, array in sample.arrays.items()}))
        )
        for number, (first, last) in enumerate(pairwise(bounds))
    ]
    wanted = expected_scores(sample)
    assert_scores(finish_evaluation(reduce(add_records, partials)), wanted)
    from_right = reduce(lambda right, left: add_records(left, right), reversed(partials))
    assert_scores(finish_evaluation(from_right), wanted)


@settings(max_examples=20)
@given(sample=samples())
def test_merge__with_no_rows_changes_nothing(sample: Sample) -> None:
    whole = evaluation_partial(read_outcomes(Block(0, 0, sample.arrays)))
    nothing = evaluation_partial(read_outcomes(Block(1, 0, {name: a[:0] for name, a in sample.arrays.items()})))
    assert (nothing.sums.rows, nothing.sums.weight, nothing.sums.loss, nothing.sums.squares) == (0, 0, 0, 0)
    assert not nothing.sums.confusion.any()
    assert not any(totals.any() for totals in vars(nothing.sums.classes).values())
    for merged in (add_records(whole, nothing), add_records(nothing, whole)):
        np.testing.assert_equal(finish_evaluation(merged).as_dict(), finish_evaluation(whole).as_dict())


@settings(max_examples=25)
@given(sample=samples(), counts=st.lists(st.integers(0, 3), min_size=40, max_size=40).filter(lambda c: c[0] > 0))
def test_evaluate__weight_two_is_the_row_twice(sample: Sample, counts: list[int], engine: Engine) -> None:
    times = np.array(counts[: len(sample.target)])
    weighted = Sample(sample.probability, sample.target, times.astype(np.float64))
    repeated = Sample(sample.probability.repeat(times, axis=0), sample.target.repeat(times), None)
    found = evaluate(weighted.source(), sample.n_classes, engine).as_dict()
    wanted = evaluate(repeated.source(), sample.n_classes, engine).as_dict()
    assert found.pop("rows") == np.count_nonzero(times)
    assert wanted.pop("rows") == times.sum()
    # How well the area is known depends on how many rows there are.
    assert ("roc_auc_interval" in found) == ("roc_auc_interval" in wanted)
    wanted.pop("roc_auc_interval", None)
    for name, value in wanted.items():
        assert_close(found[name], value, name)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("block_rows", [1, 64, 512, 1024])
def test_evaluate__does_not_depend_on_the_block_size(n_classes: int, block_rows: int, engine: Engine) -> None:
    sample = random_sample(600, n_classes, seed=n_classes)
    assert_scores(evaluate(sample.source(block_rows), n_classes, engine), expected_scores(sample))


def test_evaluate__is_the_same_to_the_last_bit_for_any_number_of_threads() -> None:
    source = random_sample(3000, 3, seed=1).source(64)
    found = []
    for threads in (1, 2, 5):
        with thread_engine(threads) as engine:
            found.append(evaluate(source, 3, engine).as_dict())
    assert found[0] == found[1] == found[2]


def test_evaluate__class_sorted_rows_leave_most_classes_out_of_each_block(engine: Engine) -> None:
    sample = random_sample(600, 5, seed=2)
    order = np.argsort(sample.target, kind="stable")
    assert sample.weight is not None
    ordered = Sample(sample.probability[order], sample.target[order], sample.weight[order])
    assert_scores(evaluate(ordered.source(32), 5, engine), expected_scores(sample))


def test_evaluate__divides_weights_by_inclusion_probabilities(engine: Engine) -> None:
    sample = random_sample(300, 3, seed=3)
    assert sample.weight is not None
    inclusion = np.random.default_rng(4).uniform(0.1, 1.0, 300)
    source = array_source(sample.arrays | {"inclusion": inclusion}, 64)
    wanted = expected_scores(Sample(sample.probability, sample.target, sample.weight / inclusion))
    assert_scores(evaluate(source, 3, engine), wanted)


def test_evaluate__float32_probabilities_are_summed_in_double_precision(engine: Engine) -> None:
    sample = random_sample(2000, 3, seed=5)
    single = sample.probability.astype(np.float32)
    source = array_source(sample.arrays | {"probability": single}, 128)
    found = evaluate(source, 3, engine)
    double = single.astype(np.float64)
    hot = np.eye(3)[sample.target]
    assert_close(found.brier_score, np.average(np.square(double - hot).sum(axis=1), weights=sample.weight))
    assert_close(found.log_loss, -np.average(np.log(double[hot == 1]), weights=sample.weight))
    areas = [oracle.roc_auc_score(hot[:, k], double[:, k], sample_weight=sample.weight) for k in range(3)]
    assert_close(found.roc_auc, np.mean(areas))


class CountingScheduler(ThreadScheduler):
    """Counts submissions."""

    def __init__(self, memory_bytes: int | None = None) -> None:
        super().__init__(2, memory_bytes)
        self.submissions = 0

    def run(self, work: Pass, groups: Sequence[Sequence[int]], advance: Callable[[int], None]) -> list[Node[Any]]:
        self.submissions += 1
        return super().run(work, groups, advance)


def test_evaluate__takes_one_submission_for_all_metrics() -> None:
    scheduler = CountingScheduler()
    with Engine(scheduler) as engine:
        evaluate(random_sample(500, 3, seed=6).source(32), 3, engine)
    assert scheduler.submissions == 1


@pytest.mark.parametrize("metric", [log_loss, accuracy, balanced_accuracy, confusion_matrix, brier_score, roc_auc])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_metric__of_arrays_and_of_a_source_is_that_of_evaluate(
    metric: Callable[..., Any], n_classes: int, weighted: bool, engine: Engine
) -> None:
    sample = random_sample(200, n_classes, seed=7, weighted=weighted)
    wanted = expected_scores(sample)[{"confusion_matrix": "confusion"}.get(metric.__name__, metric.__name__)]
    assert_close(metric(sample.probability, sample.target, sample.weight), wanted)
    assert_close(metric(sample.source(16), engine=engine), wanted)


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_roc_auc__one_against_the_rest_is_that_of_scikit_learn(average: str) -> None:
    sample = random_sample(400, 4, seed=8)
    wanted = oracle.roc_auc_score(
        sample.target, sample.probability, multi_class="ovr", average=average, sample_weight=sample.weight
    )
    found = roc_auc(sample.probability, sample.target, sample.weight, average=average)  # type: ignore[arg-type]
    assert found == pytest.approx(wanted, rel=1e-12)


def test_brier_score__for_two_classes_is_that_of_scikit_learn() -> None:
    sample = random_sample(400, 2, seed=9)
    wanted = oracle.brier_score_loss(sample.target, sample.probability[:, 1], sample_weight=sample.weight)
    assert brier_score(sample.probability, sample.target, sample.weight) == pytest.approx(wanted, rel=1e-12)


def test_log_loss__is_infinite_where_the_true_class_had_no_chance() -> None:
    probability, target = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0])
    assert log_loss(probability, target) == math.inf
    assert log_loss(probability, target, clip=1e-3) == pytest.approx(-(math.log(1e-3) + math.log(0.5)) / 2, rel=1e-14)
    assert log_loss(probability, target, np.array([0.0, 2.0])) == pytest.approx(math.log(2), rel=1e-14)


def test_roc_auc__is_nan_where_one_class_only_occurs() -> None:
    probability = np.array([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]])
    assert math.isnan(roc_auc(probability, np.array([1, 1])))
    assert math.isnan(roc_auc(probability[:, :2] / probability[:, :2].sum(axis=1, keepdims=True), np.array([0, 0])))


def test_evaluate__leaves_the_roc_auc_out_when_told_to(engine: Engine) -> None:
    sample = random_sample(100, 3, seed=10)
    wanted = expected_scores(sample)
    del wanted["roc_auc"], wanted["roc_auc_weighted"], wanted["roc_auc_error"]
    assert_scores(evaluate(sample.source(16), 3, engine, roc_auc=False), wanted)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_evaluate__roc_auc_that_may_not_fit_is_within_its_error_in_the_same_pass(n_classes: int) -> None:
    sample = random_sample(3000, n_classes, seed=11)
    wanted = expected_scores(sample)
    scheduler = CountingScheduler(memory_bytes=300_000)
    with Engine(scheduler) as engine:
        found = evaluate(sample.source(64), n_classes, engine)
        assert scheduler.submissions == 1
        assert roc_auc(sample.source(64), engine=engine, average="weighted") == found.roc_auc_weighted
    assert found.roc_auc is not None
    assert found.roc_auc_weighted is not None
    assert found.roc_auc_error is not None
    assert 1e-6 < found.roc_auc_error < 0.05
    assert 1e-13 < abs(found.roc_auc - wanted["roc_auc"]) < found.roc_auc_error
    assert abs(found.roc_auc_weighted - wanted["roc_auc_weighted"]) < found.roc_auc_error
    assert_close(found.log_loss, wanted["log_loss"])
    if n_classes == 2:
        assert found.roc_auc_interval is not None
        low, high = wanted["roc_auc_interval"]
        assert_close(found.roc_auc_interval[0], low - found.roc_auc_error + found.roc_auc - wanted["roc_auc"])
        assert_close(found.roc_auc_interval[1], high + found.roc_auc_error + found.roc_auc - wanted["roc_auc"])


def test_evaluate__bins_of_the_roc_auc_are_the_same_to_the_last_bit_for_any_number_of_threads() -> None:
    source = random_sample(3000, 3, seed=1).source(64)
    partials = [
        add_records(add_records(a, b), c)
        for most in (40, 4000)
        for a, b, c in [[evaluation_partial(read_outcomes(source.read(number)), most_bins=most) for number in range(3)]]
    ]
    coarse, fine = (finish_evaluation(partial) for partial in partials)
    assert coarse.roc_auc_error is not None
    assert fine.roc_auc_error is not None
    assert coarse.roc_auc_error > 10 * fine.roc_auc_error
    found = []
    for threads in (1, 2, 5):
        # So little memory that each has the least number of bins.
        with thread_engine(threads, memory_bytes=10_000) as engine:
            found.append(evaluate(source, 3, engine).as_dict())
    assert found[0] == found[1] == found[2]


def broken(name: str, row: int, value: float) -> Source:
    arrays = {name: array.copy() for name, array in random_sample(100, 3, seed=12).arrays.items()}
    arrays.setdefault(name, np.ones(100))[row] = value
    return array_source(arrays, 16)


@pytest.mark.parametrize(
    ("source", "code", "facts"),
    [
        (broken("probability", 37, np.nan), "bad-value", ("row 37", "probabilities")),
        (broken("probability", 37, np.inf), "bad-value", ("row 37", "probabilities")),
        (broken("probability", 37, -0.1), "bad-value", ("row 37", "probabilities")),
        (broken("probability", 99, 0.5), "bad-value", ("row 99", "probabilities", "one")),
        (broken("target", 20, 3), "bad-value", ("row 20", "target", "0 to 2")),
        (broken("target", 20, -1), "bad-value", ("row 20", "target", "0 to 2")),
        (broken("weight", 0, -1.0), "bad-value", ("row 0", "weight")),
        (broken("inclusion", 15, 2.0), "bad-value", ("row 15", "above 0 and at most 1", "inclusion")),
        (broken("weight", 15, np.nan), "bad-value", ("row 15", "weight")),
    ],
)
def test_evaluate__names_the_first_row_it_cannot_use(
    source: Source, code: Code, facts: tuple[object, ...], engine: Engine
) -> None:
    with refused(code, *facts):
        evaluate(source, 3, engine)


def test_evaluate__refuses_another_number_of_columns_than_classes(engine: Engine) -> None:
    with refused("wrong-shape", "3 columns", "4 classes"):
        evaluate(random_sample(10, 3, seed=13).source(), 4, engine)


def test_evaluate__refuses_rows_without_weight(engine: Engine) -> None:
    sample = random_sample(10, 3, seed=14)
    source = array_source(sample.arrays | {"weight": np.zeros(10)})
    with refused("no-rows", "weights", 0):
        evaluate(source, 3, engine)


def test_evaluate__refuses_a_source_without_rows(engine: Engine) -> None:
    with refused("no-rows"):
        evaluate(array_source({"probability": np.zeros((0, 2)), "target": np.zeros(0, dtype=int)}), 2, engine)


TWO = np.array([[0.5, 0.5], [0.25, 0.75]])
CODES = np.array([0, 1])


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ((TWO,), "setting-missing", ("target",)),
        ((TWO[:, 1], CODES), "wrong-shape", ("(2,)", "probabilities")),
        ((TWO.astype(int), CODES), "wrong-type", ("int64", "probabilities")),
        ((TWO, np.array(["a", "b"])), "wrong-type", ("<U1", "targets")),
        ((TWO, CODES[:1]), "wrong-shape", ("(1,)", "(2, 2)", "target")),
        ((TWO, CODES, np.ones(3)), "wrong-shape", ("(3,)", "(2, 2)", "weight")),
        ((TWO[:0], CODES[:0]), "no-rows", ()),
        (
            (array_source({"probability": TWO, "target": CODES}), CODES),
            "settings-conflict",
            ("target",),
        ),
    ],
)
def test_accuracy__says_what_is_wrong_with_its_arguments(
    arguments: tuple[Any, ...], code: Code, facts: tuple[object, ...]
) -> None:
    with refused(code, *facts):
        accuracy(*arguments)


def test_metrics__of_arrays_outside_memory_are_those_in_memory(tmp_path: Path) -> None:
    sample = random_sample(1000, 3, seed=15)
    arrays: list[Any] = list(sample.arrays.values())
    lazy: list[Any] = [da.from_array(array, chunks=(300, *array.shape[1:])) for array in arrays]
    stored: list[Any] = []
    for name, array in sample.arrays.items():
        stored.append(zarr.create_array(tmp_path / f"{name}.zarr", data=array, chunks=(256, *array.shape[1:])))
    for metric in (log_loss, accuracy, balanced_accuracy, brier_score, roc_auc):
        assert metric(*lazy) == pytest.approx(metric(*arrays), rel=1e-12)
        assert metric(*stored) == pytest.approx(metric(*arrays), rel=1e-12)


def test_log_loss__refuses_a_clip_that_is_no_probability() -> None:
    for clip in (1.5, "a", None):
        with refused("bad-setting", "from 0", "clip", repr(clip)):
            log_loss(TWO, CODES, clip=clip)  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", [log_loss, accuracy, balanced_accuracy, confusion_matrix, brier_score, roc_auc])
def test_metrics__refuse_weights_that_nothing_can_be_divided_by(metric: Any) -> None:
    for weight, code in ((0.0, "no-rows"), (1e308, "overflow")):
        with refused(code, "weights"):  # type: ignore[arg-type]
            metric(np.repeat(TWO, 3, axis=0), np.repeat(CODES, 3), np.full(3 * len(CODES), weight))


def test_roc_auc__refuses_an_unknown_average() -> None:
    with refused("unknown-name", "'micro'", '"macro"', '"weighted"', "average"):
        roc_auc(TWO, CODES, average="micro")  # type: ignore[arg-type]
