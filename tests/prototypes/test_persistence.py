"""The model on disk: comes back to the last bit, and whatever is wrong with it is said."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.disk import attributes_of
from support.errors import refused
from support.models import looking_at_scores

from protodask.data.format.schema import Column
from protodask.data.places.records import hash_text
from protodask.errors import FormatError, OutputExistsError, StorageError
from protodask.prototypes import PrototypeSet, load_model
from protodask.prototypes.kernel import Knots
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.splines import SplineCalibration

MakeModel = Callable[..., PrototypeSet]
MakeCalibration = Callable[..., SplineCalibration]
SameBits = Callable[[PrototypeSet, PrototypeSet], None]


@pytest.fixture(scope="module")
def originals(
    make_model: MakeModel, make_calibration: MakeCalibration, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Models to be copied before they are damaged: writing one takes longer."""
    folder = tmp_path_factory.mktemp("originals")
    for name, model in (
        ("two batches", make_model(0)),
        ("one batch", make_model(0, n_batches=1)),
        ("calibrated", replace(make_model(0), calibration=make_calibration())),
    ):
        model.save(folder / name)
    return folder


def copied(original: Path, to: Path) -> Path:
    return Path(shutil.copytree(original, to))


@pytest.fixture
def saved(originals: Path, tmp_path: Path) -> Path:
    return copied(originals / "two batches", tmp_path / "m.zarr")


@pytest.fixture
def saved_batch(originals: Path, tmp_path: Path) -> Path:
    return copied(originals / "one batch", tmp_path / "m.zarr")


@pytest.fixture
def saved_calibration(originals: Path, tmp_path: Path) -> Path:
    return copied(originals / "calibrated", tmp_path / "m.zarr")


def write_attributes(path: Path, attributes: Any, seal: bool = True) -> None:
    """Put other attributes in place, by default with a checksum that fits them."""
    if seal and isinstance(attributes, dict):
        record = {name: value for name, value in attributes.items() if name != "checksum"}
        # As `hash_json` has it; infinities, which that refuses, are for the reader to find.
        text = json.dumps(record, sort_keys=True, separators=(",", ":"))
        attributes = {**record, "checksum": hash_text(text)}
    whole = json.loads((path / "zarr.json").read_text())
    whole["attributes"] = attributes
    (path / "zarr.json").write_text(json.dumps(whole))


@pytest.mark.parametrize("n_batches", [0, 1, 2, 4])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_save__and_load_gives_the_same_model(
    make_model: MakeModel, assert_same_bits: SameBits, tmp_path: Path, n_batches: int, precision: str
) -> None:
    model = make_model(n_batches, n_batches=n_batches, precision=precision)
    model.save(tmp_path / "m.zarr")
    found = load_model(tmp_path / "m.zarr")
    assert_same_bits(found, model)
    for name in ("classes", "feature_names", "columns", "target_name", "other_names", "precision", "provenance"):
        assert getattr(found, name) == getattr(model, name)
    assert model_fingerprint(found) == model_fingerprint(model)
    x = np.random.default_rng(0).normal(size=(5, 4))
    for one, other in zip(found.scores(x, range(n_batches + 1)), model.scores(x, range(n_batches + 1)), strict=True):
        assert one.tobytes() == other.tobytes()


def test_save__keeps_which_batches_were_trained_together(
    make_model: MakeModel, assert_same_bits: SameBits, tmp_path: Path
) -> None:
    model = make_model(0, n_batches=4, rounds=(1, 3))
    model.save(tmp_path / "m.zarr")
    assert load_model(tmp_path / "m.zarr").rounds == (1, 3)
    assert_same_bits(load_model(tmp_path / "m.zarr"), model)
    assert attributes_of(tmp_path / "m.zarr")["version"] == 1, "to older readers batches are batches"


def test_save__keeps_labels_columns_and_names_of_every_kind(make_model: MakeModel, tmp_path: Path) -> None:
    columns = (Column("größe"), Column("colour", "nominal", ("red", 3, True)))
    model = replace(
        make_model(0, n_features=4),
        classes=("a", 1, True),
        columns=columns,
        feature_names=("größe", "colour=red", "colour=3", "colour=True"),
        target_name="Ziel",
        other_names=("w", "note"),
    )
    model.save(tmp_path / "m.zarr")
    found = load_model(tmp_path / "m.zarr")
    assert [(type(label), label) for label in found.classes] == [(str, "a"), (int, 1), (bool, True)]
    assert (found.columns, found.feature_names, found.target_name) == (columns, model.feature_names, "Ziel")
    assert [type(label) for label in found.columns[1].categories] == [str, int, bool]


