from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.passes import NoiseSource, add, square_table, sum_looked_up, sum_products, sum_values

from protodask.engine import Block, Layout, array_source, zip_sources
from protodask.engine.bundles import bundle, unbundle
from protodask.engine.groups import BlockCache, Pass, Reader, run_group, split_blocks
from protodask.engine.reduction import merge_tree
from protodask.engine.sources import Source, ViewedSource, leaves

BLOCK_ROWS = 4


class CountedSource(NoiseSource):
    """Noise whose reads are counted."""

    reads: list[int] = []  # noqa: RUF012 - emptied by each test

    def read(self, number: int) -> Block:
        self.reads.append(number)
        return super().read(number)


def twice(block: Block) -> Block:
    return Block(block.number, block.start, {"noise": 2 * block["noise"]})


def nodes_of(work: Pass, numbers: Sequence[int], n_tasks: int) -> list[Any]:
    with ThreadPoolExecutor(1) as pool:
        reader = Reader(BlockCache(0), pool)
        return [node for group in split_blocks(numbers, n_tasks) for node in run_group(work, group, reader)]


def number_of(block: Block) -> tuple[int]:
    return (block.number,)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 7), st.data())
def test_bundle__gives_each_member_the_bits_it_has_alone(
    n_blocks: int, tasks_alone: int, tasks_together: int, data: st.DataObject
) -> None:
    source = NoiseSource(Layout(n_blocks * BLOCK_ROWS, BLOCK_ROWS), "noise")
    own = array_source({"w": np.random.default_rng(n_blocks).normal(size=n_blocks * BLOCK_ROWS)}, BLOCK_ROWS)
    some = st.lists(st.integers(0, n_blocks - 1), min_size=1, unique=True).map(sorted)
    passes = [
        Pass(source, sum_values, add, ("noise",), label="evaluate"),
        Pass(zip_sources(source, own), sum_products, add, ("noise", "w", 3.0), label="evaluate"),
        Pass(ViewedSource(source, twice, "doubled"), sum_values, add, ("noise",), label="draw"),
        Pass(source, number_of, add, (), label="evaluate"),  # its order matters, as that of blocks joined in memory
    ]
    numbers = [data.draw(some) for _ in passes]
    together, every = bundle(passes, numbers)
    assert every == sorted(set().union(*numbers))
    assert together.label == "evaluate"
    nodes = nodes_of(together, every, tasks_together)
    for position, (work, wanted) in enumerate(zip(passes, numbers, strict=True)):
        alone = merge_tree(nodes_of(work, wanted, tasks_alone), add)
        assert np.array_equal(merge_tree(unbundle(nodes, position), add), alone)


def test_bundle__reads_each_block_of_a_shared_leaf_once() -> None:
    source = CountedSource(Layout(6 * BLOCK_ROWS, BLOCK_ROWS), "counted")
    CountedSource.reads.clear()
    views: list[Source] = [ViewedSource(source, twice, f"view-{number}") for number in range(5)]
    together, every = bundle([Pass(view, sum_values, add, ("noise",)) for view in views], [range(6)] * 5)
    assert [leaf.key for leaf in leaves(together.source)] == ["counted"]
    nodes_of(together, every, 1)
    assert sorted(CountedSource.reads) == list(range(6))


def test_bundle__prepares_each_member_with_its_own_arguments() -> None:
    source = array_source({"x": np.arange(8.0)}, BLOCK_ROWS)
    tables = [np.arange(3.0), np.arange(5.0)]
    passes = [
        *(Pass(source, sum_looked_up, add, (table,), square_table) for table in tables),
        Pass(source, sum_values, add, ("x",)),
    ]
    together, every = bundle(passes, [range(2)] * 3)
    nodes = nodes_of(together, every, 1)
    for position, work in enumerate(passes):
        assert merge_tree(unbundle(nodes, position), add) == merge_tree(nodes_of(work, range(2), 1), add)


def test_bundle__of_sources_that_differ_in_layout_is_refused() -> None:
    passes = [Pass(array_source({"x": np.arange(8.0)}, rows), sum_values, add, ("x",)) for rows in (2, 4)]
    with pytest.raises(ValueError, match="layouts"):
        bundle(passes, [range(2)] * 2)
