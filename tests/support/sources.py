"""The modules of the package, as text and as trees."""

import ast
import gc
from functools import cache
from pathlib import Path

import protodask

ROOT = Path(protodask.__file__).parent


@cache
def trees() -> dict[Path, ast.Module]:
    """What each module says, by its file.

    All of it is there for good, so that to look again and again for what could be collected would only take time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return {file: ast.parse(file.read_bytes()) for file in sorted(ROOT.rglob("*.py"))}
    finally:
        if enabled:
            gc.enable()
