"""Datasets on disk: their format, ingest, encoding and sample data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.data.arrays.zarr_arrays import ZarrArraysSource
    from protodask.data.format.dataset import Dataset
    from protodask.data.format.schema import Column, Label
    from protodask.data.format.summary import Summary, summarize
    from protodask.data.format.writer import DatasetSink, write_dataset
    from protodask.data.tables.encoding import MatrixTable, encode_features, encode_labels
    from protodask.data.tables.ingest_scan import table_source
    from protodask.data.tables.synthetic import SyntheticSource, sample_data, synthetic_source
    from protodask.data.tables.tables import TableSource

_HOMES = {
    "Column": "protodask.data.format.schema",
    "Dataset": "protodask.data.format.dataset",
    "DatasetSink": "protodask.data.format.writer",
    "Label": "protodask.data.format.schema",
    "MatrixTable": "protodask.data.tables.encoding",
    "Summary": "protodask.data.format.summary",
    "SyntheticSource": "protodask.data.tables.synthetic",
    "TableSource": "protodask.data.tables.tables",
    "ZarrArraysSource": "protodask.data.arrays.zarr_arrays",
    "encode_features": "protodask.data.tables.encoding",
    "encode_labels": "protodask.data.tables.encoding",
    "sample_data": "protodask.data.tables.synthetic",
    "summarize": "protodask.data.format.summary",
    "synthetic_source": "protodask.data.tables.synthetic",
    "table_source": "protodask.data.tables.ingest_scan",
    "write_dataset": "protodask.data.format.writer",
}

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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
