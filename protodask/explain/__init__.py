"""Looking into a model: why it says what it says of a row, how unusual the row is, and all of it as tables."""

from protodask._lazy import names_of_stub
from protodask.explain.original_rows import original_rows as original_rows  # at once: its module has the same name

__getattr__, __dir__, __all__ = names_of_stub(__name__)
