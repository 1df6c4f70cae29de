"""What publishing leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protodask.places import mask
from protodask.registry.registry import Published


@dataclass(frozen=True)
class ModelPublished:
    """A model is a version of the registry at `path`."""

    path: str
    published: Published

    def describe(self) -> dict[str, Any]:
        """Plain values, for files."""
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
