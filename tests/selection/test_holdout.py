from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protodask.data.arrays.keyed import dealt
from protodask.engine import Block, Engine, Source, array_source, zip_sources
from protodask.prototypes.batches import Batch
from protodask.prototypes.draws import HoldOut, without_fold
from protodask.prototypes.folds import folded_source, make_folds
from protodask.prototypes.rounds import marginal_loss
from protodask.selection.holdout import HELD_OUT_LOSS, HELD_OUT_RIGHT, JUDGED

Arrays = dict[str, NDArray[Any]]

BATCH = Batch(
    feature_index=np.array([0, 2]),
    feature_weight=np.array([1.5, 0.25]),
    center=np.array([1.0, 0.5]),
    scale=np.array([0.5, 2.0]),
    prototypes=np.array([[0.5, 0.5], [1.5, 0.25], [2.5, 0.75]]),
    prototype_class=np.array([0, 1, 2]),
    prototype_weight=np.array([2.0, 1.0, 0.5]),
    row=np.array([3, 14, 15]),
)
MARGINALS = np.array([0.5, 0.3, 0.2])


def test_hold_out__splits_the_weight_of_every_row() -> None:
    arrays: Arrays = {
        "target": np.array([0, 1, 0], dtype=np.int32),
        "weight": np.array([2.0, 3.0, 5.0]),
        "inclusion": np.array([0.5, 1.0, 0.25]),
        "fold": np.array([0, 1, 1], dtype=np.int8),
    }
    seen = HoldOut(1, JUDGED)(Block(2, 6, arrays))
    assert (seen.number, seen.start) == (2, 6)
    assert seen["weight"].tolist() == [4.0, 0.0, 0.0]
    assert seen[JUDGED].tolist() == [0.0, 3.0, 20.0]
    assert set(seen.arrays) == {"target", "weight", JUDGED}


def test_hold_out__counts_rows_where_there_are_no_weights() -> None:
    arrays: Arrays = {"target": np.zeros(3, dtype=np.int32), "fold": np.array([0, 1, 2], dtype=np.int8)}
    seen = HoldOut(0, JUDGED)(Block(0, 0, arrays))
    assert seen["weight"].tolist() == [0.0, 1.0, 1.0]
    assert seen[JUDGED].tolist() == [1.0, 0.0, 0.0]


def hold_out(engine: Engine, rows: Arrays, scored: bool) -> tuple[Source, NDArray[np.float64], NDArray[np.int64]]:
    """The rows with a fold held out, the scores of all rows before the batch, and the rows of the fold."""
    source = array_source(rows, 64)
    folds = make_folds(engine, source, 3, 4, seed=1)
    fold_of = np.concatenate([folds.folds(source.read(number)) for number in range(source.layout.n_blocks)])
    held = without_fold(folded_source(source, folds), 2, JUDGED)
    before = np.tile(MARGINALS, (len(fold_of), 1))
    if scored:
        before = np.random.default_rng(0).uniform(size=(len(fold_of), 3))
        held = zip_sources(held, array_source({"scores": before}, 64))
    return held, before, np.flatnonzero(fold_of == 2)


def scores_of(rows: Arrays, row: int, before: NDArray[np.float64], batch: Batch | None) -> NDArray[np.float64]:
    """Unscaled probabilities of one row after a batch, by the formula."""
    scores = before.copy()
    for j in range(0 if batch is None else 3):
        z = (rows["features"][row, [0, 2]].astype(float) - BATCH.prototypes[j]) / BATCH.scale
        kernel = np.exp(-0.5 * np.sum((BATCH.feature_weight * z) ** 2))
        scores[BATCH.prototype_class[j]] += BATCH.prototype_weight[j] * kernel
    return scores


@pytest.mark.parametrize("scored", [False, True])
def test_held_out_loss__is_that_of_the_formula_on_the_rows_of_the_fold(
    engine: Engine, rows: Arrays, scored: bool
) -> None:
    held, before, held_out = hold_out(engine, rows, scored)
    found = engine.reduce(held, HELD_OUT_LOSS, (BATCH,), MARGINALS, "float64")
    total = weight = 0.0
    for row in held_out:
        scores = scores_of(rows, row, before[row], BATCH)
        s = rows["weight"][row] / rows["inclusion"][row]
        total -= s * np.log(scores[rows["target"][row]] / scores.sum())
        weight += s
    assert found.weight == pytest.approx(weight, rel=1e-12)
    assert found.mean == pytest.approx(total / weight, rel=1e-10)


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("batch", [BATCH, None])
def test_held_out_right__weighs_the_rows_of_the_fold_whose_most_probable_class_is_theirs(
    engine: Engine, rows: Arrays, scored: bool, batch: Batch | None
) -> None:
    held, before, held_out = hold_out(engine, rows, scored)
    found = engine.reduce(held, HELD_OUT_RIGHT, () if batch is None else (batch,), MARGINALS, "float64", 5)
    right = weight = heaviest = 0.0
    parts = np.zeros((2, 5))
    for row in held_out:
        scores = scores_of(rows, row, before[row], batch)
        s = rows["weight"][row] / rows["inclusion"][row]
        is_right = max(range(3), key=scores.__getitem__) == rows["target"][row]
        right += s * is_right
        weight += s
        heaviest = max(heaviest, s)
        parts[:, dealt(np.array([row]), 5)[0]] += s * is_right, s
    assert 0 < found.right < found.weight
    assert found.weight == pytest.approx(weight, rel=1e-12)
    assert found.right == pytest.approx(right, rel=1e-12)
    assert found.heaviest == pytest.approx(heaviest, rel=1e-12)
    assert found.parts == pytest.approx(parts, rel=1e-12)


def test_held_out_right__of_equally_probable_classes_takes_the_first(engine: Engine) -> None:
    arrays: Arrays = {"target": np.array([0, 1, 1], dtype=np.int32), JUDGED: np.array([1.0, 2.0, 0.0])}
    found = engine.reduce(array_source(arrays, 2), HELD_OUT_RIGHT, (), np.array([0.5, 0.5]), "float32", 2)
    assert (found.right, found.weight) == (1.0, 3.0)


def test_held_out_right__deals_out_whole_groups(engine: Engine) -> None:
    n_rows = 600
    arrays: Arrays = {
        "target": np.zeros(n_rows, dtype=np.int32),
        JUDGED: np.ones(n_rows),
        "group": np.random.default_rng(0).integers(0, 3, n_rows),
    }
    found = engine.reduce(array_source(arrays, 64), HELD_OUT_RIGHT, (), np.array([0.5, 0.5]), "float32", 64)
    assert sorted(found.parts[1][found.parts[1] > 0]) == sorted(np.bincount(arrays["group"]))


def test_marginal_loss__is_the_cross_entropy_of_the_class_shares() -> None:
    found = marginal_loss(np.array([6.0, 3.0, 1.0]), np.array([1.0, 1.0, 0.0]))
    assert found == pytest.approx(-(np.log(0.6) + np.log(0.3)) / 2, rel=1e-14)
