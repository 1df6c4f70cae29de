"""Versions of models: a folder or bucket that keeps them for good, and aliases that say which one counts.

Light to import: names are looked up in their modules on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.data.places.references import has_alias, is_reference, reference_fingerprint, resolve
    from protodask.data.places.registry_state import CHAMPION, PREVIOUS, Move
    from protodask.registry.differences import Difference
    from protodask.registry.registry import Published, Registry
    from protodask.registry.versions import Version

_HOMES = {
    "CHAMPION": "protodask.data.places.registry_state",
    "Difference": "protodask.registry.differences",
    "Move": "protodask.data.places.registry_state",
    "PREVIOUS": "protodask.data.places.registry_state",
    "Published": "protodask.registry.registry",
    "Registry": "protodask.registry.registry",
    "Version": "protodask.registry.versions",
    "has_alias": "protodask.data.places.references",
    "is_reference": "protodask.data.places.references",
    "reference_fingerprint": "protodask.data.places.references",
    "resolve": "protodask.data.places.references",
}

__all__ = [
    "CHAMPION",
    "PREVIOUS",
    "Difference",
    "Move",
    "Published",
    "Registry",
    "Version",
    "has_alias",
    "is_reference",
    "reference_fingerprint",
    "resolve",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
