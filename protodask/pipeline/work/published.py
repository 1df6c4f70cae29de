"""Whether a model may be written to its place, asked before it is trained."""

from __future__ import annotations

import os
from collections.abc import Callable

from protodask.data.places.storage import Kind, check_free, sweep
from protodask.errors import OutputExistsError
from protodask.prototypes.persistence import MODEL, load_model, model_fingerprint
from protodask.prototypes.runs import HISTORY_FILE


def _fingerprint_at(path: str) -> str:
    return model_fingerprint(load_model(path))


def published_model(
    where: str,
    run_dir: str,
    overwrite: bool,
    kind: Kind = MODEL,
    fingerprint_at: Callable[[str], str] = _fingerprint_at,
) -> str | None:
    """Refuse a place that is taken, unless the run in `run_dir` has ended and a model is there.

    The same command may have been killed when it had written the model and not yet come to its end: the fingerprint of
    that model is returned, to be compared with what the run leads to.
    """
    sweep(run_dir)
    try:
        check_free(where, overwrite, kind)
    except OutputExistsError:
        if not run_has_ended(run_dir) or not kind.owns(where):
            raise
        return fingerprint_at(where)
    return None


def run_has_ended(run_dir: str) -> bool:
    """Whether the run in a directory came to its end."""
    return os.path.exists(os.path.join(run_dir, HISTORY_FILE))
