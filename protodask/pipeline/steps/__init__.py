"""The steps of pipelines: one for each command that does something, with the command's options as fields."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from protodask.pipeline.steps.base import Step

ORDER = (
    *("sample-data", "ingest", "split", "subsample", "fit", "tune", "calibrate", "prune", "predict", "evaluate"),
    *("policy", "gate", "monitor", "decide", "budget", "robust-fit", "robust-predict", "robust-evaluate"),
    *("report", "publish"),
)
"""The order in which steps are listed; others come after these."""


def _steps() -> dict[str, type[Step]]:
    """The steps of the files here by their commands: those that have a command of their own."""
    steps: dict[str, type[Step]] = {}
    for module in iter_modules(__path__, f"{__name__}."):
        for found in vars(import_module(module.name)).values():
            if isinstance(found, type) and issubclass(found, Step) and "command" in vars(found):
                other = steps.setdefault(found.command, found)
                if other is not found:
                    raise TypeError(f"{other.__module__} and {found.__module__} both have the step {found.command!r}.")
    return steps


STEPS: dict[str, type[Step]] = dict(
    sorted(_steps().items(), key=lambda item: ((*ORDER, item[0]).index(item[0]), item[0]))
)
"""Steps by their names in pipeline files."""
