"""Files that were scored each, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protodask.cli.console import say, say_pairs, say_some
from protodask.cli.wording import count, shorten

if TYPE_CHECKING:
    from protodask.pipeline.each_file import FilesScored


def show_files_scored(result: FilesScored) -> None:
    """What a run did, and what is to be known about it."""
    say(summarize_files_scored(result))
    for note in result.notes:
        say(f"Note: {note}")
    if result.failed:
        say_some(["failed", "why"], [[one.file, one.seen] for one in result.failed])


def summarize_files_scored(result: FilesScored) -> str:
    """What a run did, in one line."""
    counts = (
        (len(result.repeated), "repeated"),
        (len(result.waiting), "left for the next run"),
        (len(result.failed), "failed"),
    )
    besides = "".join(f", {number:,} {what}" for number, what in counts if number)
    if result.completed:
        besides += f", {count(result.completed, 'part')} of an interrupted run completed"
    if not result.scored:
        return f"No new file to score into {shorten(result.path)}{besides}."
    return f"{count(len(result.scored), 'file')} with {result.rows:,} rows scored into {shorten(result.path)}{besides}."


def show_scored_folder(found: Mapping[str, Any]) -> None:
    """What a folder of scored files holds."""
    newest = found["newest"]
    say_pairs(
        [
            ("scored files", shorten(found["path"])),
            ("files", f"{found['files']:,}" + (f", {found['repeated']:,} repeated" if found["repeated"] else "")),
            ("rows", f"{found['rows']:,}"),
            *([] if newest is None else [("newest", f"{newest['file']}, scored {newest['time']}")]),
            ("columns", ", ".join(column["name"] for column in found["columns"])),
        ]
    )
    if found["models"]:
        say()
        rows = [[one["model"], f"{one['files']:,}", f"{one['rows']:,}", one["newest"]] for one in found["models"]]
        say_some(["model", "files", "rows", "last used"], rows)
