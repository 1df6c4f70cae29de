"""What training holds in memory, as arithmetic on the shapes of a problem.

Letters: `N` rows, `D` features, `K` classes, `J` candidates, `T` rows of a tile, `C` panels, `W` width of class sums.
Every figure is an upper bound on what numpy allocates; those of the kernel follow its statements one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from protodask.data.arrays.plain_arrays import MAX_CHUNK_BYTES
from protodask.data.format.dataset import Dataset
from protodask.data.format.summary import SLAB_ROWS
from protodask.engine import Layout
from protodask.engine.costs import BLOCKS_AT_WORK, Memory, Part, holding_parts, kept_blocks, most_partials
from protodask.engine.memory import INTERPRETER_BYTES, RESIDENT_COPIES
from protodask.engine.scheduling import Processes
from protodask.prototypes.batch_kernel import MOST_APART
from protodask.prototypes.candidates import allocate
from protodask.prototypes.config import MOST_STAGED_BYTES, FitConfig, stage_row_bytes, staged_rows
from protodask.prototypes.forms import MOST_COMPARED, MOST_DIFFERENCES, MOST_KNOTS, expected_forms, sample_rows, settled
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.panels import NARROWEST_PANEL, PANEL_OVERHEAD
from protodask.prototypes.regions import MOST_BINS, MOST_CELLS, judged_rows, most_groups
from protodask.prototypes.staging import STAGE_BLOCK_ROWS
from protodask.prototypes.steps import stepping_threads
from protodask.prototypes.tiles import (
    LANES,
    STRETCH_ENTRIES,
    LikelihoodShape,
    Precision,
    RowShape,
    longest_tile,
    stretch_widths,
    sums_width,
)

DOUBLE = 8
"""Bytes of a float64, and of an index."""

ARRANGED_BYTES = int(16 * (1 + MOST_APART))
"""For each candidate and feature: `s` and `s^2` by column of the kernel, kept from one evaluation to the next, and by
`MOST_APART` as many columns once more for candidates that are apart."""

PREPARING_BYTES = {"float32": int(24 + 40 * MOST_APART), "float64": 40}
"""The same while the kernel's operands are made: these two arrays, another in float64, and the operands. Those of
candidates that are apart are made when 24 of the 36 bytes are left of the others."""

DRAWING_BYTES = 128
"""For each row of a block while candidates are drawn, beside the scores: bins, priorities, row numbers and their order,
twice while they are sorted."""

SUMMARY_ARRAYS = 3
"""As large as a slab of features in float64, while rows are summarised: values, deviations and their squares."""

SOLVER_VECTORS = 60
"""Vectors as long as `theta`: L-BFGS-B keeps `2 m + 5` with `m = 10`, SciPy copies of bounds, variables and gradients,
the log a record and its bytes."""

MERGING_VECTORS = 6
"""Arrays of candidates x features while equivalent prototypes are merged."""

TAKEN_COPIES = 2.2
"""Of rows that are taken from blocks: joined from parts, and in the order asked for."""

SENT_COPIES = 3
"""Of what travels to workers: as it is, as bytes, and in the scheduler, which may be in the same process."""

SAMPLE_BYTES = 24
"""Of a row in a sample: bin, priority and row number."""

SORTING_COPIES = 4
"""Of two samples while they are merged."""

JUDGING_BYTES, JUDGING_ROW_BYTES, SPLITTING_BYTES = 32, 120, 48
"""Of trees that say whether there are regions: for each row and feature, beside it twice as it is stored; for each row;
and for each feature, bin and class."""


@dataclass(frozen=True)
class Shape:
    """All of a problem that its cost depends on."""

    config: FitConfig
    """With nothing left to the number of rows."""
    class_rows: tuple[int, ...]
    layout: Layout
    n_features: int
    """Forms of features, at most."""
    row_features: int
    """Features of a row as it is stored, in one form each."""
    feature_bytes: int
    """Bytes of a stored feature."""
    scored: bool
    """Whether the scores of earlier batches are needed: there is more than one batch in the end."""
    weight_columns: int = 0
    """Columns of weights: the row's, and the probability of its inclusion."""
    other_columns: int = 0
    """Columns that training does not look at, but that a block has as it is read: a group, or weights to be ignored."""
    unweighted: bool = False
    """Whether there are weights to be ignored: statistics of the rows without them take a pass of their own."""

    def with_settings(self, **settings: Any) -> Shape:
        """The same problem with other settings."""
        return replace(self, config=replace(self.config, **settings))

    @property
    def n_candidates(self) -> int:
        """That a round begins with."""
        return min(self.config.n_candidates, self.n_rows)

    @property
    def grown_candidates(self) -> int:
        """That it may go on with, see the module `growing`."""
        config = self.config
        stays = not (config.hold_out and config.leave_one_out) or self.staged_rows
        return self.n_candidates if stays else min(max(config.n_candidates, config.most_candidates), self.n_rows)

    @property
    def grows(self) -> bool:
        return self.grown_candidates > self.n_candidates

    @property
    def n_rounds(self) -> int:
        """Of all draws."""
        return self.config.n_batches * self.config.n_draws

    @property
    def n_batches(self) -> int:
        """Of the rounds of all draws, where there are no regions: of one a batch, or a batch for each class."""
        return self._batches_of_rounds(self.n_classes)

    @property
    def most_batches(self) -> int:
        """The same where there are as many regions as there may be, and candidates in all of them."""
        return self._batches_of_rounds(self.round_batches)

    def _batches_of_rounds(self, by_class: int) -> int:
        weights = map(self.config.feature_weights_of, range(self.config.n_draws))
        return self.config.n_batches * sum(1 if kind == "shared" else by_class for kind in weights)

    @property
    def precision(self) -> Precision:
        return self.config.kernel_precision

    @property
    def progressive(self) -> bool:
        """Whether a round may begin with small steps."""
        return self.config.progressive and self.config.hold_out > 0

    @property
    def n_rows(self) -> int:
        return self.layout.n_rows

    @property
    def n_classes(self) -> int:
        return len(self.class_rows)

    @property
    def round_batches(self) -> int:
        """Batches of a round, at most."""
        if self.judged_rows:
            return most_groups(self.n_classes, self.n_candidates + 2 * self.n_classes, self.row_features)
        return 1 if self.config.feature_weights == "shared" else self.n_classes

    @property
    def judged_rows(self) -> int:
        """Rows that say whether there are regions; 0 where there are none in any case."""
        if self.config.feature_weights != "both" or self.config.feature_forms != "all":
            return 0
        return judged_rows(self.sampled_rows, self.row_features)

    @property
    def sampled_rows(self) -> int:
        """From which forms of features are learnt."""
        return min(sample_rows(self.row_features), self.n_rows)

    @property
    def n_groups(self) -> int:
        """Groups of candidates whose columns of the kernel are apart: classes, or batches if they are more."""
        return max(self.n_classes, self.round_batches)

    @property
    def n_feature_weights(self) -> int:
        """Of a round."""
        return self.round_batches * self.n_features

    @property
    def row_bytes(self) -> int:
        return self.row_features * self.feature_bytes + 4 + DOUBLE * (self.weight_columns + self.other_columns)

    @property
    def data_bytes(self) -> int:
        return self.n_rows * self.row_bytes

    @property
    def block_rows(self) -> int:
        """Rows of the longest block."""
        return min(self.layout.block_rows, self.n_rows)

    @property
    def finished(self) -> bool:
        """Whether a round may end on all rows, also those held out: one for which no small steps can be taken after all
        does, so that this is said of all.
        """
        return self.config.finish and self.config.hold_out > 0

    @property
    def staged_rows(self) -> int:
        """Of the rows that small steps are taken on."""
        return staged_rows(self.n_rows, self._staged_row_bytes) if self.progressive else 0

    @property
    def longest_block(self) -> int:
        """Rows of the longest block that is evaluated, of all rows or of those that small steps are taken on."""
        return max(self.block_rows, STAGE_BLOCK_ROWS if self._most_staged else 0)

    @property
    def staged_bytes(self) -> int:
        """Of these rows in standard units, in the memory of the driver; with fewer forms they are more."""
        return min(self._most_staged * self._staged_row_bytes, MOST_STAGED_BYTES)

    @property
    def taking_bytes(self) -> int:
        """While these rows are taken: twice as they are stored, or once and in standard units."""
        stored = self._most_staged * (self.row_bytes + self.score_row_bytes)
        return max(int(TAKEN_COPIES * stored), stored + self.staged_bytes)

    @property
    def _most_staged(self) -> int:
        """Of these rows, if there are no more forms than features."""
        fewest = stage_row_bytes(self.row_features, 0, self.precision)
        return staged_rows(self.n_rows, fewest) if self.progressive else 0

    @property
    def _staged_row_bytes(self) -> int:
        return stage_row_bytes(self.n_features, self.n_classes if self.scored else 0, self.precision)

    @property
    def score_row_bytes(self) -> int:
        """Scores of a row between batches."""
        return self.n_classes * DOUBLE if self.scored else 0

    @property
    def score_bytes(self) -> int:
        """Scores of all rows between batches."""
        return self.n_rows * self.score_row_bytes

    @cached_property
    def drawn(self) -> tuple[int, ...]:
        """Candidates of each class that a first batch begins with; its rows fall into one bin, but for one class."""
        return self._drawn(self.n_candidates, self.config.max_fraction)

    def _drawn(self, candidates: int, max_fraction: float) -> tuple[int, ...]:
        sizes = np.array(self.class_rows, dtype=np.int64)
        return tuple(int(number) for number in allocate(sizes, candidates, max_fraction))

    @property
    def most_candidates(self) -> int:
        return self.grown_candidates + 2 * self.n_classes  # the shares of bins are rounded

    @cached_property
    def most_columns(self) -> int:
        """Columns of the kernel matrix with their padding, at most.

        Panels of `w` columns, 32 <= w < 64, would cost `(J + K w)(D + 8) + 8 D (J / 32 + K)`, and what is chosen costs
        no more; nor more than one panel a class. Candidates with weight and those without are arranged apart. Of
        batches of one class each, a panel has at most one column of padding.
        """
        candidates, classes = self.most_candidates, self.n_classes
        share = self.n_features / (self.n_features + PANEL_OVERHEAD)
        narrow = candidates + 2 * (63 * classes + share * (candidates / 4 + PANEL_OVERHEAD * classes))
        largest = max(self.drawn + (self._drawn(self.grown_candidates, 1.0) if self.grows else ()))
        wide = 2 * (classes * min(candidates, 2 * largest) + PANEL_OVERHEAD * classes)
        by_group = candidates + candidates // NARROWEST_PANEL + 4 * self.n_groups
        return max(int(min(narrow, wide)), by_group)


