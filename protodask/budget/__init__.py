"""The best model that a feature budget allows, item by item: which features to compute is decided when one is seen."""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
