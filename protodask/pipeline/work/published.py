"""Whether a model may be written to its place, asked before it is trained, and files beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from protodask.data.places.locks import sweep
from protodask.data.places.records import Kind
from protodask.data.places.storage import check_free, is_one
from protodask.data.places.whole_files import check_file_free, replace_file
from protodask.errors import OutputExistsError
from protodask.prototypes.model import load_model
from protodask.prototypes.persistence import MODEL, model_fingerprint
from protodask.prototypes.runs import HISTORY_FILE, RunDirectory


def published_model(
    where: str,
    run_dir: str,
    overwrite: bool,
    kind: Kind = MODEL,
    fingerprint_at: Callable[[str], str] = lambda path: model_fingerprint(load_model(path)),
) -> str | None:
    """Refuse a place that is taken; the fingerprint of the model that the same command may have left there.

    It is to be compared with what the run leads to.
    """
    return fingerprint_at(where) if is_published(where, run_dir, overwrite, kind) else None


def is_published(where: str, run_dir: str, overwrite: bool, kind: Kind) -> bool:
    """Refuse a place that is taken, unless the run in `run_dir` has ended and what it leads to is there.

    The same command may have been killed when it had written that and not yet come to its end.
    """
    sweep(run_dir)
    try:
        check_free(where, overwrite, kind)
    except OutputExistsError:
        if not run_has_ended(run_dir) or not is_one(where, kind):
            raise
        return True
    return False


def run_has_ended(run_dir: str) -> bool:
    """Whether the run in a directory came to its end."""
    return os.path.exists(os.path.join(run_dir, HISTORY_FILE))


def has_begun(run_dir: str) -> bool:
    """Whether an earlier run left something in a directory to go on from."""
    return os.path.isdir(run_dir) and not RunDirectory(run_dir).untouched


def check_beside(path: str, overwrite: bool, run_dir: str) -> None:
    """Refuse a file that is there, unless the run has come to its end: it may have written that.

    Then it is compared when there is something to compare.
    """
    try:
        check_file_free(path, overwrite)
    except OutputExistsError:
        if os.path.isdir(path) or not run_has_ended(run_dir):
            raise


def write_beside(path: str, content: bytes, overwrite: bool) -> None:
    """Write a file beside what is published, unless it is there with this very content."""
    try:
        check_file_free(path, overwrite)
    except OutputExistsError:
        with suppress(OSError), open(path, "rb") as file:
            if file.read(len(content) + 1) == content:
                return
        raise
    else:
        replace_file(path, [content])
