"""The step that describes rows as a model sees them, and says what changed since an earlier description."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protodask.data import Label
from protodask.data.places.storage import check_file_free
from protodask.engine import Engine
from protodask.errors import InputError
from protodask.evaluation.stream import Watch, learn_bins, watch_stream
from protodask.evaluation.stream_changes import compare_profiles
from protodask.evaluation.stream_profile import StreamProfile, make_profile, read_profile
from protodask.pipeline.results.monitor import RowsMonitored
from protodask.pipeline.steps import MonitorStep
from protodask.pipeline.telling.json_file import write_json
from protodask.pipeline.work.limits import read_results
from protodask.places import mask
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import load_model, model_fingerprint


def monitor_rows(step: MonitorStep, engine: Engine) -> RowsMonitored:
    """Describe the rows, compare them with the reference if there is one, and write the file."""
    step.check()
    check_file_free(step.out, step.overwrite)
    model = load_model(step.model)
    fingerprint = model_fingerprint(model)
    (count,) = model.batch_counts(step.batches)
    before = None
    if step.reference is not None:
        before = read_profile(read_results(step.reference), mask(step.reference))
        _check_reference(before, step.reference, model, fingerprint, count)
    source, classes = step.any_rows(step.data, model, model.classes, engine)
    if before is None:
        features, familiarity = learn_bins(engine, source, model, count)
    else:
        features, familiarity = tuple(feature.bins for feature in before.features), before.familiarity
    codes, unknown = (None, None) if classes is None else _codes(model, classes)
    watch = Watch(model, count, features, familiarity, codes, model.n_classes + len(unknown or ()))
    found = watch_stream(engine, source, watch)
    engine.forget(source)
    profile = make_profile(
        found, fingerprint, count, model.feature_names, features, familiarity, model.classes, unknown
    )
    changes = None if before is None else compare_profiles(before, profile, step.significance)
    result = RowsMonitored(step.out, step.model, step.data, step.reference, profile, before, changes)
    write_json(step.out, result.file_content(), step.overwrite)
    return result


def _check_reference(before: StreamProfile, path: str, model: PrototypeSet, fingerprint: str, n_batches: int) -> None:
    what = f"The reference {mask(path)} describes rows"
    if before.model != fingerprint:
        raise InputError(
            "other-run",
            f"{what} as another model sees them.",
            "Give a description that this model made, best of held-out rows.",
        )
    if before.n_batches != n_batches:
        raise InputError(
            "settings-conflict",
            f"{what} as {before.n_batches} batches of the model see them, and {n_batches} are asked for.",
            "Use the same number for both.",
        )
    if tuple(feature.name for feature in before.features) != tuple(model.feature_names):
        raise InputError("columns-differ", f"{what} with other features.", "Make it again with this model.")
    if before.classes != model.classes:
        raise InputError("columns-differ", f"{what} of other classes.", "Make it again with this model.")


def _codes(
    model: PrototypeSet, classes: Sequence[Label]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], tuple[Label, ...]]:
    """The number of each class of the rows, and those that the model does not know, which come last."""
    place = {(type(label), label): number for number, label in enumerate(model.classes)}
    unknown = tuple(label for label in classes if (type(label), label) not in place)
    for label in unknown:
        place[type(label), label] = len(place)
    return np.array([place[type(label), label] for label in classes], dtype=np.int64), unknown
