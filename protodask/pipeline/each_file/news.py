"""What a step that scores each file once would find to do: light to import, and cheap to ask."""

from __future__ import annotations

import os

from protodask.data.places.locations import is_url, locate
from protodask.data.tables.source_files import (
    DigestCache,
    SourceFile,
    Unusable,
    cache_beside,
    files_of,
    is_out_of_reach,
)
from protodask.errors import StorageError
from protodask.pipeline.each_file.ledger import Ledger, leftovers, read_ledger
from protodask.pipeline.steps import PredictStep
from protodask.pipeline.steps.base import StepNews


def news_of_predict(step: PredictStep) -> StepNews:
    """What there is to be scored; nothing if the step is not one for each file.

    A file that could not be scored is new until it is mended or taken away.
    """
    if not step.each_file or is_url(locate(step.out)):
        return StepNews()
    folder = os.path.realpath(locate(step.out))
    ledger = read_ledger(folder)
    unfinished = len(leftovers(folder, ledger)[0]) if os.path.isdir(folder) else 0
    cache = DigestCache(cache_beside(folder))
    unusable: list[Unusable] = []
    new, repeated, waiting = _count(files_of(step.data, step.settle, unusable), ledger, cache)
    new += len(unusable)  # not scored, and to be told of by every run
    cache.save()
    found = (
        (new, "new file"),
        (repeated, "repeated file"),
        (unfinished, "part of an interrupted run"),
    )
    said = [f"{count:,} {_plural(what, count)}" for count, what in found if count]
    return StepNews(", ".join(said) or None, waiting)


def _plural(what: str, count: int) -> str:
    first, *rest = what.split(" of ", 1)
    return " of ".join([first if count == 1 else f"{first}s", *rest])


def _count(files: tuple[SourceFile, ...], ledger: Ledger, cache: DigestCache) -> tuple[int, int, int]:
    new = repeated = waiting = 0
    found: set[str] = set()
    for file in files:
        try:
            digest = cache.digest_of(file, ledger.scored) if file.settled else None
        except StorageError as error:
            if is_out_of_reach(file, error):
                raise
            new += 1
            continue
        if digest is None:
            waiting += 1
            continue
        match ledger.repeats(file.name, digest):
            case None if digest in found:
                repeated += 1
            case None:
                found.add(digest)
                new += 1
            case True:
                repeated += 1
    return new, repeated, waiting
