"""What steps and pipelines left behind, for people to read or as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from protodask.cli.showing.console import say, show, show_json
from protodask.pipeline.telling.result import Result


def show_result(result: Result, as_json: bool) -> None:
    """What a step left behind."""
    if as_json:
        show_json(result.describe())
    else:
        show(result.told())


def show_results(results: Sequence[Result]) -> None:
    """What the steps of a pipeline left behind: places first, then what it amounts to."""
    for result in results:
        if (place := result.place()) is not None:
            say(place)
    for result in results:
        if (judgement := result.judgement()) is not None:
            say()
            say(judgement)
