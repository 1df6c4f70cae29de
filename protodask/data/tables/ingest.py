"""From tables and arrays to a dataset: one pass to look at the data, one to encode and write it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from protodask.data.format.dataset import Dataset
from protodask.data.format.schema import FEATURES, GROUP, TARGET, WEIGHT, Column, Label, check_dtype
from protodask.data.format.writer import write_dataset
from protodask.data.news.ingest_news import ingest_news
from protodask.data.news.new_sources import check_new
from protodask.data.places.locations import locate
from protodask.data.places.storage import check_free
from protodask.data.tables.encoding import Missing, Unseen, check_column_names, check_unseen
from protodask.data.tables.frames import column_values
from protodask.data.tables.ingest_frames import are_numbers, frame_beside, text_alone, values_array
from protodask.data.tables.ingest_scan import table_source
from protodask.data.tables.ingest_schema import (
    Roles,
    Wanted,
    check_roles,
    check_wanted,
    encode_anew,
    encoder_like,
    orders_of,
    written_as,
)
from protodask.data.tables.ingest_sources import open_table
from protodask.data.tables.streams import stored_streams
from protodask.data.tables.tables import check_same_columns
from protodask.engine import EngineLike, open_engine
from protodask.errors import InputError


def ingest(
    sources: Any,
    out: str | os.PathLike[str],
    *,
    target: str | None = None,
    categorical: Sequence[str] = (),
    ordinal: Mapping[str, Sequence[Label]] | None = None,
    weight: str | None = None,
    inclusion: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    missing: Missing = "fill",
    text_is_categorical: bool = False,
    unseen: Unseen = "error",
    append: bool = False,
    new: bool = False,
    unless_in: str | os.PathLike[str] | None = None,
    settle: float = 0.0,
    overwrite: bool = False,
    dtype: str = "float32",
    block_rows: int | None = None,
    feature_names: Sequence[str] | None = None,
    engine: EngineLike = None,
) -> Dataset:
    """Make a dataset from tables or arrays, or with `append` add their rows to one.

    `sources` is one of these, or a list of several: the path, glob or folder of CSV or Parquet files; a .npy or .npz
    file; a Zarr group with arrays of features and target; a data frame of any library, or a stream of Arrow's, such as
    a DuckDB relation; a pair (X, y) of arrays or frames in memory, dask or Zarr, or of paths of .npy files or Zarr
    arrays. Rows are in the order of the sources; files of a folder or glob are in the order of their paths, with
    numbers by their value (part2.csv before part10.csv). Tables must name their `target` column; arrays have columns
    x0, x1, ... (or `feature_names`; of xarray the labels that they have) and "target". A stream need not fit into
    memory: it is kept in the system's temporary folder meanwhile, but in memory where a cluster is the engine.

    `categorical` columns become a feature for each category, `ordinal` ones the position in the order given. Rows of
    one value in the column (or the array besides features and target) `group` belong together. With
    `text_is_categorical`, columns of text of which nothing is said are categorical as well.

    Where values of a feature are `missing`, they count as the mean of the others, or as no category, and a further
    feature is 1 there; with "error" they are refused. With `append` all of this is the dataset's: classes that it does
    not have, and values that are missing where none were, are an error, and so are new categories, unless `unseen` is
    "zero": they are no category then, and a warning says of how many rows.

    With `new`, files and datasets (which give their rows source by source) are added whose content the dataset does
    not have yet, whatever they are called, so that each is in it exactly once however often this is repeated; if there
    is no dataset, one is made. With `unless_in`, those are taken that this other dataset, which need not exist, does
    not have. Files that changed within the last `settle` seconds are left for the next time, and so are those that
    change meanwhile. If nothing is new, what lies at `out` stays as it is.
    """
    check_new(new, unless_in, settle, append, overwrite, out)
    for name, given in (("categorical", categorical), ("drop", drop), ("feature_names", feature_names)):
        if isinstance(given, str):  # whose letters would be taken for names
            raise InputError("wrong-type", f"{name} is {given!r}.", f"Give a list of names: [{given!r}].")
    roles = Roles(target, weight, inclusion, group)
    wanted = Wanted(
        roles, tuple(categorical), orders_of(ordinal), tuple(drop), dtype, missing, text_is_categorical, unseen
    )
    if new or unless_in is not None:
        if feature_names is not None:
            raise InputError(
                "settings-conflict",
                "Feature names are given, which only a matrix needs.",
                "Leave them out with new sources.",
            )
        return ingest_news(
            sources,
            out,
            wanted,
            new=new,
            unless_in=unless_in,
            settle=settle,
            overwrite=overwrite,
            block_rows=block_rows,
            engine=engine,
        ).dataset
    return ingest_wanted(sources, out, wanted, append, overwrite, engine, block_rows, feature_names)


def ingest_wanted(
    sources: Any,
    out: str | os.PathLike[str],
    wanted: Wanted,
    append: bool,
    overwrite: bool,
    engine: EngineLike,
    block_rows: int | None = None,
    feature_names: Sequence[str] | None = None,
) -> Dataset:
    """`ingest` of all that there is, new or not, with what is said of the columns in one."""
    where = locate(out)
    check_dtype(wanted.dtype)
    if append:
        if wanted.categorical or wanted.orders:
            raise InputError(
                "settings-conflict",
                "An append encodes its rows like the dataset.",
                "Leave out categorical and ordinal.",
            )
        check_unseen(wanted.unseen)
        return _ingest_more(sources, Dataset.open(where), wanted, engine)
    check_free(where, overwrite)
    check_wanted(wanted)
    with open_engine(engine) as opened, stored_streams(sources, opened) as given:
        roles = wanted.roles
        others = (roles.weight, roles.inclusion, roles.group)
        table = open_table(given, wanted.labels, wanted.drop, roles.target, feature_names, others)
        check_same_columns(table)
        source, encoder = encode_anew(table, wanted, opened, block_rows)
        return write_dataset(
            source,
            where,
            **written_as(encoder),
            dropped=wanted.drop,
            engine=opened,
            block_rows=block_rows,
            overwrite=overwrite,
        )


def ingest_arrays(
    X: Any,
    y: Any,
    out: str | os.PathLike[str],
    *,
    weight: Any = None,
    group: Any = None,
    dtype: str = "float32",
    block_rows: int | None = None,
    columns: Sequence[Column] | None = None,
    orders: Mapping[str, Sequence[Label] | None] | None = None,
    engine: EngineLike = None,
) -> Dataset:
    """Make a dataset from rows (N, D), labels (N,), weights (N,) and groups (N,).

    They are NumPy, dask or Zarr arrays, or data frames; rows that are no numbers come as a dask data frame. Of those of
    its columns that hold categories, `orders` says which, None if they have none; text is categories as well. Where it
    is known what the `columns` become, those of a model for one, that is what is done with them.
    """
    given = {TARGET.name: y, WEIGHT.name: weight, GROUP.name: group}
    arrays = {name: values_array(column_values(values)) for name, values in given.items() if values is not None}
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    said = dict(orders or {})
    if names is None or are_numbers(X.dtypes):
        sources: Any = {FEATURES.name: text_alone(values_array(X)), **arrays}
        called = {name: name for name in arrays}
        if names is not None and set(given) & set(names):
            names = [f"feature {name}" for name in names]
    else:
        called = {name: f"{name} of the rows" if name in names else name for name in arrays}
        sources = frame_beside(X, names, {called[name]: values for name, values in arrays.items()})
    wanted = Wanted(
        Roles(called[TARGET.name], called.get(WEIGHT.name), group=called.get(GROUP.name)),
        categorical=tuple(name for name, order in said.items() if order is None),
        orders={name: tuple(order) for name, order in said.items() if order is not None},
        dtype=dtype,
        text_is_categorical=True,
        columns=None if columns is None else tuple(columns),
    )
    return ingest_wanted(sources, out, wanted, False, False, engine, block_rows, names)


def _ingest_more(sources: Any, dataset: Dataset, wanted: Wanted, engine: EngineLike) -> Dataset:
    known, unseen = dataset.metadata, wanted.unseen
    check_roles(wanted.roles, known)
    dropped = (*known.dropped, *(name for name in wanted.drop if name not in known.dropped))
    like = encoder_like(known, unseen)
    with open_engine(engine) as opened, stored_streams(sources, opened) as given_tables:
        source = table_source(
            given_tables,
            **written_as(like),
            dropped=dropped,
            unseen=unseen,
            tell_unseen=unseen == "zero",
            engine=opened,
        )
        check_column_names(source.table.names, [*(column.name for column in known.columns), *like.roles])
        return write_dataset(
            source, dataset.path, **written_as(source.encoder), dropped=dropped, engine=opened, append=True
        )
