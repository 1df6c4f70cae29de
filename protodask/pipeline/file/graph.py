"""The steps of a pipeline, and what goes from one to another: as text, and as an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from protodask.pipeline.file.definition import Pipeline
from protodask.pipeline.file.places import holds, inputs, outputs
from protodask.places import mask

WIDTH, HEIGHT = 190, 44
"""Of a box, in pixels."""

GAP_X, GAP_Y = 24, 56

LONGEST = 30
"""Characters of a line in a box."""


@dataclass(frozen=True)
class Node:
    """A step, with what it reads and writes."""

    number: int
    name: str
    kind: str
    reads: tuple[tuple[str, int | None], ...]
    """Places, each with the number of the step before it that writes there."""
    writes: tuple[str, ...]

    @property
    def after(self) -> tuple[int, ...]:
        """The steps that it comes after."""
        return tuple(dict.fromkeys(number for _, number in self.reads if number is not None))


def graph_of(pipeline: Pipeline) -> tuple[Node, ...]:
    """The steps in their order."""
    written = [outputs(step) for step in pipeline.steps]
    nodes = []
    for position, step in enumerate(pipeline.steps):
        reads = []
        for place in inputs(step):
            makers = [before for before in range(position) if any(holds(out, place) for out in written[before])]
            reads.append((mask(place), makers[-1] + 1 if makers else None))
        name = pipeline.name(position + 1)
        nodes.append(Node(position + 1, name, step.command, tuple(reads), tuple(map(mask, written[position]))))
    return tuple(nodes)


def graph_text(nodes: Sequence[Node]) -> str:
    """A line for each step: its number and name, what it reads and of which step, what it writes."""
    width = max(len(node.name) for node in nodes)
    return "\n".join(f"{node.number:>2}  {node.name:<{width}}  {_reads(node)} -> {_writes(node)}" for node in nodes)


def _reads(node: Node) -> str:
    said = [place if number is None else f"{place} (of {number})" for place, number in node.reads]
    return ", ".join(said) or "nothing"


def _writes(node: Node) -> str:
    return ", ".join(node.writes) or "nothing"


def graph_svg(nodes: Sequence[Node]) -> str:
    """The same as an image: a box for each step below those that it comes after, with lines between them."""
    layers: dict[int, int] = {}
    columns: dict[int, int] = {}
    for node in nodes:
        layer = 1 + max((layers[number] for number in node.after), default=-1)
        columns[node.number] = list(layers.values()).count(layer)
        layers[node.number] = layer
    across = max(columns.values()) + 1
    size = (
        GAP_X + across * (WIDTH + GAP_X),
        GAP_Y // 2 + (max(layers.values()) + 1) * (HEIGHT + GAP_Y) - GAP_Y // 2,
    )
    places = {
        number: (GAP_X + columns[number] * (WIDTH + GAP_X), GAP_Y // 2 + layers[number] * (HEIGHT + GAP_Y))
        for number in layers
    }
    parts = [*_lines(nodes, places), *(part for node in nodes for part in _box(node, *places[node.number]))]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
        f'viewBox="0 0 {size[0]} {size[1]}" font-family="sans-serif" font-size="13">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{"".join(parts)}</svg>\n'
    )


def _lines(nodes: Sequence[Node], places: dict[int, tuple[int, int]]) -> Iterator[str]:
    for node in nodes:
        for before in node.after:
            (x, y), (to_x, to_y) = places[before], places[node.number]
            yield (
                f'<path d="M{x + WIDTH // 2} {y + HEIGHT} C{x + WIDTH // 2} {y + HEIGHT + GAP_Y // 2} '
                f'{to_x + WIDTH // 2} {to_y - GAP_Y // 2} {to_x + WIDTH // 2} {to_y}" fill="none" stroke="#888"/>\n'
            )


def _box(node: Node, x: int, y: int) -> Iterator[str]:
    told = escape(f"{node.kind}: {_reads(node)} -> {_writes(node)}")
    yield f'<g><title>{told}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
    yield 'fill="#eef3fa" stroke="#47689c"/>'
    yield f'<text x="{x + WIDTH // 2}" y="{y + 18}" text-anchor="middle">{escape(_short(node.name))}</text>'
    yield f'<text x="{x + WIDTH // 2}" y="{y + 35}" text-anchor="middle" font-size="11" fill="#555">'
    names = ", ".join(place.rsplit("/", 1)[-1] for place in node.writes)  # without the folders
    yield f"{escape(_short(f'{node.kind} {names}'.strip()))}</text></g>\n"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
