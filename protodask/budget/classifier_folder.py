"""A budgeted classifier on disk: a folder with the index as a plain file and the models beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from protodask.budget.classifier import BudgetedClassifier
from protodask.budget.measuring import Extractor


def save_budgeted(classifier: BudgetedClassifier, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a fitted classifier, whole or not at all; extractors are code and stay behind."""
    raise NotImplementedError


def load_budgeted(
    path: str | os.PathLike[str],
    extractors: Mapping[str, Extractor],
    *,
    size: Callable[[Any], float] | None = None,
    trusted: bool = False,
) -> BudgetedClassifier:
    """Read a classifier, with the extractors it was fitted with, and its `size` where it had one.

    Models of other estimators than the prototype set classifier are pickles, which can run any code when they are
    read: they are read only where `trusted` says that the folder comes from someone who may.
    """
    raise NotImplementedError
