"""Where scores are kept between batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask.data import Dataset, write_dataset
from protodask.data.format.schema import Column
from protodask.engine import Arrays, Block, Engine, array_source, thread_engine
from protodask.errors import FormatError, StorageError
from protodask.prototypes import FitConfig, fit, fitting, training
from protodask.prototypes.candidates import SCORES
from protodask.prototypes.fitting import dataset_for_training
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.scores import MemoryScores, ScoreKeeper, StoredScores
from protodask.prototypes.scoring import score_block
from protodask.prototypes.training import Training

MakeModel = Callable[..., PrototypeSet]

# Rounds end after some iterations, which are as good as many.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)


@pytest.fixture(params=["memory", "store"])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> ScoreKeeper:
    return MemoryScores() if request.param == "memory" else StoredScores(str(tmp_path), 3)


def test_keep__holds_the_scores_of_every_row(keeper: ScoreKeeper, engine: Engine, make_model: MakeModel) -> None:
    model, x = make_model(0), np.random.default_rng(0).normal(size=(100, 4))
    kept = keeper.keep(engine, array_source({"features": x}, 16), score_block, model)
    assert (kept.layout.n_rows, kept.layout.block_rows) == (100, 16)
    # Block by block: for other lengths a BLAS may round otherwise.
    for number in range(7):
        part = x[16 * number : 16 * (number + 1)]
        np.testing.assert_array_equal(kept.read(number)[SCORES], model.scores(part, [2])[0])


def add_one(block: Block) -> Arrays:
    return {SCORES: block[SCORES] + 1}


def zeros(block: Block) -> Arrays:
    return {SCORES: np.zeros((block.n_rows, 3))}


def test_keep__again_reads_the_last_and_leaves_only_the_new(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "batch-1-float32.log").write_text("not a score")
    keeper = StoredScores(str(tmp_path), 3)
    kept: Any = keeper.keep(engine, array_source({"features": np.zeros((40, 1))}, 8), zeros)
    keys = {kept.key}
    for turn in range(1, 4):
        kept = keeper.keep(engine, kept, add_one)
        keys.add(kept.key)
        assert (kept.read(4)[SCORES] == turn).all()
        assert sorted(path.name[:7] for path in tmp_path.iterdir()) == ["batch-1", "scores-"]
    assert len(keys) == 4, "a cache must not take one for the other"


def refuse_the_last_block(block: Block, model: PrototypeSet) -> Arrays:
    if block.number == 4:
        raise KeyboardInterrupt
    return score_block(block, model)


def test_training__interrupted_while_it_first_stores_scores_leaves_none(
    make_rows: Callable[..., dict[str, NDArray[Any]]], engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_small(make_rows(300, 1), tmp_path / "d.zarr")
    monkeypatch.setattr(training, "score_block", refuse_the_last_block)
    (tmp_path / "run").mkdir()
    config = FitConfig.of("source", n_batches=2, n_candidates=30, lambda_w=1e-3, max_iterations=5)
    scores = StoredScores(str(tmp_path / "run"), len(data.classes))
    with pytest.raises(KeyboardInterrupt):
        Training(dataset_for_training(data), config, engine, scores).run()
    assert list((tmp_path / "run").iterdir()) == []


def test_stored_scores__with_a_block_missing_or_damaged_are_refused(engine: Engine, tmp_path: Path) -> None:
    keeper = StoredScores(str(tmp_path), 3)
    kept = keeper.keep(engine, array_source({"features": np.zeros((40, 1))}, 8), zeros)
    (store,) = tmp_path.glob("scores-*.zarr")
    chunk = store / SCORES / "c" / "2" / "0"
    content = bytearray(chunk.read_bytes())
    content[3] ^= 1
    chunk.write_bytes(content)
    with refused("damaged", "block 2", kind=FormatError):
        kept.read(2)
    chunk.unlink()
    with refused("damaged", "block 2", kind=FormatError):
        kept.read(2)


def test_stored_scores__where_nothing_can_be_written_say_so(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keeper = StoredScores(str(tmp_path / "file"), 3)
    with refused("unwritable", tmp_path / "file", kind=StorageError):
        keeper.keep(engine, array_source({"features": np.zeros((8, 1))}, 8), zeros)


def test_fit__of_more_rows_than_fit_into_memory_gives_the_same_bits(
    make_rows: Callable[..., dict[str, NDArray[Any]]],
    assert_same_bits: Callable[[PrototypeSet, PrototypeSet], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = write_small(make_rows(300, 1), tmp_path / "d.zarr")
    config = FitConfig.of("source", n_batches=3, n_candidates=30, lambda_w=1e-3, max_iterations=5)
    chosen: list[ScoreKeeper] = []
    original = fitting.score_keeper

    def choose(*args: Any) -> ScoreKeeper:
        chosen.append(original(*args))
        return chosen[-1]

    monkeypatch.setattr(fitting, "score_keeper", choose)
    with thread_engine(1, 2**28) as roomy:
        held = fit(dataset, config, engine=roomy)
    with thread_engine(1, 10_000) as narrow:
        stored = fit(dataset, config, engine=narrow)
        fit(dataset, config, engine=narrow, run_dir=tmp_path / "run")
    assert [type(keeper) for keeper in chosen] == [MemoryScores, StoredScores, StoredScores]
    assert_same_bits(stored.model, held.model)


def write_small(rows: dict[str, NDArray[Any]], path: Path) -> Dataset:
    columns = tuple(Column(f"x{position}") for position in range(3))
    return write_dataset(array_source(rows, 64), path, classes=(0, 1), columns=columns, block_rows=64)
