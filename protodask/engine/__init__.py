"""Blocks, reductions and schedulers: the only part of the package that knows Dask."""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
