"""What robust models, predictions and runs are, for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from protodask.pipeline.steps.robust import what_is_known
from protodask.pipeline.telling.result import Pairs, Piece, Table
from protodask.pipeline.telling.wording import count, recorded_pairs, run_pairs, shorten, value_text


def told_robust_model(found: Mapping[str, Any]) -> Iterator[Piece]:
    """What a robust model is."""
    rows = found["provenance"].get("rows")
    yield Pairs(
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
        yield ""
        yield (
            f"{plane['class']} against {plane['against']} where w.x > {plane['intercept']:.6g}: "
            f"{count(plane['passes'], 'pass', 'passes')}, objective {plane['objective']:.6g}"
        )
        yield Table(["feature", "weight"], [[entry["name"], f"{entry['weight']:.4g}"] for entry in plane["weights"]])


def told_robust_run(found: Mapping[str, Any]) -> Iterator[Piece]:
    """How far a robust fit has come, from its run directory."""
    yield Pairs([*run_pairs(found), *recorded_pairs(found["last_recorded"])])
    if isinstance(found["config"], Mapping):
        yield ""
        yield Pairs([(str(name), value_text(value)) for name, value in found["config"].items()])
    if found["planes"]:
        yield ""
        keys = ("status", "objective", "lower_bound")
        rows = [
            [str(number), str(len(plane.get("passes") or ())), *(value_text(plane.get(key)) for key in keys)]
            for number, plane in enumerate(found["planes"], 1)
        ]
        yield Table(["plane", "passes", *(key.replace("_", " ") for key in keys)], rows, whole=True)
    elif found["passes"]:
        yield ""
        rows = [[str(one["plane"]), str(one["passes"])] for one in found["passes"]]
        yield Table(["plane", "passes"], rows, whole=True)


def told_robust_predictions(found: Mapping[str, Any]) -> Iterator[Piece]:
    """What robust predictions are."""
    yield Pairs(
        [
            ("robust predictions", shorten(found["path"])),
            ("rows", f"{found['rows']:,}"),
            ("classes", ", ".join(map(str, found["classes"]))),
            ("certified by", what_is_known(found["formulation"])),
            ("model", found["model"]),
        ]
    )
