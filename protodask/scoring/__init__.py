"""What a model says of rows, with NumPy alone, and the same in ONNX."""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
