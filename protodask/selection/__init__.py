"""Choosing hyperparameters: folds, searches whose fits share their passes, and rules that prefer simple models."""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
