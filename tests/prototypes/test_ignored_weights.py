"""Training that leaves the weights of a dataset aside: to the last bit that of the same rows without them."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.commands import run_command
from support.errors import refused

from protodask import FitConfig, SearchConfig, fit, load_model, tune
from protodask.data import Column, Dataset, write_dataset
from protodask.data.format.summary import summarize_block
from protodask.engine import Block, Engine, array_source
from protodask.engine.progress import Progress
from protodask.prototypes.candidates import allocate
from protodask.prototypes.fitting import FitRun, training_data
from protodask.prototypes.footprint import row_array_bytes, shape_of
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.planning import plan
from protodask.prototypes.runs import read_run

Arrays = dict[str, NDArray[Any]]

# Rounds end after some iterations, which are as good as many to tell bits apart.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

WEIGHTED = FitConfig.of("source", n_batches=2, n_candidates=20, max_iterations=5)
UNWEIGHTED = replace(WEIGHTED, weighted=False)
SEARCH = SearchConfig(n_trials=2, lambda_v=(1e-3, 1e-2), n_folds=2, max_batches=1, tolerance=1e-3, n_draws=2)
BLOCK_ROWS = 64

COLUMNS_OF_WEIGHTS = (("weight",), ("inclusion",), ("weight", "inclusion"))


def make_arrays(n_rows: int = 300) -> Arrays:
    """Rows of which a third weigh nothing and some far more than the others: with weights, all would be different."""
    rng = np.random.default_rng(n_rows)
    features = rng.uniform(size=(n_rows, 3)).astype(np.float32)
    squares = np.floor(3 * features[:, 0]) + np.floor(2 * features[:, 1])
    weight = rng.integers(0, 3, n_rows) * 0.75
    weight[:3] = 1e4
    return {
        "features": features,
        "target": (squares % 2).astype(np.int32),
        "weight": weight,
        "inclusion": rng.uniform(0.01, 1, n_rows),
        "group": np.arange(n_rows) // 3,
    }


def written(arrays: Arrays, path: Path, *names: str) -> Dataset:
    kept = {name: arrays[name] for name in ("features", "target", *names)}
    columns = tuple(Column(f"x{position}") for position in range(kept["features"].shape[1]))
    source = array_source(kept, BLOCK_ROWS)
    return write_dataset(source, path, classes=("no", "yes"), columns=columns, block_rows=BLOCK_ROWS)


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    return make_arrays()


@pytest.fixture(scope="module")
def heavy(arrays: Arrays, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """With weights, inclusion probabilities and groups."""
    return written(arrays, tmp_path_factory.mktemp("heavy") / "data", "weight", "inclusion", "group")


@pytest.fixture(scope="module")
def plain(arrays: Arrays, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The same rows and groups."""
    return written(arrays, tmp_path_factory.mktemp("plain") / "data", "group")


def assert_same(run: FitRun, other: FitRun) -> None:
    """All that was computed, on the way and in the end."""
    assert model_fingerprint(run.model) == model_fingerprint(other.model)
    for one, two in zip(run.history, other.history, strict=True):
        assert one.values == two.values
        assert np.array_equal(one.candidates, two.candidates)


def passes(engine: Engine) -> tuple[Engine, list[str]]:
    """The engine, and a list that gets the label of each of its passes."""
    labels: list[str] = []

    def listen(progress: Progress) -> None:
        if progress.finished:
            labels.append(progress.label)

    return engine.with_progress(listen), labels


@pytest.mark.parametrize(("names", "standardize"), list(zip(COLUMNS_OF_WEIGHTS, [True, True, False], strict=True)))
def test_fit__without_weights_is_that_of_rows_that_have_none(
    names: tuple[str, ...], standardize: bool, arrays: Arrays, plain: Dataset, engine: Engine, tmp_path: Path
) -> None:
    config = replace(UNWEIGHTED, standardize=standardize)
    data = written(arrays, tmp_path / "data", *names)
    found = fit(data, config, engine=engine)
    assert_same(found, fit(plain, replace(config, weighted=True), engine=engine))
    assert found.model.provenance["fits"][0]["config"] == config.as_dict()


@pytest.mark.filterwarnings("ignore::protodask.prototypes.LargeWeightWarning")
def test_fit__with_weights_is_another_one(heavy: Dataset, engine: Engine) -> None:
    found = [fit(heavy, config, engine=engine).model for config in (WEIGHTED, UNWEIGHTED)]
    assert model_fingerprint(found[0]) != model_fingerprint(found[1])
    assert not np.array_equal(found[0].marginals, found[1].marginals)


