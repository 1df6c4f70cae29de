"""Blocks, reductions and schedulers: the only part of the package that knows Dask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.engine.blas import one_blas_thread
    from protodask.engine.blocks import Arrays, Block, Layout, choose_block_rows
    from protodask.engine.choose import EngineLike, cluster_engine, open_engine, thread_engine
    from protodask.engine.connect import TlsFiles
    from protodask.engine.engine import Engine, Sink
    from protodask.engine.progress import Progress, ProgressListener
    from protodask.engine.records import add_records
    from protodask.engine.reduction import Reduction, identity
    from protodask.engine.sources import ArraySource, Source, array_source, zip_sources

_HOMES = {
    "ArraySource": "protodask.engine.sources",
    "Arrays": "protodask.engine.blocks",
    "Block": "protodask.engine.blocks",
    "Engine": "protodask.engine.engine",
    "EngineLike": "protodask.engine.choose",
    "Layout": "protodask.engine.blocks",
    "Progress": "protodask.engine.progress",
    "ProgressListener": "protodask.engine.progress",
    "Reduction": "protodask.engine.reduction",
    "Sink": "protodask.engine.engine",
    "Source": "protodask.engine.sources",
    "TlsFiles": "protodask.engine.connect",
    "add_records": "protodask.engine.records",
    "array_source": "protodask.engine.sources",
    "choose_block_rows": "protodask.engine.blocks",
    "cluster_engine": "protodask.engine.choose",
    "identity": "protodask.engine.reduction",
    "one_blas_thread": "protodask.engine.blas",
    "open_engine": "protodask.engine.choose",
    "thread_engine": "protodask.engine.choose",
    "zip_sources": "protodask.engine.sources",
}
"""Public names and their modules, imported on first use: a model answers without Dask."""

__all__ = [
    "ArraySource",
    "Arrays",
    "Block",
    "Engine",
    "EngineLike",
    "Layout",
    "Progress",
    "ProgressListener",
    "Reduction",
    "Sink",
    "Source",
    "TlsFiles",
    "add_records",
    "array_source",
    "choose_block_rows",
    "cluster_engine",
    "identity",
    "one_blas_thread",
    "open_engine",
    "thread_engine",
    "zip_sources",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
