"""Running pipelines."""

from pathlib import Path

import pytest

from protodask.engine import Engine, thread_engine
from protodask.errors import InputError, OutputExistsError, StorageError
from protodask.pipeline.definition import Pipeline
from protodask.pipeline.results import DatasetWritten, ModelEvaluated, ModelFitted, PredictionsWritten
from protodask.pipeline.runner import run_pipeline
from protodask.pipeline.steps import EvaluateStep, FitStep, IngestStep, PredictStep, SampleDataStep, Step


@pytest.fixture(scope="module")
def engine() -> Engine:
    return thread_engine(threads=1)


def _pipeline(*steps: Step) -> Pipeline:
    return Pipeline("example.yaml", "", {}, steps)


def test_run__every_step(engine: Engine, tmp_path: Path) -> None:
    data, model = str(tmp_path / "data"), str(tmp_path / "model")
    table = tmp_path / "table.csv"
    table.write_text("x0,x1,class\n0.1,0.2,0\n0.3,0.4,1\n")
    started: list[int] = []
    results = run_pipeline(
        _pipeline(
            SampleDataStep("checker", 400, data),
            IngestStep((str(table),), str(tmp_path / "ingested"), target="class"),
            FitStep(data, model, candidates=20, tolerance=1e-3),
            EvaluateStep(str(tmp_path / "ingested"), model),
            PredictStep(model, str(table), str(tmp_path / "predictions")),
        ),
        engine,
        started=lambda number, step: started.append(number),
    )
    assert [type(result) for result in results] == [
        DatasetWritten,
        DatasetWritten,
        ModelFitted,
        ModelEvaluated,
        PredictionsWritten,
    ]
    assert started == [1, 2, 3, 4, 5]
    assert isinstance(results[3], ModelEvaluated)
    assert results[3].scores.scores.rows == 2


def test_run__checks_all_steps_before_the_first(engine: Engine, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    pipeline = _pipeline(SampleDataStep("checker", 10, data), FitStep(data, "model", lambda_v=-1.0))
    with pytest.raises(InputError, match=r"step 2 \(fit\).*Penalties must be finite and not negative"):
        run_pipeline(pipeline, engine)
    assert list(tmp_path.iterdir()) == []


def test_run__a_failing_step_is_named_and_ends_the_run(engine: Engine, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    pipeline = _pipeline(
        SampleDataStep("checker", 10, data),
        FitStep(str(tmp_path / "other"), str(tmp_path / "model")),
        SampleDataStep("checker", 10, str(tmp_path / "more")),
    )
    with pytest.raises(StorageError, match=r"example.yaml, step 2 \(fit\): There is nothing at .*other"):
        run_pipeline(pipeline, engine)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_run__existing_output_advises_what_a_file_can_say(engine: Engine, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    run_pipeline(_pipeline(SampleDataStep("checker", 10, data)), engine)
    with pytest.raises(OutputExistsError, match="`overwrite: true`"):
        run_pipeline(_pipeline(SampleDataStep("checker", 10, data)), engine)
    run_pipeline(_pipeline(SampleDataStep("checker", 10, data, overwrite=True)), engine)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "mine.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="remove it yourself"):
        run_pipeline(_pipeline(SampleDataStep("checker", 10, str(tmp_path / "text"), overwrite=True)), engine)
    assert (tmp_path / "text" / "mine.txt").read_text() == "mine"
