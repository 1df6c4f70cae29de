"""Each file is scored once: whatever arrives when, is repeated, renamed or changed, and wherever a run dies."""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import check_error, refused
from support.pipelines import Killed

from protodask.data import Column
from protodask.data.places.bounded import open_to_append
from protodask.data.places.local_files import lock_place
from protodask.data.tables import ingest_sources, small_files, source_files
from protodask.data.tables.source_files import SourceFile, bytes_digest
from protodask.engine import Engine
from protodask.errors import Code, FormatError, LostTaskError, OutputExistsError, StorageError
from protodask.pipeline.each_file import ledger as scored_ledger
from protodask.pipeline.each_file import parts as file_parts
from protodask.pipeline.each_file import scoring as module
from protodask.pipeline.each_file.ledger import LEDGER, news_of_predict, part_name, read_ledger
from protodask.pipeline.each_file.scoring import FilesScored, check_each_file, score_each_file
from protodask.pipeline.inspecting.describe import describe_place
from protodask.pipeline.steps.base import StepNews
from protodask.pipeline.steps.predict import PredictStep
from protodask.pipeline.telling.result import FilesFailedError
from protodask.prototypes.batches import Batch
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scoring import predict_features


def model_of(seed: int = 0, classes: tuple[str, ...] = ("no", "yes")) -> PrototypeSet:
    rng = np.random.default_rng(seed)
    batch = Batch(
        feature_index=np.arange(2),
        feature_weight=rng.uniform(0.5, 2, 2),
        center=np.zeros(2),
        scale=np.ones(2),
        prototypes=rng.normal(size=(4, 2)),
        prototype_class=np.sort(rng.integers(0, len(classes), 4)),
        prototype_weight=rng.uniform(0.1, 2, 4),
        row=np.arange(4),
    )
    return PrototypeSet(
        marginals=np.full(len(classes), 1 / len(classes)),
        classes=classes,
        feature_names=("a", "b"),
        columns=(Column("a"), Column("b")),
        batches=(batch,),
        precision="float64",
        provenance={},
    )


MODEL = model_of()


def content_of(seed: int, rows: int = 3) -> str:
    values = np.random.default_rng(seed).normal(size=(rows, 2)).round(6)
    return "".join(["id,a,b\n", *(f"{seed}-{row},{a},{b}\n" for row, (a, b) in enumerate(values.tolist()))])


def step_of(folder: Path, **settings: Any) -> PredictStep:
    given: dict[str, Any] = {"keep": ("id",), "each_file": True, **settings}
    return PredictStep("model", (str(folder / "in"),), str(folder / "out.parquet"), **given)


def run(folder: Path, engine: Engine, model: PrototypeSet = MODEL, **settings: Any) -> FilesScored:
    return score_each_file(step_of(folder, **settings), engine, lambda _: model)


def table_of(folder: Path) -> pd.DataFrame:
    frame: pd.DataFrame = pyarrow.parquet.read_table(folder / "out.parquet").to_pandas()
    return frame


