"""The step that calibrates, in a pipeline."""

from pathlib import Path

import pytest
from support.errors import refused
from support.pipelines import results_of

from protodask.data import sample_data
from protodask.engine import thread_engine
from protodask.pipeline.file.definition import read_pipeline
from protodask.pipeline.steps.base import describe_step
from protodask.pipeline.steps.calibrate import CalibrateStep, ModelCalibrated
from protodask.pipeline.steps.evaluate import ModelEvaluated
from protodask.pipeline.steps.predict import PredictionsWritten
from protodask.prototypes import load_model

PIPELINE = """
state: {folder}/state
steps:
  - fit: {{data: {folder}/train.zarr, out: {folder}/model.zarr, candidates: 60, tolerance: 0.001, recipe: source}}
  - calibrate:
      model: {folder}/model.zarr
      data: {folder}/other.zarr
      out: {folder}/calibrated.zarr
      bins: 6
      monotone: true
  - evaluate: {{model: {folder}/model.zarr, data: {folder}/test.zarr}}
  - evaluate: {{model: {folder}/calibrated.zarr, data: {folder}/test.zarr, calibrated: true}}
  - predict: {{model: {folder}/calibrated.zarr, data: {folder}/test.zarr, out: {folder}/p.zarr, calibrated: true}}
"""


@pytest.mark.slow
def test_calibrate__in_a_pipeline(tmp_path: Path) -> None:
    for seed, name in enumerate(("train", "other", "test")):
        sample_data("checker", 1500, tmp_path / f"{name}.zarr", seed=seed)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(folder=tmp_path))
    pipeline = read_pipeline(str(tmp_path / "pipeline.yaml"), {})
    assert describe_step(pipeline.steps[1]).startswith("calibrate, ")
    with thread_engine(2) as engine:
        _, made, plain, better, written = results_of(pipeline, engine)
    assert isinstance(made, ModelCalibrated)
    assert made.notes == ()
    assert made.describe()["calibration"]["bins"] == 6
    assert isinstance(plain, ModelEvaluated)
    assert isinstance(better, ModelEvaluated)
    # Few candidates leave the model too cautious: on rows of neither, the splines mend that.
    assert better.scores.scores.log_loss < plain.scores.scores.log_loss
    assert isinstance(written, PredictionsWritten)
    assert written.calibrated
    provenance = load_model(tmp_path / "calibrated.zarr").provenance
    assert set(provenance) == {"fits", "calibration"}
    assert provenance["calibration"]["dataset"] is not None


def test_check__refuses_settings_before_anything_is_read() -> None:
    with refused("bad-setting", "bins", 0):
        CalibrateStep("m", "d", "o", bins=0).check()
