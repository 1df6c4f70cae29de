"""What folders of budgets have in common: a sealed marker, the index as a plain file, and the models beside it.

OUT/_protodask.json   what the folder is
OUT/index.json        the index, as `save_index` writes it
OUT/models/NUMBER     a prototype set model, in the form in which `protodask fit` writes models
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from protodask.budget.index_file import Index, local_place, save_index
from protodask.data.places.records import Fields, RecordKind, recognize, unseal
from protodask.data.places.storage import published, read_marker, write_marker
from protodask.errors import FormatError, StorageError
from protodask.prototypes.model import PrototypeSet, load_model
from protodask.prototypes.persistence import model_fingerprint

INDEX_FILE = "index.json"
MODELS = "models"


def write_folder(
    path: str | os.PathLike[str],
    overwrite: bool,
    kind: RecordKind,
    index: Index,
    write_models: Callable[[str], Mapping[str, Any]],
) -> None:
    """Write a folder, whole or not at all; `write_models` is given where models go, and gives what the marker says."""
    with published(local_place(path, f"{kind.name}s"), overwrite, kind) as place:
        os.makedirs(os.path.join(place, MODELS))
        record = write_models(os.path.join(place, MODELS))
        save_index(index, os.path.join(place, INDEX_FILE))
        write_marker(place, kind.sealed(record))


def open_folder(path: str | os.PathLike[str], kind: RecordKind) -> Fields:
    """What the marker of a folder says."""
    where = local_place(path, f"{kind.name}s")
    if not os.path.lexists(where):
        raise StorageError("not-found", f"There is nothing at {where}.", "Check the path.")
    return unseal(recognize(read_marker(where), kind, where))


def read_model(place: str, fingerprint: str, kind: RecordKind) -> PrototypeSet:
    """The very model that was written to a place in a folder."""
    try:
        model = load_model(place)
    except StorageError as error:
        raise FormatError("damaged", f"The model {place} is missing.", kind.remedy) from error
    if model_fingerprint(model) != fingerprint:
        raise other_model(place, kind)
    return model


def other_model(place: str, kind: RecordKind) -> FormatError:
    """Of a model that has not the digest that the marker says."""
    return FormatError("damaged", f"The model {place} is not the one that was saved there.", kind.remedy)
