"""What a step that scores each file once would find to do: light to import, and cheap to ask."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal

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
from protodask.pipeline.steps.base import StepNews
from protodask.pipeline.steps.predict import PredictStep
from protodask.pipeline.telling.wording import count

Fate = Literal["waiting", "new", "twice", "repeated"]
"""Of a file: it changed a moment ago; its content is in no part yet; nor is it, but another file has it, too; it is in
one, by the name of another file.
"""


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
    fates = Counter(
        "new" if isinstance(fate, StorageError) else fate
        for _, _, fate in look_through(files_of(step.data, step.settle, unusable), ledger, cache)
    )
    cache.save()
    found = (
        (fates["new"] + len(unusable), "new file", "new files"),  # the latter not scored, and told of by every run
        (fates["twice"] + fates["repeated"], "repeated file", "repeated files"),
        (unfinished, "part of an interrupted run", "parts of an interrupted run"),
    )
    said = [count(number, one, many) for number, one, many in found if number]
    return StepNews(", ".join(said) or None, fates["waiting"])


def look_through(
    files: Iterable[SourceFile], ledger: Ledger, cache: DigestCache
) -> Iterator[tuple[SourceFile, str, Fate | StorageError]]:
    """The files that there is something to do about, with the digest of their content, or why there is none."""
    found: set[str] = set()
    for file in files:
        if not file.settled and _is_as_noted(file, ledger, cache):
            continue
        try:
            digest = cache.digest_of(file, ledger.scored) if file.settled else None
        except StorageError as error:
            if is_out_of_reach(file, error):
                raise
            yield file, "", error
            continue
        if digest is None:
            yield file, "", "waiting"
            continue
        repeats = ledger.repeats(file.name, digest)
        if repeats is None:
            fate: Fate = "twice" if digest in found else "new"
            found.add(digest)
            yield file, digest, fate
        elif repeats:
            yield file, digest, "repeated"


def _is_as_noted(file: SourceFile, ledger: Ledger, cache: DigestCache) -> bool:
    """Whether a file that changed a moment ago has the content that was noted of it, as one that was touched.

    It is read only if its size is the same, and then not once more when it has settled.
    """
    noted = ledger.scored.get(ledger.latest.get(file.name, ""))
    if noted is None or noted.size != file.size:
        return False
    with suppress(StorageError):
        return cache.digest_of(file, ledger.scored) == noted.digest
    return False
