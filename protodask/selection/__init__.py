"""Choosing hyperparameters: folds, searches whose fits share their passes, and rules that prefer simple models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.selection.config import SearchConfig
    from protodask.selection.results import SearchResult, Trial, as_rows, as_text, choose, read_search
    from protodask.selection.search import FoldStep, SearchEvent, SettingDone
    from protodask.selection.space import Setting
    from protodask.selection.tuning import TuneRun, tune

_HOMES = {
    "FoldStep": "protodask.selection.search",
    "SearchConfig": "protodask.selection.config",
    "SearchEvent": "protodask.selection.search",
    "SearchResult": "protodask.selection.results",
    "Setting": "protodask.selection.space",
    "SettingDone": "protodask.selection.search",
    "Trial": "protodask.selection.results",
    "TuneRun": "protodask.selection.tuning",
    "as_rows": "protodask.selection.results",
    "as_text": "protodask.selection.results",
    "choose": "protodask.selection.results",
    "read_search": "protodask.selection.results",
    "tune": "protodask.selection.tuning",
}

__all__ = [
    "FoldStep",
    "SearchConfig",
    "SearchEvent",
    "SearchResult",
    "Setting",
    "SettingDone",
    "Trial",
    "TuneRun",
    "as_rows",
    "as_text",
    "choose",
    "read_search",
    "tune",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
