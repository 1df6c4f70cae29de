"""Writing a dataset block by block, from any process, and committing it at the end.

`D` features, `K` classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import zarr

from protodask.data.arrays.array_store import write_rows
from protodask.data.arrays.plain_arrays import make_array
from protodask.data.arrays.rows import BlockNumbers, NamedArrays, RangedRows, RowRange, check_finite
from protodask.data.format.commits import appended_segment, changing, segments_before
from protodask.data.format.dataset import Dataset
from protodask.data.format.metadata import (
    BLOCK_CHECK_BYTES,
    DIGEST_MODULUS,
    Metadata,
    block_digest,
    check_of,
    check_same_schema,
    require_storable,
    to_attributes,
)
from protodask.data.format.parts import Part, grown, new_name
from protodask.data.format.schema import (
    FEATURES,
    GROUP,
    INCLUSION,
    TARGET,
    WEIGHT,
    Column,
    Label,
    Variable,
    check_block_rows,
    check_dtype,
    row_weights,
)
from protodask.data.format.segments import Segment, check_rows, segments_content, write_segments
from protodask.data.format.summary import Summary, empty_summary, summarize_rows
from protodask.data.places.locations import locate, open_store
from protodask.data.places.storage import DATASET, published, write_group, writing_into
from protodask.engine import (
    Arrays,
    Block,
    Engine,
    EngineLike,
    Layout,
    Reduction,
    Source,
    add_records,
    choose_block_rows,
    identity,
    open_engine,
)
from protodask.engine.records import merged_by
from protodask.errors import InputError, count, named_twice


@dataclass(frozen=True)
class DatasetSink:
    """Takes whole blocks of a part of a dataset that is being written; small to pickle.

    The place is another one for each writing, so that no process writes through arrays it opened for an earlier one,
    and a worker that outlived its driver does not write into what another driver has begun.
    """

    path: str = field(repr=False)  # tasks are logged with their arguments, and a URL may hold a secret
    chunk_rows: Mapping[str, int]
    first_row: int = 0

    def write(self, number: int, start: int, arrays: Arrays) -> None:
        """Store one block, a chunk at a time."""
        write_rows(self.path, "", self.chunk_rows, start - self.first_row, arrays)


@dataclass(frozen=True)
class Written:
    """What the blocks written so far amount to."""

    rows: int
    summary: Summary
    content: int = field(metadata=merged_by(lambda left, right: (left + right) % DIGEST_MODULUS))
    block_checks: bytes
    """The tree merges them in the order of the blocks."""


@dataclass(frozen=True)
class BlockWriter:
    """Checks a block, writes it, and says what it adds. Rows before `first_new` were counted before."""

    sink: DatasetSink
    dtype: str
    columns: tuple[str, ...]
    classes: int
    first_new: int = 0

    def store(self, block: Block) -> Written:
        arrays = {
            name: np.ascontiguousarray(block[name], dtype=self.dtype if name == FEATURES.name else None)
            for name in self.sink.chunk_rows
        }
        for variable, what, remedy in (
            (TARGET, "target codes", "Encode the labels as positions among the classes."),
            (GROUP, "codes of the groups", "Give each group a number from 0 that int64 can hold."),
        ):
            if variable.name in arrays:
                arrays[variable.name] = _integers(arrays[variable.name], variable, what, remedy)
        block = Block(block.number, block.start, arrays)
        self.check(block)
        self.sink.write(block.number, block.start, arrays)
        new = max(self.first_new - block.start, 0)
        weights = row_weights(block)
        summary = summarize_rows(
            arrays[FEATURES.name][new:],
            arrays[TARGET.name][new:],
            None if weights is None else weights[new:],
            self.classes,
        )
        digest = block_digest(block)
        return Written(block.n_rows - new, summary, digest, check_of(digest))

    def check(self, block: Block) -> None:
        """Whatever a source hands out, only legal values reach the disk."""
        features = block[FEATURES.name]
        if features.ndim != 2 or features.shape[1] != len(self.columns):
            raise InputError(
                "wrong-shape",
                f"A block of features has the shape {features.shape}, for {count(len(self.columns), 'feature')}.",
                "Give a source and columns that belong together.",
            )
        check_finite(features, self.columns, block.start)
        target = block[TARGET.name]
        _refuse(block, (target < 0) | (target >= self.classes), "target code", f"Codes are 0 to {self.classes - 1}.")
        if WEIGHT.name in block:
            weight = block[WEIGHT.name]
            _refuse(block, ~(np.isfinite(weight) & (weight >= 0)), "weight", "Weights are finite and at least 0.")
        if INCLUSION.name in block:
            share = block[INCLUSION.name]
            _refuse(block, ~((share > 0) & (share <= 1)), "inclusion probability", "These are above 0 and at most 1.")
        if GROUP.name in block:
            _refuse(block, block[GROUP.name] < 0, "group code", "Codes of groups are whole numbers of at least 0.")


def _integers(codes: Any, variable: Variable, what: str, remedy: str) -> Any:
    dtype = np.dtype(variable.dtypes[0])
    if codes.dtype.kind not in "iu" or (dtype == np.int64 and codes.dtype == np.uint64):
        raise InputError("wrong-type", f"The {what} are of type {codes.dtype}.", remedy)
    return np.ascontiguousarray(codes, dtype=dtype)


def _refuse(block: Block, wrong: Any, what: str, remedy: str) -> None:
    if wrong.any():
        raise InputError(
            "bad-value", f"Row {block.start + int(np.argmax(wrong))} (counted from 0) has an illegal {what}.", remedy
        )


def _store_block(block: Block, writer: BlockWriter, source: Source | None = None) -> Written:
    """Write a block, or that of this number of a source that tasks read by themselves."""
    return writer.store(block if source is None else source.read(block.number))


# Writing, counting and hashing in one pass: the rows are read once.
STORE: Reduction[Written, Written] = Reduction(_store_block, add_records, identity, writes=True)


def write_dataset(
    source: Source,
    path: str | os.PathLike[str],
    *,
    classes: Sequence[Label],
    columns: Sequence[Column],
    target_name: str = "target",
    weight_name: str | None = None,
    inclusion_name: str | None = None,
    group_name: str | None = None,
    dropped: Sequence[str] = (),
    engine: EngineLike = None,
    dtype: str = "float32",
    block_rows: int | None = None,
    overwrite: bool = False,
    append: bool = False,
    notes: Sequence[str] = (),
    segments: Sequence[Segment] | None = None,
    confirm: Callable[[], None] | None = None,
) -> Dataset:
    """Write a source of encoded "features" and "target" (and "weight", "inclusion", "group") as a dataset.

    The dataset appears whole or not at all. With `append` the rows are added to the dataset at `path`, which must
    have the same columns and classes; until the end it shows its old rows. One append at a time: another one is refused
    while it lasts (at a URL, where nothing can be locked, the first to end wins, and the others fail). Names of
    weight, inclusion and group default to those of the arrays.

    `segments` say from which sources the rows are; an append to a dataset that knows all of its own without them makes
    one of its rows. `confirm` is called when the rows are written and before they count, and may refuse.
    """
    where = locate(path)
    if source.layout.n_rows == 0:
        raise InputError("no-rows", "There are no rows to write.", "Give a source with rows.")
    with open_engine(engine) as opened:
        if None in (weight_name, inclusion_name, group_name):
            present = source.array_names if isinstance(source, NamedArrays) else tuple(source.read(0).arrays)
            weight_name = weight_name or (WEIGHT.name if WEIGHT.name in present else None)
            inclusion_name = inclusion_name or (INCLUSION.name if INCLUSION.name in present else None)
            group_name = group_name or (GROUP.name if GROUP.name in present else None)
        wanted = Metadata(
            n_rows=source.layout.n_rows,
            block_rows=1,
            dtype=np.dtype(dtype).name,
            classes=tuple(classes),
            columns=tuple(columns),
            target_name=target_name,
            weight_name=weight_name,
            inclusion_name=inclusion_name,
            group_name=group_name,
            dropped=tuple(dropped),
            summary=empty_summary(sum(len(column.feature_names) for column in columns), len(classes)),
            notes=tuple(notes),
        )
        _check_schema(wanted)
        if append:
            return _append(source, where, wanted, opened, segments, confirm)
        rows = choose_block_rows(wanted.n_rows, wanted.row_bytes) if block_rows is None else block_rows
        check_block_rows(rows)
        wanted = replace(wanted, block_rows=rows, identity=os.urandom(8).hex())
        require_storable(wanted, "Give fewer block_rows, or leave it out.")
        return _create(source, where, wanted, opened, overwrite, segments, confirm)


def _check_schema(metadata: Metadata) -> None:
    check_dtype(metadata.dtype)
    if len(metadata.classes) < 2:
        raise InputError(
            "one-class",
            f"The target {metadata.target_name!r} has {len(metadata.classes)} class.",
            "Give data of two or more classes.",
        )
    names = metadata.feature_names
    if len(names) == 0:
        raise InputError(
            "column-missing", "There are no feature columns.", "Give a table with columns besides the target."
        )
    if twice := sorted(named_twice(names)):
        raise InputError(
            "named-twice", f"Several features would have one name: {', '.join(twice)}.", "Rename the columns."
        )


def _writer(place: str, metadata: Metadata, first_block: int = 0, first_new: int = 0) -> BlockWriter:
    """What writes blocks from the first one on to a group, whose arrays are made for them."""
    first_row = metadata.block_rows * first_block
    with writing_into(place):
        group = zarr.open_group(open_store(place), mode="r+", zarr_format=3)
        for variable in metadata.variables:
            array = metadata.array_of(variable, place, Part("", 0, metadata.n_rows - first_row))
            make_array(group, array, variable.dims)
    steps = {
        variable.name: metadata.spec_of(variable).chunk_rows(metadata.block_rows) for variable in metadata.variables
    }
    return BlockWriter(
        sink=DatasetSink(place, steps, first_row),
        dtype=metadata.dtype,
        columns=metadata.feature_names,
        classes=len(metadata.classes),
        first_new=first_new,
    )


def _relaid(source: Source, metadata: Metadata, head: Dataset | None = None) -> Source:
    layout = Layout(metadata.n_rows, metadata.block_rows)
    if head is None and source.layout == layout:
        return source
    before = () if head is None else (RowRange(head, 0, head.n_rows),)
    names = tuple(variable.name for variable in metadata.variables)
    return RangedRows((*before, RowRange(source, 0, source.layout.n_rows)), names, layout)


def _write_blocks(source: Source, writer: BlockWriter, engine: Engine, first: int = 0) -> Written:
    blocks = range(first, source.layout.n_blocks)
    if not source.resident:
        numbers = BlockNumbers(source.layout)
        return engine.reduce(numbers, STORE, engine.share(writer), engine.share(source), label="ingest", blocks=blocks)
    try:
        return engine.reduce(source, STORE, engine.share(writer), label="ingest", blocks=blocks)
    finally:
        engine.forget(source)


def _create(
    source: Source,
    where: str,
    metadata: Metadata,
    engine: Engine,
    overwrite: bool,
    segments: Sequence[Segment] | None,
    confirm: Callable[[], None] | None,
) -> Dataset:
    if segments is not None:
        segments_content(segments)  # that there are not too many, before the rows are read
    with published(where, overwrite) as place:
        write_group(place, {"format": DATASET.format, "version": 1, "n_rows": 0})  # which says that it is unfinished
        written = _write_blocks(_relaid(source, metadata), _writer(place, metadata), engine)
        if not written.summary.weight > 0:
            raise InputError("no-rows", "All rows have the weight 0.", "Give positive weights to the rows that count.")
        finished = replace(
            metadata,
            n_rows=written.rows,
            summary=written.summary,
            content=written.content,
            block_checks=written.block_checks,
        )
        if segments is not None:
            check_rows(segments, finished.n_rows, where)
            finished = replace(finished, segments=write_segments(place, segments), n_segments=len(segments))
        if confirm is not None:
            confirm()
        write_group(place, to_attributes(finished))
    return Dataset.open(where)


def _append(
    source: Source,
    where: str,
    wanted: Metadata,
    engine: Engine,
    segments: Sequence[Segment] | None,
    confirm: Callable[[], None] | None,
) -> Dataset:
    with changing(where) as change:
        dataset = change.dataset
        old = dataset.metadata
        check_same_schema(old, wanted)
        before = segments_before(dataset, segments)
        total = replace(old, n_rows=old.n_rows + wanted.n_rows)
        first = old.n_rows // old.block_rows
        part = Part(new_name(change.number), first, total.n_rows - old.block_rows * first)
        total = change.after(total, grown(old.all_parts, part))
        require_storable(total)
        content = old.content
        if old.n_rows % old.block_rows:
            content -= block_digest(dataset.read(first))
        writer = _writer(change.make_group(part.name), total, first, first_new=old.n_rows)
        written = _write_blocks(_relaid(source, total, dataset), writer, engine, first)
        committed = replace(
            total,
            summary=old.summary + written.summary,
            content=(content + written.content) % DIGEST_MODULUS,
            block_checks=old.block_checks[: BLOCK_CHECK_BYTES * first] + written.block_checks,
            notes=(*old.notes, *(note for note in wanted.notes if note not in old.notes)),
            dropped=(*old.dropped, *(name for name in wanted.dropped if name not in old.dropped)),
        )
        if before is not None:
            added = [appended_segment(committed, old.n_rows)] if segments is None else segments
            committed = change.with_segments(committed, (*before, *added))
        change.make_durable()
        if confirm is not None:
            confirm()
        return change.commit(committed)
