"""The ledger of a folder with a part for each scored file: which file is in which part, said once and for all; and what
a step that scores each file once would find to do by it.

A folder `OUT` holds `_protodask.json`, which says what it is, `_ledger.jsonl`, and parts `NAME-DIGEST.parquet`. A part
is written aside, as `.PART.partial-RUN`; made durable; noted in the ledger, a line for each, made durable; and renamed.
So whenever a run dies, what it noted can be completed by renaming, and what it did not note was not scored. A part that
is noted and neither there nor aside was taken away, and is not made again. Readers of Parquet ignore names that begin
with a dot or an underscore. Light to import, and cheap to ask.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_type_hints

from protodask.data.news.new_sources import NewFile
from protodask.data.places.bounded import open_inside, open_to_append
from protodask.data.places.local_files import delete, flush, flush_handle
from protodask.data.places.locations import is_url, locate
from protodask.data.places.records import RecordKind
from protodask.data.tables.source_files import (
    DigestCache,
    SourceFile,
    Unusable,
    cache_beside,
    files_of,
    is_out_of_reach,
)
from protodask.errors import FormatError, StorageError, count
from protodask.pipeline.steps.base import StepNews
from protodask.pipeline.steps.predict import PredictStep

LEDGER = "_ledger.jsonl"

PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.parquet", re.ASCII)
ASIDE = re.compile(rf"\.(?P<part>{PART.pattern})\.(?:partial|blocks)-(?P<run>[0-9a-f]{{8}})", re.ASCII)

LONGEST_NAME = 80
"""Letters of a file's name that its part's name keeps: with digest and ending well below what file systems allow."""

MAX_LINE_BYTES = 2**16
"""No line of a ledger is longer; a name has at most 4096 bytes."""

RESTORE = "Restore it from a copy, or score into another folder."

SCORED_FILES = RecordKind(
    "folder of scored files", "protodask-scored-files", 1, "Make one with `each_file` of `protodask predict`.", RESTORE
)

Fate = Literal["waiting", "new", "repeated"]
"""Of a file: it changed a moment ago; its content is in no part yet; another file has it, in a part or still new."""


@dataclass(frozen=True)
class Scored:
    """A file, by the digest of its content, and the part that has its rows."""

    file: str
    """The name that it was found by."""
    digest: str
    size: int
    rows: int
    part: str
    run: str
    """Of which run's making the part is."""
    model: str
    """Fingerprint."""
    batches: int
    calibrated: bool
    time: str
    version: str
    """Of protodask."""
    marked: int = 0
    """Rows among them that could not be scored; lines say so only where there are any."""

    @property
    def aside(self) -> str:
        """The name under which the part is written before it is noted."""
        return f".{self.part}.partial-{self.run}"

    @property
    def blocks(self) -> str:
        """The folder where the blocks of a part are written that is large."""
        return f".{self.part}.blocks-{self.run}"


@dataclass(frozen=True)
class Repeated:
    """Another file of the same content as one that is scored."""

    file: str
    digest: str
    repeats: str
    """The name of that one."""
    time: str


Entry = Scored | Repeated


@dataclass
class Ledger:
    """What a ledger says."""

    scored: dict[str, Scored] = field(default_factory=dict)
    """By digest."""
    names: set[str] = field(default_factory=set)
    """Of the files that were scored."""
    repeated: set[tuple[str, str]] = field(default_factory=set)
    """Names and digests of the others."""
    latest: dict[str, str] = field(default_factory=dict)
    """By name, the digest that a file had when it was noted last."""
    end: int = 0
    """Bytes of its whole lines."""

    def add(self, entry: Entry) -> None:
        self.latest[entry.file] = entry.digest
        match entry:
            case Scored():
                self.scored[entry.digest] = entry
                self.names.add(entry.file)
            case Repeated():
                self.repeated.add((entry.file, entry.digest))

    def has(self, name: str, digest: str) -> bool:
        """Whether a file of this content is noted by this name."""
        known = self.scored.get(digest)
        return known is not None and (known.file == name or (name, digest) in self.repeated)


