"""An index of a dataset's columns on disk: a folder with the index, what its features are, and the models beside it.

OUT/_protodask.json   what the folder is: features with their columns, classes and their shares, the models
OUT/index.json        the index
OUT/models/NUMBER     the model of a candidate, in the form in which `protodask fit` writes models
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from protodask.budget.column_index import ColumnBudget
from protodask.budget.column_models import MODELS
from protodask.budget.expansions import FeatureSet
from protodask.budget.index import BudgetIndex
from protodask.budget.index_file import index_text, load_index, save_index
from protodask.budget.sealed_file import local_place
from protodask.data.format.schema import Label
from protodask.data.places.records import RecordKind, hash_json, recognize, seal, unseal
from protodask.data.places.storage import Kind, published, read_marker, write_marker
from protodask.errors import FormatError, InputError, StorageError
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import load_model, model_fingerprint, save_model

BUDGET = Kind("budget", "protodask-budget")

RECORD = RecordKind(
    "budget",
    BUDGET.format,
    1,
    "Make one with `protodask budget build`.",
    "Build it again, or restore it from a copy.",
)

INDEX_FILE = "index.json"


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
        return _model_place(self.path, number) if number in self.models else None

    def model(self, number: int) -> PrototypeSet | None:
        """The model of a candidate, None for the empty set."""
        place = self.model_path(number)
        if place is None:
            return None
        try:
            model = load_model(place)
        except StorageError as error:
            raise FormatError("damaged", f"The budget {self.path} lacks the model {number}.", RECORD.remedy) from error
        if model_fingerprint(model) != self.models[number]:
            raise FormatError("damaged", f"The model {place} is not the one that was saved there.", RECORD.remedy)
        return model


def _model_place(path: str, number: int) -> str:
    return os.path.join(path, MODELS, str(number))


def budget_record(budget: ColumnBudget) -> dict[str, Any]:
    """What the marker of a folder says, unsealed."""
    return {
        "format": BUDGET.format,
        "version": RECORD.version,
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


def save_column_budget(budget: ColumnBudget, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write an index and its models to a folder, whole or not at all."""
    where = local_place(path, "budgets")
    with published(where, overwrite, BUDGET) as place:
        os.makedirs(os.path.join(place, MODELS))
        for number, model in enumerate(budget.models):
            if model is not None:
                save_model(model, _model_place(place, number))
        save_index(budget.index, os.path.join(place, INDEX_FILE))
        write_marker(place, seal(budget_record(budget), RECORD.name))


def load_column_budget(path: str | os.PathLike[str]) -> BudgetFolder:
    """Read an index; its models are read when they are asked for."""
    where = local_place(path, "budgets")
    if not os.path.lexists(where):
        raise StorageError("not-found", f"There is nothing at {where}.", "Check the path.")
    fields = recognize(read_marker(where), RECORD, where)
    unseal(fields)
    features = fields.objects("features")
    models = fields.objects("models")
    index = load_index(os.path.join(where, INDEX_FILE))
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
        where,
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
        found = load_column_budget(path)
    except (FormatError, StorageError, InputError):
        return False
    known = recognize(read_marker(found.path), RECORD, found.path).record
    wanted = budget_record(budget)
    same = hash_json({name: known.get(name) for name in wanted}) == hash_json(wanted)
    return same and index_text(found.index) == index_text(budget.index)
