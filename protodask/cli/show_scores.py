"""Scores of a model for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protodask.cli.console import MOST_LINES, say, say_pairs, say_table
from protodask.cli.wording import number, shorten
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.evaluation.metrics import Scores
    from protodask.pipeline.results import ModelEvaluated


def show_scores(result: ModelEvaluated) -> None:
    """The metrics, and the confusion of few classes."""
    scores = result.scores.scores
    say(summarize_scores(result))
    say()
    pairs = [
        ("log-loss", f"{scores.log_loss:.6f}"),
        ("accuracy", f"{scores.accuracy:.6f}"),
        ("balanced accuracy", f"{scores.balanced_accuracy:.6f}"),
        ("Brier score", f"{scores.brier_score:.6f}"),
    ]
    if scores.roc_auc is not None:
        pairs.append(("ROC AUC", f"{scores.roc_auc:.6f}{_doubt(scores)}"))
    if scores.roc_auc_weighted is not None and len(result.scores.classes) > 2:
        pairs.append(("ROC AUC, weighted by class", f"{scores.roc_auc_weighted:.6f}"))
    say_pairs(pairs)
    if len(result.scores.classes) <= MOST_LINES:
        say()
        say("Confusion (rows: true class, columns: predicted class)")
        names = [str(label) for label in result.scores.classes]
        say_table(["", *names], [[name, *map(number, row)] for name, row in zip(names, scores.confusion, strict=True)])
    if result.path is not None:
        say()
        say(f"The scores are in {shorten(result.path)}.")


def summarize_scores(result: ModelEvaluated) -> str:
    """How often it is right, and its log-loss beside the least a model should have."""
    scores = result.scores
    found = scores.scores
    who = "calibrated model" if scores.calibrated else "model"
    return (
        f"The {who} is right on {found.accuracy:.1%} of the {found.rows:,} rows of "
        f"{mask(result.data)}. Its log-loss there is {found.log_loss:.4f}; always predicting the class shares of the "
        f"training data has {scores.marginal_log_loss:.4f}, perfect predictions have 0."
    )


def _doubt(scores: Scores) -> str:
    """How exact an area under the curve is, where it is not exact, and what sampling leaves open of it."""
    interval = scores.roc_auc_interval
    drawn = "" if interval is None else f"95 per cent interval {interval[0]:.6f} to {interval[1]:.6f}"
    # With two digits, and never less than it is: rounding takes off less than the twentieth that is added.
    inexact = f"off by at most {1.05 * scores.roc_auc_error:.1e}" if scores.roc_auc_error else ""
    said = "; ".join(part for part in (inexact, drawn) if part)
    return f" ({said})" if said else ""
