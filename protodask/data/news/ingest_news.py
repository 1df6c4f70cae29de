"""Ingesting what is new: each source exactly once, whatever it is called and however often this is repeated."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from protodask.data.arrays.rows import RangedRows, RowRange, joined_ranges
from protodask.data.format.commits import add_empty_segments
from protodask.data.format.dataset import Dataset
from protodask.data.format.metadata import check_same_schema
from protodask.data.format.segments import Segment
from protodask.data.format.writer import write_dataset
from protodask.data.news.new_sources import NewFile, NewRows, News, find_news, known_segments
from protodask.data.places.locations import locate
from protodask.data.places.locks import sweep
from protodask.data.places.storage import check_free, is_taken
from protodask.data.tables.ingest_scan import Scan, encoded_source, run_scan, warn_of_unseen
from protodask.data.tables.ingest_schema import (
    Wanted,
    check_columns,
    check_wanted,
    encode_anew,
    encoder_like,
    written_as,
)
from protodask.data.tables.ingest_sources import tables_by_file
from protodask.data.tables.source_files import COARSE_NS, DigestCache, cache_beside, digest_of, is_unchanged
from protodask.data.tables.tables import Encoder, TableSource
from protodask.engine import Engine, EngineLike, Layout, choose_block_rows, open_engine
from protodask.errors import InputError, NothingYetError, OutputExistsError, ProtodaskError, StorageError, some
from protodask.places import mask


@dataclass(frozen=True)
class Ingested:
    """What came of an ingest of what is new."""

    dataset: Dataset
    taken: tuple[Segment, ...]
    """Sources whose rows were written."""
    left: tuple[str, ...]
    """Files that changed a moment ago or meanwhile: for the next time."""


@dataclass(frozen=True)
class _Opened:
    """Datasets that were opened, each once, so that all that is done with one is done with one state of it."""

    found: dict[str, Dataset] = field(default_factory=dict)

    def at(self, path: str) -> Dataset | None:
        where = locate(path)
        if where not in self.found and is_taken(where):
            self.found[where] = Dataset.open(where)
        return self.found.get(where)

    def segments(self, path: str) -> tuple[Segment, ...] | None:
        dataset = self.at(path)
        return None if dataset is None else dataset.sources


def ingest_news(
    sources: Any,
    out: str | os.PathLike[str],
    wanted: Wanted,
    *,
    new: bool,
    unless_in: str | os.PathLike[str] | None = None,
    settle: float = 0.0,
    overwrite: bool = False,
    block_rows: int | None = None,
    engine: EngineLike = None,
) -> Ingested:
    """Take what `out` (with `new`) and `unless_in` do not have, as `ingest` says."""
    check_wanted(wanted)
    where, other = locate(out), None if unless_in is None else locate(unless_in)
    places = _places(sources)
    opened = _Opened()
    known = known_segments(where, new, other, opened.segments)
    started_ns = time.time_ns()
    news = find_news(places, known, DigestCache(cache_beside(where)), settle, opened.segments)
    base = opened.at(where) if new else None
    left = list(news.changing)
    with _unless_made_meanwhile(where, new):
        if base is None and news.items:
            check_free(where, overwrite)
        with open_engine(engine) as running:
            work = _Work(where, wanted, base, opened, other, overwrite, block_rows, started_ns, running)
            found = _take(work, news, left)
    if left:
        warnings.warn(f"Files that are being changed are left for the next time: {some(left)}.", stacklevel=3)
    if found is None:
        return Ingested(_unchanged(where, places, opened), (), (*news.waiting, *left))
    _warn(opened, news, found[1], base, other)
    return Ingested(*found, (*news.waiting, *left))


@contextmanager
def _unless_made_meanwhile(where: str, new: bool) -> Iterator[None]:
    """Say of a dataset that was not there a moment ago who made it: what is to be added to is not to be replaced."""
    try:
        yield
    except OutputExistsError as error:
        if not new or error.code != "exists":
            raise
        seen = f"Someone else made {mask(where)} meanwhile."
        raise StorageError("written-by-another", seen, "Repeat: what is there is not added again.") from error


def _places(sources: Any) -> list[str]:
    several = list(sources) if isinstance(sources, (list, tuple)) else [sources]
    if not several or not all(isinstance(source, (str, os.PathLike)) for source in several):
        raise InputError(
            "unsupported",
            "What is new among arrays and data frames cannot be told.",
            "Give paths of files or datasets, or leave out `new` and `unless_in`.",
        )
    return [os.fspath(source) for source in several]


def _unchanged(where: str, places: Sequence[str], opened: _Opened) -> Dataset:
    dataset = opened.at(where)
    if dataset is None:
        raise NothingYetError(
            "nothing-yet",
            f"There is nothing new in {some([mask(place) for place in places])}, and no dataset at {where} yet.",
            "Repeat once there are files with rows.",
        )
    sweep(where)  # who wrote it may have been killed just after
    return dataset


def _warn(opened: _Opened, news: News, taken: Iterable[Segment], base: Dataset | None, other: str | None) -> None:
    names = {segment.name for segment in taken}
    if renewed := [name for name in news.renewed if name in names]:
        warnings.warn(
            f"Files have another content than when their rows were taken, which stay beside the new ones: "
            f"{some(renewed)}.",
            stacklevel=4,
        )
    files = any(isinstance(item, NewFile) for item in news.items)
    compared = [base, None if other is None else opened.at(other)]
    for dataset in compared:
        if files and dataset is not None and dataset.metadata.segments is None:
            warnings.warn(
                f"{mask(dataset.path)} does not say from which files its rows are, so none was left out.", stacklevel=4
            )


@dataclass(frozen=True)
class _Work:
    """All that an attempt needs to know."""

    where: str
    wanted: Wanted
    base: Dataset | None
    """What is appended to."""
    opened: _Opened
    other: str | None
    overwrite: bool
    block_rows: int | None
    started_ns: int
    engine: Engine

    def like(self, items: Sequence[NewFile | NewRows]) -> Dataset | None:
        """What the rows are to be encoded like: what they are compared with or added to, or the first among them."""
        if self.base is not None:
            return self.base
        if self.other is not None and (found := self.opened.at(self.other)) is not None:
            return found
        return next((self.opened.at(item.path) for item in items if isinstance(item, NewRows)), None)


def _take(work: _Work, news: News, left: list[str]) -> tuple[Dataset, tuple[Segment, ...]] | None:
    """Write what is new; files found to change are added to `left`, and all begins again without them."""
    while True:
        items = [item for item in news.items if not (isinstance(item, NewFile) and item.file.path in left)]
        if not items:
            return None
        try:
            return _attempt(work, items, left)
        except ProtodaskError:
            # What looks like a fault in a file may be a file that is being written.
            files = [item.file for item in items if isinstance(item, NewFile) and item.file.path not in left]
            changed = [file.path for file in files if not is_unchanged(file)]
            if not changed and len(files) == sum(isinstance(item, NewFile) for item in items):
                raise
            left += changed


def _attempt(
    work: _Work, items: Sequence[NewFile | NewRows], left: list[str]
) -> tuple[Dataset, tuple[Segment, ...]] | None:
    known = work.like(items)
    if known is not None:
        check_columns(work.wanted, known.metadata)
    ranges: list[RowRange] = []
    segments: list[Segment] = []
    encoder = None if known is None else encoder_like(known.metadata, work.wanted.unseen)
    dropped = work.wanted.drop
    if known is not None:
        dropped = tuple(dict.fromkeys((*known.metadata.dropped, *dropped)))
    for is_file, group in itertools.groupby(items, lambda item: isinstance(item, NewFile)):
        if is_file:
            files = [item for item in group if isinstance(item, NewFile)]
            encoder, found, rows = _read_files(work, files, encoder, dropped)
            segments += [Segment(item.file.name, item.digest, count) for item, count in zip(files, rows, strict=True)]
            if found is not None:
                ranges.append(RowRange(found, 0, sum(rows)))
            continue
        for item in group:
            if isinstance(item, NewRows) and known is not None and (dataset := work.opened.at(item.path)) is not None:
                check_same_schema(known.metadata, dataset.metadata)
                ranges.append(RowRange(dataset, item.first, item.segment.rows))
                segments.append(item.segment)

    def confirm() -> None:
        changed = [item.file.path for item in items if isinstance(item, NewFile) and not _is_same(item, work)]
        if changed:
            left.extend(changed)
            raise StorageError("changed-meanwhile", f"Files changed while they were read: {some(changed)}.", "Repeat.")

    parts = joined_ranges(ranges)
    if not parts or encoder is None:
        confirm()
        return None if work.base is None else (add_empty_segments(work.where, segments), tuple(segments))
    total = sum(part.rows for part in parts)
    layout = Layout(total, choose_block_rows(total, encoder.row_bytes) if work.block_rows is None else work.block_rows)
    source = RangedRows(parts, tuple(encoder.empty(0)), layout)
    dataset = write_dataset(
        source,
        work.where,
        **written_as(encoder),
        dropped=dropped,
        engine=work.engine,
        block_rows=None if work.base is not None else work.block_rows,
        overwrite=work.overwrite,
        append=work.base is not None,
        segments=segments,
        confirm=confirm,
    )
    return dataset, tuple(segments)


def _is_same(item: NewFile, work: _Work) -> bool:
    """Whether what was read of a file is what its digest was made of."""
    if not is_unchanged(item.file):
        return False
    # Where the clock of the file system may not have ticked since, its content has to tell.
    return item.file.modified_ns + COARSE_NS < work.started_ns or digest_of(item.file) == item.digest


def _read_files(
    work: _Work, items: Sequence[NewFile], encoder: Encoder | None, dropped: Sequence[str]
) -> tuple[Encoder | None, TableSource | None, list[int]]:
    """The rows of some files, and how many each has; without an encoder, what the columns become is found out first."""
    paths = [item.file.path for item in items]
    if arrays := [path for path in paths if path.endswith((".npy", ".npz"))]:
        raise InputError(
            "unsupported", f"{mask(arrays[0])} has arrays and no table.", "Give tables, or leave out `new` for arrays."
        )
    if encoder is None:
        table = tables_by_file(paths, work.wanted.labels, dropped)
        found, learnt = encode_anew(table, work.wanted, work.engine, work.block_rows)
        return learnt, found, _rows_by_file(found.edges, table.counts)
    needed = [*(column.name for column in encoder.columns), *encoder.roles]
    table = tables_by_file(paths, encoder.labels, dropped, needed)
    scan = Scan(table, encoder, (), None, count_unseen=encoder.unseen == "zero")
    scanned = run_scan(scan, work.engine, may_be_empty=True)
    warn_of_unseen(scanned.unseen)
    edges = (0, *itertools.accumulate(scanned.rows))
    source = encoded_source(table, encoder, scanned.rows, None) if edges[-1] else None
    return encoder, source, _rows_by_file(edges, table.counts)


def _rows_by_file(edges: Sequence[int], partitions: Sequence[int]) -> list[int]:
    """Rows of each file, from the first row of each partition and the partitions of each file."""
    ends = list(itertools.accumulate(partitions, initial=0))
    return [edges[last] - edges[first] for first, last in itertools.pairwise(ends)]
