"""The robust model on disk: a Zarr group with its settings as JSON and its planes as arrays, checksummed, no pickle."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import zarr

from protodask.data.arrays.model_arrays import damage_named, digest_arrays, read_array, write_array
from protodask.data.places.records import Fields, RecordKind, Relative, hash_json, recognize, seal, unseal
from protodask.data.places.references import follow
from protodask.data.places.storage import Kind, find_group, locate, open_store, published, read_stable
from protodask.errors import FormatError, InputError
from protodask.prototypes.table_model import read_table, table_fields
from protodask.robust.config import RobustConfig
from protodask.robust.model import RobustModel

ROBUST_MODEL = Kind("robust model", "protodask-robust-model")
ROBUST_MODEL_VERSION = 1

FIT_AGAIN = "Fit the model again, or restore it from a copy."

RECORD = RecordKind(
    "robust model",
    ROBUST_MODEL.format,
    ROBUST_MODEL_VERSION,
    "Make one with `protodask robust fit`.",
    FIT_AGAIN,
    (
        Relative(
            "protodask-model",
            "a prototype set classifier and no robust model",
            "Use `protodask predict` or `protodask evaluate`, in Python `load_model`; `protodask robust fit` makes "
            "robust models.",
        ),
    ),
)

PLANE_ARRAYS = ("weights", "intercept", "objective", "lower_bound")
"""The arrays of a model, all float64: (P, D) the first, (P,) the others."""

MOST_WEIGHTS = 10**8
"""A bound on what a damaged or hostile file can make a reader allocate."""


def save_robust_model(model: RobustModel, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a model, whole or not at all."""
    where = locate(path)
    record = {
        "format": ROBUST_MODEL.format,
        "version": ROBUST_MODEL_VERSION,
        **table_fields(model),
        "features": list(model.features),
        "config": model.config.as_dict(),
        "passes": list(model.passes),
        "digest": _digest(model),
    }
    sealed = seal(record, RECORD.name)
    with published(where, overwrite, ROBUST_MODEL) as place:
        group = zarr.open_group(open_store(place), mode="w", zarr_format=3)
        for name in PLANE_ARRAYS:
            write_array(group, name, getattr(model, name), "float64")
        group.attrs.put(sealed)


def load_robust_model(path: str | os.PathLike[str]) -> RobustModel:
    """Read a model; whatever is wrong with it is a `FormatError`. `REGISTRY@ALIAS` is a version in a registry."""
    return follow(os.fspath(path), _load_stable)


def _load_stable(path: str) -> RobustModel:
    where = locate(path)
    return read_stable(where, lambda: _load(where))


def robust_fingerprint(model: RobustModel) -> str:
    """Hash of what the model computes and of what is known of its planes, with the settings they were trained with."""
    return hash_json(
        [_digest(model), list(model.classes), list(model.feature_names), model.precision, model.config.as_dict()]
    )


def _digest(model: RobustModel) -> str:
    return digest_arrays((name, getattr(model, name), "float64") for name in PLANE_ARRAYS)


def _load(where: str) -> RobustModel:
    place, attributes = find_group(where)
    fields = recognize(attributes, RECORD, place)
    unseal(fields)
    model = _parse(fields)
    if _digest(model) != fields.record.get("digest"):
        raise FormatError(
            "damaged", f"The arrays of the robust model {where} are not those that were saved.", FIT_AGAIN
        )
    return model


def _parse(fields: Fields) -> RobustModel:
    table = read_table(fields)
    features = fields.texts("features")
    n_planes = 1 if len(table.classes) == 2 else len(table.classes)
    if not 1 <= len(features) <= len(table.feature_names):
        fields.damaged("the features are not those of the columns")
    if n_planes * len(features) > MOST_WEIGHTS:
        fields.damaged("it has more weights than any model")
    with damage_named("The planes of the robust model", fields.where, FIT_AGAIN):
        arrays = {
            name: read_array(
                fields.where, name, "float64", (n_planes, len(features)) if name == "weights" else (n_planes,)
            )
            for name in PLANE_ARRAYS
        }
    if not all(np.isfinite(values).all() for values in arrays.values()):
        raise FormatError(
            "damaged",
            f"The planes of the robust model {fields.where} are damaged: their numbers are not finite.",
            FIT_AGAIN,
        )
    return RobustModel(
        **arrays,
        classes=table.classes,
        features=features,
        columns=table.columns,
        config=_parse_config(fields),
        passes=tuple(fields.integers("passes", n_planes)),
        target_name=table.target_name,
        other_names=table.other_names,
        precision=table.precision,
        provenance=table.provenance,
    )


def _parse_config(fields: Fields) -> RobustConfig:
    record: Any = fields.record.get("config")
    wanted = RobustConfig().as_dict().keys()
    if not isinstance(record, dict) or record.keys() != wanted:
        fields.damaged("the settings are not those of a robust fit")
    if not isinstance(record["formulation"], str):
        fields.damaged("the formulation is not text")
    try:
        return RobustConfig(**record)
    except (InputError, ArithmeticError) as error:
        fields.damaged(f"the settings make no sense ({error})")