def shape_of(data: Dataset, config: FitConfig, start: PrototypeSet | None = None) -> Shape:
    """The shape of a fit, which may begin from a model."""
    config = settled(config, data.n_rows, data.columns, len(data.classes))
    columns = data.has_weight + data.has_inclusion
    unweighted = columns > 0 and not config.weighted
    class_rows = data.summary.class_rows.copy()
    if unweighted:
        # Of what class the rows of weight zero are is not known. Most candidates of a class are drawn if the largest
        # has all of them: then least is drawn of the others.
        class_rows[class_rows.argmax()] += data.n_rows - data.summary.rows
    return Shape(
        config=config,
        class_rows=tuple(class_rows.tolist()),
        layout=data.layout,
        n_features=len(expected_forms(data.columns, config.feature_forms).columns),
        row_features=data.n_features,
        feature_bytes=data.dtype.itemsize,
        scored=config.n_batches > (0 if start is not None and start.n_batches else 1),
        # Where rows are held out a block has two weights a row, for training and for judging.
        weight_columns=(0 if unweighted else columns) + (2 if config.hold_out else 0),
        other_columns=data.has_group + (columns if unweighted else 0),
        unweighted=unweighted,
    )


def streamed_row_bytes(shape: Shape, stored: bool) -> int:
    """Bytes of a row that a pass reads from storage: the dataset's, and those of stored scores."""
    return shape.row_bytes + (shape.score_row_bytes if stored else 0)


