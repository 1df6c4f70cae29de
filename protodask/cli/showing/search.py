"""What runs of searches are, for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from protodask.pipeline.steps.training import CONFIG_NAMES
from protodask.pipeline.telling.result import Pairs, Piece, Table
from protodask.pipeline.telling.wording import progress_pairs, recorded_pairs, run_pairs, shorten, value_text


def told_search_run(found: Mapping[str, Any]) -> Iterator[Piece]:
    """How far a search has come, setting by setting."""
    begun = f"{found['fits_begun']:,} of {found['fits']:,} have recorded evaluations, {found['evaluations']:,} in all"
    final = found["final_fits"]
    yield Pairs(
        [
            *run_pairs(found),
            ("fits", begun if found["fits"] else "none yet"),
            *recorded_pairs(found["last_recorded"]),
            *([("output of the driver", shorten(found["driver_log"]))] if found["driver_log"] is not None else []),
        ]
    )
    if isinstance(found["search"], Mapping) and isinstance(found["config"], Mapping):
        yield ""
        yield Pairs(_search_settings(found["search"], found["config"]))
    if found["settings"]:
        yield ""
        begun_first = sorted(found["settings"], key=lambda entry: (-len(entry["losses"]), -entry["evaluations"]))
        yield Table(
            ["lambda_v", "lambda_w", "folds begun", "evaluations", "batches", "log-loss"],
            [
                [
                    f"{entry['lambda_v']:.3g}",
                    f"{entry['lambda_w']:.3g}",
                    f"{entry['folds_begun']} of {entry['folds']}",
                    f"{entry['evaluations']:,}",
                    str(len(entry["losses"])),
                    f"{entry['losses'][-1]:.5f}" if entry["losses"] else "",
                ]
                for entry in begun_first
            ],
        )
    for number, refit in enumerate(final, start=1):
        yield ""
        yield "Final fit" if len(final) == 1 else f"Final fit {number}"
        yield Pairs(progress_pairs(refit))


def _search_settings(search: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """By the names that the command line gives them, without those that do not count."""
    from protodask.pipeline.work.settings import SEARCH_NAMES

    joint = search.get("strategy") == "joint"
    unused = {"lambda_w"} if joint else set()
    searched = {"n_batches", "lambda_v"} | ({"lambda_w"} if not joint else set())
    names = {long: short for short, long in SEARCH_NAMES.items()}
    short_names = {long: short for short, long in CONFIG_NAMES.items()}
    pairs = [(names.get(name, name), value) for name, value in search.items() if name not in unused]
    pairs += [(short_names.get(name, name), value) for name, value in config.items() if name not in searched]
    return [
        (str(name), " to ".join(map(value_text, value)) if isinstance(value, list) else value_text(value))
        for name, value in pairs
        if value is not None
    ]
