"""Decisions that are optimal for the loss people are judged by.

Of some items, each positive with a known probability and independently of the others, which should be selected? Where
predictions are judged by F1, Jaccard, AM or another loss of the whole selection, the answer is not to threshold at 0.5:
it is to select the `k` most probable items, and `decide` finds the best `k`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask._lazy import lazy_names

if TYPE_CHECKING:
    from protodask.decisions.deciding import decide
    from protodask.decisions.decision import Cut, Decision
    from protodask.decisions.exact import expected_loss, expected_losses
    from protodask.decisions.group_tables import GroupDecisions
    from protodask.decisions.groups import decide_groups
    from protodask.decisions.large import decide_normal
    from protodask.decisions.losses import LOSS_NAMES, Loss, as_loss
    from protodask.decisions.sets import RowDecisions, decide_rows, decide_sets
    from protodask.decisions.stored import decide_stored

_HOMES = {
    "Cut": "protodask.decisions.decision",
    "Decision": "protodask.decisions.decision",
    "GroupDecisions": "protodask.decisions.group_tables",
    "LOSS_NAMES": "protodask.decisions.losses",
    "Loss": "protodask.decisions.losses",
    "RowDecisions": "protodask.decisions.sets",
    "as_loss": "protodask.decisions.losses",
    "decide": "protodask.decisions.deciding",
    "decide_groups": "protodask.decisions.groups",
    "decide_normal": "protodask.decisions.large",
    "decide_rows": "protodask.decisions.sets",
    "decide_sets": "protodask.decisions.sets",
    "decide_stored": "protodask.decisions.stored",
    "expected_loss": "protodask.decisions.exact",
    "expected_losses": "protodask.decisions.exact",
}

__all__ = [
    "LOSS_NAMES",
    "Cut",
    "Decision",
    "GroupDecisions",
    "Loss",
    "RowDecisions",
    "as_loss",
    "decide",
    "decide_groups",
    "decide_normal",
    "decide_rows",
    "decide_sets",
    "decide_stored",
    "expected_loss",
    "expected_losses",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
