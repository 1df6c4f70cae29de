import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.errors import refused

from protodask import load_model, sample_data
from protodask.data import Dataset
from protodask.engine import Engine, thread_engine
from protodask.engine.threads import ThreadScheduler
from protodask.errors import InputError, StorageError
from protodask.evaluation import log_loss
from protodask.prototypes import FitConfig, fit
from protodask.prototypes.fitted import probabilities
from protodask.prototypes.footprint import Shape
from protodask.prototypes.runs import read_log
from protodask.selection import tuning as tuning_module
from protodask.selection.config import SearchConfig
from protodask.selection.results import as_rows, read_search
from protodask.selection.search import FoldStep, Limits, SearchEvent
from protodask.selection.tuning import TuneRun, draw_seeds, require_reach, tune

Arrays = dict[str, NDArray[Any]]

# Rounds end after some iterations, which are as good as many to tell bits apart.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

CONFIG = FitConfig.of("source", n_candidates=20, tolerance=1e-3, max_iterations=6, lambda_w=1e-3, seed=5)
SEARCH = SearchConfig(n_trials=3, lambda_v=(1e-3, 1e-1), n_folds=2, max_batches=2, tolerance=1e-2, n_draws=1)


def evaluations_on_record(run_dir: Path) -> int:
    """Entries of all logs below a run directory; the seal of each is that of its own run."""
    from protodask.prototypes.runs import RunDirectory

    found = 0
    for log in run_dir.rglob("*.log"):
        seal = RunDirectory.existing(str(log.parent)).seal_of(log.name)
        found += sum(1 for _ in read_log(str(log), seal))
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of the search that `expected` is of."""
    return tmp_path_factory.mktemp("finished") / "run"


@pytest.fixture(scope="module")
def expected(dataset: Dataset, finished: Path) -> TuneRun:
    """What one thread finds that keeps all it reads."""
    with thread_engine(1) as engine:
        return tune(dataset, CONFIG, SEARCH, finished, engine)


@pytest.mark.slow
def test_tune__fits_what_it_chose_to_all_rows(dataset: Dataset, engine: Engine, expected: TuneRun) -> None:
    run = expected
    chosen = run.search.trials[run.search.selected]
    config = replace(CONFIG, lambda_v=chosen.lambda_v, n_batches=chosen.n_batches)
    alone = fit(dataset, config, engine=engine)
    assert run.model.n_batches == chosen.n_batches
    assert run.model.provenance["fits"][-1]["config"] == config.as_dict()
    for one, other in zip(run.model.batches, alone.model.batches, strict=True):
        assert np.array_equal(one.prototype_weight, other.prototype_weight)
        assert np.array_equal(one.feature_weight, other.feature_weight)
    assert [trial.lambda_v for trial in run.search.trials if trial.n_batches == 1] == pytest.approx([1e-3, 1e-2, 1e-1])
    assert chosen.mean <= run.search.trials[run.search.best].mean + run.search.trials[run.search.best].standard_error


@pytest.mark.parametrize(("draws", "rule"), [(1, "half a standard error"), (2, "best")])
def test_tune__chooses_by_the_rule_for_its_draws(draws: int, rule: str, dataset: Dataset, engine: Engine) -> None:
    config = replace(CONFIG, n_draws=draws)
    found = tune(dataset, config, SearchConfig(n_trials=3, max_batches=1, n_folds=2, n_draws=1), engine=engine).search
    assert found.rule == rule
    assert (found.selected == found.best) or draws == 1


def test_tune__keeps_the_search_with_the_model(expected: TuneRun, tmp_path: Path) -> None:
    run = expected
    run.model.save(tmp_path / "model.zarr")
    assert read_search(load_model(tmp_path / "model.zarr")) == run.search
    assert len(as_rows(run.search)) == len(run.search.trials)


@pytest.mark.slow
def test_tune__in_two_stages_searches_penalties_and_then_batches(dataset: Dataset, engine: Engine) -> None:
    search = replace(
        SEARCH, strategy="two-stage", method="random", n_trials=4, rule="best", patience=9, lambda_w=(1e-4, 1e-2)
    )
    found = tune(dataset, CONFIG, search, engine=engine).search
    first = [trial for trial in found.trials if trial.stage == 1]
    second = [trial for trial in found.trials if trial.stage == 2]
    assert [trial.n_batches for trial in first] == [1] * 4
    assert len({(trial.lambda_v, trial.lambda_w) for trial in first}) == 4
    best = min(first, key=lambda trial: trial.mean)
    assert {(trial.lambda_v, trial.lambda_w) for trial in second} == {(best.lambda_v, best.lambda_w)}
    assert [trial.n_batches for trial in second] == [0, 1, 2]
    assert second[1].fold_losses == best.fold_losses
    assert found.trials[found.selected].stage == 2


def test_tune__in_two_stages_points_at_trials_of_the_second(
    dataset: Dataset, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[tuple[float, ...]] = [(0.7, 0.7), (0.5, 0.6), (0.49, 0.59)]

    def searched(
        engine: Engine, parts: Any, settings: Sequence[Any], config: FitConfig, limits: Limits, *_: Any, **__: Any
    ) -> list[list[tuple[float, ...]]]:
        assert config.tolerance == SEARCH.tolerance
        return [losses[: limits.max_batches + 1] for _ in settings]

    monkeypatch.setattr(tuning_module, "run_search", searched)
    found = tune(dataset, CONFIG, replace(SEARCH, strategy="two-stage", method="random"), engine=engine).search
    assert [(trial.stage, trial.n_batches) for trial in found.trials] == [*[(1, 1)] * 3, (2, 0), (2, 1), (2, 2)]
    assert (found.best, found.selected) == (5, 4)


@pytest.mark.parametrize("stop_after", [1, 7])
def test_tune__goes_on_where_it_was_interrupted(
    dataset: Dataset, engine: Engine, tmp_path: Path, expected: TuneRun, stop_after: int
) -> None:
    run_dir = tmp_path / "run"
    seen = 0

    def interrupt(event: SearchEvent) -> None:
        nonlocal seen
        seen += isinstance(event, FoldStep)
        if seen == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(dataset, CONFIG, SEARCH, run_dir, engine, listen=interrupt)
    before = evaluations_on_record(run_dir)
    assert before > 6
    run = tune(dataset, CONFIG, SEARCH, run_dir, engine)
    assert run.search == expected.search
    assert np.array_equal(run.model.batches[0].prototype_weight, expected.model.batches[0].prototype_weight)
    total = evaluations_on_record(run_dir)
    assert total > before
    # Once more: all that is asked for is on record.
    scheduler = CountingScheduler(2, 2**30)
    again = tune(dataset, CONFIG, SEARCH, run_dir, Engine(scheduler))
    assert again.search == expected.search
    assert evaluations_on_record(run_dir) == total
    assert "evaluate" not in scheduler.labels
    assert "hold out" not in scheduler.labels


class CountingScheduler(ThreadScheduler):
    """Notes what its passes are for, also those of the jobs that share it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.labels: list[str] = []

    def run(self, work: Any, groups: Any, advance: Any) -> Any:
        self.labels.append(work.label)
        return super().run(work, groups, advance)


