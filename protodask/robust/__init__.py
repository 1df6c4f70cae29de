"""Maximum-margin classifiers from features that are known only roughly."""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