def test_save__keeps_which_type_tables_are_read_in(make_model: MakeModel, tmp_path: Path) -> None:
    model = replace(make_model(0), precision="float32")
    exact = replace(model, read_as="float64")
    assert (model.row_precision, exact.row_precision) == ("float32", "float64")
    assert model_fingerprint(exact) != model_fingerprint(model)
    assert model_fingerprint(replace(model, read_as="float32")) == model_fingerprint(model)
    exact.save(tmp_path / "m.zarr")
    found = load_model(tmp_path / "m.zarr")
    assert (found.read_as, found.row_precision) == ("float64", "float64")
    assert found.shrink().read_as == found.read_as
    assert replace(model, precision="float64", read_as="float32").row_precision == "float64"
    write_attributes(tmp_path / "m.zarr", {**attributes_of(tmp_path / "m.zarr"), "read_as": "float16"})
    with refused("damaged", tmp_path / "m.zarr", kind=FormatError):
        load_model(tmp_path / "m.zarr")


def test_save__of_a_fit_with_numpy_settings(make_model: MakeModel, tmp_path: Path) -> None:
    replace(make_model(0), provenance={"rows": int(np.int64(3))}).save(tmp_path / "m.zarr")
    assert load_model(tmp_path / "m.zarr").provenance == {"rows": 3}


def test_save__twice_needs_overwrite(make_model: MakeModel, assert_same_bits: SameBits, saved: Path) -> None:
    other = make_model(1)
    with refused("exists", saved, "overwrite", kind=OutputExistsError):
        other.save(saved)
    assert_same_bits(load_model(saved), make_model(0))
    other.save(saved, overwrite=True)
    assert_same_bits(load_model(saved), other)
    assert [path.name for path in saved.parent.iterdir()] == ["m.zarr"]


