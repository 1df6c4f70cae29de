"""Blocks, reductions and schedulers: the only part of the package that knows Dask."""

from protodask.engine.blas import one_blas_thread
from protodask.engine.blocks import Arrays, Block, Layout, choose_block_rows
from protodask.engine.choose import EngineLike, cluster_engine, open_engine, thread_engine
from protodask.engine.connect import TlsFiles
from protodask.engine.engine import Engine, Sink
from protodask.engine.progress import Progress, ProgressListener
from protodask.engine.reduction import Reduction, identity
from protodask.engine.sources import ArraySource, Source, array_source, zip_sources

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
    "array_source",
    "choose_block_rows",
    "cluster_engine",
    "identity",
    "one_blas_thread",
    "open_engine",
    "thread_engine",
    "zip_sources",
]
