"""Versions of models: a folder or bucket that keeps them for good, and aliases that say which one counts.

Light to import: names are looked up in their modules on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
