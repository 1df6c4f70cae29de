"""Rows as a model sees them, for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protodask.cli.console import say, say_pairs, say_table
from protodask.cli.wording import count, shorten

if TYPE_CHECKING:
    from protodask.pipeline.monitor_results import RowsMonitored

MOST_SHOWN = 10
"""Features that are listed."""


def show_monitor(result: RowsMonitored) -> None:
    """What the rows look like, what changed, and the features that changed most."""
    found = result.describe()
    say(summarize_monitor(result))
    say()
    say_pairs(_pairs(found))
    if worst := found["drift"]["worst"][:MOST_SHOWN]:
        say()
        say("Features, those that changed most first")
        rows = [
            (
                entry["name"],
                f"{entry['index']:.4f}",
                f"{entry['p_value']:.1e}",
                f"{entry['mean_before']:.5g}",
                f"{entry['mean']:.5g}",
                "changed" if entry["significant"] else "",
            )
            for entry in worst
        ]
        say_table(["feature", "stability index", "p-value", "mean before", "mean now", ""], rows)
    if result.changes is not None:
        say()
        least = f"{result.changes.noticeable:.0%}"
        say(f"From {least} on, a change of a share from one half would be noticed in so many rows.")
    say()
    say(f"The description is in {shorten(result.path)}; --reference takes it for later rows.")


def summarize_monitor(result: RowsMonitored) -> str:
    """What changed, in one or two sentences."""
    rows = f"{count(result.profile.rows, 'row')} of {shorten(result.data)}"
    if result.changes is None:
        return f"This is what {rows} look like to the model. There is nothing to compare them with."
    found = result.describe()
    changed = []
    if found["drift"]["features"]:
        changed.append(
            f"{count(found['drift']['features'], 'feature')} (largest index {found['drift']['largest']:.3g})"
        )
    for section, what in (
        ("labels", "the shares of the classes"),
        ("predictions", "those of the predicted classes"),
        ("familiarity", "the familiarity"),
        ("calibration", "the calibration"),
    ):
        if found[section]["shift"]:
            changed.append(f"{what} (by {found[section]['shift']:.3g})")
    if found["log_loss"]["increase"]:
        changed.append(f"the log-loss (up by {found['log_loss']['increase']:.3g})")
    if not changed:
        return f"Nothing changed in {rows} beyond what may be chance."
    return f"In {rows} changed: {', '.join(changed)}."


def _pairs(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary figures, by the names that limits have."""
    pairs = [
        (f"{section}.{name}", found[section][name])
        for section, name in (
            ("drift", "largest"),
            ("drift", "features"),
            ("labels", "shift"),
            ("predictions", "shift"),
            ("familiarity", "rare"),
            ("familiarity", "shift"),
            ("familiarity", "p50"),
            ("calibration", "shift"),
            ("calibration", "error"),
            ("log_loss", "increase"),
            ("log_loss", "value"),
        )
    ]
    return [(name, "not measured" if value is None else f"{value:.6g}") for name, value in pairs]
