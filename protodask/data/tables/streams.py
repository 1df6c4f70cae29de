"""Streams of Arrow's, which give their rows once and need not fit into memory, kept as files while they are ingested.

An ingest looks at all rows before it encodes the first. So what is larger than a row group is written to a Parquet file
in the system's place for such, a row group at a time.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from protodask.data.places.locations import storage_errors
from protodask.data.places.own_folder import temporary_folder
from protodask.data.tables.frames import PANDAS, arrow_reader, check_names, gives_table, library_of, stream_errors
from protodask.engine import Engine
from protodask.engine.threads import ThreadScheduler
from protodask.errors import refusing

GROUP_BYTES = 2**25
"""Batches of a stream are put together to row groups of this size, which is what the reader of files has in memory."""


def is_stream(source: Any) -> bool:
    """Whether it gives its rows as a stream, and has none of them in memory: a reader, or a relation of DuckDB."""
    if not gives_table(source) or library_of(source) in ("pandas", "polars", "xarray"):
        return False
    return not any(hasattr(source, name) for name in ("num_rows", "collect_schema"))


@contextmanager
def stored_streams(sources: Any, engine: Engine) -> Iterator[Any]:
    """Sources of a dataset, with files in place of streams for as long as the body runs.

    Those that a cluster is to read stay what they are: its workers need not see the place.
    """
    several = sources if isinstance(sources, list) else [sources]
    if not any(map(is_stream, several)) or not isinstance(engine.scheduler, ThreadScheduler):
        yield sources
        return
    with temporary_folder() as folder:
        yield [
            _stored(source, os.path.join(folder, f"stream-{number}.parquet")) if is_stream(source) else source
            for number, source in enumerate(several, start=1)
        ]


def _stored(stream: Any, path: str) -> Any:
    """The file of a stream, or an Arrow table of what is no larger than a row group."""
    reader, name = arrow_reader(stream), type(stream).__name__
    import pyarrow.parquet

    check_names(reader.schema.names, f"a {name}")
    groups = _groups(reader, name)
    begun = [*itertools.islice(groups, 2)]
    if len(begun) < 2:
        return pyarrow.Table.from_batches(itertools.chain(*begun), reader.schema)
    unknown = f"A {name} has columns of types that are not kept in files"
    with (
        refusing(
            pyarrow.ArrowNotImplementedError, "wrong-type", unknown, "Make numbers or text of them, or leave them out."
        ),
        storage_errors(path, "writing"),
        pyarrow.parquet.ParquetWriter(path, _with_categories(reader.schema)) as writer,
    ):
        while begun:
            writer.write_table(pyarrow.Table.from_batches(begun.pop(0)))
            begun += itertools.islice(groups, 1)
    return path


def _with_categories(schema: Any) -> Any:
    """A schema that says as pandas does which columns are of categories; Parquet itself knows that of text alone."""
    from pyarrow.types import is_dictionary

    names = [column.name for column in schema if is_dictionary(column.type)]
    known = schema.metadata or {}
    if not names or PANDAS in known:
        return schema
    said = [{"name": name, "field_name": name, "pandas_type": "categorical", "numpy_type": "object"} for name in names]
    described = {"index_columns": [], "columns": [{**column, "metadata": None} for column in said]}
    return schema.with_metadata({**known, PANDAS: json.dumps(described).encode()})


def _groups(batches: Iterable[Any], name: str) -> Iterator[list[Any]]:
    """Batches, a few at a time."""
    held: list[Any] = []
    size = 0
    with stream_errors(name):
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= GROUP_BYTES:
                yield held
                held, size = [], 0
    if held:
        yield held
