"""Folders of Parquet files, one for each block of rows, with a record beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import Label
from protodask.data.places.locations import gone, is_url, storage_errors
from protodask.data.places.storage import read_marker, write_marker
from protodask.errors import InputError, needed


def is_parquet(place: str) -> bool:
    """Whether what is written there becomes such a folder."""
    return place.endswith(".parquet")


def check_parquet(where: str, what: str) -> None:
    """Refuse to write `what` there as Parquet where that cannot work, before any work is done."""
    if is_url(where):
        raise InputError(
            "not-local",
            f"{what} as Parquet are written to local folders only.",
            "Write a Zarr store there, or use a local path.",
        )
    require_arrow("Parquet")


def require_arrow(form: str) -> None:
    """Refuse to write such tables without what writes them, before any work is done."""
    with needed(
        f"Writing {form} needs pyarrow, which is not installed.",
        "Install protodask[tabular], or write a Zarr store by another suffix.",
    ):
        import pyarrow.parquet  # noqa: F401


def create_folder(place: str, record: Mapping[str, Any]) -> None:
    """Make the folder, with its record."""
    with storage_errors(place, "writing"):
        os.makedirs(place)
        write_marker(place, record)


def write_part(folder: str, number: int, identity: str, columns: Mapping[str, Any]) -> None:
    """Write the file of a block.

    The identity is part of its name: who lists the folder of one writing finds none of the files of another.
    """
    with storage_errors(folder, "writing"):
        if read_marker(folder) is None:
            raise gone(folder)
    write_table(os.path.join(folder, f"part-{number:06d}-{identity}.parquet"), columns)


def write_table(path: str, columns: Mapping[str, Any]) -> None:
    """Write one file."""
    import pyarrow
    import pyarrow.parquet

    with storage_errors(path, "writing"):
        pyarrow.parquet.write_table(pyarrow.table(dict(columns)), path, write_page_checksum=True)


def label_column(labels: Sequence[Label], codes: NDArray[np.integer]) -> Any:
    """A column of the labels that codes stand for: of one type, text as soon as the labels are mixed; null for -1."""
    import pyarrow

    kinds = {type(label) for label in labels}
    known = list(labels) if len(kinds) == 1 else [str(label) for label in labels]
    none = codes < 0
    return pyarrow.array(known).take(pyarrow.array(codes, mask=none if none.any() else None))
