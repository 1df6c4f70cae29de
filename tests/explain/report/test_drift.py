from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask.engine import Engine, array_source
from protodask.evaluation.stream_changes import FeatureChange
from protodask.explain.report import Content, Rows, make_content
from protodask.explain.report.drift import Drift, alarm
from protodask.explain.report.page import render_section
from protodask.prototypes.fitted import familiarity
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]
Floats = NDArray[np.float64]


def rows_of(name: str, features: Floats, target: list[int] | None, classes: Any = ("a", "b", "c")) -> Rows:
    arrays: dict[str, Any] = {"features": features}
    if target is not None:
        arrays["target"] = np.array(target, dtype=np.int32)
    return Rows(array_source(arrays, 64), name, classes if target is not None else None)


def content_of(engine: Engine, model: PrototypeSet, rows: Rows, **others: Any) -> Content:
    return make_content(model, "model", rows, np.arange(3), engine, **others)


def drift_of(content: Content) -> Drift:
    assert content.drift is not None
    return content.drift


@pytest.mark.parametrize("by", ["training", "other"])
def test_drift__against_plain_numpy(by: str, make_model: MakeModel, engine: Engine) -> None:
    model, rng = make_model(0, classes=("a", "b", "c")), np.random.default_rng(0)
    old, new = rng.normal(size=(900, 4)), rng.normal(size=(600, 4))
    new[:, 1] += 3
    new[:, 2] *= 5
    old[:, 3] = new[:, 3] = 7.0
    before, after = rows_of("old", old, [0, 1, 2] * 300), rows_of("new", new, [0, 2] * 300)
    if by == "training":
        content = content_of(engine, model, after, training=before)
    else:
        content = content_of(engine, model, before, other=after)
    found = drift_of(content)
    assert (found.before_name, found.after_name, found.alarming) == ("old", "new", 2)
    by_name = {line.change.name: line for line in content.drifts}
    for column in range(4):
        line = by_name[f"x{column}"]
        outside = (new[:, column] < old[:, column].min()) | (new[:, column] > old[:, column].max())
        assert line.change.outside == pytest.approx(outside.mean())
        pooled = np.sqrt((old[:, column].var() + new[:, column].var()) / 2)
        step = 0.0 if pooled == 0 else (new[:, column].mean() - old[:, column].mean()) / pooled
        assert line.change.step == pytest.approx(step)
        assert line.used == (column in model.active_features)
    assert {line.change.name for line in content.drifts[:2]} == {"x1", "x2"}
    assert [line.alarm for line in content.drifts[2:]] == ["none", "none"]
    for values, features in zip(found.familiarity, (old, new), strict=True):
        np.testing.assert_allclose(np.sort(values), np.sort(familiarity(model.scores(features, [2])[0])), rtol=1e-12)
    states: dict[Any, Any] = {share.label: (share.before, share.after, share.state) for share in found.class_shares}
    assert states == {
        "a": (pytest.approx(1 / 3), 0.5, ""),
        "b": (pytest.approx(1 / 3), 0.0, "vanished"),
        "c": (pytest.approx(1 / 3), 0.5, ""),
    }


def test_drift__of_classes_that_the_model_does_not_know(make_model: MakeModel, engine: Engine) -> None:
    model, features = make_model(0, classes=("a", True, "c")), np.random.default_rng(0).normal(size=(300, 4))
    other = rows_of("new", features, [0, 1] * 150, ("a", 1))
    found = drift_of(content_of(engine, model, rows_of("old", features, [0, 1, 2] * 100), other=other))
    states = {(type(share.label), share.label): share.state for share in found.class_shares}
    assert states == {(str, "a"): "", (bool, True): "vanished", (str, "c"): "vanished", (int, 1): "new"}


def test_drift__of_the_same_rows_is_none(make_model: MakeModel, engine: Engine) -> None:
    old = np.random.default_rng(0).normal(size=(500, 4))
    same = rows_of("same", old, None)
    content = content_of(engine, make_model(0), rows_of("rows", old, [0, 1] * 250), other=same)
    found = drift_of(content)
    assert found.alarming == 0
    assert found.class_shares == []
    assert {line.change.index for line in content.drifts} == {0.0}
    assert found.changes is not None
    assert found.changes.familiarity.p_value == pytest.approx(1)
    assert "have no classes" in render_section("drift", content)


@pytest.mark.slow
def test_drift__hardly_ever_alarms_where_there_is_none(make_model: MakeModel, engine: Engine) -> None:
    model, rng = make_model(0), np.random.default_rng(5)
    alarms = 0
    for _ in range(30):
        old, new = (rows_of("rows", rng.standard_t(3, size=(60, 4)), [0, 1] * 30) for _ in range(2))
        content = content_of(engine, model, new, training=old)
        alarms += any(line.alarm != "none" for line in content.drifts)
    assert alarms <= 2


@pytest.mark.parametrize("role", ["training", "other"])
def test_drift__without_rows_is_said_to_be_that(role: str, make_model: MakeModel, engine: Engine) -> None:
    rows = rows_of("some rows", np.random.default_rng(0).normal(size=(100, 4)), [0, 1] * 50)
    content = content_of(engine, make_model(0), rows, **{role: rows_of("no <rows>", np.ones((0, 4)), [])})
    assert (drift_of(content).alarming, content.drifts, drift_of(content).class_shares) == (0, [], [])
    assert "one has no rows" in render_section("drift", content)
    assert "no &lt;rows&gt;" in render_section("drift", content)


@pytest.mark.parametrize("role", ["training", "other"])
def test_drift__of_rows_without_weight_is_refused(role: str, make_model: MakeModel, engine: Engine) -> None:
    features = np.random.default_rng(0).normal(size=(100, 4))
    none = Rows(array_source({"features": features, "weight": np.zeros(100)}, 64), "none", None)
    with refused("no-rows", "positive weight"):
        content_of(engine, make_model(0), rows_of("rows", features, [0, 1] * 50), **{role: none})


def test_drift__calls_used_what_the_first_batches_look_at(make_model: MakeModel, engine: Engine) -> None:
    model = make_model(0)
    rows = rows_of("rows", np.random.default_rng(0).normal(size=(50, 4)), [0, 1] * 25)
    for count in range(model.n_batches + 1):
        content = content_of(engine, model, rows, other=rows, n_batches=count)
        wanted = {f"x{index}" for batch in model.batches[:count] for index in batch.feature_index.tolist()}
        assert {line.change.name for line in content.drifts if line.used} == wanted


@pytest.mark.parametrize(
    ("index", "significant", "outside", "beyond", "expected"),
    [
        (0.3, True, 0.0, False, "strong"),
        (0.3, False, 0.0, False, "none"),
        (0.15, True, 0.0, False, "some"),
        (0.05, True, 0.0, False, "none"),
        (0.0, False, 0.06, True, "strong"),
        (0.0, False, 0.06, False, "none"),
        (0.0, False, 0.01, True, "some"),
    ],
)
def test_alarm__asks_for_size_and_significance(
    index: float, significant: bool, outside: float, beyond: bool, expected: str
) -> None:
    change = FeatureChange("x", index, 0.5, 0.0, 0.0, 1.0, 1.0, significant, outside, beyond)
    assert alarm(change) == expected


def test_step__between_two_constants_is_infinite() -> None:
    for after, expected in ((2.0, 0.0), (3.0, np.inf), (1.0, -np.inf)):
        assert FeatureChange("x", 0.0, 1.0, 2.0, after, 0.0, 0.0, False, 0.0, False).step == expected
