"""Names of a package that are imported when they are first asked for.

Scikit-learn takes a second to import and scipy.optimize half of one: a command that needs neither does not wait for
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package whose names lie in the modules that `homes` says.

    Its modules are imported by their own names: `import package` alone brings none of them. A name that is also that of
    a module of the package is imported by the package at once instead: the module, when it is imported, takes its
    place.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return find, names
