"""The step that describes rows as a model sees them, and says what changed since an earlier description."""

from __future__ import annotations

from protodask.data.places.storage import check_file_free
from protodask.engine import Engine
from protodask.errors import InputError
from protodask.evaluation.stream import Watch, learn_bins, watch_stream
from protodask.evaluation.stream_changes import compare_profiles
from protodask.evaluation.stream_profile import StreamProfile, make_profile, read_profile
from protodask.pipeline.steps import MonitorStep
from protodask.pipeline.steps.monitor import RowsMonitored
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
    watch = Watch(model, count, features, familiarity).labelled(classes)
    found = watch_stream(engine, source, watch)
    engine.forget(source)
    profile = make_profile(found, watch, fingerprint)
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
