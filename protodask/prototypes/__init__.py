"""The prototype set classifier: kernel, objective, candidates, training, model and its persistence."""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
