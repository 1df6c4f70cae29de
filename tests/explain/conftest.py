"""Models and an engine that the tests of the explain room share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import models

from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]


@pytest.fixture(scope="session")
def make_model() -> MakeModel:
    return models.make_model


@pytest.fixture(scope="session")
def model(make_model: MakeModel) -> PrototypeSet:
    """Two batches of 6 and 7 prototypes, four features, three classes."""
    return make_model()
