"""Figures for Prometheus and its kin, in a text that follows both OpenMetrics 1.0 and the older format of Prometheus.

All figures are gauges: it is the type that both formats write alike, and node_exporter's collector of text files reads
the older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """Figures of one name. `unit` is the end of the name, where it is one."""

    name: str
    help: str
    unit: str | None = None


Sample = tuple[Family, Mapping[str, str], float]
"""One figure: which family it is of, its labels in their order, and its value."""


def to_text(families: Sequence[Family], samples: Iterable[Sample]) -> str:
    """The text: families in their order, with the figures there are of them, the last of those with the same labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {family.name: {} for family in families}
    for family, labels, value in samples:
        found[family.name][tuple((name, _clean(text)) for name, text in labels.items())] = float(value)
    return "".join(line for family in families for line in _lines(family, found[family.name])) + "# EOF\n"


def _lines(family: Family, values: Mapping[tuple[tuple[str, str], ...], float]) -> Iterator[str]:
    if not values:
        return
    yield f"# TYPE {family.name} gauge\n"
    if family.unit is not None:
        yield f"# UNIT {family.name} {family.unit}\n"
    yield f"# HELP {family.name} {_escape(family.help)}\n"
    for labels, value in values.items():
        shown = ",".join(f'{name}="{_escape(text)}"' for name, text in labels)
        yield f"{family.name}{{{shown}}} {_number(value)}\n"


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _clean(text: str) -> str:
    # Lone surrogates, which names of files may have, are not to be written in UTF-8. Other separators of lines are none
    # to the formats, but to some who read them.
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
