"""The robust model on disk: comes back to the last bit, and whatever is wrong with it is said."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.disk import attributes_of
from support.errors import refused

from protodask import load_model
from protodask.data.format.schema import Column
from protodask.data.places.records import hash_json
from protodask.errors import FormatError, OutputExistsError, StorageError
from protodask.prototypes import PrototypeSet
from protodask.robust import RobustConfig, RobustModel, load_robust_model
from protodask.robust.model import PLANE_ARRAYS, robust_fingerprint


def make_model(n_classes: int = 3, n_features: int = 3, seed: int = 0) -> RobustModel:
    random = np.random.default_rng(seed)
    planes = 1 if n_classes == 2 else n_classes
    objective = random.uniform(1, 2, planes)
    names = [f"x{number}" for number in range(n_features)]
    return RobustModel(
        weights=random.normal(size=(planes, n_features)),
        intercept=random.normal(size=planes),
        classes=tuple("abcdef"[:n_classes]),
        features=tuple(names),
        columns=tuple(Column(f"{name}.{part}") for name in names for part in ("low", "high")),
        config=RobustConfig("SBMV-I", eps=0.05, C=0.1 + 0.2, gap=1e-3),
        objective=objective,
        lower_bound=objective * 0.9995,
        passes=tuple(range(3, 3 + planes)),
        provenance={"rows": 7, "planes": [{"status": "converged"}]},
    )


def assert_same(found: RobustModel, model: RobustModel) -> None:
    for name, value in vars(model).items():
        other = getattr(found, name)
        if isinstance(value, np.ndarray):
            assert other.tobytes() == value.tobytes()
            assert (other.shape, other.dtype) == (value.shape, value.dtype)
        else:
            assert other == value


def write_attributes(path: Path, attributes: dict[str, Any], seal: bool = True) -> None:
    """Put other attributes in place, by default with a checksum that fits them."""
    if seal:
        record = {name: value for name, value in attributes.items() if name != "checksum"}
        attributes = {**record, "checksum": hash_json(record)}
    whole = json.loads((path / "zarr.json").read_text())
    whole["attributes"] = attributes
    (path / "zarr.json").write_text(json.dumps(whole))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("saved") / "m.zarr"
    make_model().save(place)
    return place


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    """A model that was saved, for the test alone."""
    return Path(shutil.copytree(original, tmp_path / "m.zarr"))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_save__and_load_gives_the_same_model(tmp_path: Path, n_classes: int) -> None:
    model = make_model(n_classes)
    model.save(tmp_path / "m.zarr")
    found = load_robust_model(tmp_path / "m.zarr")
    assert_same(found, model)
    assert robust_fingerprint(found) == robust_fingerprint(model)


def test_save__keeps_labels_columns_and_names_of_every_kind(tmp_path: Path) -> None:
    columns = (Column("größe.low"), Column("größe.high"), Column("colour", "nominal", ("red", True)))
    model = replace(
        make_model(),
        classes=("a", 1, True),
        columns=columns,
        features=("größe", "colour=red", "colour=True"),
        target_name="Ziel",
        other_names=("w", "note"),
        precision="float32",
    )
    model.save(tmp_path / "m.zarr")
    found = load_robust_model(tmp_path / "m.zarr")
    assert_same(found, model)
    assert [type(label) for label in found.classes] == [str, int, bool]


def test_save__twice_needs_overwrite_and_takes_no_other_place(saved: Path, tmp_path: Path) -> None:
    other = make_model(2)
    with refused("exists", saved, "overwrite=True", kind=OutputExistsError):
        other.save(saved)
    assert_same(load_robust_model(saved), make_model())
    other.save(saved, overwrite=True)
    assert_same(load_robust_model(saved), other)
    PrototypeSet(np.array([0.5, 0.5]), ("a", "b"), ("x",), (Column("x"),)).save(tmp_path / "other.zarr")
    with refused("wrong-kind", tmp_path / "other.zarr", "robust model", kind=OutputExistsError):
        other.save(tmp_path / "other.zarr", overwrite=True)
    assert load_model(tmp_path / "other.zarr").classes == ("a", "b")


def test_save__that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        replace(make_model(), provenance={"what": object()}).save(tmp_path / "m.zarr")
    assert list(tmp_path.iterdir()) == []


def test_load__of_the_other_kind_of_model_says_which_it_is(saved: Path, tmp_path: Path) -> None:
    with refused("wrong-kind", saved, "robust model", "robust predict", "load_robust_model", kind=FormatError):
        load_model(saved)
    PrototypeSet(np.array([0.5, 0.5]), ("a", "b"), ("x",), (Column("x"),)).save(tmp_path / "other.zarr")
    with refused("wrong-kind", tmp_path / "other.zarr", "prototype set", "predict", "load_model", kind=FormatError):
        load_robust_model(tmp_path / "other.zarr")
    with refused("not-found", tmp_path / "nothing.zarr", kind=StorageError):
        load_robust_model(tmp_path / "nothing.zarr")
    (tmp_path / "folder").mkdir()
    with refused("wrong-kind", tmp_path / "folder", "`fit_robust()`", kind=FormatError):
        load_robust_model(tmp_path / "folder")


def test_load__of_a_newer_version_says_to_upgrade(saved: Path) -> None:
    write_attributes(saved, {**attributes_of(saved), "version": 2})
    with refused("newer-format", saved, 2, 1, kind=FormatError):
        load_robust_model(saved)


def test_load__finds_a_flipped_bit_in_any_file(saved: Path) -> None:
    random = np.random.default_rng(0)
    for file in sorted(path for path in saved.rglob("*") if path.is_file()):
        content = file.read_bytes()
        for _ in range(4):
            damaged = bytearray(content)
            damaged[random.integers(len(content))] ^= 1 << int(random.integers(8))
            file.write_bytes(damaged)
            # Where the damage does not show, there is none: the model is the same.
            with contextlib.suppress(FormatError, StorageError):
                assert_same(load_robust_model(saved), make_model())
        file.write_bytes(content)
    assert_same(load_robust_model(saved), make_model())


def test_load__finds_chunks_that_are_changed_short_or_gone(saved: Path) -> None:
    for name in PLANE_ARRAYS:
        file = saved / name / "c" / "0" / ("0" if name == "weights" else "")
        content = file.read_bytes()
        for damaged in (b"", content[:-1], bytes([content[0] ^ 4]) + content[1:], content + b"0"):
            file.write_bytes(damaged)
            with refused("damaged", saved, kind=FormatError):
                load_robust_model(saved)
        file.unlink()
        with refused("damaged", saved, kind=FormatError):
            load_robust_model(saved)
        file.write_bytes(content)
    assert_same(load_robust_model(saved), make_model())


def test_load__finds_arrays_of_another_model(saved: Path, tmp_path: Path) -> None:
    make_model(seed=1).save(tmp_path / "other.zarr")
    (tmp_path / "other.zarr" / "intercept" / "c" / "0").replace(saved / "intercept" / "c" / "0")
    with refused("damaged", saved, "arrays", kind=FormatError):
        load_robust_model(saved)


@pytest.mark.parametrize("name", PLANE_ARRAYS)
def test_load__refuses_numbers_that_are_not_finite(tmp_path: Path, name: str) -> None:
    # The checksums fit: such a file was made so on purpose.
    values = getattr(make_model(), name).copy()
    values.flat[0] = np.nan
    model: Any = replace(make_model(), **{name: values})
    model.save(tmp_path / "m.zarr")
    with refused("damaged", tmp_path / "m.zarr", "finite", kind=FormatError):
        load_robust_model(tmp_path / "m.zarr")


CONFIG = make_model().config.as_dict()

HOSTILE = [
    ("version", True),
    ("version", 0),
    ("classes", ["a"]),
    ("classes", ["a", "b"]),
    ("classes", ["a", "b", "c", "d"]),
    ("classes", [1.5, 2, 3]),
    ("columns", []),
    ("features", []),
    ("features", ["x0", "x1"]),
    ("features", ["x"] * 7),
    ("features", [0, 1, 2]),
    ("passes", [1]),
    ("passes", [1, 2, -3]),
    ("passes", [1, 2, 3.5]),
    ("passes", None),
    ("precision", "float16"),
    ("target_name", None),
    ("provenance", []),
    ("digest", "0"),
    ("config", None),
    ("config", []),
    ("config", {}),
    ("config", {**CONFIG, "more": 1}),
    ("config", {**CONFIG, "formulation": "SVN"}),
    ("config", {**CONFIG, "formulation": 3}),
    ("config", {**CONFIG, "eps": 2}),
    ("config", {**CONFIG, "eps": "0.1"}),
    ("config", {**CONFIG, "C": 10**400}),
    ("config", {**CONFIG, "C": -1}),
    ("config", {**CONFIG, "gap": None}),
    ("config", {**CONFIG, "max_passes": 1.5}),
    ("config", {**CONFIG, "weighted": 1}),
]


@pytest.mark.parametrize(("name", "value"), HOSTILE)
def test_load__refuses_attributes_that_make_no_sense(saved: Path, name: str, value: Any) -> None:
    write_attributes(saved, {**attributes_of(saved), name: value})
    with refused("damaged", saved, kind=FormatError):
        load_robust_model(saved)


def test_load__refuses_attributes_that_json_does_not_know(saved: Path) -> None:
    # Python writes and reads them; other programs do not.
    for value in (np.inf, -np.inf, np.nan):
        write_attributes(saved, {**attributes_of(saved), "provenance": {"seconds": value}}, seal=False)
        with refused("wrong-kind", saved, kind=FormatError):
            load_robust_model(saved)


def test_load__finds_attributes_changed_without_their_checksum(saved: Path) -> None:
    write_attributes(saved, {**attributes_of(saved), "target_name": "other"}, seal=False)
    with refused("damaged", saved, "checksum", kind=FormatError):
        load_robust_model(saved)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES, data=st.data())
def test_load__of_any_json_gives_a_model_or_an_error_of_ours(saved: Path, value: Any, data: st.DataObject) -> None:
    before = (saved / "zarr.json").read_bytes()
    record = attributes_of(saved)
    name = data.draw(st.sampled_from([name for name in record if name not in ("checksum", "format")]))
    try:
        write_attributes(saved, {**record, name: value})
        with contextlib.suppress(FormatError):
            load_robust_model(saved)
    finally:
        (saved / "zarr.json").write_bytes(before)


def test_robust_fingerprint__tells_models_apart() -> None:
    model = make_model()
    moved = model.weights.copy()
    moved[0, 0] = np.nextafter(moved[0, 0], 9)
    others = [
        replace(model, weights=moved),
        replace(model, intercept=-model.intercept),
        replace(model, lower_bound=model.lower_bound * 0.9),
        replace(model, classes=("a", "b", "d")),
        replace(model, columns=tuple(Column(name) for name in model.features)),
        replace(model, config=replace(model.config, eps=0.06)),
        replace(model, precision="float32"),
    ]
    prints = {robust_fingerprint(one) for one in (model, *others)}
    assert len(prints) == 1 + len(others)
    assert robust_fingerprint(replace(model, provenance={}, target_name="y")) == robust_fingerprint(model)
