"""Versions of models: a folder or bucket that keeps them for good, and aliases that say which one counts.

Light to import: names are looked up in their modules on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.data.references import has_alias, is_reference, reference_fingerprint, resolve
    from protodask.data.registry_state import CHAMPION, PREVIOUS, Move
    from protodask.registry.differences import Difference
    from protodask.registry.registry import Published, Registry
    from protodask.registry.versions import Version

_HOMES = {
    "CHAMPION": "protodask.data.registry_state",
    "Difference": "protodask.registry.differences",
    "Move": "protodask.data.registry_state",
    "PREVIOUS": "protodask.data.registry_state",
    "Published": "protodask.registry.registry",
    "Registry": "protodask.registry.registry",
    "Version": "protodask.registry.versions",
    "has_alias": "protodask.data.references",
    "is_reference": "protodask.data.references",
    "reference_fingerprint": "protodask.data.references",
    "resolve": "protodask.data.references",
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