def test_fit__without_weights_adds_batches_that_rows_without_them_would_add(
    heavy: Dataset, plain: Dataset, engine: Engine, tmp_path: Path
) -> None:
    start = fit(plain, replace(WEIGHTED, n_batches=1), engine=engine).model
    found = fit(heavy, replace(UNWEIGHTED, n_batches=1), tmp_path / "run", engine, start=start)
    assert_same(found, fit(plain, replace(WEIGHTED, n_batches=1), engine=engine, start=start))


@pytest.mark.parametrize("strategy", [pytest.param("joint", marks=pytest.mark.slow), "two-stage"])
def test_tune__without_weights_is_that_of_rows_that_have_none(
    strategy: Any, heavy: Dataset, plain: Dataset, engine: Engine, tmp_path: Path
) -> None:
    search = replace(SEARCH, strategy=strategy)
    watched, labels = passes(engine)
    found = tune(heavy, UNWEIGHTED, search, tmp_path / "run", watched)
    wanted = tune(plain, WEIGHTED, search, engine=engine)
    assert found.search == wanted.search
    assert len(found.search.draws) == 2
    assert model_fingerprint(found.model) == model_fingerprint(wanted.model)
    assert labels[0] == "summary"
    assert "summary" not in labels[labels.index("evaluate") :], "the fits share the statistics"


def test_statistics__without_weights_are_those_a_dataset_without_them_has(
    heavy: Dataset, plain: Dataset, engine: Engine
) -> None:
    found = training_data(heavy, UNWEIGHTED, engine)
    assert found.array_names == ("features", "target")
    for name, value in vars(plain.summary).items():
        assert np.array_equal(getattr(found.summary, name), value), name
    assert not np.array_equal(heavy.summary.mean, plain.summary.mean)


def test_training__of_rows_without_weights_takes_no_pass_for_statistics(plain: Dataset, engine: Engine) -> None:
    watched, labels = passes(engine)
    assert_same(fit(plain, UNWEIGHTED, engine=watched), fit(plain, WEIGHTED, engine=engine))
    assert "summary" not in labels
    assert training_data(plain, UNWEIGHTED, engine).source is plain


# Runs.


def test_run__keeps_the_statistics(heavy: Dataset, engine: Engine, tmp_path: Path) -> None:
    watched, labels = passes(engine)
    first = fit(heavy, UNWEIGHTED, tmp_path / "run", watched)
    assert labels.count("summary") == 1
    assert_same(fit(heavy, UNWEIGHTED, tmp_path / "run", watched), first)
    assert labels.count("summary") == 1
    (kept,) = (tmp_path / "run").glob("*summary*")
    kept.write_bytes(kept.read_bytes()[:-1])  # damaged, so that it is computed again
    assert_same(fit(heavy, UNWEIGHTED, tmp_path / "run", watched), first)
    assert labels.count("summary") == 2


@pytest.mark.filterwarnings("ignore::protodask.prototypes.LargeWeightWarning")
def test_run__with_weights_is_another_one(heavy: Dataset, engine: Engine, tmp_path: Path) -> None:
    with_weights, without = (replace(config, max_iterations=1) for config in (WEIGHTED, UNWEIGHTED))
    fit(heavy, with_weights, tmp_path / "with", engine)
    with refused("other-run", "config.weighted was not given and is False"):
        fit(heavy, without, tmp_path / "with", engine)
    fit(heavy, without, tmp_path / "without", engine)
    with refused("other-run", "config.weighted was False and is not given"):
        fit(heavy, with_weights, tmp_path / "without", engine)


def test_run__from_before_there_was_a_choice_goes_on(heavy: Dataset, plain: Dataset, tmp_path: Path) -> None:
    # What a run's record says of its settings is sealed: a name more, and nothing of an old run could be used.
    fit(plain, replace(WEIGHTED, n_batches=0), tmp_path / "run")
    assert list(read_run(str(tmp_path / "run"))["config"]) == [
        *("n_batches", "n_candidates", "max_fraction", "lambda_v", "lambda_w", "alpha_v", "alpha_w", "standardize"),
        *("precision", "tolerance", "max_iterations", "seed"),
    ]
    assert UNWEIGHTED.as_dict() == {**WEIGHTED.as_dict(), "weighted": False}
    assert FitConfig.of("source", **json.loads(json.dumps(UNWEIGHTED.as_dict()))) == UNWEIGHTED


# What it costs.


