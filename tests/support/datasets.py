"""What the fixtures that make rows and write datasets of them are."""

from collections.abc import Callable
from typing import Any

from protodask.data import Dataset

Make = Callable[..., dict[str, Any]]
Write = Callable[..., Dataset]
