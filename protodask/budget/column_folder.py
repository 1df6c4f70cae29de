"""An index of a dataset's columns on disk: a folder (see `folder`) with the models of candidates by their numbers.

Its marker says which columns are those of each feature, the classes and their shares, and which models there are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from protodask.budget.column_index import ColumnBudget
from protodask.budget.expansions import FeatureSet
from protodask.budget.folder import INDEX_FILE, MODELS, open_folder, read_model, write_folder
from protodask.budget.index import BudgetIndex
from protodask.budget.index_file import index_text, load_index
from protodask.data.format.schema import Label
from protodask.data.places.records import CHECKSUM, RecordKind
from protodask.errors import FormatError, InputError, StorageError
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint, save_model

BUDGET = RecordKind(
    "budget",
    "protodask-budget",
    1,
    "Make one with `build_column_budget()`.",
    "Build it again, or restore it from a copy.",
)


@dataclass(frozen=True, eq=False)
class BudgetFolder:
    """An index and its models, as they lie on disk."""

    path: str
    index: BudgetIndex
    columns: tuple[tuple[str, ...], ...]
    """Of tables, for each feature."""
    classes: tuple[Label, ...]
    shares: tuple[float, ...]
    """Of the classes: all there is to say where no feature is affordable."""
    target_name: str
    models: Mapping[int, str]
    """Fingerprints by the number of the candidate; the empty set has no model."""

    @cached_property
    def numbers(self) -> Mapping[FeatureSet, int]:
        """The numbers of the candidates."""
        return {features: number for number, features in enumerate(self.index.sets)}

    def model_path(self, number: int) -> str | None:
        """Where the model of a candidate lies."""
        return os.path.join(self.path, MODELS, str(number)) if number in self.models else None

    def model(self, number: int) -> PrototypeSet | None:
        """The model of a candidate, None for the empty set."""
        place = self.model_path(number)
        return None if place is None else read_model(place, self.models[number], BUDGET)


def save_column_budget(budget: ColumnBudget, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write an index and its models to a folder, whole or not at all."""

    def write_models(place: str) -> dict[str, Any]:
        for number, model in enumerate(budget.models):
            if model is not None:
                save_model(model, os.path.join(place, str(number)))
        return _describe(budget)

    write_folder(path, overwrite, BUDGET, budget.index, write_models)


def _describe(budget: ColumnBudget) -> dict[str, Any]:
    return {
        "features": [
            {"name": name, "columns": list(columns)}
            for name, columns in zip(budget.features.names, budget.features.columns, strict=True)
        ],
        "classes": list(budget.classes),
        "shares": list(budget.shares),
        "target": budget.target_name,
        "models": [
            {"number": number, "fingerprint": model_fingerprint(model)}
            for number, model in enumerate(budget.models)
            if model is not None
        ],
    }


def load_column_budget(path: str | os.PathLike[str]) -> BudgetFolder:
    """Read an index; its models are read when they are asked for."""
    fields = open_folder(path, BUDGET)
    features = fields.objects("features")
    models = fields.objects("models")
    index = load_index(os.path.join(fields.where, INDEX_FILE))
    if [feature.get("name") for feature in features] != list(index.feature_names):
        fields.damaged("the features are not those of the index")
    columns = [feature.get("columns") for feature in features]
    if not all(isinstance(own, list) and all(isinstance(one, str) for one in own) for own in columns):
        fields.damaged("the columns of a feature are not named")
    numbers = {model.get("number"): model.get("fingerprint") for model in models}
    if not all(type(number) is int and isinstance(found, str) for number, found in numbers.items()):
        fields.damaged("the models are not numbered")
    classes = fields.labels("classes")
    return BudgetFolder(
        fields.where,
        index,
        tuple(tuple(own) for own in columns if own is not None),
        classes,
        tuple(fields.floats("shares", len(classes)).tolist()),
        fields.text("target"),
        {int(number): str(found) for number, found in numbers.items() if number is not None},
    )


def holds_budget(path: str, budget: ColumnBudget) -> bool:
    """Whether the folder at `path` is this very one, as a build leaves it that was killed at its last step."""
    try:
        known, index = open_folder(path, BUDGET).record, load_column_budget(path).index
    except (FormatError, StorageError, InputError):
        return False
    same = known[CHECKSUM] == BUDGET.sealed(_describe(budget))[CHECKSUM]
    return same and index_text(index) == index_text(budget.index)
