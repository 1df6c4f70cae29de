"""A budgeted classifier on disk: a folder (see `folder`) with the models of sets in the order of the marker.

Its marker says what the features and the classes are, what the overhead is, and which models there are. One of another
kind than prototype sets is a pickle, OUT/models/NUMBER.joblib.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from protodask.budget.classifier import METHODS, BudgetedClassifier
from protodask.budget.expansions import FeatureSet
from protodask.budget.folder import INDEX_FILE, MODELS, open_folder, other_model, read_model, write_folder
from protodask.budget.index_file import Index, load_greedy, load_index, non_negative, or_null
from protodask.budget.matrix_models import Model
from protodask.budget.measuring import Extractor, MeasuredCosts, check_extractors, item_size
from protodask.budget.prediction import Predictor
from protodask.data.places.bounded import open_inside, read_bounded
from protodask.data.places.locations import storage_errors
from protodask.data.places.records import Fields, RecordKind
from protodask.data.tables.source_files import bytes_digest
from protodask.errors import FormatError, InputError, refusing, some
from protodask.prototypes.estimator_rows import plain_label
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint, save_model

RECORD = RecordKind(
    "budgeted classifier",
    "protodask-budgeted-classifier",
    1,
    "Make one with save_budgeted.",
    "Fit and save it again, or restore it from a copy.",
)

PICKLE = ".joblib"

MOST_PICKLE_BYTES = 2**34
"""No model is larger: a bound on what reading one takes."""


def save_budgeted(classifier: BudgetedClassifier, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a fitted classifier, whole or not at all.

    Extractors are code and stay behind, and so does a `size` function; timings do not, their coverage is kept.
    """
    predictor = classifier.predictor
    record = _describe(classifier, predictor)

    def write_models(place: str) -> dict[str, Any]:
        models = [
            {"features": sorted(features), **_save_model(model, os.path.join(place, str(number)))}
            for number, (features, model) in enumerate(predictor.models.items())
        ]
        return {**record, "models": models}

    write_folder(path, overwrite, RECORD, predictor.index, write_models)


def load_budgeted(
    path: str | os.PathLike[str],
    extractors: Mapping[str, Extractor],
    *,
    size: Callable[[Any], float] | None = None,
    trusted: bool = False,
) -> BudgetedClassifier:
    """Read a classifier, with the extractors it was fitted with, and its `size` where it had one.

    Models of other estimators than the prototype set classifier are pickles, which can run any code when they are
    read: they are read only where `trusted` says that whoever wrote the folder may do that.
    """
    fields = open_folder(path, RECORD)
    where = fields.where
    names = fields.texts("feature_names")
    functions = _functions(extractors, names)
    if fields.record.get("own_size") is not (size is not None):
        had = "a `size` function of its own" if size is None else "no `size` function"
        raise InputError(
            "setting-missing" if size is None else "settings-conflict",
            f"The classifier {where} was fitted with {had}.",
            "Give the same function to load it." if size is None else "Leave `size` out.",
        )
    method = next((one for one in METHODS if one == fields.text("method")), None)
    if method is None:
        fields.damaged("the method is unknown")
    index: Index = (load_index if method in ("index", "greedy-index") else load_greedy)(os.path.join(where, INDEX_FILE))
    if index.feature_names != names:
        fields.damaged("the features are not those of the index")
    classes = fields.labels("classes")
    if len(classes) < 2:
        fields.damaged("there are fewer than two classes")
    shares = fields.floats("shares", len(classes))
    if (shares < 0).any() or abs(shares.sum() - 1) > 1e-9:
        fields.damaged("the shares of the classes are no probabilities")
    predictor = Predictor(
        functions=functions,
        widths=tuple(fields.integers("widths", len(names))),
        index=index,
        models=_load_models(fields, where, index, trusted),
        shares=shares,
        classes=np.array(classes),
        overhead=non_negative(fields, "overhead"),
        size=item_size if size is None else size,
        timed=_flag(fields, "timed"),
        any_time=_flag(fields, "any_time"),
        clock=time.perf_counter,
    )
    classifier = BudgetedClassifier(method=method, size=size, timed=predictor.timed, any_time=predictor.any_time)
    classifier.costs_ = index.curves
    seen = f"A model of {where} does not predict from its features"
    with refusing(Exception, "damaged", seen, RECORD.remedy, FormatError):
        return classifier.serve(predictor)


