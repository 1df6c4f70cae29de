"""What training holds, by arithmetic: its properties, and against what numpy really allocates."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import shapes as shapes_of_fits

from protodask.data import Column, write_dataset
from protodask.engine import Arrays, Block, Layout, array_source, one_blas_thread, thread_engine
from protodask.engine.costs import Memory
from protodask.engine.memory import RESIDENT_SHARE
from protodask.engine.scheduling import SHIPPED_BYTES, Processes
from protodask.prototypes import kernel as kernel_module
from protodask.prototypes import objective as objective_module
from protodask.prototypes import regions, tiles
from protodask.prototypes.batches import Batch
from protodask.prototypes.calibration import synthetic_problem
from protodask.prototypes.candidates import sample_block
from protodask.prototypes.config import FeatureWeights, FitConfig
from protodask.prototypes.footprint import (
    Shape,
    arranged_bytes,
    fits,
    judging_bytes,
    learning_bytes,
    memory_of,
    most_together,
    operand_bytes,
    read_bytes,
    row_array_bytes,
    sample_bytes,
    scores_stored,
    shape_of,
    tile_bytes,
)
from protodask.prototypes.forms import learn_forms
from protodask.prototypes.kernel import Standardization
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.objective import RoundProblem, likelihood_block, prepare_kernel, starting_point
from protodask.prototypes.panels import arrange
from protodask.prototypes.scoring import add_round_block, score_block

MIB = 2**20


def make_shape(
    rows_of_class: int = 10_000,
    n_classes: int = 2,
    n_features: int = 10,
    n_candidates: int = 500,
    block_rows: int = 2**14,
    **others: Any,
) -> Shape:
    class_rows = (rows_of_class,) * n_classes
    return shapes_of_fits.make_shape(class_rows, n_features, block_rows, n_candidates=n_candidates, **others)


def calibration_problem(shape: Shape) -> RoundProblem:
    problem = synthetic_problem(shape, Standardization(np.zeros(shape.n_features), np.ones(shape.n_features)))
    if shape.round_batches <= shape.n_classes:
        return problem
    parts = np.array_split(
        np.arange(shape.round_batches), shape.n_classes
    )  # as many regions of a class as there may be
    sizes = [
        len(own)
        for drawn, part in zip(shape.drawn, parts, strict=True)
        for own in np.array_split(np.arange(drawn), len(part))
    ]
    return replace(problem, sizes=tuple(sizes))


def synthetic_block(shape: Shape, rows: int) -> Block:
    """Rows like the candidates, of all classes in proportion."""
    random = np.random.default_rng(1)
    share = np.array(shape.class_rows) / sum(shape.class_rows)
    arrays: Arrays = {
        "features": random.standard_normal((rows, shape.n_features), dtype=np.float32).astype(
            f"float{8 * shape.feature_bytes}", copy=False
        ),
        "target": random.choice(shape.n_classes, rows, p=share).astype(np.int32),
    }
    return Block(0, 0, arrays)


shapes = st.builds(
    make_shape,
    rows_of_class=st.integers(3, 10**7),
    n_classes=st.integers(2, 30),
    n_features=st.integers(1, 2000),
    n_candidates=st.integers(10, 20_000),
    n_batches=st.integers(1, 3),
    block_rows=st.sampled_from([2**power for power in range(8, 19)]),
    precision=st.sampled_from(["float32", "float64"]),
    feature_bytes=st.sampled_from([4, 8]),
    weight_columns=st.integers(0, 2),
    feature_weights=st.sampled_from(["shared", "class", "both"]),
)
by_region = st.builds(lambda shape: shape.with_settings(feature_weights="both", feature_forms="all"), shapes)
FEATURE_WEIGHTS: tuple[FeatureWeights, ...] = ("shared", "class")
processes = st.builds(
    lambda kind, count, threads, memory: Processes(
        kind, 1 if kind == "threads" else count, threads, memory * MIB, 2**34
    ),
    st.sampled_from(["threads", "workers"]),
    st.integers(1, 8),
    st.integers(1, 32),
    st.integers(100, 2**15),
)


def needed(shape: Shape, computing: Processes) -> tuple[int, int]:
    """Of worker and driver, without cached blocks, and without tiles: these get shorter as they get wider."""
    worker, driver = memory_of(shape, computing, stored=True)
    tiles_of_all = 0 if computing.kind == "workers" else computing.threads * tile_bytes(shape)
    return without_cache(worker) - computing.threads * tile_bytes(shape), without_cache(driver) - tiles_of_all


def without_cache(memory: Memory) -> int:
    return sum(part.bytes for part in memory.parts if part.name != "blocks kept")


MOST_OF_A_TILE = 1.5 * 8 * 2**22 + 2**20
"""Of its entries in float64, whatever the shape; arrays by feature are as long as the tile and not wider."""


@example(make_shape(27, 30, 1752, 10, 1024, precision="float64", feature_weights="class"))
@example(make_shape(518, 30, 1856, 15_524, 256))
@example(make_shape(50_000, 2, 1000, 10, 2**13))
@example(make_shape(50_000, 2, 300, 100, 2**15))
@example(make_shape(50_000, 30, 1000, 10, 2**13, feature_weights="class"))
@example(make_shape(33, 30, 1470, 15, 1024, feature_weights="class"))
@example(make_shape(4_270_383, 26, 1928, 15, 2**16, feature_weights="class"))
@given(shapes | by_region)
def test_tile_bytes__are_bounded_whatever_the_shape(shape: Shape) -> None:
    arrays = 6 if shape.config.feature_weights == "shared" else 9
    arrays += shape.config.feature_forms != "plain"
    by_feature = 1.5 * 8 * arrays * 2**20
    assert tile_bytes(shape) <= MOST_OF_A_TILE + by_feature + 8 * 3100 * 10 * shape.n_groups


@settings(max_examples=60)
@given(shapes, processes, st.integers(2, 5))
def test_memory_of__grows_with_every_size(shape: Shape, computing: Processes, factor: int) -> None:
    before = needed(shape, computing)
    # All classes grow alike; a share of one of them that grows alone changes what is drawn.
    rows = tuple(rows * factor for rows in shape.class_rows)
    larger = [
        replace(shape, class_rows=rows, layout=replace(shape.layout, n_rows=sum(rows))),
        replace(shape, n_features=shape.n_features * factor, row_features=shape.row_features * factor),
        shape.with_settings(n_candidates=shape.n_candidates * factor),
        replace(shape.with_settings(n_batches=shape.config.n_batches * factor), scored=True),
        replace(shape.with_settings(precision="float64"), feature_bytes=8),
    ]
    for other in larger:
        assert all(after >= old for after, old in zip(needed(other, computing), before, strict=True))
    more_threads = replace(computing, threads=computing.threads * factor)
    assert without_cache(memory_of(shape, more_threads, True)[0]) >= without_cache(memory_of(shape, computing, True)[0])


@given(shapes | by_region, processes)
def test_memory_of__draws_that_take_turns_is_that_of_either(shape: Shape, computing: Processes) -> None:
    both = memory_of(shape.with_settings(feature_weights="both"), computing, True)
    for weights in FEATURE_WEIGHTS:
        alone = memory_of(shape.with_settings(feature_weights=weights), computing, True)
        assert all(turns.total >= other.total for turns, other in zip(both, alone, strict=True))


@given(shapes, processes, st.integers(0, 2**14), st.integers(0, 2**14))
def test_fits__adding_memory_never_makes_a_fit_misfit(shape: Shape, computing: Processes, more: int, most: int) -> None:
    if computing.kind == "threads":
        computing = replace(computing, driver_bytes=computing.memory_bytes)
    found = [
        fits(shape, replace(computing, memory_bytes=computing.memory_bytes + extra * MIB))
        for extra in sorted((0, more, more + most))
    ]
    assert found == sorted(found)


@given(shapes, processes)
def test_memory_of__is_what_fits_compares(shape: Shape, computing: Processes) -> None:
    worker, driver = memory_of(shape, computing, scores_stored(shape, computing))
    assert min(part.bytes for part in (*worker.parts, *driver.parts)) >= 0
    enough = worker.total <= computing.usable_bytes
    if computing.kind == "workers":
        enough = enough and driver.total <= computing.driver_bytes
    assert fits(shape, computing) == enough
    first, later = read_bytes(shape, computing)
    assert 0 <= later <= first


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 400), min_size=2, max_size=30).filter(lambda counts: sum(counts) > 0),
    st.integers(1, 500),
    st.floats(0, 1),
)
def test_most_columns__bounds_any_arrangement(counts: list[int], n_features: int, share: float) -> None:
    classes = np.repeat(np.arange(len(counts)), counts)
    active = np.random.default_rng(0).random(len(classes)) < share
    columns = sum(arrange(np.flatnonzero(part), classes, n_features).n_columns for part in (active, ~active))
    shape = make_shape(max(counts) * 10 + 10, len(counts), n_features, len(classes))
    largest = max(counts)
    if largest <= 2 * max(shape.drawn):
        assert columns <= shape.most_columns


SHAPES = {
    "few features": make_shape(50_000, 2, 4, 300, block_rows=2**15),
    "many features": make_shape(3_000, 2, 300, 600, block_rows=2**11),
    "many classes": make_shape(400, 40, 10, 800, block_rows=2**13, precision="float64", n_batches=2),
    "many candidates": make_shape(9_000, 3, 20, 6_000, block_rows=2**12, weight_columns=1, n_batches=2),
    "tiny": make_shape(20, 2, 3, 10, block_rows=2**10),
    "by class": make_shape(3_000, 4, 60, 800, block_rows=2**12, feature_weights="class"),
    "by region": make_shape(4_000, 4, 24, 1_200, block_rows=2**12, feature_weights="both", feature_forms="all"),
    "by region of few features": make_shape(
        9_000, 2, 3, 2_000, block_rows=2**13, precision="float64", feature_weights="both", feature_forms="all"
    ),
    "by many classes": make_shape(400, 16, 100, 480, block_rows=2**12, n_batches=2, feature_weights="class"),
}


def traced(function: Callable[[], object]) -> int:
    """Bytes that a call allocates at its peak, with a thread's tile made anew."""
    tiles._memory.bytes, tiles._memory.cut = np.empty(0, dtype=np.uint8), (None, [])
    with one_blas_thread():
        tracemalloc.start()
        try:
            function()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


