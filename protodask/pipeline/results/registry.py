"""What publishing leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protodask.pipeline.telling.result import Result
from protodask.pipeline.telling.wording import count, shorten
from protodask.places import mask
from protodask.registry.registry import Published


@dataclass(frozen=True)
class ModelPublished(Result):
    """A model is a version of the registry at `path`."""

    path: str
    published: Published

    def summary(self) -> str:
        found = self.published
        number = found.version.number
        what = f"Version {number} of the registry {shorten(self.path)}"
        line = f"{what} is new." if found.added else f"{what} is this model already; none was added."
        if found.alias is not None:
            before = "" if found.replaced is None else f", in place of version {found.replaced}"
            line += f" It is {found.alias}{before}."
        if found.removed:
            line += f" {count(len(found.removed), 'older version was', 'older versions were')} removed."
        return line

    def describe(self) -> dict[str, Any]:
        found = self.published
        return {
            **found.version.describe(),
            "kind": "publish",
            "model": found.version.kind,
            "registry": mask(self.path),
            "alias": found.alias,
            "added": found.added,
            "replaced": found.replaced,
            "removed": list(found.removed),
        }
