"""Datasets on disk: their format, ingest, encoding and sample data."""

from protodask.data.dataset import Dataset
from protodask.data.encoding import MatrixTable, encode_features, encode_labels
from protodask.data.ingest import ingest, table_source
from protodask.data.schema import Column, Label
from protodask.data.summary import Summary, summarize
from protodask.data.synthetic import SyntheticSource, sample_data, synthetic_source
from protodask.data.tables import TableSource
from protodask.data.writer import DatasetSink, write_dataset
from protodask.data.zarr_arrays import ZarrArraysSource

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
    "ingest",
    "sample_data",
    "summarize",
    "synthetic_source",
    "table_source",
    "write_dataset",
]