@pytest.mark.parametrize("kind", ["file", "folder", "dataset"])
def test_save__does_not_overwrite_what_is_no_model(make_model: MakeModel, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "m.zarr"
    if kind == "file":
        place.write_text("precious")
    elif kind == "folder":
        place.mkdir()
        (place / "notes.txt").write_text("precious")
    else:
        from protodask import sample_data

        sample_data("xor", 20, place)
    with refused("wrong-kind", place, "not a protodask model", kind=OutputExistsError):
        make_model(0).save(place, overwrite=True)
    assert place.read_text() == "precious" if kind == "file" else len(list(place.iterdir())) > 0


def test_save__that_fails_leaves_nothing(make_model: MakeModel, tmp_path: Path) -> None:
    broken = replace(make_model(0), provenance={"what": object()})
    with pytest.raises(TypeError):
        broken.save(tmp_path / "m.zarr")
    assert list(tmp_path.iterdir()) == []


def test_load__of_nothing_says_so(tmp_path: Path) -> None:
    with refused("not-found", tmp_path / "m.zarr", kind=StorageError):
        load_model(tmp_path / "m.zarr")


@pytest.mark.parametrize("kind", ["file", "folder", "dataset"])
def test_load__of_what_is_no_model_says_so(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "m.zarr"
    if kind == "file":
        place.write_text("text")
    elif kind == "folder":
        place.mkdir()
    else:
        from protodask import sample_data

        sample_data("xor", 20, place)
    with refused("wrong-kind", place, "`fit()`", kind=FormatError):
        load_model(place)


def test_load__of_a_newer_version_asks_for_an_upgrade(saved: Path) -> None:
    write_attributes(saved, {**attributes_of(saved), "version": 7})
    with refused("newer-format", "version 7", "up to 6", kind=FormatError):
        load_model(saved)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_batches", [0, 2])
def test_save__keeps_a_calibration_to_the_last_bit(
    make_model: MakeModel, make_calibration: MakeCalibration, tmp_path: Path, n_classes: int, n_batches: int
) -> None:
    calibration = make_calibration(n_classes, n_batches=n_batches, n_classes=n_classes)
    model = replace(make_model(0, n_classes=n_classes), calibration=calibration)
    model.save(tmp_path / "m.zarr")
    found = load_model(tmp_path / "m.zarr")
    assert found.calibration is not None
    for name in ("n_batches", "n_bins", "monotone", "rows", "weight"):
        assert getattr(found.calibration, name) == getattr(calibration, name)
    for one, other in zip(found.calibration.splines, calibration.splines, strict=True):
        assert one.score.tobytes() == other.score.tobytes()
        assert one.outcome.tobytes() == other.outcome.tobytes()
    assert model_fingerprint(found) == model_fingerprint(model)
    assert attributes_of(tmp_path / "m.zarr")["version"] == 2


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize(("levels", "version"), [(False, 3), (True, 6)])
def test_save__keeps_normal_scores_and_levels_to_the_last_bit(
    make_model: MakeModel,
    make_calibration: MakeCalibration,
    tmp_path: Path,
    calibrated: bool,
    levels: bool,
    version: int,
) -> None:
    model = looking_at_scores(make_model(0, calibration=make_calibration(0) if calibrated else None), levels)
    model.save(tmp_path / "m.zarr")
    found = load_model(tmp_path / "m.zarr")
    assert attributes_of(tmp_path / "m.zarr")["version"] == version, "readers that know none must not take it"
    knots, kept = model.batches[0].knots, found.batches[0].knots
    assert knots is not None
    assert kept is not None
    assert [kept.is_level(place) for place in kept.places] == [False, *[True] * levels]
    assert found.batches[0].forms == model.batches[0].forms
    assert (kept.values.tobytes(), kept.scores.tobytes()) == (knots.values.tobytes(), knots.scores.tobytes())
    assert found.batches[1].knots is None
    assert model_fingerprint(found) == model_fingerprint(model)
    assert model_fingerprint(found) != model_fingerprint(make_model(0))
    x = np.random.default_rng(0).normal(size=(5, model.n_features))
    assert found.scores(x, [2])[0].tobytes() == model.scores(x, [2])[0].tobytes()


@pytest.mark.parametrize("with_scores", [False, True])
def test_save__keeps_what_missing_values_count_as(make_model: MakeModel, tmp_path: Path, with_scores: bool) -> None:
    model = looking_at_scores(make_model(0), levels=False) if with_scores else make_model(0)
    columns = (*model.columns[:-1], replace(model.columns[-1], filled=0.1))
    replace(model, columns=columns).save(tmp_path / "m.zarr")
    assert load_model(tmp_path / "m.zarr").columns == columns
    assert attributes_of(tmp_path / "m.zarr")["version"] == 4, "readers that know no missing values must not take it"


def test_load__refuses_a_level_of_what_is_as_it_is(make_model: MakeModel, tmp_path: Path) -> None:
    model = looking_at_scores(make_model(0))
    batch = model.batches[0]
    assert batch.knots is not None
    levels = np.arange(batch.n_features) == batch.n_features - 1
    wrong = replace(batch, knots=replace(batch.knots, levels=levels))
    replace(model, batches=(wrong, *model.batches[1:])).save(tmp_path / "m.zarr")
    with refused("damaged", kind=FormatError):
        load_model(tmp_path / "m.zarr")


@pytest.fixture(scope="module")
def saved_with_scores(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("scores") / "m.zarr"
    looking_at_scores(make_model(0)).save(place)
    load_model(place)
    return place


@pytest.mark.parametrize(
    ("field", "counts"),
    [
        *(("knots", counts) for counts in ([5], [5, -1], [5, True], "5", [10**9, 0], [0, 0], [4, 0], None)),
        *(("levels", counts) for counts in ([1], [2, 0], [0, 0], [0, 1], [-1, 0], [True, 0], "1", [10**12, 0], None)),
    ],
)
def test_load__refuses_knots_and_levels_that_are_not_those_of_the_batches(
    saved_with_scores: Path, field: str, counts: Any
) -> None:
    known = attributes_of(saved_with_scores)
    try:
        write_attributes(saved_with_scores, {**known, field: counts})
        with refused("damaged", kind=FormatError):
            load_model(saved_with_scores)
    finally:
        write_attributes(saved_with_scores, known)


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        ([0.0, 2.0, 1.0], [0.0, 1.0, 2.0]),
        ([0.0, 1.0, 2.0], [0.0, 2.0, 1.0]),
        ([0.0, np.inf, np.inf], [0.0, 1.0, 2.0]),
        ([0.0, np.nan, 2.0], [0.0, 1.0, 2.0]),
        ([0.0, 1.0, 2.0], [np.nan] * 3),
        ([np.nan] * 3, [np.nan] * 3),
    ],
    ids=["values fall", "scores fall", "infinite", "half known", "no scores", "the same form twice"],
)
def test_load__refuses_scores_that_make_no_sense(
    make_model: MakeModel, tmp_path: Path, values: list[float], scores: list[float]
) -> None:
    model = looking_at_scores(make_model(0))
    batch = model.batches[0]
    assert batch.knots is not None
    pair = np.stack([batch.knots.values[:, :3], batch.knots.scores[:, :3]])
    pair[:, 1] = values, scores
    replace(model, batches=(replace(batch, knots=Knots(*pair)), *model.batches[1:])).save(tmp_path / "m.zarr")
    with refused("damaged", kind=FormatError):
        load_model(tmp_path / "m.zarr")


def test_save__of_a_model_without_calibration_is_what_older_readers_know(saved: Path) -> None:
    record = attributes_of(saved)
    assert record["version"] == 1
    assert "calibration" not in record


@pytest.mark.parametrize(
    "change",
    [
        {"n_batches": 3},
        {"n_batches": -1},
        {"n_batches": True},
        {"n_bins": 0},
        {"monotone": 1},
        {"rows": 0},
        {"weight": "many"},
        {"splines": []},
        {"splines": {}},
        {"splines": [{"points": 1, "score": [0.5], "outcome": [0.5]}]},
        {"splines": [{"points": 0, "score": [], "outcome": []}] * 3},
        {"splines": [{"points": 2, "score": [0.5], "outcome": [0.5]}] * 3},
        {"splines": [{"points": 2, "score": [0.5, 0.5], "outcome": [0.5, 0.5]}] * 3},
        {"splines": [{"points": 2, "score": [0.5, 0.4], "outcome": [0.5, 0.5]}] * 3},
        {"splines": [{"points": 1, "score": [0.5], "outcome": [1.5]}] * 3},
        {"splines": [{"points": 1, "score": [0.5], "outcome": [-0.5]}] * 3},
        {"splines": [{"points": 1, "score": [None], "outcome": [0.5]}] * 3},
        {"splines": [7, 7, 7]},
        "text",
        [],
    ],
)
def test_load__refuses_a_calibration_that_makes_no_sense(saved_calibration: Path, change: Any) -> None:
    record = attributes_of(saved_calibration)
    changed = {**record["calibration"], **change} if isinstance(change, dict) else change
    write_attributes(saved_calibration, {**record, "calibration": changed})
    with refused("damaged", kind=FormatError):
        load_model(saved_calibration)


def test_load__finds_a_calibration_that_was_changed_or_removed(saved_calibration: Path) -> None:
    record = attributes_of(saved_calibration)
    moved = json.loads(json.dumps(record))
    moved["calibration"]["splines"][0]["outcome"][0] = 0.123
    for changed in (moved, {name: value for name, value in record.items() if name != "calibration"}):
        write_attributes(saved_calibration, changed, seal=False)
        with refused("damaged", "checksum", kind=FormatError):
            load_model(saved_calibration)


def files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def assert_damage_is_found(path: Path, original: PrototypeSet, same: SameBits) -> None:
    """Either the damage is said to be one, or it is none: the model is the same."""
    try:
        found = load_model(path)
    except (FormatError, StorageError):
        return
    same(found, original)
    assert (found.feature_names, found.columns, found.provenance) == (
        original.feature_names,
        original.columns,
        original.provenance,
    )


def test_load__finds_a_flipped_bit_in_any_file(make_model: MakeModel, assert_same_bits: SameBits, saved: Path) -> None:
    rng, original = np.random.default_rng(0), make_model(0)
    for file in files_of(saved):
        content = file.read_bytes()
        for _ in range(4):
            damaged = bytearray(content)
            damaged[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
            file.write_bytes(damaged)
            assert_damage_is_found(saved, original, assert_same_bits)
        file.write_bytes(content)
    assert_same_bits(load_model(saved), original)


def test_load__finds_every_flipped_bit_in_the_numbers(saved_batch: Path) -> None:
    chunks = [file for file in files_of(saved_batch) if file.name != "zarr.json"]
    assert len(chunks) == 8
    for file in chunks:
        content = file.read_bytes()
        for position in range(0, len(content), 5):
            damaged = bytearray(content)
            damaged[position] ^= 4
            file.write_bytes(damaged)
            with refused("damaged", saved_batch, "Fit the model again, or restore it from a copy", kind=FormatError):
                load_model(saved_batch)
        file.write_bytes(content)


def test_load__finds_files_that_are_short_or_gone(
    make_model: MakeModel, assert_same_bits: SameBits, saved_batch: Path
) -> None:
    saved, original = saved_batch, make_model(0, n_batches=1)
    # What says that the folder of a batch is a group is there for other readers of Zarr.
    needed = [file for file in files_of(saved) if file.parent.parent != saved]
    assert len(needed) == 1 + 2 * 8
    for file in needed:
        content = file.read_bytes()
        for length in (0, 1, len(content) // 2, len(content) - 1):
            file.write_bytes(content[:length])
            with pytest.raises((FormatError, StorageError)):
                load_model(saved)
        file.unlink()
        with pytest.raises((FormatError, StorageError)):
            load_model(saved)
        file.write_bytes(content)
    assert_same_bits(load_model(saved), original)


def test_load__finds_batches_that_were_swapped(saved: Path) -> None:
    # Give both batches one size, so that only their digest tells them apart.
    shutil.rmtree(saved / "batch-2")
    shutil.copytree(saved / "batch-1", saved / "batch-2")
    record = attributes_of(saved)
    write_attributes(saved, {**record, "batches": [record["batches"][0]] * 2})
    with refused("damaged", saved, "are not those that were saved", kind=FormatError):
        load_model(saved)


def test_load__finds_attributes_changed_without_their_checksum(saved: Path) -> None:
    record = attributes_of(saved)
    write_attributes(saved, {**record, "target_name": "other"}, seal=False)
    with refused("damaged", "checksum", kind=FormatError):
        load_model(saved)


HOSTILE = [
    ("version", "1"),
    ("version", True),
    ("version", 0),
    ("version", None),
    ("version", 10**30),
    ("marginals", [0.5, 0.5]),
    ("marginals", [0.5, 0.6, 0.7]),
    ("marginals", [1.5, -0.5, 0.0]),
    ("marginals", ["a", "b", "c"]),
    ("marginals", [[1.0], 0, 0]),
    ("marginals", 10**400),
    ("classes", []),
    ("classes", ["a"]),
    ("classes", ["a", "a", "b"]),
    ("classes", "abc"),
    ("classes", [1.5, 2, 3]),
    ("classes", [None, 2, 3]),
    ("feature_names", ["x0"]),
    ("feature_names", [0, 1, 2, 3]),
    ("columns", []),
    ("columns", [{"name": "x0", "kind": "weird", "categories": []}]),
    ("columns", "x"),
    ("target_name", None),
    ("other_names", {}),
    ("precision", "float16"),
    ("precision", None),
    ("rounds", [3]),
    ("rounds", [1]),
    ("rounds", [0, 2]),
    ("rounds", [-1, 3]),
    ("rounds", [True, 1]),
    ("rounds", [1.0, 1]),
    ("rounds", "2"),
    ("rounds", 2),
    ("rounds", None),
    ("batches", {}),
    ("batches", [[3, 5]]),
    ("batches", [[3, 5], [3, 6], [1, 1]]),
    ("batches", [[-1, 5], [3, 6]]),
    ("batches", [[10**9, 10**9], [3, 6]]),
    ("batches", [[3, 10**12], [3, 6]]),
    ("batches", [[0, 10**15], [3, 6]]),
    ("batches", [[True, 5], [3, 6]]),
    ("batches", [["3", "5"], [3, 6]]),
    ("batches", [[3, 5, 1], [3, 6]]),
    ("batches", [3, 6]),
    ("digest", ""),
    ("digest", 7),
    ("provenance", []),
    ("provenance", None),
]


@pytest.mark.parametrize(("name", "value"), HOSTILE)
def test_load__refuses_attributes_that_make_no_sense(saved: Path, name: str, value: Any) -> None:
    write_attributes(saved, {**attributes_of(saved), name: value})
    with pytest.raises(FormatError) as error:
        load_model(saved)
    assert error.value.remedy


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
TEXTS = st.text(max_size=5)
SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "version": st.integers(1, 2),
    "classes": st.lists(st.one_of(TEXTS, st.integers(), st.booleans()), min_size=3, max_size=3),
    "target_name": TEXTS,
    "other_names": st.lists(TEXTS, max_size=3),
    "precision": st.sampled_from(["float32", "float64"]),
    "provenance": st.dictionaries(TEXTS, JSON_VALUES, max_size=3),
}
"""Values of fields that a model may have; not all of them, as classes of one name are none."""


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    """A value like the one given, in which something is another one."""
    if draw(st.booleans()) and value and isinstance(value, list | dict):
        place = draw(st.sampled_from(range(len(value)) if isinstance(value, list) else sorted(value)))
        changed = value.copy()
        changed[place] = draw(altered(value[place]))
        return changed
    return draw(JSON_VALUES)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_load__of_any_json_gives_a_model_or_an_error_of_ours(
    saved: Path, assert_same_bits: SameBits, data: st.DataObject
) -> None:
    before = (saved / "zarr.json").read_bytes()
    record = attributes_of(saved)
    name = data.draw(st.sampled_from([*SENSIBLE, *(name for name in record if name not in ("checksum", "format"))]))
    value = data.draw(st.one_of(SENSIBLE.get(name, st.nothing()), altered(record[name])))
    try:
        write_attributes(saved, {**record, name: value})
        found = load_model(saved)
    except FormatError:
        event("refused")
    else:
        event("loaded")
        again = saved.parent / "again.zarr"
        found.save(again, overwrite=True)
        assert_same_bits(load_model(again), found)
        assert load_model(again).provenance == found.provenance
        assert np.isfinite(found.scores(np.zeros((1, 4)), [2])[0]).all()
    finally:
        (saved / "zarr.json").write_bytes(before)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_load__refuses_numbers_that_are_not_json(saved: Path, number: float) -> None:
    write_attributes(saved, {**attributes_of(saved), "provenance": {"loss": number}})
    with refused("wrong-kind", saved, kind=FormatError):
        load_model(saved)


def test_load__of_json_nested_too_deeply_says_it_is_no_model(saved: Path) -> None:
    (saved / "zarr.json").write_text("[" * 100_000 + "]" * 100_000)
    with refused("wrong-kind", saved, kind=FormatError):
        load_model(saved)


def test_load__refuses_indices_beyond_the_features_or_classes(make_model: MakeModel, tmp_path: Path) -> None:
    # The checksums fit: such a file was made so on purpose, and must not end in an IndexError at its first use.
    model = make_model(0)
    damage: tuple[dict[str, Any], ...] = (
        {"feature_index": np.array([0, 1, 99])},
        {"feature_index": np.array([-1, 1, 2])},
        {"prototype_class": np.array([0, 0, 1, 1, 77])},
        {"prototype_class": np.array([-1, 0, 1, 1, 2])},
        {"feature_weight": np.array([1.0, np.nan, 1.0])},
        {"prototype_weight": np.array([1.0, 1.0, 1.0, 1.0, -2.0])},
        {"scale": np.zeros(3)},
    )
    for position, changes in enumerate(damage):
        broken = replace(model, batches=(replace(model.batches[0], **changes),))
        broken.save(tmp_path / f"{position}.zarr")
        with refused("damaged", kind=FormatError):
            load_model(tmp_path / f"{position}.zarr")


def test_model_fingerprint__depends_on_what_is_computed_alone(
    make_model: MakeModel, make_calibration: MakeCalibration
) -> None:
    model = make_model(0)
    print_of = model_fingerprint(model)
    assert model_fingerprint(replace(model, provenance={}, target_name="y")) == print_of
    moved = model.batches[0].prototypes.copy()
    moved[0, 0] = np.nextafter(moved[0, 0], 9)
    for other in (
        replace(model, precision="float32"),
        replace(model, classes=("x", "y", "z")),
        replace(model, marginals=model.marginals[::-1]),
        replace(model, batches=model.batches[::-1]),
        replace(model, batches=model.batches[:1]),
        replace(model, batches=(replace(model.batches[0], prototypes=moved), model.batches[1])),
        replace(model, calibration=make_calibration(0)),
    ):
        assert model_fingerprint(other) != print_of
    one, other = (replace(model, calibration=make_calibration(seed)) for seed in (0, 2))
    assert model_fingerprint(one) != model_fingerprint(other)
    assert model_fingerprint(one) == model_fingerprint(replace(model, calibration=make_calibration(0)))
