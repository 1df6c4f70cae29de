"""Choosing hyperparameters: folds, searches whose fits share their passes, and rules that prefer simple models."""

from protodask.selection.choice import choose
from protodask.selection.config import SearchConfig
from protodask.selection.results import SearchResult, Trial, as_rows, as_text, read_search
from protodask.selection.search import FoldStep, SearchEvent, SettingDone
from protodask.selection.space import Setting
from protodask.selection.tuning import TuneRun, tune

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
