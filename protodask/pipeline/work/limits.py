"""Limits for the figures of a file of results: `drift.largest <= 0.25`.

A path is names joined by dots. An element of a list is named by its `name` or `label`, if the elements are objects that
have one, else by its number from 0. Names may hold dots themselves: at each level the longest name that the rest of the
path begins with is tried first, then shorter ones.
"""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from protodask.data.places.bounded import MAX_JSON_BYTES, open_named, parse_json, read_bounded, read_json
from protodask.data.places.locations import is_url, locate
from protodask.data.places.references import follow
from protodask.errors import FormatError, InputError, ProtodaskError, StorageError, some
from protodask.pipeline.steps.gate import Limit
from protodask.places import mask

NAMES = ("name", "label")
"""What names an object in a list, in this order."""

MOST_LISTED = 12


@dataclass(frozen=True)
class GateFigure:
    """A figure, its limits, and whether it keeps to them."""

    name: str
    value: float | None
    """None where there is no such number."""
    limit: Limit
    reason: str | None
    """Why it is a no; None where it is none."""


def check_limits(limits: Mapping[str, Limit]) -> None:
    """Refuse limits that are none, or that nothing can keep to."""
    for name, limit in limits.items():
        ends = [end for end in (limit.least, limit.most) if end is not None]
        if not ends:
            raise InputError(
                "setting-missing", f"The figure {name!r} has no limit.", "Give `least:` or `most:` with a number."
            )
        if not all(map(math.isfinite, ends)):
            raise InputError(
                "bad-setting", f"A limit of the figure {name!r} is not finite.", "Give a number, or leave it out."
            )
        if len(ends) == 2 and ends[0] > ends[1]:
            raise InputError(
                "settings-conflict",
                f"The figure {name!r} is to be at least {ends[0]!r} and at most {ends[1]!r}.",
                "Exchange the two.",
            )


def judge_figures(content: Any, limits: Mapping[str, Limit]) -> tuple[GateFigure, ...]:
    """Each figure of the results beside its limits."""
    return tuple(_judge(content, name, limit) for name, limit in limits.items())


def _judge(content: Any, name: str, limit: Limit) -> GateFigure:
    found = list(_look_up(content, name))
    if not found:
        return GateFigure(name, None, limit, f"There is no figure {name!r}: {_what_there_is(content, name)}.")
    value = found[0]
    if value is None:
        return GateFigure(name, None, limit, f"The figure {name!r} has no value: it could not be measured.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = "more than one value" if isinstance(value, dict | list) else repr(value)[:50]
        said = f", but {_what_there_is(content, name)}" if isinstance(value, dict | list) else ""
        return GateFigure(name, None, limit, f"The figure {name!r} is no number: it is {kind}{said}.")
    if abs(value) > sys.float_info.max:
        return GateFigure(name, None, limit, f"The figure {name!r} is no number: it is beyond the range of float64.")
    reason = None
    if limit.least is not None and not value >= limit.least:
        reason = f"The figure {name!r} is {_differing(value, limit.least, 'below its least value')}."
    if limit.most is not None and not value <= limit.most:
        reason = f"The figure {name!r} is {_differing(value, limit.most, 'above its largest value')}."
    return GateFigure(name, float(value), limit, reason)


def _differing(value: float, limit: float, how: str) -> str:
    """A figure and its limit, and by how much it is beyond it where both look the same."""
    short, least = f"{value:.6g}", f"{limit:.6g}"
    return f"{short}, {how} {least}" + (f" by {abs(value - limit):.3g}" if short == least else "")


def _look_up(content: Any, path: str) -> Iterator[Any]:
    """What lies at a path, for each way to read it; that of the longest names first."""
    for name, item in sorted(_items(content), key=lambda pair: -len(pair[0])):
        if path == name:
            yield item
        elif path.startswith(f"{name}."):
            yield from _look_up(item, path[len(name) + 1 :])


def _items(content: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(content, Mapping):
        yield from ((str(name), item) for name, item in content.items())
    elif isinstance(content, list):
        for key in NAMES:
            named = [str(item[key]) for item in content if isinstance(item, Mapping) and key in item]
            if content and len(named) == len(content):
                yield from zip(named, content, strict=True)
                return
        yield from ((str(number), item) for number, item in enumerate(content))


def figure_names(content: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all numbers in some results."""
    for name, item in _items(content):
        if isinstance(item, Mapping | list):
            yield from figure_names(item, f"{prefix}{name}.")
        elif item is None or (isinstance(item, int | float) and not isinstance(item, bool)):
            yield prefix + name


def _what_there_is(content: Any, name: str) -> str:
    there = list(figure_names(content))
    if not there:
        return "the results have no figures at all"
    # Long tables, such as histograms, come after what somebody may have meant.
    close = difflib.get_close_matches(name, there[:2000], n=3, cutoff=0.6)
    beside = [one for one in there if one.partition(".")[0] == name.partition(".")[0]]
    plain = sorted(there, key=lambda one: one.count("."))
    return f"there are {some(list(dict.fromkeys([*close, *beside, *plain])), MOST_LISTED)}"


WRITTEN = "Give a file that `out` of a command wrote."


def read_results(path: str) -> Any:
    """The content of a JSON file of results, or of one that belongs to a version in a registry."""
    return follow(path, _read_results)


def _read_results(path: str) -> Any:
    where = locate(path)
    try:
        if is_url(where):
            folder, name = where.rsplit("/", 1)
            return read_json(folder, name)
        with open_named(where) as file:
            return parse_json(read_bounded(file, MAX_JSON_BYTES, os.fspath(path)))
    except ProtodaskError:
        raise
    except FileNotFoundError as error:
        raise StorageError(
            "not-found", f"There is no file {mask(path)}.", "Check the path; in a pipeline, that the step before ran."
        ) from error
    except IsADirectoryError as error:
        raise InputError("wrong-kind", f"{mask(path)} is a folder.", WRITTEN) from error
    except OSError as error:
        raise StorageError(
            "unreadable", f"The file {mask(path)} cannot be read ({error}).", "Check the path."
        ) from error
    except ValueError as error:
        raise FormatError("unreadable", f"The file {mask(path)} is not valid JSON ({error}).", WRITTEN) from error