def damage_logs(run_dir: Path) -> None:
    for log in run_dir.rglob("*.log"):
        log.write_bytes(log.read_bytes()[:-7])


def lose_candidates(run_dir: Path) -> None:
    for arrays in run_dir.rglob("*candidates.arrays"):
        arrays.unlink()


def lose_a_fit(run_dir: Path) -> None:
    shutil.rmtree(min((run_dir / "fits").iterdir()))


def exchange_records(run_dir: Path) -> None:
    first, second = sorted((run_dir / "fits").iterdir())[:2]
    for name in ("batch-1-float32.log", "batch-1-held-out.arrays"):
        shutil.copy(first / name, second / name)


def leave_scores(run_dir: Path) -> None:
    for fit_folder in (run_dir / "fits").iterdir():
        (fit_folder / "scores-0123456789abcdef.zarr").mkdir()


@pytest.mark.parametrize("damage", [damage_logs, lose_candidates, lose_a_fit, exchange_records, leave_scores])
def test_tune__computes_again_what_is_damaged_in_its_run_directory(
    dataset: Dataset, engine: Engine, tmp_path: Path, finished: Path, expected: TuneRun, damage: Callable[[Path], None]
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(finished, run_dir)
    damage(run_dir)
    assert tune(dataset, CONFIG, SEARCH, run_dir, engine).search == expected.search
    assert list(run_dir.rglob("scores-*")) == []


def test_tune__names_a_place_for_its_fits_that_is_no_folder(
    dataset: Dataset, engine: Engine, tmp_path: Path, expected: TuneRun, finished: Path
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(finished, run_dir)
    shutil.rmtree(run_dir / "fits")
    (run_dir / "fits").write_text("")
    with refused("unwritable", run_dir / "fits", kind=StorageError):
        tune(dataset, CONFIG, SEARCH, run_dir, engine)


def test_tune__says_what_failed_when_its_run_directory_is_removed(dataset: Dataset, tmp_path: Path) -> None:
    def remove(event: SearchEvent) -> None:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    with thread_engine(2, 2**20) as small, refused("unwritable", tmp_path / "run", kind=StorageError):
        tune(dataset, CONFIG, SEARCH, tmp_path / "run", small, listen=remove)


def test_tune__of_another_dataset_at_the_same_place_is_refused(
    rows: Arrays, engine: Engine, write_rows: Callable[..., Dataset], tmp_path: Path
) -> None:
    def interrupt(event: SearchEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(write_rows(rows, tmp_path / "d.zarr"), CONFIG, SEARCH, tmp_path / "run", engine, listen=interrupt)
    shutil.rmtree(tmp_path / "d.zarr")
    other = {name: array[::-1].copy() for name, array in rows.items()}
    with refused("other-run", tmp_path / "run", "dataset"):
        tune(write_rows(other, tmp_path / "d.zarr"), CONFIG, SEARCH, tmp_path / "run", engine)


def test_tune__refuses_a_dict_of_settings(dataset: Dataset, engine: Engine) -> None:
    settings: Any = {"n_batches": 1}
    with refused("wrong-type", "A dict is given for a FitConfig", "FitConfig(**settings)"):
        tune(dataset, settings, SEARCH, engine=engine)
    with refused("wrong-type", "A dict is given for a SearchConfig", "SearchConfig(**settings)"):
        tune(dataset, CONFIG, settings, engine=engine)
    with refused("wrong-type", "A dict is given for a FitConfig", "FitConfig(**settings)"):
        fit(dataset, settings, engine=engine)


@pytest.mark.slow
def test_tune__chooses_the_same_in_step_without_a_cache_and_leaves_nothing_behind(
    dataset: Dataset, expected: TuneRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: set[str] = set()

    def look(event: SearchEvent) -> None:
        seen.update(place.name.partition("-")[0] for place in tmp_path.rglob("scores-*"))

    with thread_engine(2, 2**20) as small:  # nothing is kept, so that all fits share their passes
        assert small.scheduler.processes().cache_bytes == 0
        found = tune(dataset, CONFIG, SEARCH, engine=small, listen=look)
    assert found.search == expected.search
    assert seen == {"scores"}, "else there was nothing to leave behind"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_tune__chooses_the_same_on_a_cluster(dataset: Dataset, expected: TuneRun, cluster: Engine) -> None:
    found = tune(dataset, CONFIG, SEARCH, engine=cluster)
    assert found.search == expected.search


@pytest.mark.slow  # a cluster for a path that few searches take, beside the one above
def test_tune__chooses_the_same_on_a_cluster_that_stores_scores(
    dataset: Dataset, expected: TuneRun, cluster: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodask.engine.scheduling.SHIPPED_BYTES", 0)
    stored = 0

    def look(event: SearchEvent) -> None:
        nonlocal stored
        stored += len(list((tmp_path / "run" / "fits").rglob("scores-*")))

    found = tune(dataset, CONFIG, SEARCH, tmp_path / "run", cluster, listen=look)
    assert found.search == expected.search
    assert stored > 0
    assert list((tmp_path / "run" / "fits").rglob("scores-*")) == []


def test_require_reach__refuses_a_folder_that_is_not_there(engine: Engine, tmp_path: Path) -> None:
    require_reach(engine, str(tmp_path))
    with refused("not-found", tmp_path / "elsewhere", "workers"):
        require_reach(engine, str(tmp_path / "elsewhere"))


def test_tune__refuses_a_run_directory_of_other_settings(
    dataset: Dataset, engine: Engine, expected: TuneRun, finished: Path
) -> None:
    before = evaluations_on_record(finished)
    with refused("other-run", finished, "n_folds"):
        tune(dataset, CONFIG, replace(SEARCH, n_folds=4), finished, engine)
    assert evaluations_on_record(finished) == before


def test_tune__refuses_folds_that_a_class_is_too_rare_for(
    rows: Arrays, engine: Engine, write_rows: Callable[..., Dataset], tmp_path: Path
) -> None:
    few = {name: array[:40].copy() for name, array in rows.items()}
    few["target"][:] = np.arange(40) % 2
    few["target"][:4] = 2
    few["weight"][:] = 1.0
    with refused("too-few", "Class 2", "4 rows", "5 folds"):
        tune(write_rows(few, tmp_path / "few.zarr"), CONFIG, SearchConfig(n_trials=1), engine=engine)


def test_tune__keeps_the_draw_that_fits_all_rows_best(
    dataset: Dataset, rows: Arrays, engine: Engine, tmp_path: Path
) -> None:
    search = replace(SEARCH, n_trials=1, lambda_v=(1e-2, 1e-2), n_draws=3, max_batches=1)
    run = tune(dataset, CONFIG, search, tmp_path / "run", engine)
    draws = run.search.draws
    assert [draw.seed for draw in draws] == draw_seeds(CONFIG.seed, 3)
    assert draws[0].seed == CONFIG.seed
    features, target = rows["features"], rows["target"]
    weight = rows["weight"] / rows["inclusion"]
    models = {}
    for draw in draws:
        config = replace(CONFIG, lambda_v=1e-2, n_batches=run.model.n_batches, seed=draw.seed)
        model = models[draw.seed] = fit(dataset, config, engine=engine).model
        loss = log_loss(probabilities(model.scores(features, [model.n_batches])[0]), target, weight=weight)
        assert draw.log_loss == pytest.approx(loss, rel=1e-9)
    final = models[run.search.seed or 0]
    assert np.array_equal(final.batches[0].row, run.model.batches[0].row)
    assert np.array_equal(final.batches[0].prototype_weight, run.model.batches[0].prototype_weight)
    assert run.search.seed == min(draws, key=lambda draw: draw.log_loss).seed
    assert read_search(run.model) == run.search
    assert {place.name for place in (tmp_path / "run" / "refit").iterdir()} == {f"draw-{draw.seed}" for draw in draws}


def test_draw_seeds__begin_with_the_one_asked_for_and_can_be_more() -> None:
    assert draw_seeds(5, 1) == [5]
    assert draw_seeds(5, 6)[:3] == draw_seeds(5, 3)
    assert len(set(draw_seeds(5, 100)) | set(draw_seeds(6, 100))) == 200
    assert all(0 <= seed < 2**31 for seed in draw_seeds(5, 100))


def test_search_config__draws_several_times_where_rows_are_few() -> None:
    assert [SearchConfig().draws(rows) for rows in (100, 10_000, 10_001)] == [5, 5, 1]
    assert SearchConfig(n_draws=2).draws(10**9) == 2


def test_tune__that_could_not_fit_what_it_chooses_is_refused_before_it_searches(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sample_data("blobs", 300, tmp_path / "d.zarr")
    asked: list[Shape] = []

    def refuse_the_last(shape: Shape, _: Engine) -> None:
        asked.append(shape)
        if shape.n_rounds > 4:
            raise InputError("over-memory", "Too much.", "Take less.")

    monkeypatch.setattr(tuning_module, "require_shape", refuse_the_last)
    with refused("over-memory"):
        tune(data, FitConfig(n_candidates=20, n_draws=3), SearchConfig(max_batches=4), engine=engine)
    assert [(shape.n_rounds, shape.config.n_draws) for shape in asked] == [(4, 1), (12, 3)]
