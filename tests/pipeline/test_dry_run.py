"""What a run would do."""

from pathlib import Path

import pytest
from support.pipelines import results_of, run_steps, written_pipeline

from protodask.engine import Engine, thread_engine
from protodask.errors import InputError
from protodask.pipeline.state.dry_run import dry_run
from protodask.pipeline.state.runner import Part
from protodask.pipeline.work.settings import plan_step

TEXT = """
steps:
  - {name: rows, sample-data: {kind: checker, rows: 400, out: "${folder}/d.zarr"}}
  - {name: model, fit: {data: "${rows}", out: "${folder}/m.zarr", candidates: 20, tolerance: 0.01}}
  - {name: scores, evaluate: {data: "${rows}", model: "${model}", out: "${folder}/s.json"}}
  - {name: good, gate: {results: "${scores}", limits: {accuracy: {least: 1.5}}}}
  - {name: guesses, predict: {data: "${rows}", model: "${model}", out: "${folder}/p.zarr"}}
"""


@pytest.fixture(scope="module")
def engine() -> Engine:
    return thread_engine(threads=1)


def test_dry_run__says_what_is_stale_and_what_follows_from_it(engine: Engine, tmp_path: Path) -> None:
    pipeline = written_pipeline(tmp_path, TEXT)
    before = dry_run(pipeline)
    assert [plan.verdict for plan in before] == ["to do"] * 5
    assert {path.name for path in tmp_path.iterdir()} == {"pipeline.yaml"}  # nothing was done, and nothing noted
    outcome = run_steps(pipeline, engine)
    assert outcome.status == "refused"
    after = dry_run(pipeline)
    assert [plan.verdict for plan in after] == ["fresh", "fresh", "fresh", "refused", "left out"]
    assert "accuracy" in after[3].why
    (tmp_path / "d.zarr").rename(tmp_path / "away")
    gone = dry_run(pipeline, estimate=lambda step: plan_step(step, engine))
    assert [plan.verdict for plan in gone] == ["to do", "to do", "to do", "depends", "to do"]
    assert gone[0].why.endswith("d.zarr is gone")
    assert (gone[3].why, gone[4].why) == ("after scores", "it was never done")
    assert gone[0].cost.source == "last time"
    assert gone[0].cost.seconds == outcome.steps[0].seconds


def test_dry_run__costs_of_a_fit_are_planned(engine: Engine, tmp_path: Path) -> None:
    first = written_pipeline(tmp_path, "\n".join(TEXT.splitlines()[:4]))
    results_of(first, engine)
    stale = written_pipeline(tmp_path, TEXT.replace("candidates: 20", "candidates: 30"))
    (_, plan, *_) = dry_run(stale, estimate=lambda step: plan_step(step, engine))
    assert plan.why == "its setting candidates has changed"
    assert plan.cost.source == "estimate"
    assert plan.cost.seconds is not None
    assert plan.cost.seconds > 0
    assert plan.cost.memory_bytes is not None
    assert plan.cost.memory_bytes > 2**20
    assert plan.describe()["seconds_from"] == "estimate"


def test_dry_run__of_a_part(engine: Engine, tmp_path: Path) -> None:
    pipeline = written_pipeline(tmp_path, TEXT)
    plans = dry_run(pipeline, Part(3, forced=True))
    assert [plan.verdict for plan in plans] == ["left out", "left out", "to do", "to do", "to do"]
    assert [plan.why for plan in plans[:1]] == ["it was not asked for"]
    with pytest.raises(InputError):
        written_pipeline(tmp_path, "steps: []")
