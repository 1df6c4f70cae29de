"""Robust models for people to read: what was trained, measured or predicted, and how far a fit has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protodask.cli.console import say, say_pairs, say_some, say_table
from protodask.cli.wording import count, recorded_pairs, run_pairs, shorten, value_text
from protodask.places import mask

if TYPE_CHECKING:
    from protodask.pipeline.robust_results import RobustEvaluated, RobustFitted, RobustPredicted, RobustResult

KNOWS = {
    "SVM": "the middles alone",
    "M": "means alone",
    "S": "the support alone",
    "MC": "means and variances",
    "SBMV": "support, bounds of means and second moments",
    "SMV": "support, exact means and bounds of second moments",
    "SBM": "support and bounds of means",
    "SM": "support and exact means",
}
"""What the formulations use; one with "-I" uses the same."""


def show_robust(result: RobustResult) -> None:
    """What a step on a robust model left behind."""
    from protodask.pipeline.robust_results import RobustEvaluated, RobustFitted

    say(summarize_robust(result))
    if isinstance(result, RobustFitted):
        for note in result.notes:
            say(f"Note: {note}")
    if isinstance(result, RobustEvaluated):
        sums = result.sums
        say()
        say_pairs(
            [
                ("nominal error", f"{sums.nominal_error:.6f}"),
                ("expected certified error", f"{sums.expected_certified_error:.6f}"),
                ("certified fraction", f"{sums.certified_fraction:.6f} at eps {result.eps:g}"),
                ("certified by", _known(result.formulation)),
            ]
        )
        if result.path is not None:
            say()
            say(f"The measures are in {shorten(result.path)}.")


def summarize_robust(result: RobustResult) -> str:
    """What a step on a robust model left behind, in one line."""
    from protodask.pipeline.robust_results import RobustEvaluated, RobustFitted

    if isinstance(result, RobustFitted):
        return _summarize_fit(result)
    if isinstance(result, RobustEvaluated):
        return _summarize_scores(result)
    return _summarize_predictions(result)


def _summarize_fit(result: RobustFitted) -> str:
    model = result.model
    passes = count(sum(model.passes), "pass", "passes")
    return (
        f"The robust model {shorten(result.path)} has {count(len(model.weights), 'plane')} in "
        f"{count(model.n_features, 'feature')}, by {model.config.formulation} with eps {model.config.eps:g}; after "
        f"{passes}, no other has an objective smaller by more than {100 * float(model.gap.max()):.2g} per cent."
    )


def _summarize_scores(result: RobustEvaluated) -> str:
    sums = result.sums
    return (
        f"The robust model is right on {1 - sums.nominal_error:.1%} of the {sums.count:,} rows of {mask(result.data)}, "
        f"by the middles of what is known of them. {sums.certified_fraction:.1%} are right and certified: whatever "
        f"else is true of them, wrong with a probability of at most {result.eps:g}."
    )


def _summarize_predictions(result: RobustPredicted) -> str:
    return (
        f"The robust predictions {shorten(result.path)} have {result.rows:,} rows, certified by {result.formulation}."
    )


def _known(formulation: str) -> str:
    return f"{formulation}: {KNOWS[formulation.removesuffix('-I')]}"


def show_robust_model(found: Mapping[str, Any]) -> None:
    """What a robust model is."""
    rows = found["provenance"].get("rows")
    say_pairs(
        [
            ("robust model", shorten(found["path"])),
            ("formulation", _known(found["formulation"])),
            ("eps", value_text(found["eps"])),
            ("cost", value_text(found["cost"])),
            (
                "gap",
                f"{found['gap']:.2g}" + ("" if found["converged"] else f"; {found['gap_asked_for']:.2g} was asked for"),
            ),
            ("features", f"{len(found['features']):,}, of which {found['known_exactly']:,} known exactly"),
            ("target", found["target"]),
            ("classes", ", ".join(map(str, found["classes"]))),
            ("precision", found["precision"]),
            *([("trained on", f"{rows:,} rows of {found['provenance'].get('dataset')}")] if type(rows) is int else []),
            ("fingerprint", found["fingerprint"]),
        ]
    )
    for plane in found["planes"]:
        say()
        say(
            f"{plane['class']} against {plane['against']} where w.x > {plane['intercept']:.6g}: "
            f"{count(plane['passes'], 'pass', 'passes')}, objective {plane['objective']:.6g}"
        )
        say_some(["feature", "weight"], [[entry["name"], f"{entry['weight']:.4g}"] for entry in plane["weights"]])


def show_robust_run(found: Mapping[str, Any]) -> None:
    """How far a robust fit has come, from its run directory."""
    say_pairs(
        [
            *run_pairs(found),
            *recorded_pairs(found["last_recorded"]),
        ]
    )
    if isinstance(found["config"], Mapping):
        say()
        say_pairs([(str(name), value_text(value)) for name, value in found["config"].items()])
    if found["planes"]:
        say()
        keys = ("status", "objective", "lower_bound")
        say_table(
            ["plane", "passes", *(key.replace("_", " ") for key in keys)],
            [
                [str(number), str(len(plane.get("passes") or ())), *(value_text(plane.get(key)) for key in keys)]
                for number, plane in enumerate(found["planes"], 1)
            ],
        )
    elif found["passes"]:
        say()
        say_table(["plane", "passes"], [[str(one["plane"]), str(one["passes"])] for one in found["passes"]])


def show_robust_predictions(found: Mapping[str, Any]) -> None:
    """What robust predictions are."""
    say_pairs(
        [
            ("robust predictions", shorten(found["path"])),
            ("rows", f"{found['rows']:,}"),
            ("classes", ", ".join(map(str, found["classes"]))),
            ("certified by", _known(found["formulation"])),
            ("model", found["model"]),
        ]
    )
