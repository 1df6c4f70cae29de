import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as oracle
from support.errors import refused

from protodask.engine import Engine, array_source, thread_engine
from protodask.evaluation.stream import Bins, Watch
from protodask.explain.report.statistics import RowStatistics, assess, row_statistics
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]


def arrays(model: PrototypeSet, n_rows: int, *, weighted: bool, classes: int | None = None) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    found: dict[str, Any] = {
        "features": rng.normal(size=(n_rows, model.n_features)),
        "target": rng.integers(0, classes or model.n_classes, n_rows).astype(np.int32),
    }
    if weighted:
        found["weight"] = rng.choice([0.0, 0.5, 1.0, 4.0], n_rows)
    return found


def statistics(
    engine: Engine, model: PrototypeSet, rows: dict[str, Any], block_rows: int = 128, n_batches: int | None = None
) -> RowStatistics:
    (count,) = model.batch_counts(n_batches)
    watch = Watch(model, count, (), Bins(np.zeros(0), by_value=False), np.arange(model.n_classes))
    return row_statistics(engine, array_source(rows, block_rows), watch)


@pytest.mark.parametrize("n_classes", [2, 3, 12])
@pytest.mark.parametrize("weighted", [False, True])
def test_assess__agrees_with_scikit_learn(
    n_classes: int, weighted: bool, make_model: MakeModel, engine: Engine
) -> None:
    model = make_model(0, prototypes=(20, 10), n_classes=n_classes)
    rows = arrays(model, 700, weighted=weighted)
    found = {metric.name: metric for metric in assess(statistics(engine, model, rows), model.marginals).metrics}
    weight = rows.get("weight", np.ones(700))
    kept = weight > 0
    target, weight = rows["target"][kept], weight[kept]
    probability = probabilities(model.scores(rows["features"], [2])[0])[kept]
    hot = np.eye(n_classes)[target]
    guess = np.tile(model.marginals, (len(target), 1))
    half = 0.5 if n_classes == 2 else 1.0
    classes = np.arange(n_classes)

    def brier(p: np.ndarray[Any, Any]) -> float:
        return half * float(np.average(np.square(p - hot).sum(axis=1), weights=weight))

    def right(p: np.ndarray[Any, Any]) -> dict[str, float]:
        said = p.argmax(axis=1)
        recall = oracle.recall_score(target, said, labels=classes, average="macro", sample_weight=weight)
        return {
            "accuracy": oracle.accuracy_score(target, said, sample_weight=weight),
            "balanced accuracy": recall,
            "log-loss": oracle.log_loss(target, p, sample_weight=weight, labels=classes),
            "Brier score": brier(p),
        }

    for name, value in right(probability).items():
        assert found[name].estimate.value == pytest.approx(value, rel=1e-6), name
    for name, value in right(guess).items():
        assert found[name].baseline == pytest.approx(value, rel=1e-9), name
    scores = probability[:, 1] if n_classes == 2 else probability
    area = (
        oracle.roc_auc_score(target, scores, sample_weight=weight)
        if n_classes == 2
        else np.mean([oracle.roc_auc_score(target == k, scores[:, k], sample_weight=weight) for k in classes])
    )
    assert found["ROC AUC"].estimate.value == pytest.approx(area, rel=1e-6)
    for metric in found.values():
        estimate = metric.estimate
        if metric.has_interval:
            assert estimate.low < estimate.value < estimate.high


@pytest.mark.parametrize("block_rows", [8, 64, 1024])
def test_row_statistics__do_not_depend_on_the_block_size(
    block_rows: int, make_model: MakeModel, engine: Engine
) -> None:
    model = make_model(1, prototypes=(15, 0, 4))
    rows = arrays(model, 500, weighted=True)
    found, wanted = statistics(engine, model, rows, block_rows), statistics(engine, model, rows, 256)
    np.testing.assert_array_equal(found.errors.rows, wanted.errors.rows)
    np.testing.assert_array_equal(found.errors.features, wanted.errors.features)
    np.testing.assert_array_equal(found.stream.sample.rows, wanted.stream.sample.rows)
    np.testing.assert_allclose(found.sums.confusion, wanted.sums.confusion)
    np.testing.assert_allclose(found.sums.classes.squares, wanted.sums.classes.squares)
    np.testing.assert_allclose(found.calibration.predicted, wanted.calibration.predicted)
    for metric, other in zip(
        assess(found, model.marginals).metrics, assess(wanted, model.marginals).metrics, strict=True
    ):
        assert metric.estimate.value == pytest.approx(other.estimate.value, rel=1e-6)
        assert (metric.estimate.low, metric.estimate.high) == pytest.approx(
            (other.estimate.low, other.estimate.high), rel=1e-6, nan_ok=True
        )


def test_row_statistics__keep_the_worst_errors_in_order(make_model: MakeModel, engine: Engine) -> None:
    model = make_model(2)
    rows = arrays(model, 300, weighted=True)
    rows["features"][100:200] = rows["features"][:100]  # ties, to be broken by row number
    rows["target"][100:200] = rows["target"][:100]
    rows["weight"][100:200] = rows["weight"][:100]
    found = statistics(engine, model, rows, 32).errors
    probability = probabilities(model.scores(rows["features"], [model.n_batches])[0])
    own = probability[np.arange(300), rows["target"]]
    wrong = [row for row in range(300) if rows["weight"][row] > 0 and probability[row].argmax() != rows["target"][row]]
    expected = sorted(wrong, key=lambda row: (round(float(own[row]), 9), row))[:10]
    assert found.rows.tolist() == expected
    np.testing.assert_array_equal(found.target, rows["target"][expected])
    np.testing.assert_array_equal(found.features, rows["features"][expected])
    np.testing.assert_allclose(found.own, own[expected], rtol=1e-9)


def test_row_statistics__of_a_model_without_batches_are_those_of_the_marginals(
    make_model: MakeModel, engine: Engine
) -> None:
    model = make_model(3, prototypes=())
    quality = assess(statistics(engine, model, arrays(model, 200, weighted=False)), model.marginals)
    for metric in quality.metrics[:4]:
        assert metric.estimate.value == pytest.approx(metric.baseline)


def test_assess__test_rows_may_miss_classes(make_model: MakeModel, engine: Engine) -> None:
    model = make_model(4, n_classes=6)
    quality = assess(statistics(engine, model, arrays(model, 150, weighted=False, classes=2)), model.marginals)
    assert [estimate is None for estimate in quality.recall] == [False] * 2 + [True] * 4
    assert math.isfinite(quality.describe()["balanced accuracy"])
    only = assess(statistics(engine, model, arrays(model, 150, weighted=False, classes=1)), model.marginals)
    assert math.isnan(only.describe()["ROC AUC"])
    assert "one class" in only.metrics[-1].method


def test_row_statistics__leave_the_area_out_where_it_may_not_fit(make_model: MakeModel) -> None:
    model = make_model(0)
    with thread_engine(1, memory_bytes=50_000) as small:
        found = statistics(small, model, arrays(model, 400, weighted=False))
    metric = assess(found, model.marginals).metrics[-1]
    assert math.isnan(metric.estimate.value)
    assert "memory" in metric.method


def test_row_statistics__refuse_rows_without_weight(make_model: MakeModel, engine: Engine) -> None:
    model = make_model(0)
    rows = arrays(model, 20, weighted=False) | {"weight": np.zeros(20)}
    with refused("no-rows", "positive weight"):
        statistics(engine, model, rows)
