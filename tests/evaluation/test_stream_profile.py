import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.errors import refused
from support.models import make_model

from protodask.data.places.records import seal
from protodask.engine import array_source, thread_engine
from protodask.errors import FormatError
from protodask.evaluation.stream import Watch, learn_bins, watch_stream
from protodask.evaluation.stream_changes import calibration_error, calibration_table
from protodask.evaluation.stream_profile import StreamProfile, make_profile, profile_record, read_profile
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import predict_features


@pytest.fixture(scope="module")
def model() -> PrototypeSet:
    return make_model(prototypes=(8,), classes=("a", True), feature_names=("x", "y.z"), n_active=2)


def rows(n_rows: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "features": np.column_stack([rng.normal(size=n_rows), rng.integers(0, 2, n_rows)]),
        "target": rng.integers(0, 3, n_rows).astype(np.int32),
    }


@pytest.fixture(scope="module")
def profile(model: PrototypeSet) -> StreamProfile:
    return profile_of(model, rows())


def profile_of(model: PrototypeSet, arrays: dict[str, Any]) -> StreamProfile:
    with thread_engine(1) as engine:
        source = array_source(arrays)
        features, familiarity = learn_bins(engine, source, model, 1)
        watch = Watch(model, 1, features, familiarity, np.arange(3), ("new",))
        found = watch_stream(engine, source, watch)
    return make_profile(found, watch, "f" * 8)


def test_profile_record__is_read_as_it_was_written(profile: StreamProfile) -> None:
    record = profile_record(profile)
    read = read_profile({"profile": json.loads(json.dumps(record))}, "here")
    assert profile_record(read) == record
    assert read.classes == ("a", True)
    assert read.unknown == ("new",)
    assert read.log_loss == profile.log_loss


def test_profile__counts_rows_by_what_they_weigh(model: PrototypeSet) -> None:
    weight = np.linspace(0.1, 3, 400)
    found = profile_of(model, {**rows(), "weight": weight})
    assert found.rows == 400
    assert found.weight == pytest.approx(weight.sum())
    assert found.effective_rows == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert found.effective_rows < 320


def test_profile_record__of_rows_without_classes_is_read_as_it_was_written(profile: StreamProfile) -> None:
    record = profile_record(replace(profile, outcomes=None))
    read = read_profile({"profile": json.loads(json.dumps(record))}, "here")
    assert read.outcomes is None
    assert profile_record(read) == record


def test_profile_record__of_many_features_has_a_bounded_size(profile: StreamProfile) -> None:
    feature = json.dumps(profile_record(profile)["features"][0])
    assert len(feature) < 1200


def _without_checksum(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "checksum"}


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(weight=0),
        lambda record: record.update(rows=0),
        lambda record: record.update(classes=["a"]),
        lambda record: record.update(classes=["a", "a"]),
        lambda record: record.update(familiarity_counts=[1.0]),
        lambda record: record.update(familiarity_points=list(range(100))),
        lambda record: record.update(predicted=[-1.0, 401.0]),
        lambda record: record["features"][0].update(points=[2.0, 1.0]),
        lambda record: record["features"][0].update(points=[]),
        lambda record: record["features"][0]["points"].reverse(),
        lambda record: record["familiarity_points"].reverse(),
        lambda record: record["features"][0].update(counts=None),
        lambda record: record["features"][0].update(by_value=1),
        lambda record: record["outcomes"].update(calibration=[]),
        lambda record: record.update(outcomes=[]),
        lambda record: record.update(features=[1]),
    ],
)
def test_read_profile__refuses_what_is_damaged(profile: StreamProfile, change: Change) -> None:
    record = json.loads(json.dumps(_without_checksum(profile_record(profile))))
    change(record)
    with refused("damaged", "here", kind=FormatError):
        read_profile({"profile": seal(record, "profile")}, "here")


def test_read_profile__refuses_what_was_changed_and_what_is_none(profile: StreamProfile) -> None:
    record = profile_record(profile) | {"rows": 5}
    with refused("damaged", "checksum", "here", kind=FormatError):
        read_profile({"profile": record}, "here")
    contents: list[object] = [[], {"profile": None}, {"profile": {"format": "other"}}, None]
    for content in contents:
        with refused("wrong-kind", "here", "protodask monitor", kind=FormatError):
            read_profile(content, "here")
    newer = seal(_without_checksum(profile_record(profile)) | {"version": 3}, "profile")
    with refused("newer-format", "here", "version 3", "up to 2", kind=FormatError):
        read_profile({"profile": newer}, "here")


def test_calibration_error__against_plain_numpy(profile: StreamProfile, model: PrototypeSet) -> None:
    assert profile.outcomes is not None
    own = rows()
    ((p, _),) = predict_features(own["features"], model, [1])
    errors = []
    for position in range(2):
        bins = np.minimum((p[:, position] * 10).astype(int), 9)
        outcome = own["target"] == position
        errors.append(
            sum(abs(p[bins == b, position].sum() - outcome[bins == b].sum()) for b in range(10)) / len(outcome)
        )
    found = calibration_error(profile.outcomes)
    assert found.value == pytest.approx(np.mean(errors))
    table = calibration_table(profile.outcomes, profile.classes)
    assert [entry["label"] for entry in table] == ["a", True]
    assert sum(entry["share_of_rows"] for entry in table[0]["bins"]) == pytest.approx(1)


def test_calibration_error__has_about_the_standard_error_that_is_said(model: PrototypeSet) -> None:
    rng = np.random.default_rng(2)
    found = []
    with thread_engine(1) as engine:
        for _ in range(60):
            features = rng.normal(size=(400, 2))
            ((p, _),) = predict_features(features, model, [1])
            # Far from calibrated, so that the differences keep their signs.
            target = (rng.random(400) < 0.5 * p[:, 1]).astype(np.int32)
            source = array_source({"features": features, "target": target})
            bins, familiarity = learn_bins(engine, source, model, 1)
            watch = Watch(model, 1, bins, familiarity, np.arange(2))
            made = make_profile(watch_stream(engine, source, watch), watch, "")
            assert made.outcomes is not None
            found.append(calibration_error(made.outcomes))
    spread = np.std([one.value for one in found])
    assert 0.7 < float(np.mean([one.standard_error for one in found])) / spread < 1.5


def test_read_profile__file_of_a_command_is_a_reference(profile: StreamProfile, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"kind": "monitor", "profile": profile_record(profile)}))
    assert read_profile(json.loads(path.read_text()), str(path)).rows == 400


def test_read_profile__of_version_1_takes_rows_of_all_bins_to_weigh_alike() -> None:
    path = Path(__file__).parent.parent / "formats" / "one-profile.json"
    read = read_profile(json.loads(path.read_text()), str(path))
    assert (read.rows, read.weight, read.classes, read.unknown) == (60, 120.0, ("a", True), ("new",))
    outcomes = read.outcomes
    assert outcomes is not None
    assert outcomes.labels.weight.tolist() == [34.0, 53.0, 33.0]
    for sums in (outcomes.labels, read.predicted, read.familiarity_counts, *(one.counts for one in read.features)):
        assert sums.rows == pytest.approx(40)
        np.testing.assert_allclose(sums.squares, 3 * sums.weight)
    weight, squares, _, outcome, own = outcomes.calibration
    np.testing.assert_allclose(own, 3 * outcome)
    assert squares.sum(axis=1) == pytest.approx([3 * weight[0].sum()] * 2, rel=0.2)
    assert calibration_error(outcomes).standard_error > 0
    assert profile_record(read)["version"] == 2