def check_rows(frame: pd.DataFrame, contents: dict[str, str], model: PrototypeSet = MODEL) -> None:
    """Every row of every content once, by its id, with its number and what the model says of it."""
    expected = []
    for content in contents.values():
        for number, line in enumerate(content.splitlines()[1:]):
            name, a, b = line.split(",")
            expected.append((name, number, float(a), float(b)))
    expected.sort()
    found = frame.sort_values("id")
    assert found["id"].tolist() == [row[0] for row in expected]
    assert found["row"].tolist() == [row[1] for row in expected]
    ((probability, familiarity),) = predict_features(np.array([row[2:] for row in expected]), model, [1])
    np.testing.assert_allclose(found[["probability_no", "probability_yes"]].to_numpy(), probability, rtol=1e-12)
    np.testing.assert_allclose(found["familiarity"].to_numpy(), familiarity, rtol=1e-12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


def put(folder: Path, name: str, content: str) -> Path:
    path = folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    aside = path.with_name(f".{path.name}")
    aside.write_text(content)
    os.replace(aside, path)
    return path


@contextmanager
def _failing(number: int, *facts: object) -> Iterator[pytest.ExceptionInfo[FilesFailedError]]:
    """Expect that so many files cannot be scored."""
    with pytest.raises(FilesFailedError) as caught:
        yield caught
    check_error(caught.value, "files-failed", f"{number} file{'s' * (number > 1)}", *facts)


def test_score__what_cannot_be_read_holds_up_no_other(
    folder: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "good.csv", content_of(1))
    put(folder, "secret.csv", content_of(2))
    (folder / "in" / "self.csv").symlink_to("self.csv")
    os.mkfifo(folder / "in" / "pipe.csv")
    read = source_files.content_digest

    def read_but_one(path: str) -> str:
        if path.endswith("secret.csv"):
            raise StorageError(
                "unreadable", f"{path} cannot be read (Permission denied).", "Check that you may read it."
            )
        return read(path)

    monkeypatch.setattr(source_files, "content_digest", read_but_one)
    for _ in range(2):
        assert news_of_predict(step_of(folder)).found is not None
        with _failing(3) as caught:
            run(folder, engine)
        result = caught.value.result
        assert isinstance(result, FilesScored)
        assert sorted(one.file for one in result.failed) == ["pipe.csv", "secret.csv", "self.csv"]
        told = {one["file"]: one["code"] for one in result.describe()["failures"]}
        assert told["secret.csv"] == "unreadable"
        check_rows(table_of(folder), {"good.csv": content_of(1)})
    monkeypatch.undo()
    for name in ("pipe.csv", "self.csv"):
        (folder / "in" / name).unlink()
    assert run(folder, engine).rows == 3
    check_rows(table_of(folder), {name: content_of(seed) for seed, name in ((1, "good.csv"), (2, "secret.csv"))})


@pytest.mark.parametrize("size", ["small", "large"])
def test_score__a_file_that_needs_more_memory_than_there_is_holds_up_no_other(
    size: str, folder: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    if size == "large":
        monkeypatch.setattr(module, "is_small", lambda path, size: False)
        monkeypatch.setattr(file_parts, "is_small", lambda path, size: False)
    read, rows = file_parts._content, PredictStep.rows

    def read_but_one(new: Any) -> Any:
        if size == "small" and new.file.name == "a.csv":
            raise MemoryError
        return read(new)

    def rows_but_of_one(step: PredictStep, model: Any, engine: Engine, *places: str) -> Any:
        if places[0].endswith("a.csv"):
            raise MemoryError
        return rows(step, model, engine, *places)

    monkeypatch.setattr(file_parts, "_content", read_but_one)
    monkeypatch.setattr(PredictStep, "rows", rows_but_of_one)
    put(folder, "a.csv", content_of(1))
    there = {}
    for seed, name in ((2, "b.csv"), (3, "c.csv")):
        there[name] = content_of(seed)
        put(folder, name, there[name])
        with _failing(1, "a.csv", "needs more memory than there is", "smaller files"):
            run(folder, engine)
        check_rows(table_of(folder), there)


def test_score__a_file_that_takes_its_workers_with_it_holds_up_no_other(
    folder: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce = Engine.reduce

    def reduce_but_one(self: Engine, source: Any, reduction: Any, files: Any, *more: Any, **named: Any) -> Any:
        if any(new.file.name == "b.csv" for new in files):
            raise LostTaskError("task-lost", "A task was given up.", "Give workers more memory.")
        return reduce(self, source, reduction, files, *more, **named)

    monkeypatch.setattr(Engine, "reduce", reduce_but_one)
    there = {name: content_of(seed) for seed, name in enumerate(("a.csv", "b.csv", "c.csv"))}
    for name, content in there.items():
        put(folder, name, content)
    with _failing(1, "b.csv", "A task was given up", "more memory"):
        run(folder, engine)
    check_rows(table_of(folder), {name: there[name] for name in ("a.csv", "c.csv")})


def test_score__large_files_come_last(folder: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (module, file_parts):
        monkeypatch.setattr(where, "is_small", lambda path, size: size < 100)
    for seed, (name, rows) in enumerate({"a": 40, "b": 3, "c": 20, "d": 2}.items()):
        put(folder, f"{name}.csv", content_of(seed, rows))
    assert [entry.file for entry in run(folder, engine).scored] == ["b.csv", "d.csv", "c.csv", "a.csv"]


def test_score__a_file_in_place_of_the_folder_is_refused(folder: Path, engine: Engine) -> None:
    put(folder, "a.csv", content_of(1))
    (folder / "out.parquet").write_text("mine")
    assert news_of_predict(step_of(folder)).found == "1 new file"
    with refused("wrong-kind", folder / "out.parquet", kind=OutputExistsError):
        run(folder, engine)
    assert (folder / "out.parquet").read_text() == "mine"


class Fatal:
    """Raises `Killed` in the operation of a number, once; what is written by it is written in part."""

    def __init__(self, number: int) -> None:
        self.left = number

    def strikes(self) -> bool:
        self.left -= 1
        return self.left == -1

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def strike(*values: Any, **named: Any) -> Any:
            if self.strikes():
                raise Killed
            return function(*values, **named)

        return strike

    def torn(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def open_torn(*values: Any) -> Any:
            return TornFile(function(*values), self)

        return open_torn


class TornFile:
    def __init__(self, file: Any, fatal: Fatal) -> None:
        self.file, self.fatal = file, fatal

    def write(self, content: bytes) -> None:
        if self.fatal.strikes():
            self.file.write(content[: len(content) * 2 // 3])
            self.file.close()
            raise Killed
        self.file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> TornFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()


@contextmanager
def dying_at(number: int) -> Iterator[None]:
    """Have the process die at the operation of a number, if there are so many."""
    fatal = Fatal(number)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "fsync", "truncate", "makedirs"):
            patch.setattr(os, name, fatal.before(getattr(os, name)))
        patch.setattr(pyarrow.parquet, "write_table", fatal.before(pyarrow.parquet.write_table))
        patch.setattr(scored_ledger, "open_to_append", fatal.torn(open_to_append))
        with suppress(Killed):
            yield


ACTIONS = st.one_of(
    st.tuples(st.just("arrive"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("rename"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("remove"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("take"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("run"), st.just(0), st.just(0)),
    st.tuples(st.just("die"), st.integers(0, 30), st.just(0)),
)


@given(st.lists(ACTIONS, min_size=3, max_size=12))
@settings(max_examples=60)
def test_score_each_file__whatever_happens(engine: Engine, actions: list[tuple[str, int, int]]) -> None:
    """Names are few, so that contents are repeated under other names and names get other contents."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH_FILES", 2)
        folder = Path(place)
        (folder / "in").mkdir()
        taken: list[pd.DataFrame] = []
        seen: dict[str, str] = {}
        for action, one, other in [*actions, ("run", 0, 0)]:
            path = folder / "in" / f"{one}.csv"
            parts = sorted((folder / "out.parquet").glob("*.parquet"))
            match action:
                case "arrive":
                    put(folder, path.name, content_of(other))
                case "rename" if path.exists():
                    path.rename(folder / "in" / f"{other}.csv")
                case "remove":
                    path.unlink(missing_ok=True)
                case "take" if parts:
                    taken.append(pyarrow.parquet.read_table(parts[one % len(parts)]).to_pandas())
                    parts[one % len(parts)].unlink()
                case "run":
                    seen |= {file.read_text(): file.read_text() for file in (folder / "in").glob("*.csv")}
                    run(folder, engine)
                    assert news_of_predict(step_of(folder)).found is None
                case "die":
                    with dying_at(one):
                        run(folder, engine)
                    # What was noted counts: its file may be gone by the next run.
                    noted = read_ledger(str(folder / "out.parquet")).scored
                    contents = map(content_of, range(6))
                    seen |= {text: text for text in contents if bytes_digest(text.encode()) in noted}
        there = [table_of(folder)] if seen and list((folder / "out.parquet").glob("*.parquet")) else []
        if not seen:
            return
        check_rows(pd.concat([*there, *taken]), seen)


@pytest.mark.slow
def test_score_each_file__every_death_once(engine: Engine, tmp_path: Path) -> None:
    """Two runs over three files, the first of which dies at each operation in turn, also while it notes them."""
    contents = {str(seed): content_of(seed) for seed in range(3)}
    completed = torn = deaths = 0
    for number in range(200):
        folder = tmp_path / str(number)
        (folder / "in").mkdir(parents=True)
        for name, content in contents.items():
            put(folder, f"{name}.csv", content)
        done = False
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "BATCH_FILES", 2)
            with dying_at(number):
                run(folder, engine)
                done = True
        if done:
            break
        deaths += 1
        ledger = folder / "out.parquet" / LEDGER
        torn += ledger.exists() and not ledger.read_bytes().endswith(b"\n")
        news = news_of_predict(step_of(folder)).found
        result = run(folder, engine)
        assert (news is None) == (not result.scored and not result.completed)
        completed += result.completed
        check_rows(table_of(folder), contents)
        assert not [name for name in os.listdir(folder / "out.parquet") if name.startswith(".")]
        assert news_of_predict(step_of(folder)).found is None
    else:
        pytest.fail("it died whatever the operation")
    assert deaths > 20
    assert completed > 4
    assert torn == 2


def test_score_each_file__is_told_and_described(engine: Engine, folder: Path) -> None:
    for seed in range(3):
        put(folder, f"deep/{seed}.csv", content_of(seed))
    assert news_of_predict(step_of(folder)).found == "3 new files"
    first = run(folder, engine)
    assert (len(first.scored), first.rows, first.notes) == (3, 9, ())
    assert table_of(folder)["source"].unique().tolist() == [f"deep/{seed}.csv" for seed in range(3)]
    put(folder, "again.csv", content_of(1))
    put(folder, "deep/0.csv", content_of(7, rows=5))
    assert news_of_predict(step_of(folder)).found == "1 new file, 1 repeated file"
    second = run(folder, engine, model_of(1))
    assert (second.rows, second.repeated, second.changed) == (5, ("again.csv",), ("deep/0.csv",))
    assert "deep/0.csv had been scored before with other content" in second.notes[0]
    assert "1 with other content than before, 1 repeated" in second.summary()
    assert news_of_predict(step_of(folder)).found is None
    found = describe_place(str(folder / "out.parquet"))
    assert (found["files"], found["rows"], found["repeated"]) == (4, 14, 1)
    assert [entry["files"] for entry in found["models"]] == [3, 1]
    assert found["newest"]["file"] in {f"deep/{seed}.csv" for seed in range(3)}
    assert json.loads(json.dumps(second.describe()))["changed"] == 1


def test_score_each_file__nothing_to_do_is_no_error(engine: Engine, folder: Path) -> None:
    assert news_of_predict(step_of(folder)).found is None
    assert run(folder, engine).describe()["files"] == 0
    assert os.listdir(folder) == ["in"]
    with refused("not-found", folder / "elsewhere" / "in", kind=StorageError):
        score_each_file(step_of(folder / "elsewhere"), engine, lambda _: MODEL)


BROKEN = {
    "columns.csv": "id,a\n1,2\n",
    "empty.csv": "",
    "header.csv": "id,a,b\n",
    "text.csv": "id,a,b\n1,2,x\n",
    "missing.csv": "id,a,b\n1,2,\n",
    "ragged.csv": "id,a,b\n1,2,3\n1,2,3,4\n",
    "bytes.csv.gz": "no archive",
    "bytes.csv.xz": "no archive, either",
    "bytes.parquet": "no table",
}


def test_score_each_file__broken_files_hold_up_no_others(engine: Engine, folder: Path) -> None:
    put(folder, "a.csv", content_of(0))
    put(folder, "z.csv", content_of(1))
    for name, content in BROKEN.items():
        put(folder, name, content)
    put(folder, "bytes2.parquet", BROKEN["bytes.parquet"])
    for left in (2, 0):
        with _failing(10) as caught:
            run(folder, engine)
        assert isinstance(caught.value.result, FilesScored)
        assert len(caught.value.result.scored) == left
        failed = {one.file: one.code for one in caught.value.result.failed}
        assert failed.keys() == {*BROKEN, "bytes2.parquet"}
        assert failed["bytes.parquet"] == "unreadable"
        assert news_of_predict(step_of(folder)).found == "9 new files, 1 repeated file"
    check_rows(table_of(folder), {str(seed): content_of(seed) for seed in range(2)})
    put(folder, "columns.csv", content_of(2))
    for name in (*BROKEN, "bytes2.parquet"):
        if name != "columns.csv":
            (folder / "in" / name).unlink()
    assert run(folder, engine).changed == ()
    check_rows(table_of(folder), {str(seed): content_of(seed) for seed in range(3)})


def test_score_each_file__says_what_to_do_where_it_is_the_same_for_all(engine: Engine, folder: Path) -> None:
    for name in ("a.csv", "b.csv"):
        put(folder, name, BROKEN["columns.csv"] + f"{name}\n")
    with _failing(2) as caught:
        run(folder, engine)
    assert isinstance(caught.value.result, FilesScored)
    (remedy,) = {one.remedy for one in caught.value.result.failed}
    assert caught.value.remedy.startswith(f"{remedy} Or take away")
    put(folder, "c.csv.gz", BROKEN["bytes.csv.gz"])
    with _failing(3) as caught:
        run(folder, engine)
    assert caught.value.remedy.startswith("Mend them. Or take away")


@pytest.mark.parametrize("first", ["a", "z"])
def test_score_each_file__compressed_files_are_scored_in_parts_whatever_their_size(
    engine: Engine, folder: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALL_BYTES", 2000)
    monkeypatch.setattr(small_files, "SMALL_VALUES", 90)
    monkeypatch.setattr(ingest_sources, "CSV_PARTITION_BYTES", 500)
    contents = {"much": content_of(0, 300), "little": content_of(1), "table": content_of(2, 300)}
    (folder / "in" / f"{first}.csv.gz").write_bytes(gzip.compress(contents["much"].encode()))
    (folder / "in" / "little.csv.gz").write_bytes(gzip.compress(contents["little"].encode()))
    pd.read_csv(io.StringIO(contents["table"])).to_parquet(folder / "in" / "table.parquet")
    assert len(run(folder, engine).scored) == 3
    check_rows(table_of(folder), contents)


def test_score_each_file__that_takes_more_memory_than_there_is_holds_up_no_others(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        put(folder, f"{seed}.csv", content_of(seed))
    encode = small_files.encode_file

    def encoded(content: bytes, *values: Any, **named: Any) -> Any:
        if content == content_of(1).encode():
            raise MemoryError
        return encode(content, *values, **named)

    monkeypatch.setattr(file_parts, "encode_file", encoded)
    with _failing(1) as caught:
        run(folder, engine)
    assert isinstance(caught.value.result, FilesScored)
    assert [(one.file, one.code) for one in caught.value.result.failed] == [("1.csv", "over-limit")]
    check_rows(table_of(folder), {str(seed): content_of(seed) for seed in (0, 2)})


def test_score_each_file__what_changed_lately_waits(engine: Engine, folder: Path) -> None:
    put(folder, "new.csv", content_of(0))
    os.utime(put(folder, "old.csv", content_of(1)), (0, 0))
    result = run(folder, engine, settle=3600)
    assert ([entry.file for entry in result.scored], result.waiting) == (["old.csv"], ("new.csv",))
    assert news_of_predict(step_of(folder, settle=3600)) == StepNews(None, waiting=1)
    assert news_of_predict(step_of(folder)) == StepNews("1 new file")


def test_score_each_file__what_was_only_touched_does_not_wait(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    put(folder, "scored.csv", content_of(0))
    put(folder, "twin.csv", content_of(0))
    put(folder, "grown.csv", content_of(1))
    assert len(run(folder, engine).scored) == 2
    put(folder, "grown.csv", content_of(1) + "more,1,2\n")
    read: list[str] = []
    digest_of = source_files.digest_of

    def noted(file: SourceFile) -> str | None:
        read.append(file.name)
        return digest_of(file)

    monkeypatch.setattr(source_files, "digest_of", noted)
    for path in (folder / "in").iterdir():
        os.utime(path, (now - 60, now - 60))
    for settle in (3600, 3600, 0):
        wait = settle > 0
        assert news_of_predict(step_of(folder, settle=settle)) == StepNews(None if wait else "1 new file", int(wait))
    assert sorted(read) == ["grown.csv", "scored.csv", "twin.csv"]  # each once, and what has grown when it has settled
    put(folder, "scored.csv", content_of(2))
    result = run(folder, engine, settle=3600)
    assert (result.scored, sorted(result.waiting)) == ((), ["grown.csv", "scored.csv"])


@pytest.mark.parametrize("large", [False, True])
def test_score_each_file__file_that_grows_meanwhile_waits(
    engine: Engine, folder: Path, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(folder, "a.csv", content_of(0))
    put(folder, "b.csv", content_of(1))
    monkeypatch.setattr(file_parts, "is_small", lambda *_: not large)
    monkeypatch.setattr(module, "is_small", lambda *_: not large)
    model = model_of()
    write, once = file_parts._write, threading.Lock()

    def growing(*values: Any, **named: Any) -> None:
        write(*values, **named)
        with once:  # both files are written at the same time
            if path.read_text() == content_of(0):
                with path.open("a") as file:
                    file.write("more,1,2\n")

    monkeypatch.setattr(file_parts, "_write", growing)
    first = run(folder, engine, model)
    assert ([entry.file for entry in first.scored], first.waiting) == (["b.csv"], ("a.csv",))
    assert not [name for name in os.listdir(folder / "out.parquet") if name.startswith(".")]
    run(folder, engine, model)
    check_rows(table_of(folder), {"a": content_of(0) + "more,1,2\n", "b": content_of(1)}, model)


def test_score_each_file__large_files_are_scored_alike(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"a.csv": content_of(0, 3000), "b.csv": content_of(1, 10)}
    for name, content in contents.items():
        put(folder, name, content)
    monkeypatch.setattr(file_parts, "is_small", lambda *_: False)
    monkeypatch.setattr(module, "is_small", lambda *_: False)
    run(folder, engine)
    check_rows(table_of(folder), contents)
    assert pyarrow.parquet.ParquetFile(next((folder / "out.parquet").glob("a-*"))).num_row_groups == 3
    assert Counter(table_of(folder)["source"]) == {"a.csv": 3000, "b.csv": 10}


def test_score_each_file__what_is_missing_counts_as_the_mean_where_it_is_told_to(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name, small in (("small", True), ("large", False)):
        folder = tmp_path / name
        (folder / "in").mkdir(parents=True)
        put(folder, "a.csv", "id,a,b\nx,,1.5\ny,0.2,0.1\n")
        if not small:
            monkeypatch.setattr(file_parts, "is_small", lambda *_: False)
            monkeypatch.setattr(module, "is_small", lambda *_: False)
        run(folder, engine, unseen="zero")
        found.append(table_of(folder)[["id", "row", "probability_no", "familiarity"]])
    assert len(found[0]) == 2
    pd.testing.assert_frame_equal(found[0], found[1])


def test_score_each_file__types_are_those_of_the_first(engine: Engine, folder: Path) -> None:
    def parquet(name: str, ids: Any) -> None:
        table = pyarrow.table({"id": ids, "a": [float(len(name))], "b": [1.0]})
        pyarrow.parquet.write_table(table, folder / "in" / name)

    parquet("a.parquet", pyarrow.array([1], pyarrow.int64()))
    parquet("b.parquet", pyarrow.array([2], pyarrow.int8()))
    put(folder, "c.csv", "id,a,b\n3,1,2\n")
    parquet("dd.parquet", pyarrow.array(["four"]))
    with _failing(1, "dd.parquet", "'id'", "string", "int64") as caught:
        run(folder, engine)
    assert isinstance(caught.value.result, FilesScored)
    assert [one.code for one in caught.value.result.failed] == ["columns-differ"]
    assert table_of(folder)["id"].tolist() == [1, 2, 3]
    with refused("columns-differ", folder / "out.parquet", "have id"):
        run(folder, engine, keep=())
    with refused("columns-differ", folder / "out.parquet", "lack probability_maybe"):
        run(folder, engine, model_of(0, ("maybe", "no", "yes")))


# What dask.dataframe does inside where Parquet files were not written by pandas.
@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index:DeprecationWarning")
@pytest.mark.parametrize("reader", ["pandas", "dask", "glob"])
def test_score_each_file__other_readers_see_each_row_once(engine: Engine, folder: Path, reader: str) -> None:
    for seed in range(3):
        put(folder, f"k={seed}.csv", content_of(seed))
    run(folder, engine)
    out = folder / "out.parquet"
    for name in (".x-0.parquet.partial-00000000", ".x-0.parquet.blocks-00000000"):
        (out / name).write_text("in the middle of being written")
    match reader:
        case "pandas":
            frame = pd.read_parquet(out)
        case "dask":
            from dask.dataframe import read_parquet

            frame = read_parquet(str(out)).compute()
        case _:
            frame = pd.concat(map(pd.read_parquet, out.glob("*.parquet")))
    check_rows(frame, {str(seed): content_of(seed) for seed in range(3)})
    run(folder, engine)
    assert not list(out.glob(".*"))
    assert list(frame.columns)[:3] == ["source", "row", "id"]


def test_score_each_file__one_writer_at_a_time(engine: Engine, folder: Path) -> None:
    put(folder, "a.csv", content_of(0))

    def load(_: str) -> PrototypeSet:
        assert Path(lock_place(str(folder / "out.parquet"))).exists()
        with refused("written-by-another", folder / "out.parquet", kind=StorageError):
            run(folder, engine)
        return MODEL

    assert len(score_each_file(step_of(folder), engine, load).scored) == 1


@pytest.mark.parametrize(
    ("settings", "code", "facts"),
    [
        ({"out": "out.zarr", "keep": ()}, "bad-setting", ["out.zarr", ".parquet"]),
        ({"overwrite": True}, "settings-conflict", ["overwrite", "each-file"]),
        ({"settle": -1.0}, "bad-setting", ["settle is -1.0"]),
        ({"settle": float("nan")}, "bad-setting", ["settle is nan"]),
        ({"data": ("rows.npz",)}, "wrong-kind", ["rows.npz", "`each_file`"]),
        ({"each_file": False, "settle": 1.0}, "settings-conflict", ["settle", "`each_file`"]),
    ],
)
def test_check_each_file__settings_that_cannot_work(settings: dict[str, Any], code: Code, facts: list[str]) -> None:
    given = {"model": "m", "data": ("in",), "out": "out.parquet", "each_file": True, **settings}
    with refused(code, *facts):
        check_each_file(PredictStep(**given))


def test_check_each_file__columns_of_its_own_cannot_be_kept() -> None:
    with refused("named-twice", "'source'"):
        check_each_file(PredictStep("m", ("in",), "out.parquet", keep=("source",), each_file=True))


def test_score_each_file__places_that_cannot_work(engine: Engine, folder: Path) -> None:
    put(folder, "a.csv", content_of(0))
    inside = PredictStep("m", (str(folder / "in"),), str(folder / "in" / "out.parquet"), each_file=True)
    with refused("places-overlap", folder / "in" / "out.parquet", f"{folder}/in,"):
        score_each_file(inside, engine, lambda _: MODEL)
    run(folder, engine)
    everything = PredictStep(
        "m", (str(folder / "**" / "*"),), str(folder / "out.parquet"), keep=("id",), each_file=True
    )
    with refused("places-overlap", folder / "out.parquet"):
        score_each_file(everything, engine, lambda _: MODEL)
    (folder / "taken.parquet").write_text("rows")
    taken = PredictStep("m", (str(folder / "in"),), str(folder / "taken.parquet"), each_file=True)
    with refused("wrong-kind", folder / "taken.parquet", kind=OutputExistsError):
        score_each_file(taken, engine, lambda _: MODEL)


def test_score_each_file__into_an_empty_folder(engine: Engine, folder: Path) -> None:
    (folder / "out.parquet").mkdir()
    put(folder, "a.csv", content_of(0))
    run(folder, engine)
    check_rows(table_of(folder), {"a": content_of(0)})


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"file": "a"}',
        '{"file":"a","digest":"0","size":1,"rows":1,"part":"../a.parquet","run":"0","model":"m","batches":1,'
        '"calibrated":false,"time":"t","version":"v"}',
    ],
)
def test_read_ledger__damaged_line_is_refused_and_a_cut_one_ignored(engine: Engine, folder: Path, line: str) -> None:
    put(folder, "a.csv", content_of(0))
    run(folder, engine)
    ledger = folder / "out.parquet" / LEDGER
    whole = ledger.read_text()
    ledger.write_text(f"{line}\n{whole}")
    with refused("damaged", "Line 1", folder / "out.parquet" / LEDGER, kind=FormatError):
        run(folder, engine)
    ledger.write_text(whole + line)
    put(folder, "b.csv", content_of(1))
    assert len(run(folder, engine).scored) == 1
    assert ledger.read_text().startswith(whole)
    assert len(ledger.read_text().splitlines()) == 2


@given(st.text(max_size=300), st.text(alphabet="0123456789abcdef", min_size=32, max_size=32))
def test_part_name__is_a_name_that_readers_look_at(name: str, digest: str) -> None:
    part = part_name(f"{name}.csv", digest)
    assert scored_ledger.PART.fullmatch(part)
    assert not part.startswith((".", "_"))
    assert "=" not in part
    entry = scored_ledger.Scored("a", "0", 1, 1, part, "00000000", "model", 1, False, "now", "1")
    assert len(entry.aside.encode()) < 255
    assert digest in part
