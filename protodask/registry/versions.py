"""A version in a registry: what is recorded of it, and where its parts lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from protodask.data.places.bounded import read_json
from protodask.data.places.locations import inside, locate, storage_errors
from protodask.data.places.records import RecordKind, recognize, unseal
from protodask.data.places.references import place_of
from protodask.data.places.registry_state import VERSION_FILE, VERSIONS, Entry, RegistryState
from protodask.data.places.storage import read_attributes
from protodask.errors import FormatError, ProtodaskError
from protodask.places import mask
from protodask.prototypes.model import PrototypeSet, load_model
from protodask.prototypes.persistence import MODEL, model_fingerprint
from protodask.prototypes.table_model import fits_of
from protodask.robust.model import ROBUST_MODEL, RobustModel, load_robust_model, robust_fingerprint

RECORD = RecordKind(
    "version of a model",
    "protodask-registry-version",
    1,
    "Publish the model again.",
    "Restore it from a copy, or publish the model again.",
)

CODE = ("protodask", "python", "numpy")
"""What of the environment of a training is kept: versions."""


@dataclass(frozen=True)
class Version:
    """A model that was published, with all that belongs to it."""

    number: int
    path: str
    """Of the model."""
    kind: str
    """ "model" or "robust model"."""
    fingerprint: str
    """Of the model."""
    published: str
    """When."""
    aliases: tuple[str, ...]
    files: Mapping[str, str]
    """Paths of the attached files by name."""
    note: str | None = None
    metrics: Mapping[str, Any] | None = None
    """As the file had them."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the last training."""
    data: tuple[str, ...] = ()
    """Fingerprints of the datasets of the trainings, the last one last."""
    rows: int | None = None
    """Of the last training."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Versions of protodask, Python and NumPy at the last training."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """How many batches, prototypes, planes and the like the model has."""
    features: tuple[str, ...] = ()
    """Names of those that the model uses."""
    unreadable: str | None = None
    """What is wrong with its own file, and what to do; nothing is known from the note on, then."""

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
        return {
            "version": self.number,
            "aliases": list(self.aliases),
            "kind": self.kind,
            "path": mask(self.path),
            "fingerprint": self.fingerprint,
            "published": self.published,
            "note": self.note,
            "files": {name: mask(path) for name, path in self.files.items()},
            "metrics": self.metrics,
            "settings": dict(self.settings),
            "data": list(self.data),
            "rows": self.rows,
            "code": dict(self.code),
            **self.sizes,
            "features": list(self.features),
            "unreadable": self.unreadable,
        }


Model = PrototypeSet | RobustModel


def load_any(path: str) -> Model:
    """The model at a place, of either kind."""
    attributes = read_attributes(locate(path))
    is_robust = isinstance(attributes, dict) and attributes.get("format") == ROBUST_MODEL.format
    return load_robust_model(path) if is_robust else load_model(path)


def kind_of(model: Model) -> str:
    """What a model is called."""
    return ROBUST_MODEL.name if isinstance(model, RobustModel) else MODEL.name


def fingerprint_of(model: Model) -> str:
    """Hash of what a model of either kind computes."""
    return robust_fingerprint(model) if isinstance(model, RobustModel) else model_fingerprint(model)


def record_of(model: Model, number: int, note: str | None, metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """The sealed record of a version: what is known of a model besides its numbers."""
    trainings = fits_of(model.provenance) if isinstance(model, PrototypeSet) else [model.provenance]
    last: Mapping[str, Any] = trainings[-1] if trainings else {}
    settings, rows, environment = last.get("config"), last.get("rows"), last.get("environment")
    return RECORD.sealed(
        {
            "number": number,
            "note": note,
            "metrics": metrics,
            "settings": settings if isinstance(settings, Mapping) else {},
            "data": [str(fit["dataset"]) for fit in trainings if fit.get("dataset") is not None],
            "rows": rows if type(rows) is int else None,
            "code": {name: str(environment[name]) for name in CODE if name in environment}
            if isinstance(environment, Mapping)
            else {},
            "sizes": _sizes(model),
            "features": _features(model),
        }
    )


def _sizes(model: Model) -> dict[str, int]:
    if isinstance(model, RobustModel):
        return {"planes": len(model.weights)}
    return {"batches": model.n_batches, "prototypes": model.n_prototypes}


def _features(model: Model) -> list[str]:
    if isinstance(model, RobustModel):
        used = np.flatnonzero(model.weights.any(axis=0)).tolist()
        return [model.features[index] for index in used]
    return [model.feature_names[index] for index in model.active_features]


def listed_version(registry: str, state: RegistryState, entry: Entry) -> Version:
    """A version with what the registry says of it."""
    return Version(
        number=entry.number,
        path=place_of(registry, entry),
        kind=entry.kind,
        fingerprint=entry.fingerprint,
        published=entry.published,
        aliases=tuple(sorted(name for name, number in state.named.items() if number == entry.number)),
        files={name: place_of(registry, entry, name) for name in entry.files},
    )


def read_version(registry: str, state: RegistryState, entry: Entry) -> Version:
    """The same with what its own file says of it."""
    folder = inside(inside(registry, VERSIONS), entry.folder)
    where = mask(inside(folder, VERSION_FILE))
    with storage_errors(folder, "reading"):
        try:
            value = read_json(folder, VERSION_FILE)
        except ProtodaskError:
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FormatError("damaged", f"There is no file {where}.", RECORD.remedy) from error
        except ValueError as error:
            raise FormatError("damaged", f"The file {where} is damaged ({error}).", RECORD.remedy) from error
    fields = unseal(recognize(value, RECORD, where))
    if fields.integer("number", 1) != entry.number:
        fields.damaged(f"it is not that of version {entry.number}")
    objects = {name: fields.record.get(name) for name in ("settings", "code", "sizes")}
    metrics = fields.record.get("metrics")
    for name, record in (*objects.items(), *(() if metrics is None else (("metrics", metrics),))):
        if not isinstance(record, dict):
            fields.damaged(f"{name} is not an object")
    return replace(
        listed_version(registry, state, entry),
        note=fields.optional_text("note"),
        metrics=metrics,
        settings=objects["settings"] or {},
        data=fields.texts("data"),
        rows=None if fields.record.get("rows") is None else fields.integer("rows", 0),
        code=objects["code"] or {},
        sizes=objects["sizes"] or {},
        features=fields.texts("features"),
    )