@pytest.mark.parametrize("names", [(), ("group",), *COLUMNS_OF_WEIGHTS])
def test_shape__counts_weights_that_are_read_and_left_aside(
    names: tuple[str, ...], arrays: Arrays, tmp_path: Path
) -> None:
    data = written(arrays, tmp_path / "data", *names)
    weights = len(set(names) - {"group"})
    found = [shape_of(data, config) for config in (WEIGHTED, UNWEIGHTED)]
    assert [shape.weight_columns for shape in found] == [weights, 0]
    assert [shape.unweighted for shape in found] == [False, weights > 0]
    assert [shape.row_bytes for shape in found] == [data.metadata.row_bytes] * 2
    assert [sum(shape.class_rows) for shape in found] == [data.summary.rows, data.n_rows]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=2, max_size=6),
    st.integers(1, 80),
    st.sampled_from([0.1, 0.5, 0.9]),
)
def test_largest_draw__is_bounded_with_all_rows_of_weight_zero_in_the_largest_class(
    rows: list[tuple[int, int]], wanted: int, share: float
) -> None:
    positive, all_rows = (np.array(one, dtype=np.int64) for one in zip(*((p, p + z) for p, z in rows), strict=True))
    supposed = positive.copy()
    supposed[supposed.argmax()] += (all_rows - positive).sum()
    drawn = allocate(all_rows, wanted, share).max()
    assert drawn <= allocate(supposed, wanted, share).max() + 1, "but for rounding, which is counted apart"


@pytest.mark.parametrize("n_features", [3, 400])
def test_footprint__holds_what_the_statistics_take(n_features: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    block: Arrays = {
        "features": rng.random((2048, n_features)).astype(np.float32),
        "target": (np.arange(2048) % 2).astype(np.int32),
        "weight": np.ones(2048),
    }
    data = write_dataset(
        array_source(block, 2048),
        tmp_path / "data",
        classes=("no", "yes"),
        columns=tuple(Column(f"x{position}") for position in range(n_features)),
        block_rows=2048,
    )
    rows = Block(0, 0, {name: block[name] for name in ("features", "target")})
    summarize_block(rows, 2)
    tracemalloc.start()
    try:
        summarize_block(rows, 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bound = row_array_bytes(shape_of(data, UNWEIGHTED))
    assert peak <= bound + 2**16
    if n_features == 400:
        assert row_array_bytes(shape_of(data, WEIGHTED)) < peak
        assert bound < 1.5 * peak


def test_plan__is_that_of_the_same_rows_and_bytes(heavy: Dataset, plain: Dataset, engine: Engine) -> None:
    found, wanted = (plan(data, UNWEIGHTED, engine, calibrate=False) for data in (heavy, plain))
    assert found.first_evaluation_bytes - wanted.first_evaluation_bytes == 16 * heavy.n_rows
    measured = plan(heavy, UNWEIGHTED, engine)
    assert measured.seconds is not None
    assert measured.seconds.evaluation > 0


# The commands. That of large weights nothing is said, above as well, is because a warning would be an error.


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def call(*arguments: object) -> dict[str, Any]:
        done = run_command(*arguments, "--json")
        assert done.exit_code == 0, done.output
        assert "largest weight" not in done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return call


@pytest.mark.slow
def test_commands__leave_weights_aside(
    heavy: Dataset, plain: Dataset, call: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "settings.yaml").write_text("weighted: false\n")
    options = ("--recipe", "source", "--candidates", 20, "--max-iterations", 5)
    out = tmp_path / "fit.zarr"
    call("fit", plain.path, "--out", out, *options)
    wanted = model_fingerprint(load_model(out))
    ways = {"option": ("--unweighted",), "file": ("--config", tmp_path / "settings.yaml")}
    for name, way in ways.items():
        call("fit", heavy.path, "--out", tmp_path / name, *options, *way)
        assert model_fingerprint(load_model(tmp_path / name)) == wanted, name
    search = (
        *("--trials", 2, "--folds", 2, "--max-batches", 1, "--draws", 1),
        *("--search-tolerance", 1e-3, "--lambda-v-range", 1e-3, 1e-2),
    )
    found = call("tune", heavy.path, "--out", tmp_path / "tuned.zarr", *options, *search, "--unweighted")
    same = call("tune", plain.path, "--out", tmp_path / "same.zarr", *options, *search)
    assert found["search"] == same["search"]
    assert call("plan", heavy.path, "--no-calibrate", "--unweighted")["fits"] is True


def test_pipeline__leaves_weights_aside(heavy: Dataset, plain: Dataset, tmp_path: Path) -> None:
    model = tmp_path / "model.zarr"
    step = {"data": heavy.path, "out": str(model), "recipe": "source", "candidates": 20, "max_iterations": 5}
    step["weighted"] = False
    (tmp_path / "pipeline.yaml").write_text(json.dumps({"steps": [{"fit": step}]}))
    done = run_command("run", tmp_path / "pipeline.yaml")
    assert done.exit_code == 0, done.output
    config = FitConfig.of("source", n_candidates=20, max_iterations=5)
    assert model_fingerprint(load_model(model)) == model_fingerprint(fit(plain, config).model)


def test_warning__names_the_option(heavy: Dataset, engine: Engine) -> None:
    config = replace(WEIGHTED, n_batches=0)
    with pytest.warns(UserWarning, match=r"train without weights \(weighted=False\)"):
        fit(heavy, config, engine=engine)
