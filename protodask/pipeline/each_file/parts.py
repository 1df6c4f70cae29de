"""From a file of raw tables to its part: a Parquet file of predictions, written aside and durable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from protodask._version import __version__
from protodask.data.news.new_sources import NewFile
from protodask.data.places.local_files import flush
from protodask.data.places.locations import storage_errors
from protodask.data.tables.small_files import NotSmallError, encode_file, is_small
from protodask.data.tables.source_files import bytes_digest, digest_of, is_unchanged, open_file
from protodask.engine import Arrays, Block, Engine
from protodask.errors import ClusterError, Code, InputError, LostTaskError, ProtodaskError, StorageError
from protodask.pipeline.each_file.ledger import Scored, part_name
from protodask.pipeline.steps.predict import PredictStep
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.prediction_columns import PREDICTED, prediction_columns
from protodask.prototypes.rows_to_score import dropped_columns, marked_rows, read_columns, with_advice
from protodask.prototypes.scoring import predict_block

SOURCE = "source"
"""The column of a part that holds the name of the file its rows are from."""


@dataclass(frozen=True)
class Changed:
    """A file that changed, or went away, before its rows were scored."""

    file: str


@dataclass(frozen=True)
class Failed:
    """A file that cannot be scored, and why."""

    file: str
    digest: str
    code: Code
    seen: str
    remedy: str


Outcome = Scored | Changed | Failed | NewFile
"""What became of a file; itself where it has more in it than its size says, to be scored block by block."""


class ChangedError(Exception):
    """There is something else in a file than was found there."""


class PartError(StorageError):
    """A part cannot be written, which is not the fault of the file it is of."""


@dataclass(frozen=True)
class Scoring:
    """How files are scored, all but the model itself."""

    folder: str
    """Where the parts go."""
    run: str
    fingerprint: str
    """Of the model."""
    n_batches: int
    step: PredictStep
    """What was said of how rows are read and scored."""
    schema: bytes | None = None
    """The columns of the parts, as an Arrow schema; None as long as nobody knows them."""

    def entry(self, new: NewFile, rows: int, marked: int) -> Scored:
        """What the ledger is to say of a file, of whose rows so many are marked."""
        return Scored(
            file=new.file.name,
            digest=new.digest,
            size=new.file.size,
            rows=rows,
            part=part_name(new.file.name, new.digest),
            run=self.run,
            model=self.fingerprint,
            batches=self.n_batches,
            calibrated=self.step.calibrated,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            version=__version__,
            marked=marked,
        )


def score_small_files(block: Block, files: Sequence[NewFile], scoring: Scoring, model: PrototypeSet) -> list[Outcome]:
    """Score the file of a block's number."""
    new = files[block.number]
    try:
        table = _small_table(new, scoring, model)
        entry = scoring.entry(new, table.num_rows, table[PREDICTED].null_count)
        _write(_fitted(table, scoring.schema), os.path.join(scoring.folder, entry.aside))
    except NotSmallError:
        return [new]
    except Exception as error:
        return [failure(new, error)]
    return [entry if is_unchanged(new.file) else Changed(new.file.name)]


def score_large_file(new: NewFile, scoring: Scoring, model: PrototypeSet, engine: Engine) -> Outcome:
    """Score a file block by block, and put the blocks together to a part."""
    try:
        source = scoring.step.rows(model, engine, new.file.path)
        entry = scoring.entry(new, source.layout.n_rows, marked_rows(source))
        blocks = os.path.join(scoring.folder, entry.blocks)
        with _writing(blocks):
            os.makedirs(blocks)
        try:
            sink = _BlockFiles(blocks, model.classes, _file_name(new), scoring.schema)
            model_there = engine.share(model)
            label = f"predict {new.file.name}"
            engine.map(
                source, predict_block, model_there, scoring.n_batches, scoring.step.calibrated, sink=sink, label=label
            )
            engine.forget(source)
            _join(sink, source.layout.n_blocks, os.path.join(scoring.folder, entry.aside))
        finally:
            shutil.rmtree(blocks, ignore_errors=True)
    except Exception as error:
        return failure(new, error)
    # A store says by itself whether it has another object by now; that need not be read once more.
    same = is_unchanged(new.file) if "://" in new.file.path else digest_of(new.file) == new.digest
    return entry if same else Changed(new.file.name)


def columns_of(new: NewFile, scoring: Scoring, model: PrototypeSet, engine: Engine) -> bytes | Changed | Failed:
    """The schema that a part of a file would have."""
    try:
        table = None
        if is_small(new.file.path, new.file.size):
            with suppress(NotSmallError):
                table = _small_table(new, scoring, model)
        if table is None:
            source = scoring.step.rows(model, engine, new.file.path)
            found = predict_block(source.read(0), model, scoring.n_batches, scoring.step.calibrated)
            table = _table(_file_name(new), model.classes, 0, found)
    except Exception as error:
        return failure(new, error)
    return bytes(table.schema.remove_metadata().serialize())


