"""What the tests of budgets share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def few_rehearsals() -> Iterator[None]:
    """What a prediction takes besides its features is told from few of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("protodask.budget.prediction.REHEARSALS", 30)
        yield