def _describe(classifier: BudgetedClassifier, predictor: Predictor) -> dict[str, Any]:
    classes = [plain_label(label) for label in predictor.classes]
    if odd := [label for label in classes if not isinstance(label, str | int | bool)]:
        raise InputError(
            "unsupported",
            f"The classes have the label {odd[0]!r}, of a kind that is not stored.",
            "Use text or whole numbers.",
        )
    costs = classifier.costs_
    measured = {}
    if isinstance(costs, MeasuredCosts):
        measured["measured"] = {
            "quantile": costs.quantile,
            "headroom": costs.headroom,
            "items": len(costs.sizes),
            "coverage": costs.coverage.tolist(),
            "held_out_coverage": [or_null(one) for one in costs.held_out_coverage.tolist()],
        }
    return {
        "method": classifier.method,
        "feature_names": list(predictor.index.feature_names),
        "widths": list(predictor.widths),
        "classes": classes,
        "shares": predictor.shares.tolist(),
        "overhead": predictor.overhead,
        "timed": predictor.timed,
        "any_time": predictor.any_time,
        "own_size": predictor.size is not item_size,
        **measured,
    }


def _save_model(model: Model, where: str) -> dict[str, str]:
    if isinstance(model, PrototypeSet):
        save_model(model, where)
        return {"kind": "prototypes", "digest": model_fingerprint(model)}
    import joblib  # type: ignore[import-untyped]

    content = io.BytesIO()
    seen, remedy = f"A {type(model).__name__} cannot be saved", "Use an estimator that can be pickled."
    with refusing(Exception, "user-code", seen, remedy):
        joblib.dump(model, content)
    with storage_errors(where, "writing"), open(where + PICKLE, "wb") as file:
        file.write(content.getbuffer())
    return {"kind": "pickle", "digest": bytes_digest(content.getvalue())}


def _functions(extractors: Mapping[str, Extractor], names: tuple[str, ...]) -> tuple[Extractor, ...]:
    check_extractors(extractors)
    if missing := [name for name in names if name not in extractors]:
        raise InputError(
            "columns-differ",
            f"There are no extractors for {some(missing)}.",
            "Give those that the classifier was fitted with.",
        )
    if foreign := [name for name in extractors if name not in names]:
        raise InputError(
            "columns-differ",
            f"The classifier has no features {some(foreign)}.",
            "Give the extractors it was fitted with, and no others.",
        )
    return tuple(extractors[name] for name in names)


def _load_models(fields: Fields, where: str, index: Index, trusted: bool) -> dict[FeatureSet, Model]:
    parts = [replace(fields, record=one) for one in fields.objects("models")]
    kinds = [part.text("kind") for part in parts]
    if set(kinds) - {"prototypes", "pickle"}:
        fields.damaged("a model is of an unknown kind")
    if "pickle" in kinds and not trusted:
        raise InputError(
            "unsafe",
            f"The models of {where} are pickles, which can run any code when they are read.",
            "If you know who wrote them, load them with trusted=True; prototype set classifiers need no pickles.",
        )
    models: dict[FeatureSet, Model] = {}
    for number, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        listed = part.record.get("features")
        features = frozenset(part.integers("features", len(listed))) if isinstance(listed, list) else frozenset()
        if not features or features in models:
            fields.damaged("a model has no features of its own")
        digest = part.text("digest")
        if kind == "prototypes":
            models[features] = read_model(os.path.join(where, MODELS, str(number)), digest, RECORD)
        else:
            models[features] = _read_pickle(where, f"{MODELS}/{number}{PICKLE}", digest)
    if set(models) != set(index.answers) - {frozenset()}:
        fields.damaged("there is not a model for each answer of the index")
    return models


def _read_pickle(where: str, name: str, digest: str) -> Model:
    import joblib

    with storage_errors(where, "reading"), open_inside(where, name) as file:
        content = read_bounded(file, MOST_PICKLE_BYTES, f"{where}/{name}")
    if bytes_digest(content) != digest:
        raise other_model(f"{where}/{name}", RECORD)
    return joblib.load(io.BytesIO(content))


def _flag(fields: Fields, name: str) -> bool:
    value = fields.record.get(name)
    if not isinstance(value, bool):
        fields.damaged(f"{name} is neither true nor false")
    return value
