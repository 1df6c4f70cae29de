"""Versions of models: a folder or bucket that keeps them for good, and aliases that say which one counts.

Light to import: names are looked up in their modules on first use.
"""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
