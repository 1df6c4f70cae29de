"""What folders of scored files are, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protodask.cli.showing.console import say, say_pairs, say_some
from protodask.pipeline.telling.wording import shorten


def show_scored_folder(found: Mapping[str, Any]) -> None:
    """What a folder of scored files holds."""
    newest = found["newest"]
    say_pairs(
        [
            ("scored files", shorten(found["path"])),
            ("files", f"{found['files']:,}" + (f", {found['repeated']:,} repeated" if found["repeated"] else "")),
            ("rows", f"{found['rows']:,}" + (f", {found['marked']:,} marked" if found["marked"] else "")),
            *([] if newest is None else [("newest", f"{newest['file']}, scored {newest['time']}")]),
            ("columns", ", ".join(column["name"] for column in found["columns"])),
        ]
    )
    if found["models"]:
        say()
        rows = [[one["model"], f"{one['files']:,}", f"{one['rows']:,}", one["newest"]] for one in found["models"]]
        say_some(["model", "files", "rows", "last used"], rows)
