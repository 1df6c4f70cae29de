"""Scoring each file of some tables once, whichever run finds it first."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, groupby, islice
from operator import add
from typing import Any

from protodask.data.arrays.array_store import store_key
from protodask.data.arrays.rows import BlockNumbers
from protodask.data.news.new_sources import NewFile
from protodask.data.places.local_files import delete, make_durable, place_aside, remove
from protodask.data.places.locations import full_disk_of, locate, storage_errors
from protodask.data.places.locks import sole_writer
from protodask.data.places.records import Fields, recognize, unseal
from protodask.data.places.storage import check_outside, is_one, read_marker, write_marker
from protodask.data.tables.small_files import is_small
from protodask.data.tables.source_files import DigestCache, Unusable, cache_beside, files_of
from protodask.data.tables.table_files import check_parquet, is_parquet
from protodask.engine import Engine, Layout, Reduction, identity
from protodask.errors import InputError, LostTaskError, OutputExistsError, ProtodaskError, StorageError, count, some
from protodask.pipeline.each_file.ledger import (
    SCORED_FILES,
    Ledger,
    Repeated,
    Scored,
    leftovers,
    look_through,
    publish,
    recover,
)
from protodask.pipeline.each_file.parts import (
    SOURCE,
    Changed,
    Failed,
    Outcome,
    Scoring,
    columns_of,
    empty_columns,
    failure,
    score_large_file,
    score_small_files,
)
from protodask.pipeline.steps.predict import PredictStep
from protodask.pipeline.telling.result import FilesFailedError, Piece, Result, Table, shorten
from protodask.places import mask
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.prediction_columns import check_kept
from protodask.prototypes.rows_to_score import is_dataset

BATCH_FILES = 64
"""Small files that are noted together: the fewer the notes, the less a run waits for the disk; what is not noted when a
run dies is scored again.
"""


MOST_DESCRIBED = 100
"""Failures that a description lists: it is one line of a log. All are tried again and told by the next run."""


@dataclass(frozen=True)
class FilesScored(Result):
    """What a run that scores each file once has done; the parts lie in the folder at `path`."""

    path: str
    scored: tuple[Scored, ...]
    """The files scored by this run."""
    repeated: tuple[str, ...]
    """Files with the content of one that is scored, noted by this run."""
    waiting: tuple[str, ...]
    """Files that changed a moment ago, or while they were scored: they are left for the next run."""
    failed: tuple[Failed, ...]
    """Files that cannot be scored; the next run tries them again."""
    changed: tuple[str, ...]
    """Those among the scored that had been scored before with other content."""
    completed: int
    """Parts of an interrupted run that this one gave their names."""

    @property
    def rows(self) -> int:
        """Of the files scored by this run."""
        return sum(entry.rows for entry in self.scored)

    @property
    def marked(self) -> int:
        """Of these rows, those that could not be scored."""
        return sum(entry.marked for entry in self.scored)

    def summary(self) -> str:
        counts = (
            (len(self.changed), "with other content than before"),
            (len(self.repeated), "repeated"),
            (len(self.waiting), "left for the next run"),
            (len(self.failed), "failed"),
        )
        besides = "".join(f", {number:,} {what}" for number, what in counts if number)
        if self.completed:
            besides += f", {count(self.completed, 'part')} of an interrupted run completed"
        if not self.scored:
            return f"No new file to score into {shorten(self.path)}{besides}."
        marked = f", {self.marked:,} of them marked," if self.marked else ""
        files = count(len(self.scored), "file")
        return f"{files} with {count(self.rows, 'row')}{marked} scored into {shorten(self.path)}{besides}."

    def told(self) -> Iterator[Piece]:
        yield from super().told()
        if self.failed:
            yield Table(["failed", "why"], [[one.file, one.seen] for one in self.failed])

    @property
    def notes(self) -> tuple[str, ...]:
        """What an operator should know."""
        said = []
        if marked := [entry.file for entry in self.scored if entry.marked]:
            said.append(f"{count(self.marked, 'row')} could not be scored and are marked, in {some(marked)}.")
        if self.changed:
            said.append(
                f"{some(self.changed)} had been scored before with other content; now the rows of both are there."
            )
        if self.repeated:
            said.append(f"{some(self.repeated)} repeated the content of other files, and had not to be scored.")
        if self.waiting:
            said.append(f"{some(self.waiting)} changed a moment ago: left for the next run.")
        return tuple(said)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "scored files",
            "path": mask(self.path),
            "files": len(self.scored),
            "rows": self.rows,
            "marked": self.marked,
            "repeated": len(self.repeated),
            "waiting": len(self.waiting),
            "failed": len(self.failed),
            "changed": len(self.changed),
            "completed": self.completed,
            "model": self.scored[-1].model if self.scored else None,
            "failures": [
                {"file": one.file, "code": one.code, "seen": one.seen, "remedy": one.remedy}
                for one in self.failed[:MOST_DESCRIBED]
            ],
            "notes": list(self.notes),
        }


def check_each_file(step: PredictStep) -> None:
    """Refuse settings that do not go together, and places that cannot be written to like that."""
    if not step.each_file:
        if step.settle:
            raise InputError(
                "settings-conflict",
                "`settle` is for files that are scored each.",
                "Add `each_file`, or leave `settle` out.",
            )
        return
    if not 0 <= step.settle < float("inf"):
        raise InputError("bad-setting", f"settle is {step.settle}.", "Give seconds, from 0.")
    if step.overwrite:
        raise InputError(
            "settings-conflict",
            "Both each-file and overwrite are given.",
            "Leave out overwrite: files are added to those in the folder.",
        )
    if not is_parquet(step.out):
        raise InputError(
            "bad-setting",
            f"{mask(step.out)} does not end in .parquet.",
            "Give the name of a folder that does: scored files are parts of one Parquet dataset.",
        )
    check_parquet(locate(step.out), "Scored files")
    check_kept(step.keep, step.out, (SOURCE,))
    for place in step.data:
        if place.rstrip("/").endswith((".npy", ".npz", ".zarr")):
            raise InputError(
                "wrong-kind",
                f"{mask(place)} holds arrays, and no files of tables.",
                "Give CSV or Parquet files, or leave out `each_file`.",
            )


def score_each_file(step: PredictStep, engine: Engine, load: Callable[[str], PrototypeSet]) -> FilesScored:
    """Score what is new among the files of a step into parts of its folder.

    Files that cannot be scored do not keep others from it; they are a `FilesFailedError` at the end. They are not
    remembered: what is wrong may be the model or a setting, and a run that says nothing of a file that it does not
    score would be taken for one that did.
    """
    check_each_file(step)
    where = os.path.realpath(locate(step.out))
    for place in step.data:
        if is_dataset(place):
            raise InputError(
                "wrong-kind",
                f"{mask(place)} is a dataset, and no files of tables.",
                "Leave out `each_file` to predict its rows.",
            )
        check_outside(where, locate(place))
    with full_disk_of(where, f"writing {mask(step.out)}"), storage_errors(where, "writing"):
        os.makedirs(os.path.dirname(where), exist_ok=True)
        with sole_writer(where):
            result = _Run(step, engine, load, where).score()
    if result.failed:
        remedies = {one.remedy for one in result.failed}
        named = [f"{one.file} ({one.seen.rstrip('.')})" for one in result.failed]
        failed = FilesFailedError(
            "files-failed",
            f"{count(len(result.failed), 'file')} cannot be scored: {some(named)}.",
            f"{remedies.pop() if len(remedies) == 1 else 'Mend them.'} Or take away what is no such "
            f"table: every run tries it again. Of the others {count(len(result.scored), 'file')} with "
            f"{count(result.rows, 'row')} were scored now.",
        )
        failed.result = result
        raise failed
    return result


@dataclass
class _Run:
    """One run over the files: what it has found and done so far."""

    step: PredictStep
    engine: Engine
    load: Callable[[str], PrototypeSet]
    where: str
    ledger: Ledger = field(default_factory=Ledger)
    scored: list[Scored] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    repeating: list[NewFile] = field(default_factory=list)
    """Files with the content of others that are scored, or that this run is to score."""

    def score(self) -> FilesScored:
        completed = 0
        if _is_there(self.where):
            self.ledger, completed = recover(self.where)
        self._score(self._new_files())
        self._note_repeated()
        return FilesScored(
            path=self.where,
            scored=tuple(self.scored),
            repeated=tuple(self.repeated),
            waiting=tuple(self.waiting),
            failed=tuple(self.failed),
            changed=tuple(self.changed),
            completed=completed,
        )

    def _new_files(self) -> Iterator[NewFile]:
        """The files whose content is in no part yet, each content once."""
        unusable: list[Unusable] = []
        files = files_of(self.step.data, self.step.settle, unusable)
        self.failed += [_unusable(one.name, one.error) for one in unusable]
        if inside := [file.path for file in files if file.path.startswith(self.where + os.sep)]:
            raise InputError(
                "places-overlap",
                f"{inside[0]} is in the folder that is written to, and would be scored.",
                "Give a folder for the parts that the files to be scored are not in.",
            )
        cache = DigestCache(cache_beside(self.where))
        # Small ones first, then the largest last: one that takes more memory than there is may end the process.
        files_in_order = sorted(files, key=lambda file: 0 if is_small(file.path, file.size) else file.size)
        try:
            for new, fate in look_through(files_in_order, self.ledger, cache):
                match fate:
                    case StorageError():
                        self.failed.append(_unusable(new.file.name, fate))
                    case "waiting":
                        self.waiting.append(new.file.name)
                    case "repeated":
                        self.repeating.append(new)
                    case "new":
                        yield new
        finally:
            cache.save()

    def _score(self, new: Iterator[NewFile]) -> None:
        first = next(new, None)
        if first is None:  # the model is not even read
            return
        model = self.load(self.step.model)
        n_batches = model.scored_batches(self.step.batches, self.step.calibrated)
        scoring = Scoring(self.where, secrets.token_hex(4), model_fingerprint(model), n_batches, self.step)
        schema = _read_schema(self.where, model, self.step.keep) if _is_there(self.where) else None
        while schema is None:
            found = columns_of(first, scoring, model, self.engine)
            if isinstance(found, bytes):
                schema = found
                _create(self.where, schema)
                break
            self._take([found])
            first = next(new, None)
            if first is None:
                return
        scoring = replace(scoring, schema=schema)
        shared = self.engine.share(model)
        for small, batch in _batches(chain((first,), new)):
            outcomes = self._score_small(batch, scoring, shared) if small else batch
            self._take(outcomes)
            for outcome in outcomes:
                if isinstance(outcome, NewFile):
                    self._take([score_large_file(outcome, scoring, model, self.engine)])
        for name in leftovers(self.where, self.ledger)[1]:  # of files that changed while they were scored
            delete(os.path.join(self.where, name))

    def _score_small(self, batch: Sequence[NewFile], scoring: Scoring, model: Any) -> list[Outcome]:
        numbers = BlockNumbers(Layout(len(batch), 1))
        try:
            return self.engine.reduce(numbers, _SCORE, batch, scoring, model, label="score files")
        except LostTaskError as error:  # one of them takes the workers with it
            if len(batch) == 1:
                return [failure(batch[0], error)]
            return [outcome for new in batch for outcome in self._score_small([new], scoring, model)]

    def _take(self, outcomes: Sequence[Outcome]) -> None:
        """Note what was scored, and put the parts in their places."""
        entries = [outcome for outcome in outcomes if isinstance(outcome, Scored)]
        publish(self.where, entries)
        for entry in entries:
            if entry.file in self.ledger.names:
                self.changed.append(entry.file)
            self.ledger.add(entry)
        self.scored += entries
        self.waiting += [outcome.file for outcome in outcomes if isinstance(outcome, Changed)]
        self.failed += [outcome for outcome in outcomes if isinstance(outcome, Failed)]

    def _note_repeated(self) -> None:
        failures = {one.digest: one for one in self.failed}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        noted: list[Repeated] = []
        for new in self.repeating:
            known = self.ledger.scored.get(new.digest)
            if known is not None:
                noted.append(Repeated(new.file.name, new.digest, known.file, now))
            elif new.digest in failures:
                self.failed.append(replace(failures[new.digest], file=new.file.name))
            else:
                self.waiting.append(new.file.name)
        publish(self.where, noted)
        self.repeated += [entry.file for entry in noted]


_SCORE: Reduction[list[Outcome], list[Outcome]] = Reduction(score_small_files, add, identity, writes=True)


def _unusable(name: str, error: ProtodaskError) -> Failed:
    """A file that has no digest, as nobody could read it."""
    return Failed(name, "", error.code, error.seen, error.remedy)


def _batches(files: Iterable[NewFile]) -> Iterator[tuple[bool, list[NewFile]]]:
    """Small files together, large ones alone; with each batch, whether it is of small ones."""
    for small, group in groupby(files, lambda new: is_small(new.file.path, new.file.size)):
        while batch := list(islice(group, BATCH_FILES if small else 1)):
            yield small, batch


def _is_there(where: str) -> bool:
    """Whether the folder is there; False where nothing is, or an empty one. What is there may be nothing else."""
    if not os.path.lexists(where):
        return False
    if is_one(where, SCORED_FILES):
        return True
    if os.path.isdir(where) and not os.listdir(where):
        return False
    raise OutputExistsError(
        "wrong-kind",
        f"{mask(where)} exists and is not a protodask {SCORED_FILES.name}.",
        "Choose another place, or remove it yourself.",
    )


def _create(where: str, schema: bytes) -> None:
    """Make the folder, with a record of the columns that all its parts are to have."""
    import pyarrow

    fields = pyarrow.ipc.read_schema(pyarrow.py_buffer(schema))
    record = {
        "identity": store_key(),
        "columns": [[field.name, str(field.type)] for field in fields],
        "schema": base64.b64encode(schema).decode("ascii"),
    }
    aside = place_aside(where)
    try:
        os.makedirs(aside)
        write_marker(aside, SCORED_FILES.sealed(record))
        make_durable(aside)
        os.rename(aside, where)
    except BaseException:
        remove(aside)
        raise


def read_record(where: str) -> Fields:
    """The record of a folder, checked."""
    return unseal(recognize(read_marker(where), SCORED_FILES, where))


def _read_schema(where: str, model: PrototypeSet, keep: Sequence[str]) -> bytes:
    """The columns of the parts that are there, which further ones must have, too."""
    fields = read_record(where)
    names = [str(name) for name, _ in fields.record["columns"]]
    wanted = {*empty_columns(model), *keep}
    if set(names) != wanted:
        lacking, besides = sorted(set(names) - wanted), sorted(wanted - set(names))
        said = [f"they have {some(lacking)}"] if lacking else []
        said += [f"they lack {some(besides)}"] if besides else []
        raise InputError(
            "columns-differ",
            f"The parts in {mask(where)} have other columns than new ones would: {' and '.join(said)}.",
            "Keep the same columns, with a model of the same classes, or score into another folder.",
        )
    return base64.b64decode(fields.text("schema"))