def tile_bytes(shape: Shape) -> int:
    """Memory of a thread's tile and of what is computed beside it, in float64, to which any part of it may turn."""
    if shape.config.feature_weights == "both":
        either = [_tile_bytes(shape.with_settings(feature_weights=weights)) for weights in ("shared", "class")]
        return max(*either, _tile_bytes(shape))  # by region it is wider, and may be so much shorter that it is less
    return _tile_bytes(shape)


def _tile_bytes(shape: Shape) -> int:
    """The same where draws do not take turns."""
    features, classes, batches = shape.n_features, shape.n_classes, shape.round_batches
    # Beside what is in float32, half as large, there may be the same in float64: but for the columns of the kernel, of
    # which those in float64 are so few that both take less than all in float64 would.
    parts = 1.0 if shape.precision == "float64" else 1.5
    width, panels = sums_width(features), int(parts * shape.n_groups) + shape.most_candidates // NARROWEST_PANEL
    fewest = shape.most_candidates + width + features
    most = shape.most_columns + int(parts * (LANES + batches * features)) + panels * width
    longest = longest_tile(shape.longest_block, fewest)
    entries = max(longest * fewest, longest_tile(shape.longest_block, most) * most)
    rows = RowShape(classes, max(features, shape.row_features), {"float64": features})
    batch = LikelihoodShape(features, shape.most_columns, panels, width, "float64", batches)
    *others, standardized, of_batches = stretch_widths(rows, [batch])
    # The features of batches are among the entries.
    by_row = sum(others) + int(parts * (standardized + of_batches - features))
    by_row += features if shape.config.feature_forms != "plain" else 0  # normal scores and levels
    whole = (shape.longest_block + longest) * (by_row + int(parts * batches * features))
    by_class = 5 * classes + 2 * panels + 10
    return DOUBLE * (entries + max(longest * by_row, min(STRETCH_ENTRIES, whole)) + longest * (features + by_class))