def _content(new: NewFile) -> bytes:
    with storage_errors(new.file.path, "reading"), open_file(new.file.path) as file:
        content: bytes = file.read()
    if bytes_digest(content) != new.digest or not is_unchanged(new.file):
        raise ChangedError
    return content


def _small_table(new: NewFile, scoring: Scoring, model: PrototypeSet) -> Any:
    arrays = encode_file(
        _content(new),
        new.file.path,
        read_columns(model, scoring.step.unseen),
        target_name=model.target_name,
        keep=scoring.step.keep,
        dropped=dropped_columns(model, scoring.step.drop, (model.target_name,)),
        unseen=scoring.step.unseen,
        bad_rows=scoring.step.bad_rows,
        dtype=model.row_precision,
    )
    found = predict_block(Block(0, 0, arrays), model, scoring.n_batches, scoring.step.calibrated)
    return _table(_file_name(new), model.classes, 0, found)


def _file_name(new: NewFile) -> str:
    # Names of files need be no text in any encoding; columns of text are.
    return new.file.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _table(name: str, classes: Any, start: int, arrays: Arrays) -> Any:
    import pyarrow

    columns = prediction_columns(classes, start, arrays)
    rows = len(next(iter(columns.values())))
    return pyarrow.table({SOURCE: pyarrow.repeat(name, rows), **columns})


def _fitted(table: Any, schema: bytes | None) -> Any:
    """The table with the types that the parts have."""
    import pyarrow

    if schema is None:
        return table
    wanted = pyarrow.ipc.read_schema(pyarrow.py_buffer(schema))
    columns = []
    for field in wanted:
        column = table[field.name]
        try:
            columns.append(column.cast(field.type))
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
            raise InputError(
                "columns-differ",
                f"Column {field.name!r} holds values of type {column.type}, and in the files scored before of type "
                f"{field.type}.",
                "Give files whose columns are of the same types, or score such ones into another folder.",
            ) from error
    return pyarrow.table(columns, schema=wanted)


@dataclass(frozen=True)
class _BlockFiles:
    """Writes each block as a file of its own, under no name that a reader of Parquet looks at."""

    folder: str
    classes: Any
    name: str
    schema: bytes | None

    def path(self, number: int) -> str:
        return os.path.join(self.folder, f"{number:08d}")

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        table = _fitted(_table(self.name, self.classes, start, arrays), self.schema)
        _write(table, self.path(number), durable=False)


def _write(table: Any, path: str, durable: bool = True) -> None:
    import pyarrow.parquet

    with _writing(path):
        pyarrow.parquet.write_table(table, path, write_page_checksum=True)
        if durable:
            flush(path)


def _join(sink: _BlockFiles, n_blocks: int, path: str) -> None:
    """Blocks in their order as one file, one at a time in memory."""
    import pyarrow.parquet

    with _writing(path):
        first = pyarrow.parquet.read_schema(sink.path(0))
        with pyarrow.parquet.ParquetWriter(path, first, write_page_checksum=True) as writer:
            for number in range(n_blocks):
                with open(sink.path(number), "rb") as file:
                    writer.write_table(pyarrow.parquet.read_table(file))
                os.unlink(sink.path(number))
        flush(path)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        with storage_errors(path, "writing"):
            yield
    except StorageError as error:
        raise PartError(error.code, error.seen, error.remedy) from error


def failure(new: NewFile, error: Exception) -> Changed | Failed:
    """What an error says of a file; one that is not the file's ends the run.

    Workers that die one after the other with a file do so for its sake: mostly it needs more memory than they have.
    """
    if isinstance(error, (PartError, ClusterError)) and not isinstance(error, LostTaskError):
        raise error
    if isinstance(error, ChangedError) or not is_unchanged(new.file):
        return Changed(new.file.name)
    if isinstance(error, MemoryError):
        remedy = "Divide it into smaller files, or give the run more memory."
        error = InputError("over-limit", "It needs more memory than there is.", remedy)
    # Parsers of damaged files raise whatever comes to them, and one such file must not hold up the others.
    if not isinstance(error, ProtodaskError):
        error = InputError("unreadable", f"It cannot be read ({type(error).__name__}: {error}).", "Check the file.")
    error = with_advice(error)
    return Failed(new.file.name, new.digest, error.code, " ".join(error.seen.split()), error.remedy)


def empty_columns(model: PrototypeSet) -> tuple[str, ...]:
    """The columns that parts have, besides those that are kept."""
    arrays: Arrays = {
        "probability": np.empty((0, model.n_classes)),
        "familiarity": np.empty(0),
        "predicted": np.empty(0, dtype=np.int32),
    }
    return (SOURCE, *prediction_columns(model.classes, 0, arrays))