def part_name(name: str, digest: str) -> str:
    """The name of a file's part: no reader ignores it, or takes it for a partition of some column's value."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", os.path.splitext(os.path.basename(name))[0], flags=re.ASCII)
    return f"{stem.lstrip('._-')[:LONGEST_NAME] or 'rows'}-{digest}.parquet"


def read_ledger(folder: str) -> Ledger:
    """What the ledger of a folder says; a last line that was cut off is no line. An empty one where there is none."""
    ledger = Ledger()
    try:
        file = open_inside(folder, LEDGER)
    except (FileNotFoundError, NotADirectoryError):  # a file in the folder's place is refused before it is written to
        return ledger
    torn: int | None = None
    with file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), start=1):
            entry = _parse(line)
            if entry is None:
                torn = torn or number
            elif torn is not None:
                # A run that dies leaves one cut line, and it is the last: this is something else.
                path = os.path.join(folder, LEDGER)
                raise FormatError("damaged", f"Line {torn} of the ledger {path} is damaged.", RESTORE)
            else:
                ledger.add(entry)
                ledger.end += len(line)
    return ledger


def _parse(line: bytes) -> Entry | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    kind: type[Entry] = Repeated
    if "repeats" not in record:
        kind, record = Scored, {"marked": 0, **record}
    if {name: type(value) for name, value in record.items()} != _TYPES[kind]:
        return None
    return None if kind is Scored and not PART.fullmatch(record["part"]) else kind(**record)


_TYPES: Mapping[type, Mapping[str, type]] = {kind: get_type_hints(kind) for kind in (Scored, Repeated)}


def leftovers(folder: str, ledger: Ledger) -> tuple[list[Scored], list[str]]:
    """What a dead run left in a folder: parts that it noted, to be completed, and names of what it did not note."""
    names = [name for name in os.listdir(folder) if ASIDE.fullmatch(name)]
    parts = {entry.aside: entry for entry in ledger.scored.values()} if names else {}
    return [parts[name] for name in names if name in parts], [name for name in names if name not in parts]


def recover(folder: str) -> tuple[Ledger, int]:
    """Complete what a dead run noted, discard what it did not, and cut off a line it did not end.

    The ledger then, and how many parts were completed. For the only writer of the folder.
    """
    ledger = read_ledger(folder)
    path = os.path.join(folder, LEDGER)
    if os.path.exists(path) and os.path.getsize(path) > ledger.end:
        os.truncate(path, ledger.end)
        flush(path)
    noted, others = leftovers(folder, ledger)
    _rename(folder, noted)
    for name in others:
        delete(os.path.join(folder, name))
    return ledger, len(noted)


def publish(folder: str, entries: Sequence[Entry]) -> None:
    """Note files in the ledger, whose parts are written aside and durable, and give the parts their names."""
    if not entries:
        return
    scored = [entry for entry in entries if isinstance(entry, Scored)]
    if scored:
        flush(folder)  # the names of what was written aside: a note must not outlive it
    is_new = not os.path.exists(os.path.join(folder, LEDGER))
    with open_to_append(folder, LEDGER) as file:
        file.write(b"".join(map(_line, entries)))
        file.flush()
        flush_handle(file.fileno())
    if is_new:
        flush(folder)
    _rename(folder, scored)


def _line(entry: Entry) -> bytes:
    record = {name: value for name, value in asdict(entry).items() if (name, value) != ("marked", 0)}
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def _rename(folder: str, entries: Sequence[Scored]) -> None:
    for entry in entries:
        os.rename(os.path.join(folder, entry.aside), os.path.join(folder, entry.part))
    if entries:
        flush(folder)


def describe_ledger(ledger: Ledger) -> dict[str, Any]:
    """What was scored, by which models, as plain values."""
    scored = [*ledger.scored.values()]
    by_model: dict[str, list[Scored]] = {}
    for entry in scored:
        by_model.setdefault(entry.model, []).append(entry)
    models = [
        {"model": model, **_totals(entries), "newest": max(entry.time for entry in entries)}
        for model, entries in by_model.items()
    ]
    newest = max(scored, key=lambda entry: entry.time, default=None)
    return {
        **_totals(scored),
        "repeated": len(ledger.repeated),
        "newest": None if newest is None else {"file": newest.file, "time": newest.time, "part": newest.part},
        "models": sorted(models, key=lambda found: str(found["newest"])),
    }


def _totals(entries: Sequence[Scored]) -> dict[str, int]:
    rows, marked = sum(entry.rows for entry in entries), sum(entry.marked for entry in entries)
    return {"files": len(entries), "rows": rows, "marked": marked}


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
        for _, fate in look_through(files_of(step.data, step.settle, unusable), ledger, cache)
    )
    cache.save()
    found = (
        (fates["new"] + len(unusable), "new file", "new files"),  # the latter not scored, and told of by every run
        (fates["repeated"], "repeated file", "repeated files"),
        (unfinished, "part of an interrupted run", "parts of an interrupted run"),
    )
    said = [count(number, one, many) for number, one, many in found if number]
    return StepNews(", ".join(said) or None, fates["waiting"])


def look_through(
    files: Iterable[SourceFile], ledger: Ledger, cache: DigestCache
) -> Iterator[tuple[NewFile, Fate | StorageError]]:
    """The files that there is something to do about; without a digest where they wait or cannot be read."""
    found: set[str] = set()
    for file in files:
        if not file.settled and _is_as_noted(file, ledger, cache):
            continue
        try:
            digest = cache.digest_of(file, ledger.scored) if file.settled else None
        except StorageError as error:
            if is_out_of_reach(file, error):
                raise
            yield NewFile(file, ""), error
            continue
        if digest is None:
            yield NewFile(file, ""), "waiting"
            continue
        if not ledger.has(file.name, digest):
            yield NewFile(file, digest), "repeated" if digest in ledger.scored or digest in found else "new"
            found.add(digest)


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
