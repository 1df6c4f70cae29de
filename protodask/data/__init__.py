"""Datasets on disk: their format, ingest, encoding and sample data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protodask.data.dataset import Dataset
    from protodask.data.encoding import MatrixTable, encode_features, encode_labels
    from protodask.data.ingest_scan import table_source
    from protodask.data.schema import Column, Label
    from protodask.data.summary import Summary, summarize
    from protodask.data.synthetic import SyntheticSource, sample_data, synthetic_source
    from protodask.data.tables import TableSource
    from protodask.data.writer import DatasetSink, write_dataset
    from protodask.data.zarr_arrays import ZarrArraysSource

_HOMES = {
    "Column": "protodask.data.schema",
    "Dataset": "protodask.data.dataset",
    "DatasetSink": "protodask.data.writer",
    "Label": "protodask.data.schema",
    "MatrixTable": "protodask.data.encoding",
    "Summary": "protodask.data.summary",
    "SyntheticSource": "protodask.data.synthetic",
    "TableSource": "protodask.data.tables",
    "ZarrArraysSource": "protodask.data.zarr_arrays",
    "encode_features": "protodask.data.encoding",
    "encode_labels": "protodask.data.encoding",
    "sample_data": "protodask.data.synthetic",
    "summarize": "protodask.data.summary",
    "synthetic_source": "protodask.data.synthetic",
    "table_source": "protodask.data.ingest_scan",
    "write_dataset": "protodask.data.writer",
}
"""Names and their modules, imported on first use: some modules here say what lies at a place without NumPy and Zarr."""

__all__ = [
    "Column",
    "Dataset",
    "DatasetSink",
    "Label",
    "MatrixTable",
    "Summary",
    "SyntheticSource",
    "TableSource",
    "ZarrArraysSource",
    "encode_features",
    "encode_labels",
    "sample_data",
    "summarize",
    "synthetic_source",
    "table_source",
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
