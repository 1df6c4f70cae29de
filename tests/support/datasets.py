"""What the fixtures that make rows and write datasets of them are, and all that is in one."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data import Dataset

Make = Callable[..., dict[str, Any]]
Write = Callable[..., Dataset]


def rows_of(dataset: Dataset) -> dict[str, NDArray[Any]]:
    """Everything a dataset holds."""
    blocks = [dataset.read(number) for number in range(dataset.layout.n_blocks)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0].arrays}
