"""Decisions on stored predictions: those of arrays, in Zarr and Parquet, whole or not at all."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zarr
from numpy.typing import NDArray
from support.errors import refused

from protodask.data.arrays.array_store import ArrayStore
from protodask.data.arrays.plain_arrays import ArraySpec
from protodask.data.places.locations import open_store
from protodask.data.places.records import seal
from protodask.data.places.storage import find_group
from protodask.data.tables import source_files
from protodask.data.tables.table_files import FolderSink
from protodask.decisions import decide, decide_rows, decide_sets, predicted_rows, stored
from protodask.decisions.groups import decide_groups
from protodask.decisions.large import decide_normal
from protodask.decisions.stored import decide_stored
from protodask.engine import Layout, thread_engine
from protodask.errors import FormatError, OutputExistsError, StorageError

Floats = NDArray[np.float64]
Write = Callable[..., Path]

RANDOM = np.random.default_rng(0)
N = 2500
ETA = np.round(RANDOM.beta(1, 3, size=N), 2)
GROUPS = np.repeat(np.arange(N), RANDOM.integers(1, 30, size=N))[:N]


def record_of(classes: list[Any], rows: int) -> dict[str, Any]:
    found = {
        "format": "protodask-predictions", "version": 1, "model": "none", "n_batches": 1, "classes": classes,
        "rows": rows, "identity": "some",
    }  # fmt: skip
    return seal(found, "predictions")


def write_zarr(
    path: Path, probability: Floats, classes: list[Any] | None = None, group: NDArray[np.int64] | None = None
) -> Path:
    n_rows, n_classes = probability.shape
    arrays = [
        ArraySpec("probability", "float64", n_classes),
        *([ArraySpec("group", "int64")] if group is not None else []),
    ]
    store = ArrayStore(str(path), Layout(n_rows, 1024), tuple(arrays), os.urandom(4).hex())
    store.create(record_of(classes or list(range(n_classes)), n_rows))
    for number in range(store.layout.n_blocks):
        start, stop = store.layout.bounds(number)
        own = {} if group is None else {"group": group[start:stop]}
        store.write(number, start, {"probability": probability[start:stop], **own})
    return path


def write_parquet(path: Path, columns: dict[str, Any], files: int = 3, row_group: int = 700) -> Path:
    path.mkdir()
    n_rows = len(next(iter(columns.values())))
    edges = np.linspace(0, n_rows, files + 1).astype(int)
    for number in range(files):
        own = {name: values[edges[number] : edges[number + 1]] for name, values in columns.items()}
        pyarrow.parquet.write_table(pyarrow.table(own), path / f"part-{number}.parquet", row_group_size=row_group)
    return path


def of_two(eta: Floats) -> Floats:
    return np.stack([1 - eta, eta], axis=1)


def read_selected(path: Path) -> Any:
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path).sort_by("row").to_pydict()
        assert table["row"] == list(range(len(table["row"])))
        return np.array(table["selected"]), np.array(table["probability"])
    group: Any = zarr.open_group(path, mode="r")
    return group["selected"][...] == 1, group["probability"][...]


def read_groups(path: Path) -> dict[str, Any]:
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path / "_groups.parquet").to_pydict()
        return {name: np.array(values) for name, values in table.items()}
    group: Any = zarr.open_group(path / "groups", mode="r")
    return {name: array[...] for name, array in group.arrays()}


@pytest.mark.parametrize("out", ["out.zarr", "out.parquet"])
@pytest.mark.parametrize("loss", ["f1", "am", "auc"])
def test_decide_stored__is_the_decision_on_the_array(tmp_path: Path, out: str, loss: str) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA))
    expected = decide_normal(ETA, loss)
    found = decide_stored(data, tmp_path / out, loss)
    selected, probability = read_selected(tmp_path / out)
    np.testing.assert_array_equal(selected, expected.selected)
    np.testing.assert_array_equal(probability, ETA)
    assert found.decision is not None
    assert (found.decision.k, found.decision.cut, found.what) == (expected.k, expected.cut, "1")
    assert found.expected_loss == pytest.approx(expected.expected_loss, abs=1e-12)
    assert found.loss_at_half == pytest.approx(expected.loss_at_half, abs=1e-12)


def test_decide_stored__of_parquet_is_that_of_zarr(tmp_path: Path) -> None:
    made = write_parquet(tmp_path / "table", {"id": np.arange(N), "eta": ETA})
    decide_stored(write_zarr(tmp_path / "p.zarr", of_two(ETA)), tmp_path / "z.zarr", "f1")
    decide_stored(made, tmp_path / "p.parquet", "f1", probability=["eta"])
    np.testing.assert_array_equal(read_selected(tmp_path / "z.zarr")[0], read_selected(tmp_path / "p.parquet")[0])


def test_decide_stored__splits_ties_by_row_number_across_blocks(tmp_path: Path) -> None:
    tied = np.full(N, 0.3)
    data = write_zarr(tmp_path / "p.zarr", of_two(tied))
    found = decide_stored(data, tmp_path / "out.zarr", "g_mean")
    selected, _ = read_selected(tmp_path / "out.zarr")
    assert 0 < found.selected < N
    np.testing.assert_array_equal(selected, np.arange(N) < found.selected)


@pytest.mark.parametrize("out", ["out.zarr", "out.parquet"])
def test_decide_stored__groups_are_those_of_the_arrays(tmp_path: Path, out: str) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA), group=GROUPS)
    expected = decide_groups(ETA, GROUPS, "f1")
    found = decide_stored(data, tmp_path / out, "f1", group="group")
    np.testing.assert_array_equal(read_selected(tmp_path / out)[0], expected.selected)
    table = read_groups(tmp_path / out)
    for name in ("group", "first_row", "n", "k", "threshold", "tied", "taken"):
        np.testing.assert_array_equal(table[name], getattr(expected, name))
    np.testing.assert_allclose(table["expected_loss"], expected.expected_loss, rtol=1e-12)
    assert (found.decisions, found.kind, found.decision) == (len(expected), "groups", None)
    assert found.expected_loss == pytest.approx(expected.mean_expected_loss)
    if out.endswith("parquet"):
        assert pyarrow.parquet.read_table(tmp_path / out).sort_by("row")["group"].to_pylist() == GROUPS.tolist()


@pytest.mark.parametrize("out", ["out.zarr", "out.parquet"])
def test_decide_stored__scattered_groups_of_text_are_sorted_in_memory(tmp_path: Path, out: str) -> None:
    names = np.array([f"query {code}" for code in RANDOM.permutation(GROUPS)], dtype=object)
    data = write_parquet(tmp_path / "table", {"eta": ETA, "query": names})
    decide_stored(data, tmp_path / out, "am", group="query", probability=["eta"])
    expected = decide_groups(ETA, names, "am")
    np.testing.assert_array_equal(read_selected(tmp_path / out)[0], expected.selected)
    table = read_groups(tmp_path / out)
    assert table["first_row"].tolist() == expected.first_row.tolist()
    assert table.get("group", expected.group).tolist() == expected.group.tolist()
    assert ("group" in table) == out.endswith("parquet")


def test_decide_stored__refuses_scattered_groups_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA), group=RANDOM.permutation(GROUPS))
    monkeypatch.setattr(stored, "SCATTERED_BYTES", 10**9)
    with refused("over-memory", "'group'", "`memory_bytes`"):
        decide_stored(data, tmp_path / "out.zarr", "f1", group="group")
    assert sorted(os.listdir(tmp_path)) == ["p.zarr"]


@pytest.mark.parametrize(("per_row", "alone"), [("classes", decide_sets), ("labels", decide_rows)])
@pytest.mark.parametrize("out", ["out.zarr", "out.parquet"])
def test_decide_stored__each_row(tmp_path: Path, out: str, per_row: Any, alone: Callable[..., Any]) -> None:
    probability = np.random.default_rng(0).dirichlet([1, 0.5, 0.2], size=3000)
    data = write_zarr(tmp_path / "p.zarr", probability, ["red", "green", "blue"])
    found = decide_stored(data, tmp_path / out, "f1", per_row=per_row)
    expected = alone(probability, "f1")
    if out.endswith("parquet"):
        table = pyarrow.parquet.read_table(tmp_path / out).sort_by("row").to_pydict()
        selected = np.stack([table[f"selected_{name}"] for name in ("red", "green", "blue")], axis=1)
        losses = np.array(table["expected_loss"])
    else:
        group: Any = zarr.open_group(tmp_path / out, mode="r")
        selected, losses = group["selected"][...] == 1, group["expected_loss"][...]
        assert group.attrs["classes"] == ["red", "green", "blue"]
    np.testing.assert_array_equal(selected, expected.selected)
    np.testing.assert_allclose(losses, expected.expected_loss, rtol=1e-12)
    assert (found.selected, found.decisions) == (expected.k.sum(), 3000)
    assert found.expected_loss == pytest.approx(expected.expected_loss.mean())
    assert found.loss_at_half == pytest.approx(expected.loss_at_half.mean())


def test_decide_stored__one_class_against_the_rest(tmp_path: Path) -> None:
    probability = np.random.default_rng(0).dirichlet([1, 0.5, 0.2], size=1000)
    data = write_zarr(tmp_path / "p.zarr", probability, ["red", "green", "blue"])
    decide_stored(data, tmp_path / "out.zarr", "f1", label="green")
    expected = decide(probability[:, 1], "f1")
    np.testing.assert_array_equal(read_selected(tmp_path / "out.zarr")[0], expected.selected)
    with refused("setting-missing", 3, "red, green, blue", "`label`"):
        decide_stored(data, tmp_path / "other.zarr", "f1")
    with refused("unknown-name", "'violet'", "red, green, blue"):
        decide_stored(data, tmp_path / "other.zarr", "f1", label="violet")


def test_decide_stored__is_the_same_to_the_byte_for_any_threads(tmp_path: Path) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA), group=GROUPS)
    written = []
    for threads in (1, 3):
        out = tmp_path / f"out-{threads}.zarr"
        with thread_engine(threads) as engine:
            decide_stored(data, out, "f1", group="group", engine=engine)
        written.append({str(path.relative_to(out)): path.read_bytes() for path in out.rglob("c/*")})
    assert written[0] == written[1]
    assert len(written[0]) > 10


@pytest.mark.parametrize("method", ["exact", "normal", "auto"])
def test_decide_stored__methods_agree(tmp_path: Path, method: Any) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA[:600]))
    found = decide_stored(data, tmp_path / "out.zarr", "jaccard", method=method)
    assert found.decision is not None
    assert found.decision.method == ("normal" if method == "normal" else "quadratic")
    assert found.selected == decide(ETA[:600], "jaccard").k


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("out", ["out.zarr", "out.parquet"])
def test_decide_stored__that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, existing: bool
) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA))
    if existing:
        decide_stored(data, tmp_path / out, "f1")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def torn(*arguments: object) -> None:
        raise StorageError("disk-full", "The disk was full.", "Free some space.")

    monkeypatch.setattr(FolderSink if out.endswith("parquet") else ArrayStore, "write", torn)
    with refused("disk-full", kind=StorageError):
        decide_stored(data, tmp_path / out, "am", overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_decide_stored__predictions_that_are_replaced_meanwhile_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA))
    opened = predicted_rows.open_rows

    def replaced(*arguments: Any, **settings: Any) -> Any:
        rows = opened(*arguments, **settings)
        record = json.loads((data / "zarr.json").read_text())
        record["attributes"]["identity"] = "another"
        (data / "zarr.json").write_text(json.dumps(record))
        return rows

    monkeypatch.setattr(stored, "open_rows", replaced)
    with refused("changed-meanwhile", kind=StorageError):
        decide_stored(data, tmp_path / "out.zarr", "f1")
    assert sorted(os.listdir(tmp_path)) == ["p.zarr"]


def test_decide_stored__needs_overwrite_and_overwrites_decisions_only(tmp_path: Path) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA))
    decide_stored(data, tmp_path / "out.zarr", "f1")
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        decide_stored(data, tmp_path / "out.zarr", "am")
    decide_stored(data, tmp_path / "out.zarr", "am", overwrite=True)
    assert dict(zarr.open_group(tmp_path / "out.zarr", mode="r").attrs)["loss"] == "am"
    with refused("wrong-kind", data, kind=OutputExistsError):
        decide_stored(data, data, "am", overwrite=True)


def test_decide_stored__damaged_predictions_are_found(tmp_path: Path) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA), group=GROUPS)
    chunk = data / "probability" / "c" / "2" / "0"
    content = chunk.read_bytes()
    chunk.unlink()
    with refused("damaged", "'probability'", kind=FormatError):
        decide_stored(data, tmp_path / "out.zarr", "f1")
    chunk.write_bytes(content[:-8] + b"12345678")
    with refused("damaged", kind=FormatError):
        decide_stored(data, tmp_path / "out.zarr", "f1")
    chunk.write_bytes(content)
    (data / "group" / "c" / "1").unlink()
    with refused("damaged", "'group'", kind=FormatError):
        decide_stored(data, tmp_path / "out.zarr", "f1", group="group")
    record = json.loads((data / "zarr.json").read_text())
    record["attributes"]["rows"] = 17
    (data / "zarr.json").write_text(json.dumps(record))
    with refused("damaged", "checksum", kind=FormatError):
        decide_stored(data, tmp_path / "out.zarr", "f1")
    assert sorted(os.listdir(tmp_path)) == ["p.zarr"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("setting-missing", "`probability`", "eta, name, query, bad, float")),
        ({"probability": ["other"]}, ("column-missing", "'other'", "eta, name, query, bad, float")),
        ({"probability": ["eta"], "group": "other"}, ("column-missing", "'other'", "eta, name, query, bad, float")),
        ({"probability": ["name"]}, ("wrong-type", "'name'")),
        ({"probability": ["bad"]}, ("bad-value", 1, "1.5")),
        ({"probability": ["eta"], "group": "query"}, ("bad-value", "'query'")),
        ({"probability": ["eta"], "group": "float"}, ("bad-value", "'float'")),
        ({"probability": ["eta", "bad"]}, ("settings-conflict", 2, "`per_row`")),
        ({"probability": ["eta"], "label": "1"}, ("settings-conflict",)),
        ({"probability": ["eta"], "per_row": "labels", "method": "exact"}, ("settings-conflict",)),
        ({"probability": ["eta"], "loss": "accuracy"}, ("unknown-name", "'accuracy'")),
    ],
)
def test_decide_stored__refuses_what_it_cannot_do(
    tmp_path: Path, settings: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    columns = {"eta": [0.1, 0.2, 0.3], "name": ["a", "b", "c"], "query": [1, None, 2], "bad": [0.1, 1.5, None]}
    columns["float"] = [1.0, float("nan"), 2.0]
    data = write_parquet(tmp_path / "table.parquet", columns, files=1)
    with refused(*expected):
        decide_stored(data, tmp_path / "out.zarr", **settings)
    assert sorted(os.listdir(tmp_path)) == ["table.parquet"]


def test_decide_stored__refuses_places_without_predictions(tmp_path: Path) -> None:
    with refused("not-found", kind=StorageError):
        decide_stored(tmp_path / "nothing", tmp_path / "out.zarr")
    zarr.create_group(tmp_path / "other.zarr")
    with refused("wrong-kind", "`predict()`"):
        decide_stored(tmp_path / "other.zarr", tmp_path / "out.zarr")
    with refused("column-missing", "'group'", "`group`"):
        decide_stored(write_zarr(tmp_path / "p.zarr", of_two(ETA)), tmp_path / "out.zarr", group="group")
    pyarrow.parquet.write_table(pyarrow.table({"eta": np.zeros(0)}), tmp_path / "empty.parquet")
    with refused("no-rows"):
        decide_stored(tmp_path / "empty.parquet", tmp_path / "out.zarr", probability=["eta"])
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    with refused("wrong-kind", kind=FormatError):
        decide_stored(tmp_path / "torn.parquet", tmp_path / "out.zarr", probability=["eta"])


@pytest.mark.slow
def test_decide_stored__into_an_object_store(tmp_path: Path) -> None:
    data = write_zarr(tmp_path / "p.zarr", of_two(ETA), group=GROUPS)
    out = f"memory://{tmp_path.name}/out.zarr"
    expected = decide_groups(ETA, GROUPS, "f1")
    for overwrite in (False, True):
        decide_stored(data, out, "f1", group="group", overwrite=overwrite)
        place, _ = find_group(out)
        group: Any = zarr.open_group(open_store(place, True), mode="r")
        np.testing.assert_array_equal(group["selected"][...] == 1, expected.selected)
        np.testing.assert_array_equal(group["groups/k"][...], expected.k)
    with refused("not-local", "Parquet", "Zarr"):
        decide_stored(data, f"memory://{tmp_path.name}/out.parquet", "f1")


def test_parquet_rows__of_any_range_are_those_rows(tmp_path: Path) -> None:
    data = write_parquet(tmp_path / "table", {"eta": ETA, "query": GROUPS}, files=4, row_group=333)
    rows = predicted_rows.open_rows(data, columns=["eta"], group="query")
    for start, stop in ((0, N), (0, 1), (332, 334), (1249, 1251), (700, 2400), (N - 1, N)):
        found = rows.rows(start, stop)
        np.testing.assert_array_equal(found["probability"], ETA[start:stop])
        np.testing.assert_array_equal(found["group"], GROUPS[start:stop])


def test_parquet_rows__of_a_part_of_a_row_group_are_all_that_is_held(tmp_path: Path) -> None:
    data = write_parquet(tmp_path / "table", {"eta": ETA, "query": GROUPS}, files=1, row_group=N)
    rows = predicted_rows.open_rows(data, columns=["eta"], group="query")
    found = rows.rows(10, 20)
    assert all(values.base is None for values in found.values())
    found["probability"][:] = 0
    np.testing.assert_array_equal(rows.rows(10, 20)["probability"], ETA[10:20])


FILE_PROBABILITY = np.array([0.1, 0.7, 0.3])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([("p", FILE_PROBABILITY), ("p", 1 - FILE_PROBABILITY), ("g", ["a", "b", "b"])], ("named-twice", "'p'")),
        ([("p", FILE_PROBABILITY), ("g", ["a", "b", "b"]), ("g", ["a", "b", "b"])], ("named-twice", "'g'")),
        ([("p", FILE_PROBABILITY), ("g", [[1], [2], [2]])], ("wrong-type", "'g'")),
        ([("p", FILE_PROBABILITY), ("g", [{"a": 1}, {"a": 2}, {"a": 2}])], ("wrong-type", "'g'")),
        ([("p", FILE_PROBABILITY), ("g", [b"\xff", b"\xfe", b"\xfe"])], ("wrong-type", "'g'")),
    ],
    ids=["probabilities twice", "groups twice", "lists", "structures", "bytes"],
)
def test_decide_stored__refuses_columns_it_cannot_tell_apart(
    tmp_path: Path, columns: Any, expected: tuple[Any, ...]
) -> None:
    names, arrays = zip(*columns, strict=True)
    table = pyarrow.Table.from_arrays([pyarrow.array(values) for values in arrays], names)
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    with refused(*expected):
        decide_stored(tmp_path / "in.parquet", tmp_path / "out", probability=["p"], group="g")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("other", [["a", "b", "b"], np.array([1, 2, 2**63], dtype=np.uint64)], ids=["text", "uint64"])
def test_decide_stored__refuses_groups_of_another_type_in_another_file(tmp_path: Path, other: Any) -> None:
    (tmp_path / "in").mkdir()
    for name, group in (("a", np.arange(3)), ("b", other)):
        table = pyarrow.table({"p": FILE_PROBABILITY, "g": group})
        pyarrow.parquet.write_table(table, tmp_path / "in" / f"{name}.parquet")
    with refused("wrong-type", "'g'"):
        decide_stored(tmp_path / "in", tmp_path / "out", probability=["p"], group="g")


def test_decide_stored__refuses_a_column_of_probabilities_named_twice(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "in", {"p": ETA})
    with refused("named-twice", "column"):
        decide_stored(path, tmp_path / "out", probability=["p", "p"], per_row="labels")


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_decide_stored__takes_both_zeros_for_one_group(tmp_path: Path, kind: str) -> None:
    group = np.array([0.0, -0.0, 0.5], dtype=kind)
    pyarrow.parquet.write_table(pyarrow.table({"p": FILE_PROBABILITY, "g": group}), tmp_path / "in.parquet")
    decide_stored(tmp_path / "in.parquet", tmp_path / "out", probability=["p"], group="g")
    expected = decide_groups(FILE_PROBABILITY, group)
    assert read_groups(tmp_path / "out")["n"].tolist() == expected.n.tolist() == [2, 1]


def test_decide_stored__turns_no_large_unsigned_group_into_another_number(tmp_path: Path) -> None:
    group = np.array([2**64 - 1, 2**64 - 1, 5], dtype=np.uint64)
    pyarrow.parquet.write_table(pyarrow.table({"p": FILE_PROBABILITY, "g": group}), tmp_path / "in.parquet")
    for name in ("out", "out.parquet"):
        decide_stored(tmp_path / "in.parquet", tmp_path / name, probability=["p"], group="g")
        assert read_groups(tmp_path / name)["first_row"].tolist() == [0, 2]
    assert "group" not in read_groups(tmp_path / "out")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet" / "_groups.parquet")
    assert table["group"].to_pylist() == [2**64 - 1, 5]


def test_decide_stored__names_the_row_whose_classes_do_not_add_up_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicted_rows, "choose_block_rows", lambda *_: 4)
    probability = np.tile([0.2, 0.3, 0.5], (10, 1))
    probability[6, 1] = 0.9
    path = write_zarr(tmp_path / "in.zarr", probability)
    with refused("bad-value", 6, "1.6"):
        decide_stored(path, tmp_path / "out", per_row="classes")


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_decide_stored__refuses_a_place_inside_of_the_predictions(tmp_path: Path, name: str) -> None:
    path = write_zarr(tmp_path / "in.zarr", of_two(ETA))
    before = sorted(path.rglob("*"))
    with refused("places-overlap", path / name, path):
        decide_stored(path, path / name)
    assert sorted(path.rglob("*")) == before


def test_decide_stored__says_that_a_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    table = pyarrow.table({"p": ETA})
    pyarrow.parquet.write_table(table, path, compression=None, use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[content.index(ETA[50].tobytes())] ^= 1  # still a probability
    path.write_bytes(content)
    with refused("damaged", kind=FormatError):
        decide_stored(path, tmp_path / "out", probability=["p"])


def test_decide_stored__of_a_file_whose_names_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"chance": ETA}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"chance", b"ch\x8cnce"))
    with refused("wrong-kind", kind=FormatError):
        decide_stored(path, tmp_path / "out", probability=["chance"])


@pytest.mark.parametrize("told", [True, False])
def test_open_rows__of_parquet_that_is_replaced_at_a_url(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not told:  # neither ETags nor times
        monkeypatch.setattr(source_files, "modified_ns", lambda details: 0)
    place = f"memory://{tmp_path.name}/p.parquet"
    opened, found = [], []
    for value in (0.25, 0.75):
        with fsspec.open(place, "wb") as file:
            pyarrow.parquet.write_table(pyarrow.table({"p": np.full(3000, value)}), file)
        opened.append(predicted_rows.open_rows(place, columns=("p",)))
        # Parts of a row group: what is left of it is remembered.
        found.append([opened[-1].rows(*part)["probability"].max() for part in ((0, 10), (10, 20))])
    assert found == [[0.25, 0.25], [0.75, 0.75]]
    assert opened[0].key != opened[1].key
    opened[1].reader.check_unchanged()
    if told:
        with refused("changed-meanwhile", kind=StorageError):
            opened[0].reader.check_unchanged()


def test_decide_stored__of_an_address_nobody_answers_at(tmp_path: Path) -> None:
    with refused("unreadable", "http://127.0.0.1:1/in.parquet", kind=StorageError):
        decide_stored("http://127.0.0.1:1/in.parquet", tmp_path / "out", probability=["p"])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"per_row": "rows"}, ("bad-setting", "per_row", "'rows'")),
        ({"method": "quick"}, ("bad-setting", "method", "'quick'")),
    ],
)
def test_decide_stored__refuses_settings_there_are_not(
    tmp_path: Path, settings: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    path = write_zarr(tmp_path / "in.zarr", of_two(ETA))
    with refused(*expected):
        decide_stored(path, tmp_path / "out", **settings)


def test_decide_stored__takes_a_label_that_is_a_number_and_a_single_column(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "in.zarr", of_two(ETA))
    label: Any = 1
    named = decide_stored(path, tmp_path / "named", label=label)
    file = write_parquet(tmp_path / "in", {"eta": ETA})
    assert decide_stored(file, tmp_path / "out", probability="eta").selected == named.selected


KINDS: dict[str, Any] = {
    "id": pyarrow.array([f"r{number:04d}" for number in range(N)], pyarrow.large_string()),
    "day": pyarrow.array((np.arange(N) // 10).astype("int32"), pyarrow.int32()).cast(pyarrow.date32()),
    "place": pyarrow.array(["north", "south", None, "west"] * (N // 4)).dictionary_encode(),
}


def test_decide_stored__hands_on_what_predictions_kept(tmp_path: Path) -> None:
    columns = {**KINDS, "selected": GROUPS, "probability_a": 1 - ETA, "probability_b": ETA}
    place = write_parquet(tmp_path / "p.parquet", columns)
    record = {**record_of(["a", "b"], N), "kept": ["id", "selected", "day"]}
    del record["checksum"]
    (place / "_protodask.json").write_text(json.dumps(seal(record, "predictions")))
    decide_stored(place, tmp_path / "d.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "d.parquet")
    assert found.column_names == ["row", "id", "day", "selected", "probability"]
    assert found["id"].to_pylist() == KINDS["id"].to_pylist()
    assert found["day"].to_pylist() == KINDS["day"].to_pylist()
    assert found["selected"].to_numpy().sum() == decide_normal(ETA, "f1").k
    decide_stored(place, tmp_path / "d.zarr")
    assert sorted(zarr.open_group(tmp_path / "d.zarr").array_keys()) == ["probability", "selected"]


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        ({}, ["selected", "probability"]),
        ({"group": "query"}, ["group", "selected", "probability"]),
        ({"per_row": "labels"}, ["selected_eta", "expected_loss"]),
    ],
)
def test_decide_stored__hands_on_the_columns_that_are_named(
    tmp_path: Path, settings: dict[str, Any], own: list[str]
) -> None:
    place = write_parquet(tmp_path / "t.parquet", {**KINDS, "query": GROUPS, "eta": ETA})
    with thread_engine(2) as engine:
        decide_stored(
            place, tmp_path / "d.parquet", probability="eta", keep=["place", "query"], engine=engine, **settings
        )
    files = sorted((tmp_path / "d.parquet").glob("part*"))
    found = pyarrow.concat_tables([pyarrow.parquet.read_table(file) for file in files])
    assert found.column_names == ["row", "place", "query", *own]
    assert found["place"].to_pylist() == KINDS["place"].to_pylist()
    assert found["query"].to_pylist() == GROUPS.tolist()


@pytest.mark.parametrize(
    ("keep", "out", "code", "facts"),
    [
        (["nothing"], "d.parquet", "column-missing", ("nothing", "eta")),
        (["selected"], "d.parquet", "named-twice", ("selected", "decisions")),
        (["id", "id"], "d.parquet", "named-twice", ("id",)),
        (["id"], "d.zarr", "unsupported", (".parquet",)),
        (["mixed"], "d.parquet", "wrong-type", ("mixed", "int64", "string")),
    ],
)
def test_decide_stored__refuses_columns_it_cannot_hand_on(
    tmp_path: Path, keep: list[str], out: str, code: Any, facts: tuple[str, ...]
) -> None:
    place = tmp_path / "t.parquet"
    place.mkdir()
    for number, mixed in enumerate(([1], ["one"])):
        table = pyarrow.table({"eta": [0.5], "id": ["a"], "selected": [1], "mixed": mixed})
        pyarrow.parquet.write_table(table, place / f"{number}.parquet")
    with refused(code, *facts):
        decide_stored(place, tmp_path / out, probability="eta", keep=keep)


def test_decide_stored__of_zarr_has_no_columns_to_hand_on(tmp_path: Path) -> None:
    place = write_zarr(tmp_path / "p.zarr", of_two(ETA))
    with refused("settings-conflict", place):
        decide_stored(place, tmp_path / "d.parquet", keep=["id"])
