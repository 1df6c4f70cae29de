"""Several passes over the same blocks as one: a bundle reads each block once and maps it for every member.

The partial of a bundle is a tuple with a partial for each member, or None where a member does not use the block. None
merges as if the block were not there, so that every member ends with the bits it would have alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from protodask.engine.blocks import Block
from protodask.engine.groups import Pass
from protodask.engine.reduction import Merge, Node
from protodask.engine.sources import PlaceHolder, Source, ZippedSource, assemble, leaves, part, with_leaves

Partials = tuple[Any, ...]


@dataclass(frozen=True)
class Member:
    """One pass of a bundle."""

    source: Source
    """How its blocks are put together from the parts of the bundle."""
    map: Callable[..., Any]
    args: tuple[Any, ...]
    numbers: frozenset[int] | None
    """The blocks it uses; None for all."""


def _prepare(
    members: tuple[Member, ...],
    keys: tuple[str, ...],
    prepares: tuple[Callable[..., tuple[Any, ...]] | None, ...],
    counts: tuple[int, ...],
    *args: Any,
) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Deal the arguments out again, so many to each member, and derive from them what its map gets.

    The arguments of all members travel side by side, so that the scheduler sees the large ones. The keys are those of
    the parts of the bundle.
    """
    rest = iter(args)
    ready: list[Member] = []
    for one, prepare, count in zip(members, prepares, counts, strict=True):
        own = tuple(islice(rest, count))
        ready.append(replace(one, args=own if prepare is None else prepare(*own)))
    return tuple(ready), keys


def _merge_each(merges: tuple[Merge, ...], left: Partials, right: Partials) -> Partials:
    return tuple(
        two if one is None else one if two is None else merge(one, two)
        for merge, one, two in zip(merges, left, right, strict=True)
    )


def _map_each(block: Block, members: tuple[Member, ...], keys: tuple[str, ...]) -> Partials:
    parts = {key: part(block, position) for position, key in enumerate(keys)}
    # One member's block at a time: what a view adds to it is gone before the next one's is made.
    return tuple(
        one.map(assemble(one.source, lambda leaf: parts[leaf.key]), *one.args)
        if one.numbers is None or block.number in one.numbers
        else None
        for one in members
    )


def bundle(passes: Sequence[Pass], numbers: Sequence[Sequence[int]]) -> tuple[Pass, list[int]]:
    """One pass for several with their block numbers, and the numbers of the blocks that any of them uses."""
    layouts = {work.source.layout for work in passes}
    if len(layouts) != 1:
        raise ValueError(f"passes over sources of different layouts cannot be one: {sorted(map(str, layouts))}")
    wanted = [frozenset(own) for own in numbers]
    every = frozenset[int]().union(*wanted)
    parts = {leaf.key: leaf for work in passes for leaf in leaves(work.source)}
    members = tuple(
        Member(
            source=with_leaves(work.source, lambda leaf: PlaceHolder(leaf.key, leaf.layout)),
            map=work.map,
            args=(),
            numbers=None if own == every else own,
        )
        for work, own in zip(passes, wanted, strict=True)
    )
    joined = Pass(
        source=ZippedSource(tuple(parts.values()), apart=True),
        map=_map_each,
        merge=partial(_merge_each, tuple(work.merge for work in passes)),
        args=tuple(value for work in passes for value in work.args),
        prepare=partial(
            _prepare,
            members,
            tuple(parts),
            tuple(work.prepare for work in passes),
            tuple(len(work.args) for work in passes),
        ),
        label=Counter(work.label for work in passes).most_common(1)[0][0],
        writes=any(work.writes for work in passes),
    )
    return joined, sorted(every)


def unbundle(nodes: Sequence[Node[Partials]], position: int) -> list[Node[Any]]:
    """The nodes of one member."""
    return [
        Node(node.level, node.index, node.partial[position]) for node in nodes if node.partial[position] is not None
    ]