SMALL_CHANGE = 2**16
"""Python's own objects."""


WAYS = [(name, together) for name in SHAPES for together in (False, True) if "by " in name or not together]


FAR = [
    (name, together, far)
    for name, together in WAYS
    # Of float64 all candidates are alike; next to none that are apart take less than some do.
    for far in ((0.0,) if SHAPES[name].precision == "float64" else (0.0, 0.2, 0.9))
] + [("few features", False, 0.02), ("many candidates", False, 0.02), ("by class", True, 0.02)]


@pytest.mark.parametrize(("name", "together", "far"), FAR)
def test_parts__are_not_below_what_an_evaluation_allocates(
    name: str, together: bool, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective_module, "_meet_together", lambda *_: together)
    shape = SHAPES[name]
    problem, block = calibration_problem(shape), synthetic_block(shape, shape.block_rows)
    theta = starting_point(problem)
    if far:
        lengths = ((problem.candidates.features * theta[0]) ** 2).sum(axis=1)
        monkeypatch.setattr(kernel_module, "FLOAT32_REACH", np.quantile(lengths, 1 - far))
        monkeypatch.setattr(objective_module, "ROW_WORK", -1e9)  # as if more matrices took less time
    theta[-1] = theta[problem.n_feature_weights + 1] = 0  # so that there are idle panels, too
    prepared = traced(lambda: prepare_kernel(replace(problem), theta))  # that knows no arrangement yet
    assert operand_bytes(shape) / 8 - SMALL_CHANGE <= prepared <= operand_bytes(shape) + SMALL_CHANGE
    other = problem.part(np.ones(problem.n_candidates, dtype=np.bool_))
    both = traced(lambda: [prepare_kernel(other, point)[0] for point in (starting_point(problem), theta)])
    assert both <= operand_bytes(shape) + SMALL_CHANGE, "one for another"
    _, kernel = prepare_kernel(problem, theta)
    precisions = {batch.side.dtype for batch in kernel.batches}
    if shape.precision == "float32" and far:
        assert precisions == {"float64"} if far == 0.9 else "float64" in precisions
        assert name == "tiny" or far != 0.02 or "float32" in precisions
    else:
        assert precisions == {shape.precision}
    kept = sum(one.features.nbytes + one.squares.nbytes for one in (batch.arranged for batch in kernel.batches))
    assert kept <= arranged_bytes(shape)
    evaluated = traced(lambda: likelihood_block(block, problem, kernel))
    assert evaluated <= tile_bytes(shape) + row_array_bytes(shape) + SMALL_CHANGE
    # A bound that is many times too large would be useless.
    assert evaluated >= (tile_bytes(shape) + 8 * shape.block_rows) / 8 - SMALL_CHANGE


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("all_rows", [False, True])
def test_parts__are_not_below_what_the_draw_allocates(name: str, all_rows: bool) -> None:
    shape = SHAPES[name]
    block = synthetic_block(shape, shape.block_rows)
    wanted = shape.n_rows if all_rows else shape.n_candidates
    shape = shape.with_settings(n_candidates=wanted)
    marginals = np.full(shape.n_classes, 1 / shape.n_classes)
    drawn = traced(lambda: sample_block(block, marginals, 0, 1, wanted))
    assert drawn <= row_array_bytes(shape) + sample_bytes(shape) + SMALL_CHANGE


