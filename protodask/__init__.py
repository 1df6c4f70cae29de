"""Prototype set classification on Dask and Zarr, for data larger than memory."""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
