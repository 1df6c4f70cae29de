"""Datasets, models and predictions in a real object store, and what writers that never finished leave there."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import boto3
import fsspec
import numpy as np
import pandas as pd
import pytest
import zarr
from distributed import Client, LocalCluster
from support.datasets import Make, Write
from support.errors import refused
from support.kills import Strike, run_command_process
from support.object_stores import keys_of
from typer.testing import CliRunner
from zarr.storage import FsspecStore

from protodask.cli import app
from protodask.data import Column, Dataset, write_dataset
from protodask.data.format.commits import Change
from protodask.data.news import ingest_news as ingest_news_module
from protodask.data.places import generations as generations_module
from protodask.data.places.bounded import read_object
from protodask.data.places.generations import GENERATION
from protodask.data.places.locations import delete_below, list_names, open_store, write_object
from protodask.data.places.storage import is_taken
from protodask.data.tables import source_files as source_files_module
from protodask.data.tables.ingest import ingest
from protodask.data.tables.source_files import source_files
from protodask.decisions.predicted_rows import open_rows
from protodask.engine import Arrays, Engine, array_source, thread_engine
from protodask.errors import Code, FormatError, OutputExistsError, StorageError
from protodask.pipeline.state.identities import identity
from protodask.prototypes import FitConfig, fit, load_model, predict
from protodask.prototypes.persistence import save_model


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def root(request: pytest.FixtureRequest) -> str:
    """The URL of a new place in an object store: in memory by default, since each request to S3 takes milliseconds."""
    if request.param == "s3":
        return str(request.getfixturevalue("bucket"))
    return f"memory://{uuid.uuid4().hex}"


def keys(url: str) -> list[str]:
    """Everything below a URL, asked of the store itself."""
    if url.startswith("memory://"):
        found: list[str] = fsspec.filesystem("memory").find(url.removeprefix("memory:/"))
        return found
    return keys_of(url)


AT_WORK = "generation-000000030123abcd"
"""What somebody may be writing where the second generation counts."""


def generations(url: str) -> set[str]:
    return {name for name in list_names(url) if GENERATION.fullmatch(name)}


def run(*arguments: str) -> dict[str, Any]:
    outcome = CliRunner().invoke(app, [*arguments, "--json"])
    assert outcome.exit_code == 0, outcome.output
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("form", "new"), [("csv", True), ("parquet", False)])
def test_ingest__of_objects_whose_names_look_like_globs(
    form: str, new: bool, engine: Engine, bucket: str, tmp_path: Path
) -> None:
    names = ["data1", "data[1]", "a*b", "aXb"]
    for number, name in enumerate(names):
        frame = pd.DataFrame({"x": [number, number], "y": ["p", "q"]})
        content = frame.to_csv(index=False).encode() if form == "csv" else frame.to_parquet()
        write_object(f"{bucket}/data", f"{name}.{form}", content)
    found = ingest(f"{bucket}/data", tmp_path / "d", target="y", new=new, engine=engine)
    assert sorted(found.read(0)["features"][:, 0].tolist()) == sorted([*range(4), *range(4)])
    for number, name in ((1, "data[1]"), (2, "a*b")):
        one = ingest(f"{bucket}/data/{name}.{form}", tmp_path / f"{number}", target="y", new=new, engine=engine)
        assert one.read(0)["features"][:, 0].tolist() == [number, number]


TABLE = pd.DataFrame({"x": range(6), "y": ["p", "q"] * 3}).to_csv(index=False).encode()


def upload_in_parts(bucket: str, key: str, content: bytes) -> None:
    """Put an object as tools do with large ones: its ETag is another than that of the same object put at once."""
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    place = {"Bucket": bucket.removeprefix("s3://"), "Key": key}
    upload = client.create_multipart_upload(**place)["UploadId"]
    part = client.upload_part(**place, UploadId=upload, PartNumber=1, Body=content)
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload=parts)


@pytest.mark.slow
def test_ingest__takes_what_is_new_by_its_content(bucket: str, engine: Engine, tmp_path: Path) -> None:
    write_object(f"{bucket}/in", "a.csv", TABLE)
    (tmp_path / "copy.csv").write_bytes(TABLE)
    settings: dict[str, Any] = {"target": "y", "new": True, "engine": engine}
    sources = [f"{bucket}/in", str(tmp_path / "copy.csv")]
    found = ingest(sources, tmp_path / "d", **settings)
    assert [(segment.name, segment.rows) for segment in found.segments] == [("a.csv", 6)]
    (before,) = source_files(f"{bucket}/in")
    upload_in_parts(bucket, "in/a.csv", TABLE)
    upload_in_parts(bucket, "in/b.csv", TABLE)
    assert source_files(f"{bucket}/in/a.csv")[0].version != before.version
    assert ingest(sources, tmp_path / "d", **settings).n_rows == 6
    upload_in_parts(bucket, "in/a.csv", TABLE + b"6,p\n")
    with pytest.warns(UserWarning, match="another content"):
        assert ingest(sources, tmp_path / "d", **settings).n_rows == 13


def test_ingest__knows_what_earlier_versions_took(
    bucket: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_object(f"{bucket}/in", "a.csv", TABLE)
    settings: dict[str, Any] = {"target": "y", "new": True, "engine": engine}
    with monkeypatch.context() as earlier:
        earlier.setattr(source_files_module, "digest_of", source_files_module._digest_of_version)
        earlier.setattr(ingest_news_module, "digest_of", source_files_module._digest_of_version)
        ingest(f"{bucket}/in", tmp_path / "d", **settings)
    (tmp_path / ".d.digests").unlink(missing_ok=True)
    read: list[str] = []
    monkeypatch.setattr(source_files_module, "content_digest", read.append)
    assert ingest(f"{bucket}/in", tmp_path / "d", **settings).n_rows == 6
    assert read == []


def fails(*arguments: str) -> str:
    outcome = CliRunner().invoke(app, [*arguments])
    assert outcome.exit_code == 1, outcome.output
    return outcome.stderr


@pytest.fixture
def table(tmp_path: Path) -> str:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(120, 2))
    lines = [f"{a},{b},{'yes' if a * b > 0 else 'no'}" for a, b in rows.tolist()]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["a,b,kind", *lines]) + "\n")
    return str(path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_commands__work_on_an_object_store_as_on_a_disk(bucket: str, table: str, tmp_path: Path) -> None:
    places = {"disk": str(tmp_path), "store": f"{bucket}/deep"}
    fingerprints = {}
    for name, place in places.items():
        run_dir = str(tmp_path / f"run-{name}")
        data, model, scores = f"{place}/data.zarr", f"{place}/model.zarr", f"{place}/scores.zarr"
        run("ingest", table, "--target", "kind", "--out", data)
        run("ingest", table, "--out", data, "--append")
        assert run("info", data)["rows"] == 240
        assert "--overwrite" in fails("ingest", table, "--target", "kind", "--out", data)
        run("fit", data, "--out", model, "--run-dir", run_dir, "--candidates", "40", "--max-iterations", "5")
        run("predict", model, data, "--out", scores)
        assert run("info", scores)["rows"] == 240
        assert "--overwrite" in fails("predict", model, data, "--out", scores)
        run("predict", model, data, "--out", scores, "--overwrite")
        run("evaluate", model, data)
        fingerprints[place] = (run("info", data)["fingerprint"], run("info", model)["fingerprint"])
        run("ingest", table, "--target", "kind", "--out", data, "--overwrite")
        assert run("info", data)["rows"] == 120
    assert fingerprints[places["disk"]] == fingerprints[places["store"]]
    local: Any = zarr.open_group(f"{tmp_path}/scores.zarr", mode="r")
    (name,) = generations(f"{bucket}/deep/scores.zarr")
    stored: Any = zarr.open_group(open_store(f"{bucket}/deep/scores.zarr", read_only=True), mode="r")
    assert stored.attrs["generation"] == name
    np.testing.assert_array_equal(stored[name]["probability"][...], local["probability"][...])
    for kind in ("data", "model", "scores"):
        assert len(generations(f"{bucket}/deep/{kind}.zarr")) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cluster__reads_and_writes_an_object_store(
    bucket: str, table: str, own_cluster: Callable[[int], LocalCluster], tmp_path: Path
) -> None:
    config = FitConfig.of("source", n_candidates=30, tolerance=1e-2)
    with Client(own_cluster(2)) as client:
        data = ingest(table, f"{bucket}/data.zarr", target="kind", block_rows=16, engine=client)
        data = ingest(table, data.path, append=True, engine=client)
        model = fit(data, config, engine=client).model
        save_model(model, f"{bucket}/model.zarr")
        predict(load_model(f"{bucket}/model.zarr"), data, f"{bucket}/scores.zarr", engine=client)
    local = ingest(table, tmp_path / "data.zarr", target="kind", block_rows=16)
    local = ingest(table, local.path, append=True)
    assert local.key == data.key
    predict(fit(local, config).model, local, tmp_path / "scores.zarr")
    stored = zarr.open_group(open_store(f"{bucket}/scores.zarr", read_only=True), mode="r")
    (name,) = generations(f"{bucket}/scores.zarr")
    expected: Any = zarr.open_group(tmp_path / "scores.zarr", mode="r")["probability"]
    found: Any = stored[f"{name}/probability"]
    np.testing.assert_array_equal(found[...], expected[...])


def test_overwrite__leaves_the_old_one_readable_until_the_new_one_counts(
    root: str, make_arrays: Make, write: Write, engine: Engine, all_rows: Callable[[Dataset], Arrays]
) -> None:
    url = f"{root}/d.zarr"
    before = write(make_arrays(12), url, block_rows=8)

    class Watched:
        """Looks at the place while it is written to."""

        inner = array_source(make_arrays(32, seed=1), 8)
        layout, key, resident = inner.layout, inner.key, False
        seen: ClassVar[list[tuple[str, int]]] = []

        def read(self, number: int) -> Any:
            found = Dataset.open(url)
            self.seen.append((found.key, all_rows(found)["target"].size))
            return self.inner.read(number)

    columns = (Column("a"), Column("b"), Column("c"))
    after = write_dataset(
        Watched(), url, classes=("p", "q", "r"), columns=columns, engine=engine, block_rows=8, overwrite=True
    )
    assert set(Watched.seen) == {(before.key, 12)}
    assert len(Watched.seen) >= 4
    assert Dataset.open(url).key == after.key != before.key
    with refused("changed-meanwhile", url, kind=StorageError):
        before.read(0)
    assert len(generations(url)) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("existing", [pytest.param(False, marks=pytest.mark.slow), True])
def test_ingest__repeated_after_a_kill_leaves_no_orphans(
    existing: bool, bucket: str, make_arrays: Make, write: Write, engine: Engine, tmp_path: Path
) -> None:
    generator = np.random.default_rng(1)
    np.savez(tmp_path / "rows.npz", features=generator.normal(size=(300, 3)), target=generator.integers(2, size=300))
    url = f"{bucket}/d.zarr"
    if existing:
        write(make_arrays(9), url)
    rows = str(tmp_path / "rows.npz")
    command = ["ingest", rows, "--target", "target", "--out", url, "--overwrite"]
    assert run_command_process(command, Strike(8)).killed
    assert len(generations(url)) == 1 + existing
    if existing:
        assert Dataset.open(url).n_rows == 9
    else:
        with refused("wrong-kind", url, kind=FormatError):
            Dataset.open(url)
    again = ingest(rows, url, target="target", block_rows=64, overwrite=existing, engine=engine)
    (name,) = generations(url)
    assert again.key == ingest(rows, tmp_path / "d.zarr", target="target", block_rows=64, engine=engine).key
    assert {key.split("/")[1] for key in keys(url)} == {"zarr.json", name}


def test_write__where_one_that_was_killed_left_a_generation(root: str, make_arrays: Make, write: Write) -> None:
    url = f"{root}/d.zarr"
    for left in ("zarr.json", "features/c/0/0"):
        write_object(f"{url}/generation-000000000123abcd", left, b"{}")
    with refused("wrong-kind", url, kind=FormatError):
        Dataset.open(url)
    assert write(make_arrays(9), url).n_rows == 9
    assert len(generations(url)) == 1
    assert not [key for key in keys(root) if "0123abcd" in key]


def test_writer__that_another_one_overtook_fails_and_says_so(
    root: str, make_arrays: Make, write: Write, engine: Engine
) -> None:
    url = f"{root}/d.zarr"

    class Overtaken:
        inner = array_source(make_arrays(64), 8)
        layout, key, resident = inner.layout, inner.key, False

        def read(self, number: int) -> Any:
            if number == 5:
                write(make_arrays(30, seed=1), url, overwrite=True)
            return self.inner.read(number)

    columns = (Column("a"), Column("b"), Column("c"))
    # Where no other one can have the same number, its work is removed at once.
    with refused("written-by-another" if root.startswith("memory") else "changed-meanwhile", kind=StorageError):
        write_dataset(Overtaken(), url, classes=("p", "q", "r"), columns=columns, engine=engine, block_rows=8)
    assert Dataset.open(url).n_rows == 30
    assert len(generations(url)) == 1


@pytest.mark.slow
def test_writer__that_publishes_while_another_one_removes_it_fails_and_says_so(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{bucket}/d.zarr"
    overtaken = generations_module.new_generation(url, "some format")
    place = overtaken.__enter__()
    for name in ("a", "zarr.json", "z"):
        write_object(place, name, b"{}")
    failures: list[str] = []

    def publish_meanwhile(path: str, name: str) -> None:
        if name == place.rpartition("/")[2] and not failures:  # the removal of all of it begins
            failures.append("none")
            with refused("written-by-another", url, kind=StorageError) as caught:
                overtaken.__exit__(None, None, None)
            failures.append(str(caught.value))
        delete_below(path, name)

    monkeypatch.setattr(generations_module, "delete_below", publish_meanwhile)
    with generations_module.new_generation(url, "some format") as other:
        write_object(other, "zarr.json", b"{}")
    assert len(failures) == 2
    assert generations(url) == {other.rpartition("/")[2]}
    assert other.rpartition("/")[2].encode() in (read_object(url, "zarr.json") or b"")


def test_writer__removes_what_lay_at_its_place_without_generations(root: str) -> None:
    url = f"{root}/d.zarr"
    for name in ("zarr.json", "features/zarr.json", "features/c/0/0"):
        write_object(url, name, b"{}")
    with generations_module.new_generation(url, "some format") as place:
        write_object(place, "zarr.json", b"{}")
    assert set(list_names(url)) == {"zarr.json", place.rpartition("/")[2]}


def test_writer__that_cleans_up_leaves_what_another_one_published_meanwhile(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{root}/d.zarr"
    remove = generations_module._remove_up_to
    published: list[str] = []

    def remove_after_another_one(path: str, kept: str | None, certain: bool) -> None:
        if not published:
            published.append("")
            with generations_module.new_generation(url, "some format") as later:
                write_object(later, "zarr.json", b"{}")
            published[0] = later.rpartition("/")[2]
        remove(path, kept, certain)

    with generations_module.new_generation(url, "some format") as place:
        write_object(place, "zarr.json", b"{}")
        monkeypatch.setattr(generations_module, "_remove_up_to", remove_after_another_one)
    assert published[0].encode() in (read_object(url, "zarr.json") or b"")
    assert generations(url) == {published[0]}


def test_writer__leaves_what_may_be_at_work(root: str) -> None:
    url = f"{root}/d.zarr"
    first, second = "generation-000000010123abcd", "generation-000000020123abcd"
    for name in (first, second):
        write_object(f"{url}/{name}", "zarr.json", b"{}")
    with generations_module.new_generation(url, "some format") as place:
        write_object(place, "zarr.json", b"{}")
    written = place.rpartition("/")[2]
    assert generations(url) == {written, second, *([first] if root.startswith("memory") else [])}
    assert written.startswith("generation-00000001")
    with generations_module.new_generation(url, "some format") as place:
        write_object(place, "zarr.json", b"{}")
    assert first not in generations(url)


def test_open__of_a_place_whose_generation_was_lost(root: str, make_arrays: Make, write: Write) -> None:
    url = f"{root}/d.zarr"
    write(make_arrays(30), url)
    for name in generations(url):
        delete_below(url, name)
    with refused("damaged", url, kind=FormatError):
        Dataset.open(url)
    with refused("exists", "overwrite=True", url, kind=OutputExistsError):
        write(make_arrays(30), url)
    assert write(make_arrays(30), url, overwrite=True).n_rows == 30


@pytest.mark.parametrize("name", ["../other.zarr", "generation-../../x", "generation-0", 7, None, ["a"]])
def test_open__does_not_follow_a_generation_that_leads_elsewhere(
    name: object, root: str, make_arrays: Make, write: Write
) -> None:
    write(make_arrays(30), f"{root}/other.zarr")
    attributes = {"format": "protodask-dataset", "generation": name}
    record = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    write_object(f"{root}/d.zarr", "zarr.json", json.dumps(record).encode())
    with refused("damaged", f"{root}/d.zarr", kind=FormatError):
        Dataset.open(f"{root}/d.zarr")


def test_write__refused_after_a_kill_still_removes_what_was_replaced(
    root: str, make_arrays: Make, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{root}/d.zarr"
    write(make_arrays(30), url)
    with monkeypatch.context() as patch:  # as if killed when the new generation had come to count
        patch.setattr(generations_module, "_remove_up_to", lambda *_: None)
        write(make_arrays(40), url, overwrite=True)
    assert len(generations(url)) == 2
    write_object(f"{url}/{AT_WORK}", "zarr.json", b"perhaps somebody is writing this")
    with refused("exists", "overwrite=True", url, kind=OutputExistsError):
        write(make_arrays(50), url)
    assert len(generations(url)) == 2
    assert Dataset.open(url).n_rows == 40
    assert AT_WORK in generations(url)
    for _ in range(2):  # in memory nothing is certain about what has the same number
        write(make_arrays(50), url, overwrite=True)
    assert len(generations(url)) == 1


def test_write__that_fails_leaves_no_generation(root: str, make_arrays: Make, write: Write) -> None:
    arrays = make_arrays(64)
    arrays["target"][60] = 3
    with refused("bad-value", "target code", "Row 60"):
        write(arrays, f"{root}/d.zarr", block_rows=8)
    assert keys(root) == []


@pytest.mark.parametrize(
    ("overtaken", "store"),
    [
        ("while it writes", "memory"),
        ("before it commits", "memory"),
        pytest.param("while it writes", "bucket", marks=pytest.mark.slow),
        pytest.param("before it commits", "bucket", marks=pytest.mark.slow),  # by a conditional write
    ],
)
def test_append__that_another_one_ends_before_fails_and_harms_nothing(
    overtaken: str,
    store: str,
    make_arrays: Make,
    write: Write,
    all_rows: Callable[[Dataset], Arrays],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = request.getfixturevalue("bucket") if store == "bucket" else f"memory://{uuid.uuid4().hex}"
    url = f"{root}/d.zarr"
    arrays = [make_arrays(50), make_arrays(100, seed=1), make_arrays(60, seed=2)]
    dataset = write(arrays[0], url, block_rows=16)
    begun, goes_on, said = threading.Event(), threading.Event(), []
    settings: dict[str, Any] = {"classes": ("p", "q", "r"), "columns": (Column("a"), Column("b"), Column("c"))}

    def wait() -> None:
        begun.set()
        assert goes_on.wait(60)

    class Slow:
        inner = array_source(arrays[1], 8)
        layout, key, resident = inner.layout, inner.key, False

        def read(self, number: int) -> Any:
            if overtaken == "while it writes" and number == 9:
                wait()
            return self.inner.read(number)

    def first() -> None:
        confirm = wait if overtaken == "before it commits" else None
        said.append(write_dataset(Slow(), url, append=True, confirm=confirm, **settings).n_rows)

    class Second:
        inner = array_source(arrays[2], 8)
        layout, key, resident = inner.layout, inner.key, False

        def read(self, number: int) -> Any:
            if number == 5:  # some is written, and the one that began first ends now
                goes_on.set()
                thread.join(60)
            return self.inner.read(number)

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(60)
    with thread_engine(1, 2**28) as engine, refused("written-by-another", url, kind=StorageError):
        write_dataset(Second(), url, append=True, engine=engine, **settings)
    assert said == [150]
    found = all_rows(Dataset.open(url))
    for name, values in found.items():
        np.testing.assert_array_equal(values, np.concatenate([arrays[0][name], arrays[1][name]]))
    assert write(arrays[2], url, append=True).n_rows == 210
    assert dataset.read(0).n_rows == 16


@pytest.mark.slow
def test_open__of_a_server_that_cannot_be_reached(
    bucket: str, make_arrays: Make, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import EndpointConnectionError

    async def fail(*_: object, **__: object) -> None:
        raise EndpointConnectionError(endpoint_url="http://nowhere")

    dataset = write(make_arrays(30), f"{bucket}/d.zarr")
    monkeypatch.setattr(FsspecStore, "get", fail)
    with refused("unreadable", dataset.path, "http://nowhere", "credentials", kind=StorageError):
        Dataset.open(dataset.path)
    with refused("unreadable", "http://nowhere", kind=StorageError):
        dataset.read(0)
    with refused("unreadable", "http://nowhere", kind=StorageError):
        write(make_arrays(30), dataset.path, overwrite=True)


def test_write__to_a_bucket_that_is_not_there(s3_server: str, make_arrays: Make, write: Write) -> None:
    with refused("unwritable", "s3://no-such-bucket-here/d.zarr", kind=StorageError):
        write(make_arrays(30), "s3://no-such-bucket-here/d.zarr")


def test_open__of_an_unknown_kind_of_store() -> None:
    with refused("unsupported", "nowhere://bucket/d.zarr"):
        Dataset.open("nowhere://bucket/d.zarr")


@pytest.mark.parametrize(
    ("refusal", "code", "facts"),
    [
        (ImportError("Install s3fs to access S3"), "package-missing", ("Install s3fs", "protodask[remote]")),
        (ValueError("Protocol not known: s3"), "unsupported", ("Protocol not known", "beginning of the URL")),
    ],
)
def test_store__that_cannot_be_opened_is_told_alike_wherever_it_is_read(
    refusal: Exception, code: Code, facts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise refusal

    monkeypatch.setattr(fsspec.core, "get_filesystem_class", fail)
    with refused(code, "s3://bucket/t.csv", *facts):
        ingest("s3://bucket/t.csv", tmp_path / "d.zarr", target="y")
    with refused(code, "s3://bucket/t.parquet", *facts):
        open_rows("s3://bucket/t.parquet")
    with refused(code, "s3://bucket/anything", *facts):
        identity("s3://bucket/anything")


def test_is_taken__of_a_store_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import EndpointConnectionError

    def fail(*_: object, **__: object) -> None:
        raise EndpointConnectionError(endpoint_url="http://nowhere")

    monkeypatch.setattr(FsspecStore, "list_dir", fail)
    with refused("unreadable", "s3://bucket/d.zarr", "http://nowhere", "credentials", kind=StorageError):
        is_taken("s3://bucket/d.zarr")


@pytest.mark.slow
def test_ingest__takes_what_is_new_from_and_into_a_store(bucket: str, table: str, tmp_path: Path) -> None:
    import boto3

    text = Path(table).read_bytes()
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])

    def put(name: str, content: bytes) -> None:
        client.put_object(Bucket=bucket.removeprefix("s3://"), Key=f"inbox/{name}", Body=content)

    lines = text.splitlines(keepends=True)
    put("a.csv", b"".join(lines[:61]))
    put("b.csv", b"".join([lines[0], *lines[61:]]))
    data = f"{bucket}/data.zarr"
    first = ingest(f"{bucket}/inbox", data, target="kind", new=True)
    assert [(segment.name, segment.rows) for segment in first.segments] == [("a.csv", 60), ("b.csv", 60)]
    put("again.csv", b"".join(lines[:61]))
    before = keys(bucket)
    assert ingest(f"{bucket}/inbox", data, new=True).n_rows == 120
    assert keys(bucket) == before
    put("late.csv", b"".join(lines[:31]))
    (tmp_path / "local.csv").write_bytes(b"".join(lines[:21]))
    grown = ingest([f"{bucket}/inbox/*.csv", str(tmp_path / "local.csv")], data, new=True)
    assert [(segment.name, segment.rows) for segment in grown.segments[2:]] == [("late.csv", 30), ("local.csv", 20)]
    assert first.segments == grown.segments[:2]
    copy = ingest([data], str(tmp_path / "copy.zarr"), new=True)
    assert copy.segments == grown.segments
    third = ingest(table, data, append=True)
    assert len([key for key in keys(bucket) if "/segments-" in key]) == 1
    assert third.segments[:4] == grown.segments
    for name in ("features", "target"):
        rows = [np.concatenate([found.read(n)[name] for n in range(found.layout.n_blocks)]) for found in (copy, third)]
        np.testing.assert_array_equal(rows[0], rows[1][:170])


def test_ingest__of_what_is_new_that_ends_before_the_commit_leaves_nothing_that_counts(
    root: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"{root}/data.zarr"
    ingest(table, data, target="kind", new=True)
    Path(table).write_text(Path(table).read_text() + "0.5,0.5,yes\n")

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Change, "commit", dies)
    with pytest.raises(KeyboardInterrupt):
        ingest(table, data, new=True)
    monkeypatch.undo()
    assert Dataset.open(data).n_rows == 120
    with pytest.warns(UserWarning, match="another content"):
        found = ingest(table, data, new=True)
    assert [segment.rows for segment in found.segments] == [120, 121]
