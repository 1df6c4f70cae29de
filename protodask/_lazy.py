"""Names of a package that are imported when they are first asked for.

Scikit-learn takes a second to import and scipy.optimize half of one: a command that needs neither does not wait for
them. The names stand in the stub beside the package's `__init__.py`, where type checkers read them too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def names_of_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package from the imports in its `__init__.pyi`.

    Its modules are imported by their own names: `import package` alone brings none of them. A name that is also that of
    a module of the package is imported by the package at once instead: the module, when it is imported, takes its
    place.
    """
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    imports = [node for node in ast.parse(stub.read_bytes()).body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find, lambda: sorted(homes), sorted(homes)