def operand_bytes(shape: Shape) -> int:
    """The prototypes' side of the kernel while it is made, for one evaluation."""
    by_column = PREPARING_BYTES[shape.precision] * (sums_width(shape.n_features) + 1)
    by_column += DOUBLE * (16 + shape.round_batches)
    return by_column * shape.most_columns


def arranged_bytes(shape: Shape) -> int:
    """What a problem keeps from one evaluation to the next: during small steps also that of the rows held out."""
    return ARRANGED_BYTES * sums_width(shape.n_features) * shape.most_columns


def row_array_bytes(shape: Shape) -> int:
    """What a thread holds by row of a block: while summarising, drawing, evaluating or scoring, whichever is most."""
    weights = 3 * DOUBLE if shape.weight_columns else 0
    drawing = DRAWING_BYTES + DOUBLE * shape.n_classes + weights
    evaluating = DOUBLE + weights
    by_row = shape.block_rows * max(drawing, evaluating, 3 * shape.score_row_bytes)
    slab = min(shape.block_rows, SLAB_ROWS) if shape.unweighted else 0
    summarising = DOUBLE * SUMMARY_ARRAYS * slab * shape.n_features
    # Each block's scoring makes the operands of its batch anew, or of all batches where those share normal scores and
    # levels. Each draw scores with its own.
    made = 1 if shape.config.feature_forms == "plain" else -(-shape.n_rounds // shape.config.n_draws)
    return max(summarising, by_row + (made * operand_bytes(shape) if shape.scored else 0))


def sample_bytes(shape: Shape) -> int:
    """A sample of rows with all bins full. Before there are scores, only the most frequent class is right."""
    bins = 2 * shape.n_classes if shape.scored else shape.n_classes
    return SAMPLE_BYTES * min(bins * shape.grown_candidates, shape.n_rows)


def partials_bytes(shape: Shape, count: int) -> int:
    """So many partial results of a pass: gradients, or samples, which are no more than all rows together."""
    gradients = count * DOUBLE * (shape.most_candidates + shape.n_feature_weights + 8)
    return max(gradients, min(count * sample_bytes(shape), SAMPLE_BYTES * shape.n_rows))


def working_parts(shape: Shape, processes: Processes) -> tuple[Part, ...]:
    """What a process that runs tasks holds besides blocks."""
    threads = processes.threads
    problem = shape.most_candidates * DOUBLE * (shape.n_features + 4)
    # In this process all tasks share one set of operands; a worker's tasks make their own, from a problem that came
    # as bytes.
    operands = operand_bytes(shape) if processes.kind == "threads" else threads * operand_bytes(shape) + problem
    nodes = shape.layout.n_blocks.bit_length()
    # With the candidates that are left, or the few that a round begins with, beside that with all of them.
    few = arranged_bytes(shape) if shape.grows else 0
    other = problem + few if shape.finished or shape.grows else 0
    merging = threads * SORTING_COPIES * sample_bytes(shape) + partials_bytes(shape, threads * nodes)
    taken = shape.most_candidates * shape.row_bytes  # rows taken by all tasks together
    return (
        Part("arrays by row", threads * row_array_bytes(shape)),
        Part("tiles of the kernel", threads * tile_bytes(shape)),
        Part("candidates and kernel operands", problem + operands + other),
        Part("partial results of tasks", merging + taken),
    )


def driving_parts(shape: Shape, processes: Processes) -> tuple[Part, ...]:
    """What the process that drives the training holds."""
    candidates, features = shape.most_candidates, shape.n_features
    drawn = candidates * ((4 if shape.finished else 3) * shape.row_bytes + DOUBLE * (features + 8))
    merging = MERGING_VECTORS * DOUBLE * candidates * (features + 4)
    knots = 0 if shape.config.feature_forms == "plain" else 2 * MOST_KNOTS
    pairs = MOST_DIFFERENCES if shape.config.feature_forms == "all" else 0
    models = shape.n_rounds * DOUBLE * (candidates * (features + pairs + 4) + (4 + knots) * shape.n_feature_weights)
    sent = 0
    if processes.kind == "workers":
        sent = SENT_COPIES * DOUBLE * candidates * (features + 4)
    partials = partials_bytes(shape, most_partials(processes, shape.layout.n_blocks))
    return (
        Part("learning forms of features", learning_bytes(shape)),
        Part("drawing and merging candidates", drawn + merging + models + sent),
        Part("partial results of a pass", partials + SORTING_COPIES * sample_bytes(shape)),
        Part("solver and log", SOLVER_VECTORS * DOUBLE * (candidates + shape.n_feature_weights)),
    )


def learning_bytes(shape: Shape) -> int:
    """What it takes to learn the forms of features, and whether there are regions, from a sample of rows."""
    if shape.config.feature_forms == "plain":
        return 0
    # Rows of the sample as they are stored, once more as float64 by column, and what sorts a column.
    found = shape.sampled_rows * (3 * shape.row_bytes + 16 * DOUBLE)
    if shape.config.feature_forms == "all":  # the sample as float64, and what is said of each pair
        compared = min(shape.row_features, MOST_COMPARED)
        found += DOUBLE * compared * (shape.sampled_rows + 8 * compared)
    return max(found, shape.sampled_rows * shape.row_bytes + judging_bytes(shape))


def judging_bytes(shape: Shape) -> int:
    """What the trees take that say whether there are regions."""
    rows, features = shape.judged_rows, shape.row_features
    classes = min(shape.n_classes, MOST_CELLS // (features * MOST_BINS))  # of the sample; of more there are no trees
    of_rows = rows * (features * (JUDGING_BYTES + 2 * shape.feature_bytes) + JUDGING_ROW_BYTES)
    return of_rows + (SPLITTING_BYTES * features * MOST_BINS * classes if rows else 0)


def stepping_part(shape: Shape, processes: Processes) -> Part:
    """What the driver of a cluster holds to take small steps: the rows, and a tile for each of its threads."""
    if not shape.staged_bytes:
        return Part("rows to begin on", 0)
    computing = stepping_threads(processes) * staged_tile_bytes(shape) + operand_bytes(shape)
    return Part("rows to begin on", max(shape.taking_bytes, stepping_bytes(shape) + computing))


def stepping_bytes(shape: Shape) -> int:
    """Of the rows that small steps are taken on, and what the problem of those held out keeps."""
    return shape.staged_bytes + arranged_bytes(shape)


def staged_tile_bytes(shape: Shape) -> int:
    """A thread's tile for a small step."""
    return tile_bytes(replace(shape, layout=replace(shape.layout, block_rows=STAGE_BLOCK_ROWS)))


def memory_of(shape: Shape, processes: Processes, stored: bool) -> tuple[Memory, Memory]:
    """What a process that computes and the driver hold at their peaks: the same, if they are one process. `stored` says
    where the scores between batches are.
    """
    row_bytes = streamed_row_bytes(shape, stored)
    block_bytes = shape.block_rows * row_bytes
    holding = holding_parts(processes, block_bytes, min(MAX_CHUNK_BYTES, block_bytes), shape.n_rows * row_bytes)
    resident = 0 if stored else shape.score_bytes
    working, driving = working_parts(shape, processes), driving_parts(shape, processes)
    if processes.kind == "threads":
        scores = Part("scores of earlier batches", RESIDENT_COPIES * resident)
        # They are taken when no row is evaluated.
        taking = shape.taking_bytes - sum(part.bytes for part in working)
        # A step of one block is taken in the thread of the fit, beside those that look at all rows afterwards.
        stepping = stepping_bytes(shape) + staged_tile_bytes(shape) if shape.staged_bytes else 0
        staged = Part("rows to begin on", max(stepping, taking))
        both = Memory((*holding[:-1], *working, *driving, scores, staged, holding[-1]))
        return both, both
    sent = Part("scores of earlier batches", (RESIDENT_COPIES + 1) * resident)
    received = Part("scores of earlier batches", 2 * resident)  # as bytes, and as they are
    driver = (Part("Python and its libraries", INTERPRETER_BYTES), *driving, sent, stepping_part(shape, processes))
    return Memory((*holding[:-1], *working, received, holding[-1])), Memory(driver)


def within_limits(shape: Shape, processes: Processes, stored: bool) -> bool:
    """Whether every process keeps its limit."""
    worker, driver = memory_of(shape, processes, stored)
    within = worker.total <= processes.usable_bytes
    return within and (processes.kind == "threads" or driver.total <= processes.driver_bytes)


def scores_stored(shape: Shape, processes: Processes) -> bool:
    """Whether the scores between batches go into a store: where they are many or, in this process, where the rest fits
    only without them. The workers of a cluster may not reach every place.
    """
    if shape.score_bytes > processes.resident_bytes:
        return True
    return processes.kind == "threads" and not within_limits(shape, processes, stored=False)


def fits(shape: Shape, processes: Processes) -> bool:
    """Whether every process keeps its limit, with the scores where they go."""
    return within_limits(shape, processes, scores_stored(shape, processes))


def most_together(shape: Shape, processes: Processes) -> int:
    """Fits that may advance together: each beyond the first brings its own candidates, operands, scores and partials.

    The tiles and the arrays by row are those of the fit at hand; a fit that waits for its turn holds none. The scores
    of many fits may be stored where those of one would not be: then a block that is read brings the scores of all.
    """
    stored = scores_stored(shape, processes)
    worker, driver = memory_of(shape, processes, stored)
    scores = 0 if stored else shape.score_bytes
    reading = BLOCKS_AT_WORK * processes.threads * shape.block_rows * shape.score_row_bytes
    driving = sum(part.bytes for part in driving_parts(shape, processes))
    driving += RESIDENT_COPIES * scores + max(shape.taking_bytes, stepping_part(shape, processes).bytes)
    computing = sum(part.bytes for part in working_parts(shape, processes)[2:])
    if processes.kind == "threads":
        return 1 + max(0, processes.usable_bytes - worker.total) // (driving + processes.threads * computing + reading)
    more_here = max(0, processes.driver_bytes - driver.total) // driving
    received = 2 * scores
    more_there = max(0, processes.usable_bytes - worker.total) // (computing + reading + received)
    return 1 + min(more_here, more_there)


def read_bytes(shape: Shape, processes: Processes) -> tuple[int, int]:
    """Bytes that a pass reads from storage: the first, and each after it."""
    row_bytes = streamed_row_bytes(shape, scores_stored(shape, processes))
    kept = kept_blocks(processes, shape.layout.n_blocks, shape.block_rows * row_bytes)
    every = shape.n_rows * row_bytes
    return every, max(0, every - kept * shape.layout.block_rows * row_bytes)
