"""Datasets on disk: their format, ingest, encoding and sample data."""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
