"""What robust models, predictions and runs are, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protodask.cli.showing.console import say, say_pairs, say_some, say_table
from protodask.pipeline.steps.robust import what_is_known
from protodask.pipeline.telling.wording import count, recorded_pairs, run_pairs, shorten, value_text


def show_robust_model(found: Mapping[str, Any]) -> None:
    """What a robust model is."""
    rows = found["provenance"].get("rows")
    say_pairs(
        [
            ("robust model", shorten(found["path"])),
            ("formulation", what_is_known(found["formulation"])),
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
            ("certified by", what_is_known(found["formulation"])),
            ("model", found["model"]),
        ]
    )