@pytest.mark.parametrize("feature_bytes", [4, 8])
@pytest.mark.parametrize(
    ("n_rows", "n_features", "n_classes"),
    [(2000, 6, 4), (5000, 4, 2), (5000, 24, 4), (5000, 209, 2), (2000, 150, 60), (5000, 6, 1000)],
)
def test_parts__are_not_below_what_trees_allocate(
    n_rows: int, n_features: int, n_classes: int, feature_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of few features has room beside itself for little else."""
    monkeypatch.setattr(regions, "MOST_SHARE", 1e6)  # so that all trees are grown
    monkeypatch.setattr(regions, "LESS_SHARE", 1e3)
    shape = make_shape(-(-n_rows // n_classes), n_classes, n_features, 500, 2**13, feature_bytes=feature_bytes)
    shape = shape.with_settings(feature_weights="both", feature_forms="all")
    random = np.random.default_rng(0)
    features = random.standard_normal((n_rows, n_features)).astype(f"float{8 * feature_bytes}")
    target = (features[:, 0] > 0) * (n_classes // 2) + random.integers(0, -(-n_classes // 2), n_rows)
    weight = np.ones(n_rows)
    regions.learn_regions(features[:, :2], target, weight)  # what numpy imports is not counted
    found: list[object] = []
    taken = traced(lambda: found.append(regions.learn_regions(features, target, weight)))
    assert found[0] is not None
    assert judging_bytes(shape) / 5 <= taken <= judging_bytes(shape) + SMALL_CHANGE
    assert judging_bytes(replace(shape, class_rows=(1,) * 50_000)) <= 2e8, "of too many classes there are no trees"
    stored = features.nbytes + 4 * n_rows
    assert taken + stored <= learning_bytes(shape) + SMALL_CHANGE


@pytest.mark.parametrize("feature_bytes", [4, 8])
@pytest.mark.parametrize(("n_rows", "n_features"), [(2_000, 6), (20_000, 50)])
def test_parts__are_not_below_what_learning_forms_allocates(n_rows: int, n_features: int, feature_bytes: int) -> None:
    """In float32 a sample of many features took a quarter more in one place than in all others."""
    shape = make_shape(n_rows // 2, 2, n_features, 500, 2**14, feature_bytes=feature_bytes)
    shape = shape.with_settings(feature_weights="both", feature_forms="all")
    rank = np.random.default_rng(0).integers(0, 3, (n_rows, n_features))
    arrays: Arrays = {
        "features": rank.astype(f"float{8 * feature_bytes}"),
        "target": (rank[:, 0] + rank[:, 1] >= 2).astype(np.int32),
    }
    source, columns = array_source(arrays, 2**14), [Column(f"x{place}") for place in range(n_features)]
    with thread_engine(1) as engine:
        learn = partial(learn_forms, engine, source, tuple(arrays), columns, "all", 0, "float32", by_region=True)
        learn()  # what is imported is not counted
        taken = traced(learn)
    assert learning_bytes(shape) / 4 <= taken <= learning_bytes(shape) + SMALL_CHANGE


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.scored])
def test_parts__are_not_below_what_scoring_allocates(name: str) -> None:
    shape = SHAPES[name]
    problem, block = calibration_problem(shape), synthetic_block(shape, shape.block_rows)
    features = shape.n_features
    batch = Batch(
        feature_index=np.arange(features),
        feature_weight=np.full(features, 10 / features),
        center=np.zeros(features),
        scale=np.ones(features),
        prototypes=problem.candidates.features,
        prototype_class=problem.candidates.classes,
        prototype_weight=np.ones(problem.n_candidates),
        row=np.arange(problem.n_candidates),
    )
    classes = tuple(range(shape.n_classes))
    names = tuple(map(str, range(features)))
    precision = problem.precision
    model = PrototypeSet(problem.marginals, classes, names, (), batches=(batch,), precision=precision)
    bound = tile_bytes(shape) + row_array_bytes(shape) + SMALL_CHANGE
    assert traced(lambda: score_block(block, model)) <= bound
    scored = replace(block, arrays={**block.arrays, **score_block(block, model)})
    assert traced(lambda: add_round_block(scored, model)) <= bound


def test_scores_stored__beyond_the_share_of_what_passes_leave() -> None:
    shape = make_shape(n_batches=2)
    memory = round(shape.score_bytes / RESIDENT_SHARE) + 8
    here = Processes("threads", 1, 1, 2**40, 2**40)
    assert not scores_stored(shape, here)
    assert not scores_stored(replace(shape, layout=Layout(10**9, 2**14)), here)
    assert scores_stored(shape, replace(here, memory_bytes=memory - 2 * 8))
    workers = Processes("workers", 2, 1, 2**30, 2**30)
    most = SHIPPED_BYTES // (8 * shape.n_classes)
    assert not scores_stored(replace(shape, layout=Layout(most, 2**14)), workers)
    assert scores_stored(replace(shape, layout=Layout(most + 1, 2**14)), workers)


@given(shapes, processes)
@example(
    make_shape(240_000, 10, 127, 30, 2**16, n_batches=2, weight_columns=2), Processes("threads", 1, 2, 2**30, 2**30)
)
@example(
    make_shape(80_000, 30, 127, 30, 2**16, n_batches=2, weight_columns=2), Processes("threads", 1, 2, 2**32, 2**32)
)
def test_most_together__leaves_room_for_the_scores_that_a_block_brings_of_each_fit(
    shape: Shape, computing: Processes
) -> None:
    worker, _ = memory_of(shape, computing, scores_stored(shape, computing))
    most = most_together(shape, computing)
    assert most >= 1
    blocks = 2 * computing.threads  # one that is looked at, and one read ahead
    scores = shape.block_rows * shape.n_classes * 8 if shape.scored else 0
    if most > 1:
        assert worker.total + (most - 1) * min(blocks * scores, shape.score_bytes) <= computing.usable_bytes


def test_shape_of__a_dataset_counts_all_columns_of_its_rows(tmp_path: Path) -> None:
    arrays: Arrays = {
        "features": np.random.default_rng(0).random((60, 2)).astype(np.float32),
        "target": np.arange(60, dtype=np.int32) % 2,
    }
    columns = (Column("a"), Column("b"))
    found = []
    more: dict[str, Arrays] = {
        "plain": {},
        "weight": {"weight": np.ones(60)},
        "group": {"group": np.arange(60) // 3},
    }
    for name, column in more.items():
        data = write_dataset(array_source({**arrays, **column}), tmp_path / name, classes=("p", "q"), columns=columns)
        shape = shape_of(data, FitConfig.of("source"))
        assert shape.row_bytes == data.metadata.row_bytes
        found.append((shape.row_bytes, shape.weight_columns))
    assert found == [(12, 0), (20, 1), (20, 0)]
