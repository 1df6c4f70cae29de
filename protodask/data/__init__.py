"""Datasets on disk: their format, ingest, encoding and sample data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

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
