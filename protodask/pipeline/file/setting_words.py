"""Settings as those say who write a command or a file."""

from __future__ import annotations

import re
from dataclasses import fields

from protodask.pipeline.file.values import key_of
from protodask.pipeline.steps import STEPS
from protodask.pipeline.steps.training import CONFIG_NAMES

_KNOWN = {field.name: field.name for kind in STEPS.values() for field in fields(kind)} | {
    "n_folds": "folds",
    "n_trials": "trials",
    **{long: name for name, long in CONFIG_NAMES.items() if long != "n_draws"},
}
"""Fields by how they are called inside, and by their own names. The draws of a fit and of a search are called alike."""

_SETTING = re.compile(
    r"(?<!in Python )(?<!like )(?<![\w'\"`./=-])(?P<name>[a-z]+(?:_[a-z]+)*)"
    r"(?:=(?P<value>'[^']*'|True|[0-9][0-9.e+-]*))?(?![\w=(])"
)

_OPTION = re.compile(r"(?<![\w/-])(?P<tick>`?)--(?P<key>[a-z]+(?:-[a-z]+)*)(?P=tick)(?![\w/=-])")
_KEYS = {key_of(name) for name in _KNOWN.values()}


def as_options(text: str) -> str:
    """A message with settings as on the command line: `--unseen zero` for "unseen='zero'", `--max-fraction`."""
    return _with_settings(text, "--", " ")


def as_keys(text: str) -> str:
    """A message with settings as in a pipeline file: `unseen: zero` for "unseen='zero'", `max-fraction`, `new` for
    "--new"; options of a run stay what they are.
    """
    text = _OPTION.sub(lambda found: f"`{found['key']}`" if found["key"] in _KEYS else found[0], text)
    return _with_settings(text, "", ": ")


def _with_settings(text: str, before: str, between: str) -> str:
    def said(found: re.Match[str]) -> str:
        name, value = _KNOWN.get(found["name"]), found["value"]
        begins = found.start() == 0 and text.startswith(" is ", found.end())  # other words may be meant as such
        if name is None or (value is None and "_" not in found["name"] and not begins):
            return found[0]
        shown = (
            "" if value is None or (value == "True" and before) else between + value.strip("'").replace("True", "true")
        )
        return f"{before}{key_of(name)}{shown}"

    return _SETTING.sub(said, text)
